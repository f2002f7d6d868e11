"""Names for annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ember_ml.backend.contract import NativeArray
from ember_ml.dtypes import DTypeLike

if TYPE_CHECKING:
    from ember_ml.tensor.core import Tensor

__all__ = ["Axis", "DTypeLike", "NativeArray", "Numeric", "Shape", "ShapeLike", "TensorLike"]

Numeric: TypeAlias = int | float
Shape: TypeAlias = tuple[int, ...]
ShapeLike: TypeAlias = "int | Sequence[int] | Tensor"
Axis: TypeAlias = int | tuple[int, ...] | None
# A tensor, a native array of any engine, a NumPy array, a number or a nested list. Engines'
# arrays have no common type, so no union can be closed here.
TensorLike: TypeAlias = Any
