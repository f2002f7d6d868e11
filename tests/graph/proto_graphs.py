"""ONNX models as graphs, for the tests of operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from ember_ml.graph import types
from ember_ml.graph.core import Graph, Node, Value

__all__ = ["from_proto"]


def from_proto(model: onnx.ModelProto) -> Graph:
    """A model as a graph; the types of values within it are inferred by onnx."""
    inferred = shape_inference.infer_shapes(model)
    opsets = {entry.domain: entry.version for entry in inferred.opset_import}
    return _graph(inferred.graph, opsets, {})


def _graph(proto: Any, opsets: dict[str, int], outer: dict[str, Value]) -> Graph:
    graph = Graph(proto.name or "graph")
    graph.opsets = opsets
    scope = dict(outer)
    known = {info.name: info for info in [*proto.value_info, *proto.output]}
    for tensor in proto.initializer:
        array = numpy_helper.to_array(tensor)
        scope[tensor.name] = Value(tensor.name, types.name_of(array.dtype), array.shape, array)
    for info in proto.input:
        if info.name not in scope or info.name in outer:
            dtype, shape = _type(info)
            scope[info.name] = graph.input(info.name, dtype, shape)
    for node in proto.node:
        attributes = {a.name: _attribute(a, opsets, scope) for a in node.attribute}
        made = []
        for name in node.output:
            dtype, shape = _type(known[name]) if name in known else ("float32", None)
            made.append(Value(name, dtype, shape))
        inputs = [scope[name] if name else None for name in node.input]
        while made and not made[-1].name:
            made.pop()
        graph.nodes.append(
            Node(node.op_type, inputs, made, attributes, domain=node.domain, label=node.name)
        )
        scope.update({x.name: x for x in made if x.name})
    for info in proto.output:
        graph.outputs.append(scope[info.name])
    return graph


def _type(info: Any) -> tuple[str, tuple[int | str | None, ...] | None]:
    if not info.type.HasField("tensor_type"):
        raise TypeError(f"{info.name} is no tensor")
    tensor = info.type.tensor_type
    dtype = types.type_name(tensor.elem_type) if tensor.elem_type else "float32"
    if not tensor.HasField("shape"):
        return dtype, None
    shape: list[int | str | None] = []
    for dim in tensor.shape.dim:
        shape.append(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None)
    return dtype, tuple(shape)


def _attribute(attribute: Any, opsets: dict[str, int], scope: dict[str, Value]) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.GraphProto):
        return _graph(value, opsets, scope)
    if isinstance(value, onnx.TensorProto):
        return np.asarray(numpy_helper.to_array(value))
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [text.decode() for text in value]
    return value
