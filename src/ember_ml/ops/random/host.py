"""Philox in host memory: the numbers that every backend gets.

A stream is named by a seed of 128 bits and a call number, which are the key and the upper half of
the counter of Philox4x64-10. No draw depends on how many numbers the ones before it took.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.random import Generator as NumpyGenerator

__all__ = ["CHILDREN", "COMPILED", "DRAWS", "ENGINES", "at", "raw"]

# What a stream is for, in the highest word of the counter: streams of two uses never meet.
DRAWS: Final = 0
CHILDREN: Final = 1
ENGINES: Final = 2
COMPILED: Final = 3

_WORD: Final = (1 << 64) - 1


class _Philox:
    """Philox with NumPy's generator over it, set anew for each draw."""

    __slots__ = ("bits", "counter", "draws", "key", "state")

    def __init__(self) -> None:
        from numpy.random import Generator, Philox  # 25 ms, for programs that draw

        self.bits = Philox(key=0)
        self.draws = Generator(self.bits)
        self.key = np.zeros(2, np.uint64)
        self.counter = np.zeros(4, np.uint64)
        self.state: Any = {
            "bit_generator": "Philox",
            "state": {"counter": self.counter, "key": self.key},
            "buffer": np.zeros(4, np.uint64),
            "buffer_pos": 4,  # nothing is left over from the draw before
            "has_uint32": 0,
            "uinteger": 0,
        }


# One for each thread: setting it costs a fifth of making it.
_local: Final = threading.local()


def _own() -> _Philox:
    try:
        own: _Philox = _local.philox
    except AttributeError:
        own = _local.philox = _Philox()
    return own


def at(seed: int, call: int, use: int = DRAWS) -> NumpyGenerator:
    """NumPy's generator at the beginning of a stream, until the next call in this thread."""
    own = _own()
    own.key[0] = seed & _WORD
    own.key[1] = seed >> 64
    own.counter[2] = call
    own.counter[3] = use
    own.bits.state = own.state
    return own.draws


def raw(seed: int, call: int, use: int, count: int) -> list[int]:
    """Integers of 64 bits from a stream."""
    at(seed, call, use)
    values: list[int] = _own().bits.random_raw(count).tolist()
    return values
