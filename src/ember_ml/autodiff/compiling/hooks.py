"""How objects tell em.jit of the tensors that they hold.

A class has `__jit_state__(self)`, which gives a tree of its tensors, of random Generators and of
other such objects; or it is given to `register_state`. Functions may write to those tensors in
place. Where they put other tensors in their place, these are set by `__set_jit_state__(self,
tree)`; without it, a dict from `__jit_state__` is taken to name attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ember_ml.errors import DomainError, TraceError

__all__ = ["Hook", "of", "register_state"]


class Hook(NamedTuple):
    """How instances of a class give their state, and take it."""

    get: Callable[[Any], Any]
    put: Callable[[Any, Any], None]


_REGISTERED: Final[dict[type, Hook]] = {}
_KNOWN: Final[dict[type, Hook | None]] = {}


def register_state(
    cls: type,
    get: Callable[[Any], Any],
    put: Callable[[Any, Any], None] | None = None,
) -> None:
    """Tell em.jit what the state of instances of a class is: see `em.jit`.

    `get(instance)` gives a tree of tensors, Generators and other objects with a state;
    `put(instance, tree)` sets one of the same structure. Subclasses are included.

    >>> class Counter:
    ...     def __init__(self):
    ...         self.count = ops.zeros(())
    >>> register_state(Counter, lambda counter: {"count": counter.count})
    >>> counter = Counter()
    >>> @em.jit(state=counter)
    ... def step(x):
    ...     counter.count = counter.count + 1.0
    ...     return x * counter.count
    >>> [step(ops.ones(())).item() for _ in range(3)], counter.count.item()
    ([1.0, 2.0, 3.0], 3.0)
    """
    if cls in _REGISTERED:
        raise DomainError(f"register_state got {cls.__name__}, whose state is known already")
    _REGISTERED[cls] = Hook(get, put or _set_attributes)
    _KNOWN.clear()


def of(cls: type) -> Hook | None:
    """The hook of a class; None where its instances are leaves."""
    try:
        return _KNOWN[cls]
    except KeyError:
        found = _find(cls)
        if len(_KNOWN) < 4096:  # classes made by the thousand must not be kept alive without end
            _KNOWN[cls] = found
        return found


def _find(cls: Any) -> Hook | None:
    for base in cls.__mro__:
        if base in _REGISTERED:
            return _REGISTERED[base]
    get = getattr(cls, "__jit_state__", None)
    return None if get is None else Hook(get, getattr(cls, "__set_jit_state__", _set_attributes))


def _set_attributes(instance: Any, state: Any) -> None:
    if type(state) is not dict or not all(isinstance(name, str) for name in state):
        raise TraceError(
            f"a compiled function put other tensors into a {type(instance).__name__}, whose state "
            f"is no dict of attributes; write to its tensors in place, as in `w[...] = value`, or "
            f"give the class __set_jit_state__(self, tree)"
        )
    for name, value in state.items():
        if getattr(instance, name, None) is not value:
            setattr(instance, name, value)
