"""A compiled graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ember_ml.webnn.descriptors import MLOperandDescriptor

if TYPE_CHECKING:
    from ember_ml.graph.core import Graph, Value
    from ember_ml.webnn.context import MLContext
    from ember_ml.webnn.engines import Compiled

__all__ = ["MLGraph"]


class Prepared(dict[tuple[object, ...], Callable[[], object]]):
    """Dispatches that were prepared, by the names and the tensors of their inputs and outputs."""

    __slots__ = ("__weakref__",)


class MLGraph:
    """What `MLGraphBuilder.build` gives: it is dispatched by its context."""

    def __init__(
        self,
        context: MLContext,
        graph: Graph,
        inputs: dict[str, Value],
        outputs: dict[str, Value],
        compiled: Compiled,
    ) -> None:
        self._context = context
        self._graph = graph
        # By the names that users gave, which may be any text; the graph's own are plain.
        self._inputs = inputs
        self._outputs = outputs
        self._compiled: Compiled | None = compiled
        self._prepared = Prepared()

    @property
    def input_descriptors(self) -> dict[str, MLOperandDescriptor]:
        """What `dispatch` takes as inputs, by name."""
        return {name: _descriptor(value) for name, value in self._inputs.items()}

    @property
    def output_descriptors(self) -> dict[str, MLOperandDescriptor]:
        """What `dispatch` takes as outputs, by name."""
        return {name: _descriptor(value) for name, value in self._outputs.items()}

    @property
    def devices(self) -> tuple[str, ...]:
        """Where it runs: "cpu", "gpu" or "npu"."""
        return (self._context.device,)

    @property
    def graph(self) -> Graph:
        """The graph in ONNX's terms: to save, to draw, or to run on another executor."""
        return self._graph

    @property
    def _is_destroyed(self) -> bool:
        return self._compiled is None

    def destroy(self) -> None:
        """Give back what was compiled; what was dispatched before is done still."""
        self._compiled = None
        self._prepared.clear()

    def __repr__(self) -> str:
        given = ", ".join(f"{n!r}: {v.dtype}{list(v.shape or ())}" for n, v in self._inputs.items())
        made = ", ".join(f"{n!r}: {v.dtype}{list(v.shape or ())}" for n, v in self._outputs.items())
        return f"<MLGraph{' destroyed' if self._is_destroyed else ''}: ({given}) -> ({made})>"


def _descriptor(value: Value) -> MLOperandDescriptor:
    shape = tuple(size for size in value.shape or () if isinstance(size, int))
    return MLOperandDescriptor(value.dtype, shape)
