"""What every executor makes of a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ember_ml.errors import DTypeError, ShapeError, UnknownKeyError
from ember_ml.graph import types

if TYPE_CHECKING:
    from ember_ml.graph.core import Graph, Value

__all__ = ["Program", "check_feeds"]


class Program(ABC):
    """A graph that is ready to run, with what it was compiled to."""

    # Who runs it: "onnxruntime", or the name of a backend.
    executor: str

    @abstractmethod
    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, for arrays or tensors by name."""


def check_feeds(graph: Graph, feeds: Mapping[str, Any]) -> None:
    """Raise where inputs are missing, unknown, or of another dtype or shape than declared.

    What is given has `dtype` and `shape`; sizes of one name must agree between inputs.
    """
    named = {x.name: x for x in graph.inputs}
    for name in feeds:
        if name not in named:
            raise UnknownKeyError(
                f"graph '{graph.name}' has no input '{name}'; it takes {', '.join(named) or 'none'}"
            )
    sizes: dict[str, int] = {}
    for name, value in named.items():
        if name not in feeds:
            raise UnknownKeyError(
                f"graph '{graph.name}' needs the input '{name}' ({value.dtype}, {value.shape})"
            )
        _check(graph, value, feeds[name], sizes)


def _check(graph: Graph, value: Value, given: Any, sizes: dict[str, int]) -> None:
    where = f"graph '{graph.name}': input '{value.name}'"
    dtype = types.name_of(getattr(given.dtype, "name", given.dtype))
    if dtype != value.dtype:
        raise DTypeError(f"{where} is {value.dtype}, and {dtype} came; cast it first")
    if value.shape is None:
        return
    shape = tuple(given.shape)
    if len(shape) != len(value.shape):
        raise ShapeError(f"{where} has the shape {value.shape}, and {shape} came")
    for size, declared in zip(shape, value.shape, strict=True):
        known = sizes.setdefault(declared, size) if isinstance(declared, str) else declared
        if known is not None and known != size:
            said = f", where '{declared}' is {known}" if isinstance(declared, str) else ""
            raise ShapeError(f"{where} has the shape {value.shape}{said}, and {shape} came")
