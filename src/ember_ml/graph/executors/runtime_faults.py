"""Optimisations of ONNX Runtime 1.31 that change what some graphs with quantisation compute.

Only graphs that they could harm do without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ember_ml.graph import types

if TYPE_CHECKING:
    from ember_ml.graph.core import Graph, Node

__all__ = ["misleading"]

# They drop a Relu before a quantisation to 4 bits, though it has zero points that keep negative
# numbers, and make MaxPool and Identity of 4 bits, for which there are no kernels.
_NOT_FOR_4_BITS: Final = (
    "ClipQuantRewrite",
    "ReluQuantRewrite",
    "QDQFinalCleanupTransformer",
    "QDQPropagationTransformer",
)
# It makes one quantisation of two that follow each other, with a step that is neither's.
_PAIRS: Final = "DoubleQDQPairsRemover"
# It makes operators over integers, and some of those take no steps by axis or by block.
_INTEGERS: Final = "QDQSelectorActionTransformer"
# Where an output of the graph is transposed and then quantised, it puts the quantisation first,
# and rounds the output.
_TRANSPOSES: Final = "TransposeOptimizer"


def misleading(graph: Graph, providers: Sequence[str]) -> set[str]:
    """The names of the optimisations that a graph must do without."""
    quantized = [node for node in _nodes(graph) if node.op == "QuantizeLinear"]
    found = {_PAIRS} if quantized else set()
    if any(_has_many_scales(node) for node in quantized):
        found.add(_INTEGERS)
    if any(types.BITS.get(node.outputs[0].dtype, 8) < 8 for node in quantized):
        found.update((_INTEGERS, *_NOT_FOR_4_BITS))
    outputs = {value.name for value in graph.outputs}
    if quantized and any(
        node.op == "Transpose" and node.inputs[0] is not None and node.inputs[0].name in outputs
        for node in graph.nodes
    ):
        found.update((_TRANSPOSES, *(f"{_TRANSPOSES}_{name}" for name in providers)))
    return found


def _has_many_scales(node: Node) -> bool:
    scale = node.inputs[1]
    return scale is None or scale.shape is None or any(size != 1 for size in scale.shape)


def _nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for inner in node.subgraphs():
            yield from _nodes(inner)
