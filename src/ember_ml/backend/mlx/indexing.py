"""`x[key]` and `x[key] = value` with NumPy's meaning, over MLX's gather and scatter.

A key is split in two: what is basic (integers, slices, new axes) runs first, as MLX does it; then
the arrays of integers act on the axes that they meet. Masks become arrays of integers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

__all__ = ["get", "put"]

Array = Any  # mx.array; its operators are untyped
_ALL = slice(None)


class _Plan(NamedTuple):
    """A key with arrays: the basic key, then `arrays` on `axes` of what that gives.

    The axes of the arrays' common shape come to stand at `place` of the result.
    """

    basic: tuple[Any, ...]
    axes: tuple[int, ...]
    arrays: tuple[Array, ...]
    place: int


def get(x: Array, key: tuple[Any, ...]) -> Array:
    """The elements of `x` at a checked key."""
    if not any(isinstance(item, mx.array) for item in key):
        return x[key]
    plan = _plan(x, key)
    turned = _to_front(x[plan.basic], plan.axes)
    arrays = mx.broadcast_arrays(*plan.arrays)
    picked = _gather(turned, arrays)
    count = arrays[0].ndim
    return mx.moveaxis(picked, range(count), range(plan.place, plan.place + count)) if 0 else (
        _move(picked, 0, count, plan.place)
    )
