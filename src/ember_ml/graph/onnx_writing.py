"""Graphs as ONNX models: protobuf messages and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ember_ml.errors import BackendUnavailableError, FormatError
from ember_ml.graph import types
from ember_ml.graph.core import Graph, Node, Value

if TYPE_CHECKING:
    import onnx

__all__ = ["onnx_module", "save", "to_onnx"]

# The newest that onnxruntime 1.20, our lower bound, reads; opset 21 belongs to it.
IR_VERSION: Final = 10


def onnx_module() -> Any:
    """The onnx package, or an error that tells how to get it."""
    try:
        import onnx
    except ImportError as error:
        raise BackendUnavailableError(
            "graphs are read and written by the onnx package, which is not installed; "
            "install it with: pip install 'ember-ml[onnx]'"
        ) from error
    return onnx


def to_onnx(graph: Graph) -> onnx.ModelProto:
    """A graph as a model."""
    onnx = onnx_module()
    model = onnx.ModelProto()
    model.ir_version = IR_VERSION
    model.producer_name = "ember_ml"
    for domain, version in graph.opsets.items():
        model.opset_import.add(domain=domain, version=version)
    for key, text in graph.metadata.items():
        model.metadata_props.add(key=key, value=text)
    _fill(onnx, graph, model.graph, graph.constants())
    return model  # type: ignore[no-any-return]  # onnx is Any here: it is imported late


def _fill(onnx: Any, graph: Graph, proto: Any, constants: list[Value]) -> None:
    proto.name = graph.name
    for value in graph.inputs:
        _info(proto.input.add(), value)
    for value in graph.outputs:
        _info(proto.output.add(), value)
    for value in constants:
        proto.initializer.append(_tensor(onnx, value.data, value.name))
    for count, node in enumerate(graph.nodes):
        _node(onnx, node, proto.node.add(), count)


def _node(onnx: Any, node: Node, proto: Any, count: int) -> None:
    proto.op_type = node.op
    proto.domain = node.domain
    proto.name = node.label or f"{node.op}_{count}"
    proto.input.extend(["" if x is None else x.name for x in node.inputs])
    proto.output.extend([x.name for x in node.outputs])
    if node.source:
        proto.doc_string = node.source
    for key, value in node.attributes.items():
        proto.attribute.append(_attribute(onnx, key, value))


def _attribute(onnx: Any, key: str, value: Any) -> Any:
    if isinstance(value, Graph):
        made = onnx.AttributeProto(name=key, type=onnx.AttributeProto.GRAPH)
        _fill(onnx, value, made.g, [])  # constants of a body stand in the outermost graph
        return made
    if isinstance(value, np.ndarray):
        return onnx.helper.make_attribute(key, _tensor(onnx, value, key))
    if isinstance(value, np.generic):
        value = value.item()
    return onnx.helper.make_attribute(key, value)


def _tensor(onnx: Any, array: Any, name: str) -> Any:
    dtype = types.name_of(array.dtype)
    made = onnx.TensorProto(name=name, data_type=types.number_of(dtype), dims=array.shape)
    if dtype == "string":
        made.string_data.extend([str(text).encode() for text in array.flat])
    elif dtype in ("int4", "uint4"):
        made.raw_data = pack4(array).tobytes()
    else:
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        made.raw_data = np.ascontiguousarray(little).tobytes()
    return made


def pack4(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """4-bit integers two to a byte, the first in the low half."""
    nibbles = array.reshape(-1).view(np.uint8) & 0xF
    if nibbles.size % 2:
        nibbles = np.append(nibbles, np.uint8(0))
    return nibbles[0::2] | (nibbles[1::2] << 4)


def _info(proto: Any, value: Value) -> None:
    proto.name = value.name
    tensor = proto.type.tensor_type
    tensor.elem_type = types.number_of(value.dtype)
    if value.shape is None:
        return
    tensor.shape.SetInParent()
    for size in value.shape:
        dim = tensor.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif size is not None:
            dim.dim_param = size


def save(graph: Graph, path: Path, *, external_data: bool | None = None) -> None:
    """Write a graph to a file."""
    if path.suffix != ".onnx":
        raise FormatError(f"graphs are saved as ONNX: give a path that ends in .onnx, not {path}")
    path.write_bytes(to_onnx(graph).SerializeToString())
