"""Random numbers of compiled functions: a key for each call, from the stream of eager draws.

A call that draws counts as one draw of the generator outside, whose seed and count give the key.
So the same seed gives the same numbers, on every backend, and the next call others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import numpy as np

from ember_ml.backend import aligned
from ember_ml.backend.contract import NativeArray, Spec
from ember_ml.ops.random import host, seeding
from ember_ml.ops.random import keys as key_ops
from ember_ml.ops.random.generator import Generator
from ember_ml.ops.random.seeding import CallStream, KeyStream
from ember_ml.tensor.core import Tensor, fill

__all__ = ["key_native", "keys", "lane", "lazy_streams", "scope", "sources", "streams", "take"]

Source = Generator | KeyStream
# Which of several processes draws: each has other numbers, and the streams go on as one.
_LANE: Final[ContextVar[int]] = ContextVar("ember_ml lane of draws", default=0)


@contextmanager
def lane(number: int) -> Iterator[None]:
    """A block whose calls draw what nobody draws in other lanes; lane 0 is that of one process."""
    token = _LANE.set(number)
    try:
        yield
    finally:
        _LANE.reset(token)


def key_native(spec: Spec, number: int) -> NativeArray:
    """A key of 64 bits as a native array."""
    words = np.array([number >> 32, number & 0xFFFFFFFF], np.uint32)
    return spec.backend.from_numpy(aligned.settled(words), spec, True)


def sources(generators: Sequence[Generator]) -> list[Source]:
    """What a call draws from outside: the stream of this thread, and generators of the state."""
    return [seeding.current(), *generators]


def keys(
    sources: Sequence[Source],
    used: Sequence[bool],
    spec: Spec,
    unused: NativeArray,
    *,
    peek: bool = False,
) -> list[NativeArray]:
    """A key for each source that is used; with `peek`, the draws are not taken yet."""
    return [
        _key(source, spec, peek) if needed else unused
        for source, needed in zip(sources, used, strict=True)
    ]


def _key(source: Source, spec: Spec, peek: bool) -> NativeArray:
    if isinstance(source, KeyStream):
        number = source.next_call()
        folded = key_ops.fold_in(source.key, number)
        if _LANE.get():
            folded = key_ops.fold_in(folded, _LANE.get())
        return folded.to_backend(spec.backend.name).native
    seed, call = (source.seed, source.counter) if peek else source.next_call()
    # A draw has as many keys as there are lanes.
    return key_native(spec, host.raw(seed, call, host.COMPILED, _LANE.get() + 1)[-1])


def take(sources: Sequence[Source], used: Sequence[bool]) -> None:
    """Take the draws that a first look at a function has shown to be made."""
    for source, needed in zip(sources, used, strict=True):
        if needed and isinstance(source, Generator):
            source.next_call()


def streams(keys: Sequence[Tensor], generators: Sequence[Generator]) -> list[CallStream]:
    """What a function draws from: by itself, and by each generator of its state."""
    made = [CallStream(_given(key), {}) for key in keys]
    made[0].generators = {id(g): stream for g, stream in zip(generators, made[1:], strict=True)}
    return made


def lazy_streams(spec: Spec, generators: Sequence[Generator]) -> CallStream:
    """The same for a function that is called as it is: keys are made when they are needed."""

    def of(source: Callable[[], Source]) -> Callable[[], Tensor]:
        return lambda: fill(_key(source(), spec, False), spec)

    outside = seeding._current.get()

    def current() -> Source:
        token = seeding._current.set(outside)
        try:
            return seeding.current()
        finally:
            seeding._current.reset(token)

    inner = {id(g): CallStream(of(_given(g)), {}) for g in generators}
    return CallStream(of(current), inner)


def _given(value: Any) -> Callable[[], Any]:
    return lambda: value


@contextmanager
def scope(stream: CallStream) -> Iterator[None]:
    """A block whose draws come from a stream."""
    token = seeding._current.set(stream)
    try:
        yield
    finally:
        seeding._current.reset(token)
