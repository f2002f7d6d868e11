"""Steps of statistics that go by order, for engines without a quicker way than sorting."""

from __future__ import annotations

from typing import Final

import numpy as np

from ember_ml.backend.contract import Kernel, Kernels, NativeArray
from ember_ml.backend.portable.standard import choose

__all__ = ["KERNELS"]


def quantiles_at(
    xp: Kernels,
    x: NativeArray,
    low: tuple[int, ...],
    high: tuple[int, ...],
    weight: tuple[float, ...],
) -> NativeArray:
    """Values between two places of the sorted last axis; NaN where there is one.

    Weighted, and not by the difference of the two, which infinities do not have.
    """
    axis = len(x.shape) - 1
    ordered = xp.sort(x, axis, False, True)
    a, b = (xp.take(ordered, xp.host(np.array(one, np.int64), x), axis) for one in (low, high))
    share = xp.host(np.array(weight, xp.dtype(x).numpy), x)
    rest = xp.subtract(xp.full((), 1, x), share)
    mixed = xp.add(xp.multiply(a, rest), xp.multiply(b, share))
    out = choose(xp, xp.equal(a, b), a, mixed)
    last = ordered[..., -1:]  # NaN sorts behind all
    return choose(xp, xp.isnan(last), last, out)


def topk_indices(xp: Kernels, x: NativeArray, k: int, largest: bool) -> tuple[NativeArray, ...]:
    """The indices of the k first values along the last axis; equal ones keep their order."""
    return (xp.argsort(x, len(x.shape) - 1, largest, True)[..., :k],)


def running_maximum(xp: Kernels, x: NativeArray, axis: int) -> NativeArray:
    return xp._backend.hosted("running_maximum", xp.dtype(x))(x, axis)


def bin_index(
    xp: Kernels, x: NativeArray, edges: NativeArray, even: bool
) -> tuple[NativeArray, ...]:
    """How many edges are not above each value, less one; `even` where their distances are equal."""
    index = xp.searchsorted(edges, x, "right")
    return (xp.subtract(index, xp.full((), 1, index)),)


def bin_sum(
    xp: Kernels, index: NativeArray, weights: NativeArray | None, length: int
) -> NativeArray:
    return xp._backend.hosted("bin_sum", xp.dtype(index))(index, weights, length)


KERNELS: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel
    for kernel in (quantiles_at, topk_indices, running_maximum, bin_index, bin_sum)
}
