"""Sums on MLX's CPU, which adds one value after another: over ten million that loses a digit.

Long axes are added in blocks, and the sums of the blocks after that, as NumPy and PyTorch do.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

import math
from typing import Any, Final

import mlx.core as mx

from ember_ml.backend.contract import Kernel

__all__ = ["KERNELS", "WHOLE"]

Array = Any  # mx.array; its operators are untyped

_BLOCK: Final = 128
_TOTAL: Final[Any] = mx.sum  # a constant, which compiled code holds at hand
_SIZE: Final[Any] = vars(mx.array)["size"].fget  # without the look-up of a property


def _sum(x: Array, axis: Any = None, keepdims: Any = False) -> Array:
    if not x.size:
        # MLX leaves memory as it was in sums over several axes of which one is empty.
        none = mx.sum(x, axis=axis, keepdims=keepdims)
        return mx.where(mx.array(False), none, mx.zeros_like(none))
    if x.size <= _BLOCK:
        return mx.sum(x, axis=axis, keepdims=keepdims)
    if axis is None and not keepdims:
        return _sum_all(x)
    out = x
    for one in _axes(axis, x.ndim):
        out = mx.sum(_shortened(out, one), axis=one, keepdims=True)
    # MLX tells what is wrong with the axes, and which shape is asked for.
    return out.reshape(mx.sum(x, axis=axis, keepdims=keepdims).shape)


def _sum_all(x: Array) -> Array:
    size: int = _SIZE(x)
    return _TOTAL(x if size <= _BLOCK else _shortened(x.reshape(-1), 0))


def _axes(axis: Any, ndim: int) -> list[int]:
    if axis is None:
        return list(range(ndim))
    given = axis if isinstance(axis, tuple | list) else (axis,)
    return [one % ndim for one in given if -ndim <= one < ndim]


def _shortened(x: Array, axis: int) -> Array:
    """Sums of blocks along an axis, until one block is left."""
    while x.shape[axis] > _BLOCK:
        blocks, rest = divmod(x.shape[axis], _BLOCK)
        before = (slice(None),) * axis
        whole = x[(*before, slice(blocks * _BLOCK))]
        shape = (*x.shape[:axis], blocks, _BLOCK, *x.shape[axis + 1 :])
        sums = mx.sum(whole.reshape(shape), axis=axis + 1)
        if rest:
            last = mx.sum(x[(*before, slice(-rest, None))], axis=axis, keepdims=True)
            sums = mx.concatenate([sums, last], axis=axis)
        x = sums
    return x


def _mean(x: Array, axis: Any = None, keepdims: Any = False) -> Array:
    if 0 < x.size <= _BLOCK:
        return mx.mean(x, axis=axis, keepdims=keepdims)
    total = _sum(x, axis, keepdims)
    return total / math.prod(x.shape[one] for one in _axes(axis, x.ndim))


KERNELS: Final[dict[str, Kernel]] = {"sum": _sum, "mean": _mean}
WHOLE: Final[dict[Kernel, Kernel]] = {_sum: _sum_all}
