"""What an operand or a tensor is: its data type and shape, and who may touch it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from ember_ml.graph import types
from ember_ml.webnn.errors import MLTypeError

__all__ = [
    "DATA_TYPES",
    "MAX_BYTES",
    "MAX_RANK",
    "DescriptorLike",
    "MLOperandDescriptor",
    "MLTensorDescriptor",
    "byte_length",
    "operand_descriptor",
    "sizes",
    "tensor_descriptor",
]

# Those of the specification, and the packed 4-bit integers of quantised weights.
DATA_TYPES: Final = "float32 float16 int32 uint32 int64 uint64 int8 uint8 int4 uint4".split()
# What `op_support_limits` tells: the largest tensor, and the most axes.
MAX_BYTES: Final = 2_147_483_644
MAX_RANK: Final = 8
_LARGEST: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class MLOperandDescriptor:
    """The data type and the shape of an operand."""

    data_type: str
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MLTensorDescriptor(MLOperandDescriptor):
    """An operand's, and whether the host may read and write the tensor."""

    readable: bool = False
    writable: bool = False


# As users give them: one of the classes, or a mapping with `data_type` or `dataType`.
DescriptorLike = MLOperandDescriptor | Mapping[str, Any]


def operand_descriptor(what: str, given: DescriptorLike) -> MLOperandDescriptor:
    """A descriptor of what was given for one; `what` names the call in errors."""
    data_type, shape, _ = _read(what, given)
    return MLOperandDescriptor(data_type, shape)


def tensor_descriptor(what: str, given: DescriptorLike) -> MLTensorDescriptor:
    """A tensor's descriptor of what was given for one."""
    data_type, shape, rest = _read(what, given)
    return MLTensorDescriptor(
        data_type, shape, bool(rest.get("readable", False)), bool(rest.get("writable", False))
    )


def _read(what: str, given: DescriptorLike) -> tuple[str, tuple[int, ...], Mapping[str, Any]]:
    if isinstance(given, MLOperandDescriptor):
        fields: Mapping[str, Any] = {
            name: getattr(given, name)
            for name in ("data_type", "shape", "readable", "writable")
            if hasattr(given, name)
        }
    elif isinstance(given, Mapping):
        fields = given
    else:
        raise MLTypeError(
            f"{what}: a descriptor is a dict or an MLOperandDescriptor, not {given!r}"
        )
    data_type = fields.get("data_type", fields.get("dataType"))
    if data_type is None or "shape" not in fields:
        raise MLTypeError(f"{what}: a descriptor has data_type and shape; {dict(fields)!r} came")
    name = str(data_type)
    if name not in DATA_TYPES:
        raise MLTypeError(f"{what}: no data type {data_type!r}; there are {', '.join(DATA_TYPES)}")
    shape = sizes(what, fields["shape"])
    check_sizes(what, name, shape)
    return name, shape, fields


def sizes(what: str, given: Any, name: str = "shape") -> tuple[int, ...]:
    """A sequence of unsigned 32-bit integers as a tuple."""
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise MLTypeError(f"{what}: {name} is a sequence of sizes, not {given!r}")
    return tuple(unsigned(what, size, name) for size in given)


def unsigned(what: str, given: Any, name: str) -> int:
    """An unsigned 32-bit integer; MLTypeError for anything else."""
    if isinstance(given, bool) or not isinstance(given, int | np.integer):
        raise MLTypeError(f"{what}: {name} takes integers from 0 on, not {given!r}")
    if not 0 <= given <= _LARGEST:
        raise MLTypeError(f"{what}: {name} takes integers from 0 to {_LARGEST}, not {given}")
    return int(given)


def check_sizes(what: str, data_type: str, shape: tuple[int, ...]) -> None:
    """Raise where an operand has an empty axis, too many axes, or too many bytes."""
    if 0 in shape:
        raise MLTypeError(f"{what}: {shape} has an axis of size 0, which WebNN does not allow")
    if len(shape) > MAX_RANK:
        raise MLTypeError(f"{what}: {shape} has {len(shape)} axes; {MAX_RANK} are the most")
    if byte_length(data_type, shape) > MAX_BYTES:
        raise MLTypeError(
            f"{what}: {data_type} of shape {shape} takes "
            f"{byte_length(data_type, shape)} bytes; {MAX_BYTES} are the most"
        )


def byte_length(data_type: str, shape: tuple[int, ...]) -> int:
    """The bytes of a buffer of that type and shape; 4-bit integers are packed.

    >>> byte_length("float16", (2, 3)), byte_length("int4", (3,))
    (12, 2)
    """
    return (types.BITS[data_type] * prod(shape) + 7) // 8
