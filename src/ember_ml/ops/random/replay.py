"""Draws that are made again: a function that runs a second time gets the numbers of the first.

Every source of random numbers counts its draws and takes the next number through `taken`. Within
`noted`, it is written down where each source stood when it was first used; within `repeated`, the
same sources count from there once more, and those of other programs are not moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from ember_ml.errors import UnsupportedOpError

__all__ = ["Draws", "noted", "refused", "repeated", "taken"]

# A source, and what of it is counted.
Counted = tuple[object, str]
Advance = Callable[[int], int]
# Where each source stood at first.
Draws = dict[Counted, int]


class _Noting:
    """Lets draws happen, and writes down where they began."""

    __slots__ = ("draws", "outer")

    def __init__(self, draws: Draws, outer: _Noting | _Repeating | _Refusing | None) -> None:
        self.draws = draws
        self.outer = outer

    def take(self, counted: Counted, calls: int, advance: Advance) -> int:
        number = advance(calls) if self.outer is None else self.outer.take(counted, calls, advance)
        self.draws.setdefault(counted, number)
        return number


class _Repeating:
    """Counts beside the sources, from where they stood."""

    __slots__ = ("next",)

    def __init__(self, draws: Draws) -> None:
        self.next = dict(draws)

    def take(self, counted: Counted, calls: int, advance: Advance) -> int:
        number = self.next.get(counted)
        if number is None:  # made meanwhile, or not used the first time
            return advance(calls)
        self.next[counted] = number + calls
        return number


class _Refusing:
    """Lets no draws happen."""

    __slots__ = ()

    def take(self, counted: Counted, calls: int, advance: Advance) -> int:
        raise UnsupportedOpError("no random numbers can be drawn here")


_Scope = _Noting | _Repeating | _Refusing
_SCOPE: Final[ContextVar[_Scope | None]] = ContextVar("ember_ml draws", default=None)


def taken(counted: Counted, calls: int, advance: Advance) -> int:
    """The number of the next draw of a source; `advance` takes it from the source itself."""
    scope = _SCOPE.get()
    return advance(calls) if scope is None else scope.take(counted, calls, advance)


@contextmanager
def noted(draws: Draws) -> Iterator[None]:
    """Write down where the sources of draws within the block stand."""
    token = _SCOPE.set(_Noting(draws, _SCOPE.get()))
    try:
        yield
    finally:
        _SCOPE.reset(token)


@contextmanager
def repeated(draws: Draws) -> Iterator[None]:
    """Give the draws within the block the numbers that they had where they were noted."""
    token = _SCOPE.set(_Repeating(draws))
    try:
        yield
    finally:
        _SCOPE.reset(token)


@contextmanager
def refused() -> Iterator[None]:
    """Raise an error at the first draw within the block; no source is moved."""
    token = _SCOPE.set(_Refusing())
    try:
        yield
    finally:
        _SCOPE.reset(token)
