"""Markers of dtype, device and rank, for annotations such as `Tensor[Float32, Cpu, Rank2]`.

They are there for type checkers. At run time a marker is an empty class and `Tensor[...]` an
alias of Tensor, so that no call pays for them. What type checkers conclude from a marker, for
instance which rank lies below it, is in markers.pyi.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Any

__all__ = [
    "AnyDType",
    "AnyDevice",
    "AnyRank",
    "BFloat16",
    "Bool",
    "Complex64",
    "Complex128",
    "Cpu",
    "Cuda",
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
    "Tpu",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Xpu",
]

# Places that are left open, and what a plain `Tensor` has in all three: they fit everything.
AnyDType = Any
AnyDevice = Any
AnyRank = Any


class DTypeMarker:
    """The base of all dtype markers: a bound for type variables."""


class Bool(DTypeMarker):
    """The dtype ember_ml.ops.bool."""


class Int8(DTypeMarker):
    """The dtype ember_ml.int8."""


class Int16(DTypeMarker):
    """The dtype ember_ml.int16."""


class Int32(DTypeMarker):
    """The dtype ember_ml.int32."""


class Int64(DTypeMarker):
    """The dtype ember_ml.int64."""


class UInt8(DTypeMarker):
    """The dtype ember_ml.uint8."""


class UInt16(DTypeMarker):
    """The dtype ember_ml.uint16."""


class UInt32(DTypeMarker):
    """The dtype ember_ml.uint32."""


class UInt64(DTypeMarker):
    """The dtype ember_ml.uint64."""


class Float16(DTypeMarker):
    """The dtype ember_ml.float16."""


class BFloat16(DTypeMarker):
    """The dtype ember_ml.bfloat16."""


class Float32(DTypeMarker):
    """The dtype ember_ml.float32."""


class Float64(DTypeMarker):
    """The dtype ember_ml.float64."""


class Complex64(DTypeMarker):
    """The dtype ember_ml.complex64."""


class Complex128(DTypeMarker):
    """The dtype ember_ml.complex128."""


class DeviceMarker:
    """The base of all device markers: a bound for type variables."""


class Cpu(DeviceMarker):
    """Devices named "cpu"."""


class Gpu(DeviceMarker):
    """Devices named "gpu", "gpu:1", ...: of whichever make. Cuda, Mps and Xpu are such."""


class Cuda(Gpu):
    """Devices named "cuda", "cuda:1", ..."""


class Mps(Gpu):
    """The device named "mps"."""


class Xpu(Gpu):
    """Devices named "xpu", "xpu:1", ..."""


class Tpu(DeviceMarker):
    """Devices named "tpu", "tpu:1", ..."""


class RankMarker:
    """The base of all rank markers: a bound for type variables."""


class Rank0(RankMarker):
    """No axis: one element."""


class Rank1(RankMarker):
    """One axis: a vector."""


class Rank2(RankMarker):
    """Two axes: a matrix."""


class Rank3(RankMarker):
    """Three axes."""


class Rank4(RankMarker):
    """Four axes."""


class Rank5(RankMarker):
    """Five axes."""


class Rank6(RankMarker):
    """Six axes."""


class Rank7(RankMarker):
    """Seven axes."""


class Rank8(RankMarker):
    """Eight axes; ranks beyond have no marker."""


# The type variables of Tensor. Type checkers read them in markers.pyi; here they fill a place.
D = V = R = D_co = Any


class Marked:
    """What has a dtype, a device and a rank that type checkers know: a tensor."""

    __slots__ = ()
    # An alias and nothing else: typing.Generic would be one more base class of every tensor.
    __class_getitem__ = classmethod(GenericAlias)


class MarkedDType:
    """A dtype that type checkers know."""

    __slots__ = ()
    __class_getitem__ = classmethod(GenericAlias)
