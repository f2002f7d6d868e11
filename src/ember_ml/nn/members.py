"""What a module holds: its tensors and the modules in it, found where they stand.

Attributes are looked at when they are asked for, in the order in which they were set. Lists, tuples
and dicts are looked into, so a plain list of modules is part of the model. Names are joined with
dots, as in files of PyTorch: `layers.0.weight`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from ember_ml.tensor.core import Tensor

if TYPE_CHECKING:
    from ember_ml.nn.module import Module

__all__ = ["HIDDEN", "children", "copied", "listed", "modules", "tensors"]

# Attributes of every module that hold nothing of the model itself.
HIDDEN: Final = frozenset(("_arguments", "_hooks"))
_MARK: Final = "_is_module"
# What most attributes are, and nothing is in.
_NUMBERS: Final = frozenset((int, bool, str, float, type(None)))


def _within(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Tensors and modules in an attribute, with their names."""
    if isinstance(value, Tensor) or getattr(value, _MARK, False):
        yield name, value
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _within(f"{name}.{place}", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _within(f"{name}.{key}", item)


def _members(module: Module) -> Iterator[tuple[str, Any]]:
    for name, value in module.__dict__.items():
        kind = type(value)
        if kind in _NUMBERS:
            continue
        if name == module._unnamed:
            for key, item in value.items() if kind is dict else enumerate(value):
                yield from _within(str(key), item)
        elif name not in HIDDEN:
            yield from _within(name, value)


def tensors(module: Module, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a module and the modules in it, each once, with its first name."""
    return iter(listed(module, prefix)[0])


def listed(module: Module, prefix: str = "") -> tuple[list[tuple[str, Tensor]], bool]:
    """The same as a list; and whether a layer still waits for its sizes.

    One walk without generators: gradients and optimizers ask at every step.
    """
    walk = _Walk({id(module)})
    walk.into(module, f"{prefix}." if prefix else "")
    return walk.found, walk.waits


class _Walk:
    """What was found on the way through a module."""

    __slots__ = ("found", "seen", "waits")

    def __init__(self, seen: set[int]) -> None:
        self.seen = seen
        self.found: list[tuple[str, Tensor]] = []
        self.waits = False

    def into(self, module: Module, dotted: str) -> None:
        """Look at the attributes of a module."""
        if module.is_lazy:
            self.waits = True
        unnamed = module._unnamed
        for name, value in module.__dict__.items():
            kind = type(value)
            if kind in _NUMBERS:
                continue
            if name == unnamed:
                for key, item in value.items() if kind is dict else enumerate(value):
                    self.at(f"{dotted}{key}", item)
            elif name not in HIDDEN:
                self.at(dotted + name, value)

    def at(self, name: str, value: Any) -> None:
        """Look at one attribute, or at one of several in it."""
        if isinstance(value, Tensor):
            if id(value) not in self.seen:
                self.seen.add(id(value))
                self.found.append((name, value))
        elif getattr(value, _MARK, False):
            if id(value) not in self.seen:
                self.seen.add(id(value))
                self.into(value, name + ".")
        elif isinstance(value, (list, tuple)):
            for place, item in enumerate(value):
                self.at(f"{name}.{place}", item)
        elif isinstance(value, dict):
            for key, item in value.items():
                self.at(f"{name}.{key}", item)


def children(module: Module) -> Iterator[tuple[str, Module]]:
    """The modules right below a module, each once."""
    seen: set[int] = set()
    for name, value in _members(module):
        if not isinstance(value, Tensor) and id(value) not in seen:
            seen.add(id(value))
            yield name, value


def modules(module: Module, prefix: str = "") -> Iterator[tuple[str, Module]]:
    """A module and all modules in it, each once, with its first name."""
    seen: set[int] = set()
    waiting: list[tuple[str, Module]] = [(prefix, module)]
    while waiting:
        path, one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield path, one
        dotted = f"{path}." if path else ""
        below = [(dotted + name, child) for name, child in children(one)]
        waiting += reversed(below)


def copied(module: Module, replaced: Callable[[Tensor], Tensor]) -> Module:
    """A module of the same attributes with other tensors in it; what is shared stays shared."""
    made: Module = _copied(module, replaced, {})
    return made


def _copied(module: Any, replaced: Callable[[Tensor], Tensor], known: dict[int, Any]) -> Any:
    made = known.get(id(module))
    if made is not None:
        return made
    made = known[id(module)] = object.__new__(type(module))
    attributes = made.__dict__
    for name, value in module.__dict__.items():
        kind = type(value)
        if kind is int or kind is bool or kind is str or name in HIDDEN:
            attributes[name] = value
        else:
            attributes[name] = _replaced(value, replaced, known)
    return made


def _replaced(value: Any, replaced: Callable[[Tensor], Tensor], known: dict[int, Any]) -> Any:
    if isinstance(value, Tensor):
        return replaced(value)
    if getattr(value, _MARK, False):
        return _copied(value, replaced, known)
    kind = type(value)
    if kind is list or kind is tuple:
        return kind([_replaced(item, replaced, known) for item in value])
    if kind is dict:
        return {key: _replaced(item, replaced, known) for key, item in value.items()}
    return value
