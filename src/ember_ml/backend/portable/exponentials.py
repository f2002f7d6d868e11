"""Logarithms of sums of exponentials, for engines that lack them."""

from __future__ import annotations

import math
from typing import Final

from ember_ml.backend.contract import Kernel, Kernels, NativeArray
from ember_ml.backend.portable.standard import choose

__all__ = ["KERNELS"]


def logsumexp(xp: Kernels, x: NativeArray, axes: tuple[int, ...], keepdims: bool) -> NativeArray:
    largest = xp.max(x, axis=axes, keepdims=True)
    # An infinite one is no scale; the exponentials are infinite or zero then, as they should be.
    largest = choose(xp, xp.isfinite(largest), largest, xp.full((), 0, x))
    total = xp.sum(xp.exp(xp.subtract(x, largest)), axis=axes, keepdims=True)
    out = xp.add(xp.log(total), largest)
    if keepdims:
        return out
    return xp.reshape(out, tuple(n for i, n in enumerate(x.shape) if i not in axes))


def cumulative_logsumexp(xp: Kernels, x: NativeArray, axis: int) -> NativeArray:
    """By doubling: each step adds what lies twice as far back."""
    side = x.shape[axis]
    before = (slice(None),) * axis
    step = 1
    while step < side:
        gap = (*x.shape[:axis], step, *x.shape[axis + 1 :])
        behind = x[(*before, slice(None, side - step))]
        shifted = xp.concat([xp.full(gap, -math.inf, x), behind], axis)
        x = xp.logaddexp(x, shifted)
        step *= 2
    return x


KERNELS: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel for kernel in (logsumexp, cumulative_logsumexp)
}
