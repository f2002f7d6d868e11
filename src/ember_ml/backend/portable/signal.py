"""Frames of signals and what is made of them, for engines without a way of their own."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ember_ml.backend.contract import Kernel, Kernels, NativeArray

__all__ = ["KERNELS"]

# Up to so many slices, frames are put together of slices; beyond, elements are picked one by one.
_SLICES: Final = 64


def frame(xp: Kernels, x: NativeArray, length: int, hop: int) -> NativeArray:
    """The last axis as frames: (..., frames, length)."""
    shape, size = tuple(x.shape[:-1]), x.shape[-1]
    count = 1 + (size - length) // hop
    step = math.gcd(length, hop)
    parts, stride = length // step, hop // step
    if parts > _SLICES:
        places = hop * np.arange(count)[:, None] + np.arange(length)
        return xp.take(x, xp.host(places, x), x.ndim - 1)
    # In blocks of the common divisor, frames begin and end where blocks do.
    blocks = size // step
    cut = xp.reshape(x[..., : blocks * step], (*shape, blocks, step))
    reach = (count - 1) * stride + 1
    pieces = [cut[..., part : part + reach : stride, :] for part in range(parts)]
    return xp.reshape(xp.stack(pieces, x.ndim), (*shape, count, length))


def overlap_add(xp: Kernels, x: NativeArray, hop: int) -> NativeArray:
    """Frames (..., frames, length) added at their places."""
    shape, (count, length) = tuple(x.shape[:-2]), x.shape[-2:]
    rounds = -(-length // hop)
    if rounds * hop > length:
        x = xp.concat([x, xp.full((*shape, count, rounds * hop - length), 0, x)], x.ndim - 1)
    blocks = xp.reshape(x, (*shape, count, rounds, hop))
    total = None
    for part in range(rounds):
        moved = [
            xp.full((*shape, part, hop), 0, x),
            blocks[..., part, :],
            xp.full((*shape, rounds - 1 - part, hop), 0, x),
        ]
        shifted = xp.concat(moved, len(shape))
        total = shifted if total is None else xp.add(total, shifted)
    flat = xp.reshape(total, (*shape, (count + rounds - 1) * hop))
    return flat[..., : (count - 1) * hop + length]


def stft(
    xp: Kernels, x: NativeArray, window: NativeArray, hop: int, points: int, onesided: bool
) -> NativeArray:
    """The transforms of all frames."""
    pieces = xp.multiply(xp.frame(x, window.shape[0], hop), window)
    transforms: Any = xp.fft
    return (transforms.rfft if onesided else transforms.fft)(
        pieces, points, pieces.ndim - 1, "backward"
    )


KERNELS: Final[dict[str, Kernel]] = {
    "frame": frame,
    "overlap_add": overlap_add,
    "stft": stft,
}
