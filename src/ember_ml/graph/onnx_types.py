"""Types of values as ONNX writes them, and those that follow from others.

A tensor's type is the name of its elements. Values that are no tensors occur inside of files and
as results: their types are texts such as "sequence(float32)". "" is a type that is not known.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ember_ml.errors import DTypeError, FormatError
from ember_ml.graph import types
from ember_ml.graph.core import Graph, Shape, Value

__all__ = ["learn_types", "read_type", "write_type"]

_WRAPPED: Final = re.compile(r"(sequence|optional|sparse)\((.*)\)")
_MAP: Final = re.compile(r"map\((\w+), (.*)\)")
_NO_NAMES: Final = ("", "?", "-1")  # what exporters write for any size; two of them need not agree
_MADE_UP: Final = re.compile(r"unk__\d+")  # what inference calls sizes that it cannot name


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


# --- Inference ----------------------------------------------------------------------------------

# A domain that nobody describes: inference passes over its operators.
_UNKNOWN: Final = "ember_ml.unknown"
# Inference of these ends the process where the type of an input is not known.
_FRAGILE: Final = ("EyeLike",)


def learn_types(graph: Graph) -> None:
    """Fill in types and shapes of values, as far as onnx's shape inference finds them.

    What is known already stays. Large constants take no part: only their types matter.
    """
    from ember_ml.graph.onnx_writing import Writer, onnx_module

    onnx = onnx_module()
    writer = Writer(onnx, weights_as_inputs=True)
    model = writer.model(graph)
    model.opset_import.add(domain=_UNKNOWN, version=1)
    _Screen(onnx, graph.opsets).graph(model.graph)
    try:
        found = onnx.shape_inference.infer_shapes(model)
    except Exception:  # of onnx or of protobuf: types stay unknown, and executors say more
        return
    _learn(graph, found.graph, writer)


class _Screen:
    """Hides nodes from inference that are not as their operators demand.

    Inference reads inputs and attributes without asking whether they are there, and has ended the
    process on some that were not. Its `data_prop` is off: that counts to the length of a vector.
    """

    def __init__(self, onnx: Any, opsets: dict[str, int]) -> None:
        self._defs = onnx.defs
        self._version = opsets.get("", 0)
        self._schemas: dict[str, Any] = {}

    def graph(self, proto: Any) -> None:
        """Hide the unsound nodes of a graph and of its bodies."""
        for node in proto.node:
            if node.domain or not self._sound(node):
                node.domain = _UNKNOWN
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    self.graph(attribute.g)

    def _sound(self, node: Any) -> bool:
        if node.op_type not in self._schemas:
            try:
                made = self._defs.get_schema(node.op_type, self._version, "")
            except Exception:  # of onnx's own: there is no such operator
                made = None
            self._schemas[node.op_type] = made
        schema = self._schemas[node.op_type]
        if node.op_type in _FRAGILE or schema is None or len(node.output) > schema.max_output:
            return False
        if not schema.min_input <= len(node.input) <= schema.max_input:
            return False
        single = self._defs.OpSchema.FormalParameterOption.Single
        for name, formal in zip(node.input, schema.inputs, strict=False):
            if not name and formal.option == single:
                return False
        given = {x.name: x.type for x in node.attribute}
        return all(
            key in schema.attributes and int(schema.attributes[key].type.value) == kind
            for key, kind in given.items()
        ) and all(key in given for key, one in schema.attributes.items() if one.required)


def _learn(graph: Graph, proto: Any, writer: Any) -> None:
    told = {info.name: info.type for info in (*proto.value_info, *proto.output)}
    for node, written in zip(graph.nodes, proto.node, strict=True):
        for value in node.outputs:
            given = told.get(writer.name(value))
            if given is not None:
                _complete(value, given)
        for attribute in written.attribute:
            body = node.attributes.get(attribute.name)
            if isinstance(body, Graph):
                _learn(body, attribute.g, writer)


def _complete(value: Value, given: Any) -> None:
    try:
        dtype, shape = read_type(given)
    except (DTypeError, FormatError):
        return
    if not value.dtype:
        value.dtype = dtype
    if dtype != value.dtype or shape is None:
        return
    named = tuple(None if isinstance(d, str) and _MADE_UP.fullmatch(d) else d for d in shape)
    if value.shape is None:
        value.shape = named
    elif len(value.shape) == len(named):
        value.shape = tuple(
            new if old is None else old for old, new in zip(value.shape, named, strict=True)
        )
