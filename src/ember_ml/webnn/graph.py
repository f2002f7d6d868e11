"""A compiled graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ember_ml.graph.core import Graph, Value
    from ember_ml.webnn.context import MLContext

__all__ = ["MLGraph"]


class MLGraph:
    """What `MLGraphBuilder.build` gives: it is dispatched by its context."""

    def __init__(
        self,
        context: MLContext,
        graph: Graph,
        inputs: dict[str, Value],
        outputs: dict[str, Value],
    ) -> None:
        self._context = context
        self._graph = graph
        # By the names that users gave, which may be any text; the graph's own are plain.
        self._inputs = inputs
        self._outputs = outputs
        self._program = graph.program(context._executor)
