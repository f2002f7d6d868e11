"""Steps of losses, for engines that do not fuse them."""

from __future__ import annotations

from typing import Final

from ember_ml.backend.contract import Kernel, Kernels, NativeArray

__all__ = ["KERNELS"]


def log_softmax(xp: Kernels, x: NativeArray, axis: int) -> NativeArray:
    """Logarithms of softmax; the largest is taken off first, so that nothing overflows."""
    if not x.shape[axis] or not x.size:
        return xp.positive(x)
    centred = xp.subtract(x, xp.max(x, axis=axis, keepdims=True))
    total = xp.sum(xp.exp(centred), axis=axis, keepdims=True)
    return xp.subtract(centred, xp.log(total))


KERNELS: Final[dict[str, Kernel]] = {"losses.log_softmax": log_softmax}
