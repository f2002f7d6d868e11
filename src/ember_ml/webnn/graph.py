"""A compiled graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ember_ml.webnn.descriptors import MLOperandDescriptor
from ember_ml.webnn.errors import NotCopied

if TYPE_CHECKING:
    from ember_ml.graph.core import Graph, Value
    from ember_ml.webnn.context import MLContext
    from ember_ml.webnn.engines import Compiled

__all__ = ["MLGraph"]

# Some 2 KB each: a pool of tensors has as many combinations as the square of its size.
MOST_PREPARED: Final = 4096


class Prepared(dict[tuple[object, ...], Callable[[], object]]):
    """Dispatches that were prepared, by the names and the tensors of their inputs and outputs."""

    __slots__ = ("__weakref__",)

    def keep(self, key: tuple[object, ...], run: Callable[[], object]) -> None:
        """Put one in; the oldest goes where there are too many."""
        self[key] = run
        while len(self) > MOST_PREPARED:
            # Tensors that end in other threads take theirs out without asking.
            with contextlib.suppress(RuntimeError):
                self.pop(next(iter(self)), None)


class MLGraph(NotCopied):
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
        with self._context._belonging:
            self._compiled = None
            self._prepared.clear()

    def __repr__(self) -> str:
        given = ", ".join(f"{n!r}: {v.dtype}{list(v.shape or ())}" for n, v in self._inputs.items())
        made = ", ".join(f"{n!r}: {v.dtype}{list(v.shape or ())}" for n, v in self._outputs.items())
        return f"<MLGraph{' destroyed' if self._is_destroyed else ''}: ({given}) -> ({made})>"


def _descriptor(value: Value) -> MLOperandDescriptor:
    shape = tuple(size for size in value.shape or () if isinstance(size, int))
    return MLOperandDescriptor(value.dtype, shape)
