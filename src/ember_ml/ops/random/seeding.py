"""Where draws come from that name no generator: scoped to threads, tasks and `with` blocks."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, ClassVar, NamedTuple

from ember_ml.backend.scope import Scope
from ember_ml.errors import TraceError, UnsupportedOpError
from ember_ml.ops.random import replay
from ember_ml.ops.random.generator import Generator
from ember_ml.tensor.core import Tensor

__all__ = ["get_seed", "get_state", "set_seed", "set_state", "traced", "use_seed"]

Owner = tuple[int, int]


class _Stream(NamedTuple):
    """A generator with the thread and task that draw from it."""

    owner: Owner
    generator: Generator
    # False where the seed came from the system.
    chosen: bool


class KeyStream:
    """A key, each of whose draws takes the next key that follows from it."""

    __slots__ = ("_number", "born", "key")

    # One thread draws from it: that of the scope, or of the function that is traced.
    shared: ClassVar[bool] = False

    def __init__(self, key: Tensor) -> None:
        self.key = key
        self.born = replay.born()
        self._number: replay.Number = 0

    def next_call(self) -> replay.Number:
        """The number of the next draw, which is then taken."""
        return replay.taken((self, "draws"), 1, self._advance)

    def _advance(self, calls: replay.Number) -> replay.Number:
        number = self._number
        # Who only looks may do so in a trace, of which the sum would be a part.
        if type(calls) is not int or calls:
            self._number = number + calls
        return number


class CallStream(KeyStream):
    """What a compiled function draws from: a key that is made when the first draw asks for it.

    Generators that were given to the function as state have streams of their own here.
    """

    __slots__ = ("_made", "_make", "generators", "used")

    def __init__(self, make: Callable[[], Tensor], generators: dict[int, CallStream]) -> None:
        self.born = replay.born()
        self._number = 0
        self._make = make
        self._made: Tensor | None = None
        self.generators = generators
        self.used = False

    @property
    def key(self) -> Tensor:  # type: ignore[override]  # an attribute there, with the same type
        """The key, of this call."""
        self.used = True
        if self._made is None:
            self._made = self._make()
        return self._made

    def of(self, op: str, generator: Generator) -> CallStream:
        """The stream of a generator."""
        found = self.generators.get(id(generator))
        if found is None:
            raise TraceError(
                f"ops.{op} draws from {generator!r} within a compiled function, whose numbers "
                f"would be the same at every call; give the generator to em.jit in state="
            )
        return found


_current: ContextVar[_Stream | KeyStream | None] = ContextVar("ember_ml_random", default=None)
_default: _Stream | None = None
_lock = threading.Lock()


def current() -> Generator | KeyStream:
    """What this thread or task draws from.

    A thread or task that meets the generator of another one splits a child off it, once: none
    gets the numbers of another, and none moves the counter of another.
    """
    found = _current.get() or _default or _from_system()
    if isinstance(found, KeyStream):
        return found
    here = _here()
    if found.owner == here:
        return found.generator
    child = found.generator.split(1)[0]
    _current.set(_Stream(here, child, found.chosen))
    return child


def compiled() -> CallStream | None:
    """What the compiled function that is running draws from; None outside of one."""
    found = _current.get()
    return found if type(found) is CallStream else None


def adopt() -> None:
    """Draw from the generator of this context, whichever thread or task it belongs to."""
    found = _current.get() or _default
    if isinstance(found, _Stream):
        _current.set(found._replace(owner=_here()))


def _here() -> Owner:
    asyncio = sys.modules.get("asyncio")
    loop = None if asyncio is None else asyncio._get_running_loop()
    if asyncio is None or loop is None:
        return threading.get_ident(), 0
    return threading.get_ident(), id(asyncio.current_task(loop) or loop)


def _from_system() -> _Stream:
    global _default
    with _lock:
        if _default is None:
            _default = _Stream(_main(), Generator(), chosen=False)
        return _default


def _main() -> Owner:
    return threading.main_thread().ident or 0, 0


def _forked() -> None:
    """Let a forked process draw a seed of its own, unless one was chosen."""
    global _default, _lock
    _lock = threading.Lock()
    if _default is not None and not _default.chosen:
        _default = None
    found = _current.get()
    if isinstance(found, _Stream) and not found.chosen:
        _current.set(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _generator() -> Generator:
    found = current()
    if isinstance(found, KeyStream):
        raise UnsupportedOpError("in a scope of ops.random.traced, draws have a key and no seed")
    return found


def set_seed(seed: int) -> None:
    """Begin again from a seed, in this thread or task; in the main thread also for new threads.

    >>> set_seed(42)
    >>> first = ops.random.uniform((3,)).tolist()
    >>> set_seed(42)
    >>> ops.random.uniform((3,)).tolist() == first
    True
    """
    global _default
    here = _here()
    stream = _Stream(here, Generator(seed), chosen=True)
    _current.set(stream)
    if here == _main():
        _default = stream


def get_seed() -> int:
    """The seed of this thread or task: the one that was set, else one from the system.

    >>> set_seed(42)
    >>> get_seed()
    42
    """
    return _generator().seed


def get_state() -> dict[str, int]:
    """The state of this thread's or task's draws, for `set_state`.

    >>> state = get_state()
    >>> first = ops.random.normal().item()
    >>> set_state(state)
    >>> ops.random.normal().item() == first
    True
    """
    return _generator().get_state()


def set_state(state: Mapping[str, int]) -> None:
    """Go on from a state that `get_state` gave, in this thread or task."""
    _generator().set_state(state)


class use_seed(Scope):
    """A scope whose draws begin from a seed, as a context manager or a decorator.

    >>> with use_seed(1):
    ...     first = ops.random.normal().item()
    >>> with use_seed(1):
    ...     ops.random.normal().item() == first
    True
    """

    variable: ContextVar[Any] = _current

    def __init__(self, seed: int) -> None:
        super().__init__(Generator(seed).seed)

    def value(self) -> _Stream:
        """A generator at the beginning of its draws."""
        return _Stream(_here(), Generator(self.choice), chosen=True)


class traced(Scope):
    """A scope whose draws follow from a key, so that compiled functions draw anew at each call.

    Each draw of the scope folds its number into the key.

    >>> key = ops.random.key(0)
    >>> with traced(key):
    ...     a, b = ops.random.normal((2,)), ops.random.normal((2,))
    >>> with traced(key):
    ...     a.tolist() == ops.random.normal((2,)).tolist() != b.tolist()
    True
    """

    variable: ContextVar[Any] = _current

    def __init__(self, key: Tensor) -> None:
        super().__init__(key)

    def value(self) -> KeyStream:
        """The key before its first draw."""
        from ember_ml.ops.random.keys import key_of

        return KeyStream(key_of("random.traced", self.choice))
