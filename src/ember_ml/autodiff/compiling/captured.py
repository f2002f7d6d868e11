"""What a function closes over: tensors that it finds in its scope and was not given.

They are read anew at each call, so that a write to them, or another tensor under the same name, is
seen. Looked at are variables of enclosing functions, globals that the function names, defaults,
and attributes of the objects that these are; a few steps deep. A tensor that lies deeper is a
constant of the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from ember_ml.tensor.core import Tensor

__all__ = ["Reference", "find", "tensors_in"]

# How a value is named, and how it is read.
Reference = tuple[str, Callable[[], Any]]

_DEEP: Final = 3
_IGNORED: Final = (
    ModuleType,
    BuiltinFunctionType,
    type,
    str,
    bytes,
    int,
    float,
    complex,
    np.ndarray,
    np.generic,
    type(None),
)


def find(value: Any) -> list[Reference]:
    """Where a function, or an object that it is given, has tensors."""
    found: list[Reference] = []
    _visit(value, "", 0, found, set())
    return found


def _visit(value: Any, label: str, depth: int, found: list[Reference], seen: set[int]) -> None:
    if isinstance(value, _IGNORED) or id(value) in seen or depth > _DEEP:
        return
    seen.add(id(value))
    if isinstance(value, FunctionType):
        for name, get in _scope(value):
            _follow(name, get, depth, found, seen)
    elif isinstance(value, MethodType):
        _visit(value.__func__, label, depth, found, seen)
        _visit(value.__self__, label or type(value.__self__).__name__, depth, found, seen)
    elif isinstance(value, partial):
        _visit(value.func, label, depth, found, seen)
        _follow("args", lambda: value.args, depth, found, seen)
        _follow("keywords", lambda: value.keywords, depth, found, seen)
    elif hasattr(value, "__dict__"):
        fields = vars(value)
        own = label or type(value).__name__
        for name in list(fields):
            _follow(f"{own}.{name}", _attribute(fields, name), depth, found, seen)
        call = vars(type(value)).get("__call__")
        if isinstance(call, FunctionType):
            _visit(call, label, depth, found, seen)


def _follow(
    name: str, get: Callable[[], Any], depth: int, found: list[Reference], seen: set[int]
) -> None:
    try:
        value = get()
    except (ValueError, KeyError):  # a cell that is still empty
        return
    if next(tensors_in(value), None) is not None:
        found.append((name, get))
    elif isinstance(value, tuple | list):
        for child in value[:64]:
            _visit(child, name, depth + 1, found, seen)
    else:
        _visit(value, name, depth + 1, found, seen)


def _scope(function: FunctionType) -> Iterator[Reference]:
    """The variables that a function uses and does not make."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield name, _contents(cell)
    space = function.__globals__
    for name in _names(code):
        if name in space:
            yield name, _attribute(space, name)
    if function.__defaults__:
        yield f"the defaults of {function.__name__}", lambda: function.__defaults__
    if function.__kwdefaults__:
        yield f"the defaults of {function.__name__}", lambda: function.__kwdefaults__


def _names(code: CodeType) -> set[str]:
    """The globals that code may use, with that of functions within it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def _contents(cell: CellType) -> Callable[[], Any]:
    return lambda: cell.cell_contents


def _attribute(space: dict[str, Any], name: str) -> Callable[[], Any]:
    return lambda: space[name]


def tensors_in(value: Any, depth: int = 0) -> Iterator[Tensor]:
    """The tensors of a container."""
    if isinstance(value, Tensor):
        yield value
    elif depth < _DEEP:
        if isinstance(value, dict):
            for child in list(value.values()):
                yield from tensors_in(child, depth + 1)
        elif isinstance(value, tuple | list):
            for child in value:
                yield from tensors_in(child, depth + 1)
