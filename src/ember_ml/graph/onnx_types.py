"""Types of values as ONNX writes them.

A tensor's type is the name of its elements. Values that are no tensors occur inside of files and
as results: their types are texts such as "sequence(float32)". "" is a type that is not known.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ember_ml.errors import DTypeError, FormatError
from ember_ml.graph import types
from ember_ml.graph.core import Shape

__all__ = ["read_type", "write_type"]

_WRAPPED: Final = re.compile(r"(sequence|optional|sparse)\((.*)\)")
_MAP: Final = re.compile(r"map\((\w+), (.*)\)")
_NO_NAMES: Final = ("", "?", "-1")  # what exporters write for any size; two of them need not agree


def read_type(proto: Any) -> tuple[str, Shape | None]:
    """Type and shape of a TypeProto; ("", None) where it says nothing.

    DTypeError where the elements are of a type that graphs do not hold, FormatError where a size
    is impossible.
    """
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return _element(proto.tensor_type.elem_type), _shape(proto.tensor_type)
    if kind == "sparse_tensor_type":
        made = _element(proto.sparse_tensor_type.elem_type)
        return f"sparse({made})", _shape(proto.sparse_tensor_type)
    if kind == "sequence_type":
        return f"sequence({read_type(proto.sequence_type.elem_type)[0]})", None
    if kind == "optional_type":
        return f"optional({read_type(proto.optional_type.elem_type)[0]})", None
    if kind == "map_type":
        key = types.type_name(proto.map_type.key_type)
        return f"map({key}, {read_type(proto.map_type.value_type)[0]})", None
    if kind is None:
        return "", None
    raise DTypeError(f"values of an {kind} are not supported")


def _element(number: int) -> str:
    return types.type_name(number) if number else ""


def _shape(tensor: Any) -> Shape | None:
    return tuple(_dim(dim) for dim in tensor.shape.dim) if tensor.HasField("shape") else None


def _dim(dim: Any) -> int | str | None:
    if dim.HasField("dim_value"):
        size = int(dim.dim_value)
        if size < -1:
            raise FormatError(f"a size is {size}")
        return None if size == -1 else size  # some exporters write -1 for any size
    return None if dim.dim_param in _NO_NAMES else str(dim.dim_param)


def write_type(proto: Any, dtype: str, shape: Shape | None) -> None:
    """Fill a TypeProto."""
    if not dtype:
        return
    mapping = _MAP.fullmatch(dtype)
    if mapping:
        proto.map_type.key_type = types.number_of(mapping[1])
        write_type(proto.map_type.value_type, mapping[2], None)
        return
    wrapped = _WRAPPED.fullmatch(dtype)
    if wrapped and wrapped[1] == "sequence":
        proto.sequence_type.elem_type.SetInParent()
        write_type(proto.sequence_type.elem_type, wrapped[2], None)
        return
    if wrapped and wrapped[1] == "optional":
        proto.optional_type.elem_type.SetInParent()
        write_type(proto.optional_type.elem_type, wrapped[2], None)
        return
    tensor = proto.sparse_tensor_type if wrapped else proto.tensor_type
    tensor.elem_type = types.number_of(wrapped[2] if wrapped else dtype)
    if shape is None:
        return
    tensor.shape.SetInParent()
    for size in shape:
        dim = tensor.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif size is not None:
            dim.dim_param = size
