"""Generator: a seed with a count of its draws, tied to no backend."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from ember_ml.errors import DomainError
from ember_ml.ops.axes import integer_of
from ember_ml.ops.random import host, replay

__all__ = ["Generator"]

_SEEDS: Final = 1 << 128
_CALLS: Final = 1 << 64
# Seeds of children have the top bit, so that none is a seed that somebody wrote down.
_CHILD: Final = 1 << 127
_STATE: Final = ("seed", "counter", "children")


class Generator:
    """A source of random numbers: `ops.random.normal((2, 3), generator=Generator(0))`.

    Its state is the seed and how many draws it has given. Each draw has a stream of its own, which
    depends on that number alone. One generator can be used by several threads: no two draws are
    the same, but which thread gets which depends on who comes first; `split` gives each its own.

    >>> a, b = Generator(7), Generator(7)
    >>> ops.random.normal((2,), generator=a).tolist() == ops.random.normal(2, generator=b).tolist()
    True
    """

    __slots__ = ("_children", "_counter", "_lock", "_seed", "born")

    # Threads may draw from it at the same time: see replay.py.
    shared: ClassVar[bool] = True

    def __init__(self, seed: int | None = None) -> None:
        self._lock = threading.Lock()
        self.born = replay.born()
        self._seed = entropy() if seed is None else seed_of(seed)
        self._counter = 0
        self._children = 0

    @property
    def seed(self) -> int:
        """The number from which everything follows."""
        return self._seed

    @property
    def counter(self) -> int:
        """How many draws have been made."""
        return self._counter

    def split(self, n: int = 2) -> list[Generator]:
        """New generators whose numbers have nothing to do with this one's or each other's.

        Later calls give other ones; draws in between do not matter.

        >>> Generator(0).split(2)[1].seed == Generator(0).split(3)[1].seed
        True
        """
        count = _count("split", n)
        first: int = replay.taken((self, "children"), count, self._add_children)
        return [Generator(child_seed(self._seed, first + i)) for i in range(count)]

    def _add_children(self, count: int) -> int:
        with self._lock:
            first = self._children
            self._children = first + count
        return first

    def jump(self, calls: int = 1) -> Generator:
        """Pass over some draws; gives the generator itself.

        >>> Generator(0).jump(10).counter
        10
        """
        self._take(_count("jump", calls))
        return self

    def next_call(self) -> tuple[int, int]:
        """The seed and the number of the next draw, which is then taken."""
        return self._seed, self._take(1)

    def _take(self, calls: int) -> int:
        number: int = replay.taken((self, "draws"), calls, self._advance)
        return number

    def _advance(self, calls: int) -> int:
        with self._lock:
            number = self._counter
            if number + calls > _CALLS:
                raise DomainError(f"{self!r} has no {calls} draws left; split it")
            self._counter = number + calls
        return number

    def give_back(self, what: str, number: int, calls: int) -> None:
        """Undo the taking of some draws or children, unless others came after it."""
        with self._lock:
            if what == "children":
                if self._children == number + calls:
                    self._children = number
            elif self._counter == number + calls:
                self._counter = number

    # --- State ------------------------------------------------------------------------------

    def get_state(self) -> dict[str, int]:
        """What `set_state` needs to go on from here: integers, which JSON and pickle can hold.

        >>> Generator(3).get_state()
        {'seed': 3, 'counter': 0, 'children': 0}
        """
        with self._lock:
            return {"seed": self._seed, "counter": self._counter, "children": self._children}

    def set_state(self, state: Mapping[str, int]) -> None:
        """Go on from a state that `get_state` gave."""
        if set(state) != set(_STATE):
            raise DomainError(
                f"the state of a Generator has {', '.join(_STATE)}; this is {state!r:.80}"
            )
        seed = seed_of(state["seed"])
        counter, children = (_count(name, state[name]) for name in _STATE[1:])
        with self._lock:
            self._seed, self._counter, self._children = seed, counter, children

    @property
    def state(self) -> dict[str, int]:
        """The state as `get_state` gives it; assigning sets it."""
        return self.get_state()

    @state.setter
    def state(self, state: Mapping[str, int]) -> None:
        self.set_state(state)

    def __getstate__(self) -> dict[str, int]:
        return self.get_state()

    def __setstate__(self, state: dict[str, int]) -> None:
        self._lock = threading.Lock()
        self.born = replay.born()
        self.set_state(state)

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, counter={self._counter})"


def entropy() -> int:
    """A seed that nobody can foresee."""
    return int.from_bytes(os.urandom(8), "little")


def child_seed(seed: int, number: int) -> int:
    """The seed of a generator's child."""
    low, high = host.raw(seed, number, host.CHILDREN, 2)
    return low | high << 64 | _CHILD


def seed_of(seed: Any, limit: int = _SEEDS) -> int:
    """A seed as a Python int."""
    number = integer_of("random", seed, "seed")
    if not 0 <= number < limit:
        raise DomainError(f"a seed is from 0 to 2**{limit.bit_length() - 1} - 1, not {number}")
    return number


def _count(what: str, value: Any) -> int:
    number = integer_of("random.Generator", value, what)
    if not 0 <= number <= _CALLS:
        raise DomainError(f"a Generator got {what} {number}; it is not negative")
    return number
