"""Where graphs begin and end: inputs, constants, build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ember_ml.graph.core import Value
from ember_ml.graph.types import numpy_dtype
from ember_ml.webnn.builder.base import BuilderBase
from ember_ml.webnn.descriptors import DescriptorLike, operand_descriptor
from ember_ml.webnn.errors import MLTypeError
from ember_ml.webnn.graph import MLGraph
from ember_ml.webnn.operand import MLOperand

if TYPE_CHECKING:
    from ember_ml.webnn.context import MLContext

__all__ = ["Making"]


class Making(BuilderBase):
    """The builder's calls that are no ops."""

    def __init__(self, context: MLContext) -> None:
        super().__init__(context)
        self._inputs: list[tuple[str, Value]] = []

    def input(self, name: str, descriptor: DescriptorLike) -> MLOperand:
        """An input of the graph."""
        self._require_open("input")
        made = operand_descriptor("input", descriptor)
        # The specification allows a name twice until `build`: the graph's own names differ.
        value = Value(self._graph.fresh("input"), made.data_type, made.shape)
        self._inputs.append((name, value))
        return MLOperand(self, made, value, "input")

    def constant(self, descriptor: DescriptorLike, buffer: Any) -> MLOperand:
        """A constant of a descriptor and a buffer."""
        self._require_open("constant")
        made = operand_descriptor("constant", descriptor)
        data = np.asarray(buffer, dtype=numpy_dtype(made.data_type)).reshape(made.shape).copy()
        return MLOperand(self, made, self._graph.constant(data), "constant")

    def build(self, outputs: Mapping[str, MLOperand]) -> MLGraph:
        """The graph of some operands by name."""
        self._require_open("build")
        if not outputs:
            raise MLTypeError("build: a graph needs at least one output")
        self._is_built = True
        graph = self._graph
        results = {
            name: graph.output(f"output_{place}", x._value)
            for place, (name, x) in enumerate(outputs.items())
        }
        graph.prune()
        used = {id(x) for node in graph.nodes for x in node.inputs}
        inputs = {name: value for name, value in self._inputs if id(value) in used}
        graph.inputs = list(inputs.values())
        return MLGraph(self._context, graph, inputs, results)
