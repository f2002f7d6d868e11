"""Steps of statistics on MLX: running maxima and sums into bins."""

from __future__ import annotations

from typing import Any, Final

import mlx.core as mx

from ember_ml.backend.contract import Kernel

__all__ = ["OVERRIDES"]

Array = Any  # mx.array; its operators are untyped


def running_maximum(x: Array, axis: int) -> Array:
    return mx.cummax(x, axis=axis)


def bin_sum(index: Array, weights: Array | None, length: int) -> Array:
    """How often each of 0 to length - 1 stands in `index`, or the sum of the weights there."""
    values = mx.ones_like(index) if weights is None else weights
    bins = mx.zeros((length,), dtype=values.dtype)
    if not index.size:
        return bins  # MLX refuses to add nothing
    # MLX has no gradient by indices, and asks for it where these come from what it knows.
    return bins.at[mx.stop_gradient(index)].add(values)


OVERRIDES: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel for kernel in (running_maximum, bin_sum)
}
