"""Convolution on NumPy: the windows of a sample are copied together and meet BLAS once."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.portable import windows
from ember_ml.backend.portable.window_gradients import framed

__all__ = ["KERNELS"]

Array = NativeArray
# So many columns make a product of matrices worth its while.
_COLUMNS: Final = 2048
Sides = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def pad_with(x: Array, pairs: Pairs, value: float) -> Array:
    """np.pad writes every element twice."""
    if not any(map(any, pairs)):
        return x
    sides = tuple(side + low + high for side, (low, high) in zip(x.shape, pairs, strict=True))
    made = np.zeros(sides, x.dtype) if value == 0 else np.full(sides, value, x.dtype)
    inside = tuple(slice(low, low + side) for side, (low, _) in zip(x.shape, pairs, strict=True))
    made[inside] = x
    return made


def accumulate_at(x: Array, key: tuple[Any, ...], value: Array) -> Array:
    x[key] += value
    return x


def _views(
    x: Array, kernel: Sides, stride: Sides, pairs: Pairs, dilation: Sides
) -> tuple[Array, Sides]:
    """All windows as a view (samples, channels, *kernel, *out), and the lengths of `out`."""
    out = windows.lengths(x.shape[2:], kernel, stride, pairs, dilation)
    padded = pad_with(x, ((0, 0), (0, 0), *pairs), 0.0)
    return _seen(padded, kernel, stride, dilation, out), out


def _seen(padded: Array, kernel: Sides, stride: Sides, dilation: Sides, out: Sides) -> Array:
    steps = padded.strides
    gaps = (step * gap for step, gap in zip(steps[2:], dilation, strict=True))
    strides = (step * count for step, count in zip(steps[2:], stride, strict=True))
    shape = (*padded.shape[:2], *kernel, *out)
    return as_strided(padded, shape, (*steps[:2], *gaps, *strides), writeable=False)


def unfold(x: Array, kernel: Sides, stride: Sides, pairs: Pairs, dilation: Sides) -> Array:
    seen, out = _views(x, kernel, stride, pairs, dilation)
    return seen.reshape(x.shape[0], x.shape[1] * math.prod(kernel), math.prod(out))


def conv(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    groups: int,
    last: bool,
) -> Array:
    if last:
        x = np.moveaxis(x, -1, 1)
    kernel = weight.shape[2:]
    seen, out = _views(x, kernel, stride, pairs, dilation)
    if weight.shape[1] == 1 and groups > 1:
        made = _by_channel(seen, weight, groups, out)
    else:
        made = _by_group(seen, weight, groups, out)
    if bias is not None:
        made += bias.reshape(-1, *(1,) * len(out))
    return np.moveaxis(made, 1, -1) if last else made


def _by_group(seen: Array, weight: Array, groups: int, out: Sides) -> Array:
    """One product of matrices for each group of some samples: their columns stay in the cache."""
    samples, results = seen.shape[0], weight.shape[0]
    inner, count = math.prod(weight.shape[1:]), math.prod(out)
    matrices = np.ascontiguousarray(weight).reshape(groups, results // groups, inner)
    made = np.empty((samples, results, *out), np.result_type(seen, weight))
    each = max(min(_COLUMNS // max(count, 1), samples), 1)
    turned = np.moveaxis(seen, 0, -1 - len(out))  # samples beside the windows that they have
    columns = np.empty((*seen.shape[1 : 2 + len(out)], each, *out), seen.dtype)
    for first in range(0, samples, each):
        some = min(each, samples - first)
        part = (
            columns
            if some == each
            else np.empty((*columns.shape[: -1 - len(out)], some, *out), seen.dtype)
        )
        np.copyto(part, turned[(*(slice(None),) * (1 + len(out)), slice(first, first + some))])
        product = np.matmul(matrices, part.reshape(groups, inner, some * count))
        rows = product.reshape(results, some, *out)
        made[first : first + some] = np.moveaxis(rows, 1, 0)
    return made


def _by_channel(seen: Array, weight: Array, groups: int, out: Sides) -> Array:
    """A channel to a group: matrices of one row would be slow, so place by place."""
    samples, results = seen.shape[0], weight.shape[0]
    each = results // groups
    made = np.zeros((samples, groups, each, *out), np.result_type(seen, weight))
    ones = (1,) * len(out)
    for place in np.ndindex(*weight.shape[2:]):
        factors = weight[(slice(None), 0, *place)].reshape(groups, each, *ones)
        made += seen[(slice(None), slice(None), *place)][:, :, None] * factors
    return made.reshape(samples, results, *out)


def conv_weight(
    x: Array,
    g: Array,
    kernel: Sides,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    groups: int,
    last: bool,
) -> Array:
    """Some samples at a time, as in the convolution itself."""
    if last:
        x, g = np.moveaxis(x, -1, 1), np.moveaxis(g, -1, 1)
    samples, results, *out = g.shape
    key, room = framed(x, kernel, stride, pairs, dilation, tuple(out))
    padded = pad_with(x[key], ((0, 0), (0, 0), *room), 0.0)
    seen = _seen(padded, kernel, stride, dilation, tuple(out))
    inner, count = x.shape[1] // groups * math.prod(kernel), math.prod(out)
    made = np.zeros((groups, inner, results // groups), np.result_type(x, g))
    each = max(min(_COLUMNS // max(count, 1), samples), 1)
    turned = np.moveaxis(seen, 0, -1 - len(out))
    rows = np.moveaxis(g, 0, 1)
    whole = (slice(None),) * (1 + len(out))
    for first in range(0, samples, each):
        some = min(each, samples - first)
        part = np.ascontiguousarray(turned[(*whole, slice(first, first + some))])
        columns = part.reshape(groups, inner, some * count)
        came = rows[:, first : first + some].reshape(groups, results // groups, some * count)
        made += np.matmul(columns, came.swapaxes(-1, -2))
    return made.swapaxes(-1, -2).reshape(results, x.shape[1] // groups, *kernel)


KERNELS: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel for kernel in (pad_with, accumulate_at, unfold, conv, conv_weight)
}
