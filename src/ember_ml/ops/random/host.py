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

__all__ = ["CHILDREN", "DRAWS", "ENGINES", "at", "raw"]

# What a stream is for, in the highest word of the counter: streams of two uses never meet.
DRAWS: Final = 0
CHILDREN: Final = 1
ENGINES: Final = 2

_WORD: Final = (1 << 64) - 1


class _Local(threading.local):
    """A Philox for each thread, set anew for each draw: a fifth of the cost of making one."""

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


_local: Final = _Local()


def at(seed: int, call: int, use: int = DRAWS) -> NumpyGenerator:
    """NumPy's generator at the beginning of a stream, until the next call in this thread."""
    local = _local
    local.key[0] = seed & _WORD
    local.key[1] = seed >> 64
    local.counter[2] = call
    local.counter[3] = use
    local.bits.state = local.state
    return local.draws


def raw(seed: int, call: int, use: int, count: int) -> list[int]:
    """Integers of 64 bits from a stream."""
    at(seed, call, use)
    values: list[int] = _local.bits.random_raw(count).tolist()
    return values
