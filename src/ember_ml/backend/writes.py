"""What was written in place, and when: so that a gradient is not computed from changed values.

An engine whose arrays can be written, and that keeps no record of its own, tells of each write
here. The memory of an array is known by the array that owns it, as torch knows it by its storage:
a write to any part of it counts.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

from itertools import count
from threading import Lock
from typing import Any, Final
from weakref import ref

import numpy as np

__all__ = ["STATE", "changed", "note", "root"]

_COUNT: Final = count(1)
_LOCK: Final = Lock()
# By the id of an array: a weak reference to it, and which write was the last.
_LAST: Final[dict[int, tuple[Any, int]]] = {}
# A constant, which compiled code holds at hand.
_ARRAY: Final[Any] = np.ndarray


class _State:
    """One object, whose fields are read without a look-up of globals that change."""

    __slots__ = ("serial", "watching")

    def __init__(self) -> None:
        # How many writes there have been.
        self.serial = 0
        # True once something is kept that a write could change.
        self.watching = False


STATE: Final = _State()


def note(array: Any) -> None:
    """Tell that an array was written to."""
    if not STATE.watching:
        return
    root = _root(array)
    key = id(root)

    def forget(dead: Any) -> None:
        found = _LAST.get(key)
        if found is not None and found[0] is dead:
            del _LAST[key]

    with _LOCK:
        STATE.serial = next(_COUNT)
        _LAST[key] = (ref(root, forget), STATE.serial)


def changed(array: Any, since: int) -> bool:
    """True where the memory of an array was written to after `since`."""
    if type(array) is not _ARRAY:
        return False
    found = _LAST.get(id(_root(array)))
    return found is not None and found[1] > since


def root(array: Any) -> Any:
    """The array that owns the memory of an array; None for what cannot be written in place."""
    return _root(array) if type(array) is _ARRAY else None


def _root(array: Any) -> Any:
    base = array.base
    while isinstance(base, _ARRAY):
        array, base = base, base.base
    return array
