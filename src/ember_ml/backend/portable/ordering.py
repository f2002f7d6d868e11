"""Steps of statistics that go by order, for engines without a quicker way than sorting."""

from __future__ import annotations

from typing import Final

import numpy as np

from ember_ml.backend.contract import Kernel, Kernels, NativeArray

__all__ = ["KERNELS"]


def order_statistics(xp: Kernels, x: NativeArray, places: tuple[int, ...]) -> NativeArray:
    """The values that sorting the last axis, NaN behind all, would bring to some places."""
    axis = len(x.shape) - 1
    index = xp.host(np.array(places, np.int64), x)
    return xp.take(xp.sort(x, axis, False, True), index, axis)


def topk_indices(xp: Kernels, x: NativeArray, k: int, largest: bool) -> tuple[NativeArray, ...]:
    """The indices of the k first values along the last axis; equal ones keep their order."""
    return (xp.argsort(x, len(x.shape) - 1, largest, True)[..., :k],)


def running_maximum(xp: Kernels, x: NativeArray, axis: int) -> NativeArray:
    return xp._backend.hosted("running_maximum", xp.dtype(x))(x, axis)


def bin_sum(
    xp: Kernels, index: NativeArray, weights: NativeArray | None, length: int
) -> NativeArray:
    return xp._backend.hosted("bin_sum", xp.dtype(index))(index, weights, length)


KERNELS: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel for kernel in (order_statistics, topk_indices, running_maximum, bin_sum)
}
