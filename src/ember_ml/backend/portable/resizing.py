"""Resizing over settled kernels: each result is a few values of its axis, with their weights."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ember_ml.backend.contract import Kernel, Kernels, NativeArray
from ember_ml.backend.portable.windows import nothing, own

__all__ = ["CUBIC", "KERNELS", "nearest", "resample", "shares_of"]

Table = np.ndarray[Any, Any]

# The slope of the cubic between two values, as in PyTorch and most image programs.
CUBIC: Final = -0.75


def nearest(side: int, size: int) -> Table:
    """Which value each result takes: floor(i * side / size), exactly."""
    return np.arange(size) * side // size


@lru_cache(maxsize=128)
def shares_of(side: int, size: int, method: str, align: bool) -> tuple[Table, Table]:
    """Indices and weights, (results, values)."""
    if align:
        source = np.arange(size) * ((side - 1) / (size - 1) if size > 1 else 0.0)
    else:
        source = (np.arange(size) + 0.5) * (side / size) - 0.5
    if method == "linear":
        source = np.maximum(source, 0)
        first = np.floor(source).astype(np.int64)
        share = source - first
        weights = np.stack([1 - share, share], -1)
        indices = np.stack([first, first + 1], -1)
    else:
        first = np.floor(source).astype(np.int64)
        share = (source - first)[:, None]
        indices = first[:, None] + np.arange(-1, 3)
        weights = _cubic(np.abs(share - np.arange(-1, 3)))
    return np.clip(indices, 0, side - 1), weights


def _cubic(distance: Table) -> Table:
    near = ((CUBIC + 2) * distance - (CUBIC + 3)) * distance**2 + 1
    far = ((CUBIC * distance - 5 * CUBIC) * distance + 8 * CUBIC) * distance - 4 * CUBIC
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def resample(
    xp: Kernels, x: NativeArray, sizes: tuple[int, ...], method: str, align: bool
) -> NativeArray:
    if not math.prod(x.shape):
        return nothing(xp, x, (*x.shape[:2], *sizes))
    given = x
    for i, size in enumerate(sizes):
        axis = 2 + i
        side = x.shape[axis]
        if side == size:
            continue
        if method == "nearest":
            x = xp.take(x, xp.host(nearest(side, size), x), axis)
            continue
        indices, weights = shares_of(side, size, method, align)
        after = (1,) * (x.ndim - axis - 1)
        total = None
        for place in range(indices.shape[1]):
            share = xp.host(weights[:, place].reshape(-1, *after).copy(), x)
            part = xp.take(x, xp.host(indices[:, place].copy(), x), axis)
            part = part * xp.cast(share, xp.dtype(x))
            total = part if total is None else total + part
        x = total
    return own(xp, x, given)


KERNELS: Final[dict[str, Kernel]] = {"resample": resample}
