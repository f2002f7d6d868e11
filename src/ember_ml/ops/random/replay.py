"""Draws that are made again: a function that runs a second time gets the numbers of the first.

Every source of random numbers counts its draws and takes the next number through `taken`. Within
`noted`, it is written down where each source stood when it was first used; within `repeated`, the
same sources count from there once more, and those of other programs are not moved.

Within a `Count`, sources stay where they are until it is known which draws are to be counted: a
function that an engine traces is run once for many steps, or for none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

__all__ = [
    "Count",
    "Counted",
    "DrawnError",
    "Draws",
    "Number",
    "approximate",
    "born",
    "noted",
    "refused",
    "repeated",
    "taken",
]

# An int; a 0-d integer tensor where it depends on what an engine traces.
Number = Any
# A source, which knows when it was made (`born`), and what of it is counted.
Counted = tuple[Any, str]
Advance = Callable[[Number], Number]
# Where each source stood at first.
Draws = dict[Counted, Number]

_BIRTHS: Final = itertools.count()


def born() -> int:
    """A number that is larger for what is made later."""
    return next(_BIRTHS)


class _Noting:
    """Lets draws happen, and writes down where they began."""

    __slots__ = ("draws", "outer")

    def __init__(self, draws: Draws, outer: _Scope | None) -> None:
        self.draws = draws
        self.outer = outer

    def take(self, counted: Counted, calls: Number, advance: Advance) -> Number:
        number = advance(calls) if self.outer is None else self.outer.take(counted, calls, advance)
        self.draws.setdefault(counted, number)
        return number


class _Repeating:
    """Counts beside the sources, from where they stood."""

    __slots__ = ("next",)

    def __init__(self, draws: Draws) -> None:
        self.next = dict(draws)

    def take(self, counted: Counted, calls: Number, advance: Advance) -> Number:
        number = self.next.get(counted)
        if number is None:  # made meanwhile, or not used the first time
            return advance(calls)
        self.next[counted] = number + calls
        return number


class _Refusing:
    """Lets no draws happen."""

    __slots__ = ()

    def take(self, counted: Counted, calls: Number, advance: Advance) -> Number:
        raise DrawnError(None, counted, advance)


class DrawnError(BaseException):
    """A function drew from a source whose count was not handed to it.

    It goes through that function, which may catch every Exception, and then do something else.
    """

    def __init__(self, count: Count | None, counted: Counted, advance: Advance) -> None:
        super().__init__("a draw whose number is not known here")
        self.count = count
        self.counted = counted
        self.advance = advance


class Count:
    """Counts draws beside the sources, from where they stand or from numbers that are given.

    With `given`, a draw from any other source raises DrawnError. Sources that are made within the
    block are not beside it: they begin anew whenever the block does.
    """

    __slots__ = (
        "_advances",
        "_born",
        "_given",
        "_starts",
        "_token",
        "approximate",
        "calls",
        "outer",
    )

    def __init__(self, given: Draws | None = None) -> None:
        self._born = born()
        self._given = given
        self.outer: _Scope | None = None
        self._starts: Draws = {}
        self._advances: dict[Counted, Advance] = {}
        # How many calls each source has had.
        self.calls: Draws = {}
        # True where more was counted than may be needed.
        self.approximate = False

    def __enter__(self) -> Count:
        self._starts = {} if self._given is None else dict(self._given)
        self._advances = {}
        self.approximate = False
        self.calls = dict.fromkeys(self._starts, 0)
        self.outer = _SCOPE.get()
        self._token = _SCOPE.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _SCOPE.reset(self._token)

    def take(self, counted: Counted, calls: Number, advance: Advance) -> Number:
        if counted[0].born > self._born:
            return advance(calls)
        if counted not in self._starts:
            if self._given is not None:
                raise DrawnError(self, counted, advance)
            outer = self.outer
            self._starts[counted] = advance(0) if outer is None else outer.take(counted, 0, advance)
            self.calls[counted] = 0
        self._advances[counted] = advance
        before = self.calls[counted]
        self.calls[counted] = before + calls
        return self._starts[counted] + before

    def settle(self) -> None:
        """Let the sources go on to where the draws of the block have come."""
        for counted, advance in self._advances.items():
            taken(counted, self.calls[counted], advance)

    def advance_of(self, counted: Counted) -> Advance:
        """How a source that was drawn from is advanced."""
        return self._advances[counted]


_Scope = _Noting | _Repeating | _Refusing | Count
_SCOPE: Final[ContextVar[_Scope | None]] = ContextVar("ember_ml draws", default=None)


def taken(counted: Counted, calls: Number, advance: Advance) -> Number:
    """The number of the next draw of a source; `advance` takes it from the source itself."""
    scope = _SCOPE.get()
    return advance(calls) if scope is None else scope.take(counted, calls, advance)


def approximate() -> None:
    """Note that draws were counted which only some examples of a batch may need."""
    scope = _SCOPE.get()
    while isinstance(scope, Count | _Noting):
        if isinstance(scope, Count):
            scope.approximate = True
        scope = scope.outer


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
    """Raise DrawnError at the first draw within the block; no source is moved."""
    token = _SCOPE.set(_Refusing())
    try:
        yield
    finally:
        _SCOPE.reset(token)
