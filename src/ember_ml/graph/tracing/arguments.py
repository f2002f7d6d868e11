"""What a function that is exported takes: names of its inputs, and of sizes that vary."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ember_ml.errors import DomainError

__all__ = ["argument_names", "axes_of", "name_of", "require_names"]


def require_names(word: str, names: Sequence[str] | None) -> None:
    """Raise where names cannot tell values apart."""
    if names is None:
        return
    given: list[Any] = [names] if isinstance(names, str) else list(names)
    wrong = [name for name in given if not isinstance(name, str) or not name]
    if isinstance(names, str) or wrong:
        raise DomainError(f"em.export: {word} is a list of texts, not of {(wrong or given)[0]!r}")
    if len(set(names)) != len(names):
        raise DomainError(f"em.export: {word} has a name twice: {', '.join(names)}")


def axes_of(name: str, axes: Any) -> list[tuple[int, str]]:
    """The axes of an input whose sizes have names, with these."""
    pairs: list[tuple[Any, Any]]
    if isinstance(axes, Mapping):
        pairs = list(axes.items())
    elif isinstance(axes, str) or not isinstance(axes, Sequence):
        pairs = [(None, axes)]
    elif all(isinstance(axis, int) for axis in axes):
        pairs = [(axis, f"{name}_{axis}") for axis in axes]
    else:
        pairs = [(axis, size) for axis, size in enumerate(axes) if size is not None]
    if not all(_is_axis(axis) and isinstance(size, str) and size for axis, size in pairs):
        raise DomainError(
            f"em.export: dynamic_axes of '{name}' is {axes!r}; give {{axis: 'size'}}, a list of "
            f"axes, or a list of names with None for axes that stay"
        )
    return [(int(axis), size) for axis, size in pairs]


def _is_axis(axis: Any) -> bool:
    return isinstance(axis, int | np.integer) and not isinstance(axis, bool)


def name_of(function: Any) -> str:
    """What a graph of a function is called."""
    found = getattr(function, "__name__", None) or type(function).__name__
    return "graph" if found == "<lambda>" else str(found)


def argument_names(function: Any, count: int) -> list[str]:
    """What the arguments are called."""
    target = getattr(function, "forward", None) if getattr(function, "_is_module", False) else None
    try:
        parameters = list(inspect.signature(target or function).parameters.values())
    except (TypeError, ValueError):  # builtins
        parameters = []
    names: list[str] = []
    for one in parameters:
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD):
            names.append(one.name)
        elif one.kind is one.VAR_POSITIONAL:
            names += [f"{one.name}_{i}" for i in range(max(count - len(names), 0))]
            break
    names += [f"input_{i}" for i in range(len(names), count)]
    return names
