"""Draws that are made again: a function that runs a second time gets the numbers of the first.

Every source of random numbers counts its draws and takes the next number through `taken`. Within
`noted`, it is written down where each source stood when it was first used; within `repeated`, the
same sources count from there once more, and those of other programs are not moved.

Within a `Count`, sources stay where they are until it is known which draws are to be counted: a
function that an engine traces is run once for many steps, or for none. A source that other threads
may draw from, as a Generator, is not left where it stands: its numbers are taken at once and kept
in `Taken`, and all runs that begin at one place get the same of them.
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
    "Taken",
    "approximate",
    "born",
    "noted",
    "refused",
    "repeated",
    "taken",
]

# An int; a 0-d integer tensor where it depends on what an engine traces.
Number = Any
# A source, which knows when it was made (`born`) and whether other threads may draw from it
# (`shared`), and what of it is counted.
Counted = tuple[Any, str]
Advance = Callable[[Number], Number]
# Where each source stood at first; the numbers themselves of one that is shared.
Draws = dict[Counted, Number]

_BIRTHS: Final = itertools.count()


def born() -> int:
    """A number that is larger for what is made later."""
    return next(_BIRTHS)


class _Runs:
    """Numbers that were taken from a source, one after the other.

    They are kept as runs without a gap: one, unless others drew from the source in between.
    """

    __slots__ = ("_runs",)

    def __init__(self, runs: list[tuple[int, int]] | None = None) -> None:
        # The first of each, and how many.
        self._runs: list[tuple[int, int]] = [] if runs is None else runs

    def size(self) -> int:
        """How many there are, which may be more than `len` can tell."""
        return sum(count for _, count in self._runs)

    def copy(self) -> _Runs:
        return _Runs(self._runs.copy())

    def add(self, number: int, calls: int) -> None:
        """Append numbers that were taken."""
        if self._runs:
            first, count = self._runs[-1]
            if first + count == number:
                self._runs[-1] = first, count + calls
                return
        self._runs.append((number, calls))

    def at(self, place: int, calls: int, more: Callable[[int], int]) -> int:
        """The first of some numbers that follow each other; `more` takes those that are missing."""
        before = place
        for i, (first, count) in enumerate(self._runs):
            if before + calls <= count:
                return first + before
            if before < count:  # they begin here, and do not end here
                last = i == len(self._runs) - 1
                if last and (number := more(before + calls - count)) == first + count:
                    self.add(number, before + calls - count)
                    return first + before
                self._runs[i:] = [(first, before)]
                break
            before -= count
        number = more(calls)
        self.add(number, calls)
        return number

    def drop(self, place: int, number: int, calls: int) -> bool:
        """Forget some numbers; False where they are not the last ones."""
        first, count = self._runs[-1]
        if self.size() != place + calls or first + count != number + calls or calls > count:
            return False
        self._runs[-1] = first, count - calls
        return True

    def reversed(self) -> list[tuple[int, int]]:
        """The runs, from the last to the first."""
        return self._runs[::-1]

    def after(self) -> int:
        """The number that follows the last."""
        first, count = self._runs[-1]
        return first + count


# What was taken of shared sources, for all runs that begin where they stood.
Taken = dict[Counted, _Runs]


class _Noting:
    """Lets draws happen, and writes down where they began."""

    __slots__ = ("draws", "outer")

    def __init__(self, draws: Draws, outer: _Scope | None) -> None:
        self.draws = draws
        self.outer = outer

    def take(self, counted: Counted, calls: Number, advance: Advance) -> Number:
        number = advance(calls) if self.outer is None else self.outer.take(counted, calls, advance)
        if counted[0].shared:
            self.draws.setdefault(counted, _Runs()).add(number, calls)
        else:
            self.draws.setdefault(counted, number)
        return number

    def give_back(self, counted: Counted, number: int, calls: int) -> None:
        runs: _Runs = self.draws[counted]
        if runs.drop(runs.size() - calls, number, calls):
            _give_back(self.outer, counted, number, calls)


class _Repeating:
    """Counts beside the sources, from where they stood."""

    __slots__ = ("_places", "next")

    def __init__(self, draws: Draws) -> None:
        self.next = {
            counted: number.copy() if type(number) is _Runs else number
            for counted, number in draws.items()
        }
        self._places: dict[Counted, int] = {}

    def take(self, counted: Counted, calls: Number, advance: Advance) -> Number:
        number = self.next.get(counted)
        if number is None:  # made meanwhile, or not used the first time
            return advance(calls)
        if type(number) is _Runs:
            runs, place = number, self._places.get(counted, 0)
            self._places[counted] = place + calls
            return runs.at(place, calls, lambda _: runs.after())
        self.next[counted] = number + calls
        return number

    def give_back(self, counted: Counted, number: int, calls: int) -> None:
        if counted in self.next:
            self._places[counted] -= calls
        else:
            counted[0].give_back(counted[1], number, calls)


class _Refusing:
    """Lets no draws happen."""

    __slots__ = ()

    def give_back(self, counted: Counted, number: int, calls: int) -> None:
        """Nothing, as nothing was taken."""

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
    block are not beside it: they begin anew whenever the block does. Blocks that begin at the same
    place have one `taken`.
    """

    __slots__ = (
        "_advances",
        "_born",
        "_given",
        "_starts",
        "_taken",
        "_token",
        "approximate",
        "calls",
        "outer",
    )

    def __init__(self, given: Draws | None = None, taken: Taken | None = None) -> None:
        self._born = born()
        self._given = given
        self._taken: Taken = {} if taken is None else taken
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
            if not counted[0].shared:
                start = advance(0) if outer is None else outer.take(counted, 0, advance)
                self._starts[counted] = start
            self.calls.setdefault(counted, 0)
        self._advances[counted] = advance
        before = self.calls[counted]
        self.calls[counted] = before + calls
        if counted[0].shared:
            return self._kept(counted, before, calls, advance)
        return self._starts[counted] + before

    def _kept(self, counted: Counted, before: int, calls: int, advance: Advance) -> int:
        """The number of a draw from a shared source, which every block of `taken` gets."""
        outer = self.outer

        def more(missing: int) -> int:
            number: int = (
                advance(missing) if outer is None else outer.take(counted, missing, advance)
            )
            return number

        return self._taken.setdefault(counted, _Runs()).at(before, calls, more)

    def drop(self) -> None:
        """Give back what was taken, for draws that are made once more, some of them perhaps.

        A source from which others have drawn meanwhile stays where it is.
        """
        for counted, runs in self._taken.items():
            for number, calls in runs.reversed():
                _give_back(self.outer, counted, number, calls)
        self._taken.clear()

    def give_back(self, counted: Counted, number: int, calls: int) -> None:
        if counted[0].born > self._born:
            counted[0].give_back(counted[1], number, calls)
            return
        place = self.calls[counted] = self.calls[counted] - calls
        if self._taken[counted].drop(place, number, calls):
            _give_back(self.outer, counted, number, calls)

    def settle(self) -> None:
        """Let the sources go on to where the draws of the block have come."""
        for counted, advance in self._advances.items():
            if not counted[0].shared:  # which has gone on already
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


def _give_back(scope: _Scope | None, counted: Counted, number: int, calls: int) -> None:
    """Undo `taken` of a shared source, where nobody has drawn from it since."""
    if scope is None:
        counted[0].give_back(counted[1], number, calls)
    else:
        scope.give_back(counted, number, calls)


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
