"""Tensors that stand for operands while a function is traced, wherever they are kept.

Parameters of a model, tensors that a function closes over, the state of an optimizer: the tensor
itself holds an operand for the time of the trace, and what it held before afterwards. So all who
look at it see the trace, and nothing is left of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final

import numpy as np

from ember_ml.autodiff import tape
from ember_ml.autodiff.compiling import captured, hooks
from ember_ml.graph.tracing.backend import GraphBackend
from ember_ml.graph.tracing.operand import Operand
from ember_ml.nn import members
from ember_ml.structure import node_of
from ember_ml.tensor.cell import Cell
from ember_ml.tensor.core import GradTensor, Tensor

__all__ = ["host", "installed", "modules_in", "named_tensors", "owners_in", "scope_of", "unchanged"]

_DEEP: Final = 4
_SLOTS: Final[dict[str, Any]] = {
    name: vars(Cell)[name] for name in ("native", "_spec", "_home", "_node", "_role")
}
Named = tuple[str, Tensor]


def host(x: Tensor) -> np.ndarray[Any, Any]:
    """The values of a tensor of any backend."""
    backend = x._spec.backend
    return backend.to_numpy(backend.detach(x.native))


# --- Finding ------------------------------------------------------------------------------------


def named_tensors(value: Any, name: str, seen: set[int] | None = None) -> Iterator[Named]:
    """The tensors of a tree, a module or an object that tells its state, with their names."""
    seen = set() if seen is None else seen
    if isinstance(value, Tensor):
        if id(value) not in seen:
            seen.add(id(value))
            yield name, value
    elif getattr(value, "_is_module", False):
        for path, x in members.tensors(value, name):
            yield from named_tensors(x, path, seen)
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from named_tensors(child, f"{name}.{key}", seen)
    elif isinstance(value, list | tuple):
        fields = getattr(value, "_fields", None) or range(len(value))
        for key, child in zip(fields, value, strict=True):
            yield from named_tensors(child, f"{name}.{key}", seen)
    elif value is not None and id(value) not in seen:
        hook = hooks.of(type(value))
        if hook is not None:
            seen.add(id(value))
            yield from named_tensors(hook.get(value), name, seen)
        elif not isinstance(value, str | int | float | np.ndarray):
            how = node_of(type(value))
            if how is not None:
                children, aux = how.flatten(value)
                for place, child in enumerate(children):
                    yield from named_tensors(child, f"{name}.{place}", seen)
                del aux


def modules_in(value: Any) -> Iterator[Any]:
    """The modules in a tree."""
    return (one for one in owners_in(value) if getattr(one, "_is_module", False))


def owners_in(value: Any, depth: int = 0) -> Iterator[Any]:
    """The modules, optimizers, caches and other objects that hold tensors, in a tree."""
    if isinstance(value, type | Tensor):
        return
    if getattr(value, "_is_module", False):
        yield from (module for _, module in members.modules(value))
    elif hooks.of(type(value)) is not None:
        yield value
    elif depth < _DEEP:
        if isinstance(value, dict):
            for child in list(value.values()):
                yield from owners_in(child, depth + 1)
        elif isinstance(value, list | tuple):
            for child in value:
                yield from owners_in(child, depth + 1)


def scope_of(
    function: Any, depth: int = 0, seen: set[int] | None = None
) -> Iterator[tuple[str, Any]]:
    """What a function closes over and names, by name; and what such functions do in turn."""
    seen = set() if seen is None else seen
    if depth > _DEEP or id(function) in seen:
        return
    seen.add(id(function))
    if isinstance(function, MethodType):
        yield "", function.__self__
        function = function.__func__
    if isinstance(function, partial):
        yield "args", [*function.args, *function.keywords.values()]
        yield from scope_of(function.func, depth + 1, seen)
        return
    inner = getattr(function, "_function", None) or getattr(function, "__wrapped__", None)
    if callable(inner):
        yield from scope_of(inner, depth + 1, seen)
    if not isinstance(function, FunctionType):
        return
    for name, get in captured._scope(function):
        try:
            value = get()
        except (ValueError, KeyError):  # a cell that is still empty
            continue
        yield name, value
        if callable(value) and not isinstance(value, type):
            yield from scope_of(value, depth + 1, seen)


# --- Installing ---------------------------------------------------------------------------------


@contextmanager
def installed(found: list[tuple[Tensor, Operand]], backend: GraphBackend) -> Iterator[None]:
    """A block in which tensors hold operands."""
    saved: list[tuple[Tensor, type, dict[str, Any]]] = []
    try:
        for x, operand in found:
            state = {name: slot.__get__(x) for name, slot in _SLOTS.items() if _has(slot, x)}
            saved.append((x, type(x), state))
            leaf = type(x) is GradTensor and x.is_leaf
            spec = backend.spec(x._spec.dtype)
            _clear(x, ("_home", "_node"))
            kind: Any = GradTensor if leaf else Tensor
            x.__class__ = kind
            _SLOTS["native"].__set__(x, operand)
            x._spec = spec
            if leaf:
                x._node = tape.Leaf()
        yield
    finally:
        for x, own, state in reversed(saved):
            _clear(x, _SLOTS)
            x.__class__ = own
            for name, value in state.items():
                _SLOTS[name].__set__(x, value)


def _has(slot: Any, x: Tensor) -> bool:
    try:
        slot.__get__(x)
    except AttributeError:
        return False
    return True


def _clear(x: Tensor, names: Any) -> None:
    for name in names:
        if _has(_SLOTS[name], x):
            _SLOTS[name].__delete__(x)


@contextmanager
def unchanged(objects: list[Any]) -> Iterator[None]:
    """A block after which modules and other objects have the attributes of before."""
    before = [(one, _copied(vars(one))) for one in objects if hasattr(one, "__dict__")]
    try:
        yield
    finally:
        for one, (attributes, containers) in before:
            fields = vars(one)
            fields.clear()
            fields.update(attributes)
            for container, content in containers:
                if isinstance(container, dict):
                    container.clear()
                    container.update(content)
                else:
                    container[:] = content


def _copied(attributes: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[Any, Any]]]:
    containers: list[tuple[Any, Any]] = []

    def note(value: Any, depth: int) -> None:
        if type(value) is dict:
            containers.append((value, dict(value)))
            inner = list(value.values())
        elif type(value) is list:
            containers.append((value, list(value)))
            inner = value
        else:
            return
        if depth < _DEEP:
            for child in inner:
                note(child, depth + 1)

    for value in attributes.values():
        note(value, 0)
    return dict(attributes), containers
