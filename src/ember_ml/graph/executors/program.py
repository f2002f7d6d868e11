"""What every executor makes of a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ember_ml.errors import DTypeError, ShapeError, UnknownKeyError
from ember_ml.graph import types
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

if TYPE_CHECKING:
    from ember_ml.graph.core import Graph, Value

__all__ = ["Program", "check_feeds", "fed"]


class Program(ABC):
    """A graph that is ready to run, with what it was compiled to."""

    # Who runs it: "onnxruntime", or the name of a backend.
    executor: str

    @abstractmethod
    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, for arrays or tensors by name."""


def fed(graph: Graph, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """What is fed, checked, as NumPy arrays and tensors.

    Lists and numbers, which have no dtype, become arrays of the input's.
    """
    if not isinstance(feeds, Mapping):
        raise DTypeError(
            f"graph '{graph.name}' takes inputs by name, as in {{'x': array}}, "
            f"and {type(feeds).__name__} came"
        )
    named = {x.name: x for x in graph.inputs}
    made = {name: _fed(graph, named.get(name), value) for name, value in feeds.items()}
    check_feeds(graph, made)
    return made


def _fed(graph: Graph, asked: Value | None, value: Any) -> Any:
    if isinstance(value, Tensor) or asked is None:
        return value
    if not isinstance(value, np.ndarray | np.generic):
        home = convert.backend_of(value)
        if home is not None:
            return convert.wrap(value, home)
        if not hasattr(value, "dtype"):
            return _listed(graph, asked, value)
    made = types.native(np.asarray(value))
    return made.astype(object) if made.dtype.kind == "U" else made


def _listed(graph: Graph, asked: Value, value: Any) -> np.ndarray[Any, Any]:
    dtype = types.numpy_dtype(asked.dtype)
    try:
        made = types.listed(value, asked.dtype)
        whole = made.dtype.kind == "O" and types.is_whole(made)
        source = np.dtype(np.int64) if whole else made.dtype
        kinds = source.kind + dtype.kind
        if asked.dtype == "string":
            sound = made.dtype.kind in "UO" or not made.size
        elif source.kind in "UO":
            sound = False
        elif types.BITS[asked.dtype] == 4:  # ml_dtypes would cut fractions, and wrap
            sound = not made.size or source.kind in "iub"
            least, most = (-8, 7) if asked.dtype == "int4" else (0, 15)
            if sound and made.size and not least <= made.min() <= made.max() <= most:
                raise OverflowError(f"{asked.dtype} goes from {least} to {most}")
        else:  # whole numbers of Python have no sign of their own; NumPy checks their size
            sound = not made.size or kinds in ("ii", "iu", "ui", "uu") or dtype.kind == "V"
            sound = sound or np.can_cast(source, dtype, "same_kind")
        if sound:
            return np.asarray(value, dtype)
        error = f"{source} is no {asked.dtype}"
    except (TypeError, ValueError, OverflowError) as found:
        error = str(found)
        if "inhomogeneous" in error:
            raise ShapeError(
                f"graph '{graph.name}': input '{asked.name}' is a list whose parts differ in length"
            ) from None
    raise DTypeError(
        f"graph '{graph.name}': input '{asked.name}' cannot be made of "
        f"{type(value).__name__}: {error}"
    )


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
