"""What gradients of convolution and pooling need, over settled kernels: see windows.py.

Each is linear in its first argument, or in its first two, and the transpose of another kernel.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ember_ml.backend.contract import Kernel, Kernels, NativeArray
from ember_ml.backend.portable.windows import (
    Pairs,
    Sides,
    bins,
    counts_of,
    extended,
    lengths,
    places,
    to_first,
)

__all__ = ["ARRAYS", "KERNELS", "LARGEST", "framed"]


def framed(
    x: NativeArray, kernel: Sides, stride: Sides, pairs: Pairs, dilation: Sides, out: Sides
) -> tuple[tuple[Any, ...], Pairs]:
    """The key of what `out` windows see of `x`, and the padding around that.

    A last part that no window reaches is left out.
    """
    spans, room = [slice(None), slice(None)], []
    for side, size, step, (low, _), gap, count in zip(
        x.shape[2:], kernel, stride, pairs, dilation, out, strict=True
    ):
        end = (count - 1) * step + (size - 1) * gap + 1 - low
        spans.append(slice(0, max(min(side, end), 0)))
        room.append((low, max(end - side, 0)))
    return tuple(spans), tuple(room)


def conv_weight(
    xp: Kernels,
    x: NativeArray,
    g: NativeArray,
    kernel: Sides,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    groups: int,
    last: bool,
) -> NativeArray:
    """The products of what windows saw with what came of them, for each place of a window."""
    if last:
        x, g = to_first(xp, x), to_first(xp, g)
    samples, results, *out = g.shape
    key, room = framed(x, kernel, stride, pairs, dilation, tuple(out))
    padded = xp.pad_with(x[key], ((0, 0), (0, 0), *room), 0.0)
    seen = [padded[place] for place in places(kernel, stride, dilation, tuple(out))]
    inner, count = x.shape[1] // groups * math.prod(kernel), math.prod(out)
    columns = xp.reshape(xp.stack(seen, 2), (samples, groups, inner, count))
    rows = xp.reshape(g, (samples, groups, results // groups, count))
    made = xp.sum(xp.matmul(rows, xp.matrix_transpose(columns)), axis=0, keepdims=False)
    return xp.reshape(made, (results, x.shape[1] // groups, *kernel))


# --- Pooling ----------------------------------------------------------------------------------


def max_pool_pulled(
    xp: Kernels,
    g: NativeArray,
    x: NativeArray,
    y: NativeArray,
    kernel: Sides,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    ceil: bool,
) -> NativeArray:
    """Each element of `g` put where its window has its largest value, the first one of several."""
    room = extended(tuple(x.shape[2:]), kernel, stride, pairs, dilation, ceil)
    padded = xp.pad_with(x, ((0, 0), (0, 0), *room), -math.inf)
    made, zero = xp.full(tuple(padded.shape), 0.0, g), xp.full((), 0.0, g)
    for key, hit in _hits(xp, padded, y, kernel, stride, dilation):
        made = xp.accumulate_at(made, key, xp.where(hit, g, zero))
    return made[_inside(x, room)]


def max_pool_picked(
    xp: Kernels,
    v: NativeArray,
    x: NativeArray,
    y: NativeArray,
    kernel: Sides,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    ceil: bool,
) -> NativeArray:
    """Of each window of `v`, what lies where that of `x` has its largest value."""
    room = extended(tuple(x.shape[2:]), kernel, stride, pairs, dilation, ceil)
    widths = ((0, 0), (0, 0), *room)
    padded, values = xp.pad_with(x, widths, -math.inf), xp.pad_with(v, widths, 0.0)
    made: Any = None
    zero = xp.full((), 0.0, v)
    for key, hit in _hits(xp, padded, y, kernel, stride, dilation):
        part = xp.where(hit, values[key], zero)
        made = part if made is None else made + part
    return made


def _hits(
    xp: Kernels, padded: NativeArray, y: NativeArray, kernel: Sides, stride: Sides, dilation: Sides
) -> Any:
    """For each place of a window, its key and where it has the first of the largest values."""
    free: Any = None
    for key in places(kernel, stride, dilation, tuple(y.shape[2:])):
        # Not smaller is equal, or NaN: so that each window has one.
        hit = xp.logical_not(xp.less(padded[key], y))
        if free is None:
            free = xp.logical_not(hit)
        else:
            hit = xp.logical_and(hit, free)
            free = xp.logical_and(free, xp.logical_not(hit))
        yield key, hit


def _inside(x: NativeArray, room: Pairs) -> tuple[slice, ...]:
    sides = zip(x.shape[2:], room, strict=True)
    return (slice(None), slice(None), *(slice(low, low + side) for side, (low, _) in sides))


def avg_pool_pulled(
    xp: Kernels,
    g: NativeArray,
    spatial: Sides,
    kernel: Sides,
    stride: Sides,
    pairs: Pairs,
    ceil: bool,
    include: bool,
) -> NativeArray:
    """Each element of `g` shared by the places that its window averages."""
    one = (1,) * len(kernel)
    room = extended(spatial, kernel, stride, pairs, one, ceil)
    out = lengths(spatial, kernel, stride, room, one)
    counts = counts_of(spatial, kernel, stride, pairs, room, include)
    if counts.size and (counts == counts.flat[0]).all():
        x = g / float(counts.flat[0])
    else:
        x = g / xp.cast(xp.host(counts, g), xp.dtype(g))
    for i in reversed(range(len(kernel))):
        axis, (low, high) = 2 + i, room[i]
        wide = (*x.shape[:axis], spatial[i] + low + high, *x.shape[axis + 1 :])
        before = (slice(None),) * axis
        made = xp.full(wide, 0.0, g)
        for place in range(kernel[i]):
            span = slice(place, place + (out[i] - 1) * stride[i] + 1, stride[i])
            made = xp.accumulate_at(made, (*before, span), x)
        x = made[(*before, slice(low, low + spatial[i]))]
    return x


def adaptive_max_places(xp: Kernels, x: NativeArray, sizes: Sides) -> NativeArray:
    """Where the largest value of each part lies, the first of several, through all axes."""
    table = _parts(tuple(x.shape[2:]), sizes)
    lead = tuple(x.shape[:2])
    flat = xp.reshape(x, (*lead, math.prod(x.shape[2:])))
    seen = xp.take(flat, xp.host(table.reshape(-1), x), 2)
    best = xp.argmax(xp.reshape(seen, (*lead, *table.shape)), -1, True)
    parts = xp.broadcast_to(xp.host(table.reshape(1, 1, *table.shape), x), (*lead, *table.shape))
    return xp.reshape(xp.take_along_axis(parts, best, 3), (*lead, math.prod(sizes)))


def adaptive_max_pool_picked(
    xp: Kernels, v: NativeArray, x: NativeArray, y: NativeArray, sizes: Sides
) -> NativeArray:
    """Of each part of `v`, what lies where that of `x` has its largest value."""
    flat = xp.reshape(v, (*x.shape[:2], math.prod(x.shape[2:])))
    chosen = xp.take_along_axis(flat, adaptive_max_places(xp, x, sizes), 2)
    return xp.reshape(chosen, (*x.shape[:2], *sizes))


def adaptive_max_pool_pulled(
    xp: Kernels, g: NativeArray, x: NativeArray, y: NativeArray, sizes: Sides
) -> NativeArray:
    """Each element of `g` put where its part has its largest value, the first one of several."""
    flat = xp.reshape(g, (*x.shape[:2], math.prod(sizes)))
    found = adaptive_max_places(xp, x, sizes)
    return xp.reshape(xp.scatter_add(flat, found, 2, math.prod(x.shape[2:])), tuple(x.shape))


@lru_cache(maxsize=64)
def _parts(spatial: Sides, sizes: Sides) -> np.ndarray[Any, Any]:
    """The flat indices of the places of each part; the last of an axis may come twice."""
    tables = [bins(side, size)[0] for side, size in zip(spatial, sizes, strict=True)]
    rows = []
    for cell in itertools.product(*(range(size) for size in sizes)):
        flat: Any = np.zeros(1, np.int64)
        for table, side, i in zip(tables, spatial, cell, strict=True):
            flat = (flat[:, None] * side + table[i]).reshape(-1)
        rows.append(flat)
    return np.stack(rows)


KERNELS: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel
    for kernel in (
        conv_weight,
        max_pool_pulled,
        max_pool_picked,
        avg_pool_pulled,
        adaptive_max_pool_picked,
        adaptive_max_pool_pulled,
    )
}
# For a pool of largest values, how a change goes through it, and how a gradient comes back.
LARGEST: Final[dict[str, tuple[Kernel, Kernel]]] = {
    "max_pool": (max_pool_picked, max_pool_pulled),
    "adaptive_max_pool": (adaptive_max_pool_picked, adaptive_max_pool_pulled),
}
ARRAYS: Final[dict[str, int]] = {
    "conv_weight": 2,
    "max_pool_pulled": 3,
    "max_pool_picked": 3,
    "avg_pool_pulled": 1,
    "adaptive_max_pool_picked": 3,
    "adaptive_max_pool_pulled": 3,
}
