"""Counts of draws that go through an engine's branches and loops, so that each draw is a new one.

A body that an engine traces is run once and stands for all steps: the number of a draw in it must
follow from a value that changes from step to step. So the counts of the sources go round with the
carry. A function is first run without; where it draws, it is run again with the count of what it
drew from as one more operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ember_ml import dtypes
from ember_ml.backend.contract import Backend, NativeArray
from ember_ml.errors import TraceError
from ember_ml.ops import elementwise
from ember_ml.ops.random import replay
from ember_ml.ops.random.seeding import KeyStream
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill

__all__ = ["Counts", "HostedError", "counted", "largest", "settle"]

R = TypeVar("R")
Join = Callable[[Sequence[replay.Number]], replay.Number]


class HostedError(Exception):
    """A body draws from a Generator, whose numbers are made in host memory while it is traced."""


def counted(name: str, backend: Backend, run: Callable[[Counts], R]) -> R:
    """What `run` gives, with the counts of all sources that its functions draw from."""
    counts = Counts(name, backend)
    while True:
        try:
            return run(counts)
        except replay.DrawnError as drawn:
            if not counts.add(drawn):
                raise
        except _ReturnError as error:
            if error.counts is not counts:
                raise
            counts.returned = True


class _ReturnError(Exception):
    """How much a branch draws is known to that branch alone."""

    def __init__(self, counts: Counts) -> None:
        super().__init__("a branch must give its counts")
        self.counts = counts


class Counts:
    """The counts of some sources: operands of an engine's control flow, and results."""

    def __init__(self, name: str, backend: Backend) -> None:
        self._name = name
        self._spec = backend.spec(dtypes.int32, convert.device_for(backend))
        self._sources: dict[replay.Counted, replay.Advance] = {}
        self._starts: list[Tensor] = []
        self._scopes: list[replay.Count] = []
        # How many draws a run of the functions made; more than one number where that differs.
        self._made: list[set[int | None]] = []
        self._asked: list[int] | None = None
        self._branches: dict[int, list[replay.Number]] = {}
        # Whether branches give counts beside their results.
        self.returned = False

    def add(self, drawn: replay.DrawnError) -> bool:
        """Hand on one more count; False where it is not a function of ours that drew."""
        if not any(drawn.count is scope for scope in self._scopes):
            return False
        source = drawn.counted[0]
        if not isinstance(source, KeyStream):
            raise HostedError(f"ops.{self._name}: {source!r}") from None
        # A key that is made at the first draw would be one of the body alone.
        _ = source.key
        self._sources[drawn.counted] = drawn.advance
        self._starts.append(self._tensor(replay.taken(drawn.counted, 0, drawn.advance)))
        self._scopes = []
        self._made = [set() for _ in self._starts]
        self._asked = None
        return True

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def natives(self) -> list[NativeArray]:
        """Where the sources stand."""
        return [t.native for t in self._starts]

    @contextmanager
    def within(self, natives: Sequence[NativeArray]) -> Iterator[list[NativeArray]]:
        """A block that draws from there on; the list holds the counts after it."""
        asked = self._asked or [0] * len(natives)
        given = [fill(n, self._spec) + more for n, more in zip(natives, asked, strict=True)]
        after: list[NativeArray] = []
        with self._scope(given) as scope:
            yield after
        for start, calls, made in zip(given, scope.calls.values(), self._made, strict=True):
            made.add(calls if isinstance(calls, int) else None)
            after.append(self._tensor(start + calls).native)

    def branch(
        self, function: Callable[..., list[NativeArray]], place: int
    ) -> Callable[..., list[NativeArray]]:
        """One of several functions, with the counts before its operands.

        They come before its results only where they must: torch has no gradient of a branch that
        gives integers.
        """

        def run(*natives: NativeArray) -> list[NativeArray]:
            with self._scope([fill(n, self._spec) for n in natives[: len(self)]]) as scope:
                out = function(*natives[len(self) :])
            calls = list(scope.calls.values())
            self._branches[place] = calls
            if self.returned:
                starts = zip(natives, calls, strict=False)
                return [*[self._tensor(fill(n, self._spec) + c).native for n, c in starts], *out]
            if not all(type(one) is int for one in calls):
                raise _ReturnError(self)
            return out

        return run

    def settle_branches(self, made: list[NativeArray], select: Join) -> list[NativeArray]:
        """Let the sources go on after one of several functions; gives its results alone."""
        known = len(self) if self.returned else 0
        for place, (source, advance) in enumerate(self._sources.items()):
            calls: replay.Number = [self._branches[b][place] for b in sorted(self._branches)]
            if self.returned:
                calls = fill(made[place], self._spec) - self._starts[place]
            else:
                calls = calls[0] if len(set(calls)) == 1 else select(calls)
            replay.taken(source, calls, advance)
        return made[known:]

    @contextmanager
    def asking(self, natives: Sequence[NativeArray]) -> Iterator[None]:
        """The same for the condition of a loop, which hands nothing on."""
        given = [fill(n, self._spec) for n in natives]
        with self._scope(given) as scope:
            yield
        if not all(isinstance(calls, int) for calls in scope.calls.values()):
            raise TraceError(
                f"ops.{self._name}: how many random numbers cond_fn draws depends on values that "
                f"are traced; draw in body_fn, or put a key into the carry and split it"
            )
        self._asked = list(scope.calls.values())

    def _scope(self, given: list[Tensor]) -> replay.Count:
        scope = replay.Count(dict(zip(self._sources, given, strict=True)))
        self._scopes.append(scope)
        return scope

    def settle(self, last: Sequence[NativeArray], times: int | None) -> None:
        """Let the sources go on; `times` says how often the functions ran, None if nobody knows."""
        parts = zip(self._sources.items(), self._starts, last, self._made, strict=True)
        for place, ((source, advance), start, native, made) in enumerate(parts):
            known = next(iter(made)) if len(made) == 1 else None
            calls: replay.Number
            if known is None or times is None:
                calls = fill(native, self._spec) - start
                if self._asked is not None:
                    calls = calls + self._asked[place]
            else:
                calls = known * times  # a number stays one: it belongs to no trace
            replay.taken(source, calls, advance)

    def _tensor(self, number: Any) -> Tensor:
        if isinstance(number, Tensor):
            return convert.cast(number, dtypes.int32)
        spec = self._spec
        # Counts go up to 2**32, and wrap as the number of a key does.
        return fill(spec.backend.full((), (number + (1 << 31)) % (1 << 32) - (1 << 31), spec), spec)


def settle(runs: Sequence[replay.Count], join: Join) -> None:
    """Let sources go on from several runs, of which each began where the first did."""
    for source in dict.fromkeys(source for run in runs for source in run.calls):
        if source[0].shared:  # which has gone on already, by the most that one run took
            continue
        calls = [run.calls.get(source, 0) for run in runs]
        advance = next(run.advance_of(source) for run in runs if source in run.calls)
        if len(set(calls)) == 1 and all(type(one) is int for one in calls):
            replay.taken(source, calls[0], advance)
        else:
            replay.taken(source, join(calls), advance)


def largest(calls: Sequence[replay.Number]) -> replay.Number:
    """The largest of some numbers of calls."""
    most, *others = calls
    for one in others:
        tensors = isinstance(one, Tensor) or isinstance(most, Tensor)
        most = elementwise.maximum(one, most) if tensors else max(one, most)
    return most
