"""Names for annotations: what functions take, and markers for `Tensor[Float32, Cpu, Rank2]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ember_ml.backend.contract import NativeArray
from ember_ml.dtypes import DTypeLike
from ember_ml.markers import (
    AnyDevice,
    AnyDType,
    AnyRank,
    BFloat16,
    Bool,
    Complex64,
    Complex128,
    Cpu,
    Cuda,
    DeviceMarker,
    DTypeMarker,
    Float16,
    Float32,
    Float64,
    Gpu,
    Int8,
    Int16,
    Int32,
    Int64,
    Mps,
    Rank0,
    Rank1,
    Rank2,
    Rank3,
    Rank4,
    Rank5,
    Rank6,
    Rank7,
    Rank8,
    RankMarker,
    Tpu,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Xpu,
)

if TYPE_CHECKING:
    from ember_ml.tensor.core import Tensor

__all__ = [
    "AnyDType",
    "AnyDevice",
    "AnyRank",
    "Axis",
    "BFloat16",
    "Bool",
    "Complex64",
    "Complex128",
    "Cpu",
    "Cuda",
    "DTypeLike",
    "DTypeMarker",
    "DeviceMarker",
    "Float16",
    "Float32",
    "Float64",
    "Gpu",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Mps",
    "NativeArray",
    "Numeric",
    "Rank0",
    "Rank1",
    "Rank2",
    "Rank3",
    "Rank4",
    "Rank5",
    "Rank6",
    "Rank7",
    "Rank8",
    "RankMarker",
    "Shape",
    "ShapeLike",
    "TensorLike",
    "Tpu",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Xpu",
]

Numeric: TypeAlias = int | float
Shape: TypeAlias = tuple[int, ...]
ShapeLike: TypeAlias = "int | Sequence[int] | Tensor"
Axis: TypeAlias = int | tuple[int, ...] | None
# A tensor, a native array of any engine, a NumPy array, a number or a nested list. Engines'
# arrays have no common type, so no union can be closed here.
TensorLike: TypeAlias = Any
