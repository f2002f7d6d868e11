"""Threefry2x32-20 over arrays of 32-bit integers: the same bits in every engine.

The cipher is that of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
(SC 2011). Its words are kept as int32, since torch has no arithmetic of uint32: sums wrap to the
same bits, and what the sign drags in on a shift to the right is masked off.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ember_ml.backend.contract import Kernel, Kernels, NativeArray

__all__ = ["KERNELS", "threefry"]

_PARITY: Final = 0x1BD11BDA
_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(key: NativeArray, first: NativeArray, second: int) -> tuple[NativeArray, NativeArray]:
    """Two random words for each word of `first`, which with `second` is a block of the counter.

    Python's operators on integer arrays mean the same in every engine, and cost less than kernels
    that are looked up: there are a hundred of them.
    """
    # Parts of one element: sums of NumPy's scalars would warn where they wrap.
    keys = (key[0:1], key[1:2], key[0:1] ^ key[1:2] ^ _PARITY)
    a, b = first + keys[0], keys[1] + second
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            a = a + b
            b = ((b << turn) | ((b >> (32 - turn)) & ((1 << turn) - 1))) ^ a
        a = a + keys[(group + 1) % 3]
        b = b + keys[(group + 2) % 3] + (group + 1)
    return a, b


def random_numbers(xp: Kernels, key: NativeArray, count: int) -> NativeArray:
    """0, 1, 2 ... as int32, beside `key`."""
    return xp.host(np.arange(count, dtype=np.int32), key)


def random_words(xp: Kernels, key: NativeArray, count: int, stream: int) -> NativeArray:
    """`count` random words of a stream of a key."""
    pair = threefry(key, xp.random_numbers(key, (count + 1) // 2), stream)
    return xp.concat(list(pair), 0)[:count]


def random_blocks(xp: Kernels, key: NativeArray, first: NativeArray, stream: int) -> NativeArray:
    """A row of two random words for each number in `first`, of a stream of a key."""
    return xp.stack(list(threefry(key, first, stream)), 1)


KERNELS: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel for kernel in (random_numbers, random_words, random_blocks)
}
