"""Convolution and pooling over settled kernels: the places of a window as strided slices.

Arrays are (samples, channels, ...). Each engine adds three steps of its own: `pad_with`,
`accumulate_at`, and whatever it has in one piece.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ember_ml.backend.contract import Kernel, Kernels, NativeArray

__all__ = [
    "KERNELS",
    "Pairs",
    "Sides",
    "bins",
    "counts_of",
    "extended",
    "lengths",
    "nothing",
    "own",
    "places",
    "to_first",
]

Sides = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def lengths(spatial: Sides, kernel: Sides, stride: Sides, pairs: Pairs, dilation: Sides) -> Sides:
    """How many windows there are along each axis."""
    return tuple(
        (side + low + high - (size - 1) * gap - 1) // step + 1
        for side, size, step, (low, high), gap in zip(
            spatial, kernel, stride, pairs, dilation, strict=True
        )
    )


def places(kernel: Sides, stride: Sides, dilation: Sides, out: Sides) -> list[tuple[Any, ...]]:
    """For each place of a window, the key of what all windows see there."""
    whole = slice(None)
    keys = []
    for place in itertools.product(*map(range, kernel)):
        spans = (
            slice(i * gap, i * gap + (count - 1) * step + 1, step)
            for i, gap, step, count in zip(place, dilation, stride, out, strict=True)
        )
        keys.append((whole, whole, *spans))
    return keys


# --- Convolution ------------------------------------------------------------------------------


def unfold(
    xp: Kernels, x: NativeArray, kernel: Sides, stride: Sides, pairs: Pairs, dilation: Sides
) -> NativeArray:
    out = lengths(tuple(x.shape[2:]), kernel, stride, pairs, dilation)
    padded = xp.pad_with(x, ((0, 0), (0, 0), *pairs), 0.0)
    seen = [padded[key] for key in places(kernel, stride, dilation, out)]
    columns = x.shape[1] * math.prod(kernel)
    return xp.reshape(xp.stack(seen, 2), (x.shape[0], columns, math.prod(out)))


def fold(
    xp: Kernels,
    columns: NativeArray,
    size: Sides,
    kernel: Sides,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
) -> NativeArray:
    out = lengths(size, kernel, stride, pairs, dilation)
    return _folded(xp, columns, size, kernel, stride, pairs, dilation, out)


def conv(
    xp: Kernels,
    x: NativeArray,
    weight: NativeArray,
    bias: NativeArray | None,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    groups: int,
    last: bool,
) -> NativeArray:
    """One product of matrices for each group of each sample."""
    if last:
        x = to_first(xp, x)
    kernel = tuple(weight.shape[2:])
    out = lengths(tuple(x.shape[2:]), kernel, stride, pairs, dilation)
    columns = unfold(xp, x, kernel, stride, pairs, dilation)
    samples, results, inner = x.shape[0], weight.shape[0], math.prod(weight.shape[1:])
    columns = xp.reshape(columns, (samples, groups, inner, math.prod(out)))
    matrices = xp.reshape(weight, (groups, results // groups, inner))
    made = xp.reshape(xp.matmul(matrices, columns), (samples, results, *out))
    return _finished(xp, made, bias, last)


def conv_transpose(
    xp: Kernels,
    x: NativeArray,
    weight: NativeArray,
    bias: NativeArray | None,
    stride: Sides,
    pairs: Pairs,
    more: Sides,
    dilation: Sides,
    groups: int,
    last: bool,
) -> NativeArray:
    if last:
        x = to_first(xp, x)
    samples, channels, *spatial = x.shape
    inner, kernel = weight.shape[1], tuple(weight.shape[2:])
    matrices = xp.reshape(weight, (groups, channels // groups, inner * math.prod(kernel)))
    rows = xp.reshape(x, (samples, groups, channels // groups, math.prod(spatial)))
    columns = xp.matmul(xp.matrix_transpose(matrices), rows)
    columns = xp.reshape(columns, (samples, groups * inner * math.prod(kernel), math.prod(spatial)))
    size = tuple(
        (side - 1) * step + (length - 1) * gap + 1 - low - high + extra
        for side, step, length, gap, (low, high), extra in zip(
            spatial, stride, kernel, dilation, pairs, more, strict=True
        )
    )
    # What output_padding adds lies behind the last window, which may end before.
    behind = tuple((low, high - extra) for (low, high), extra in zip(pairs, more, strict=True))
    room = tuple((low, max(high, 0)) for low, high in behind)
    made = _folded(xp, columns, size, kernel, stride, room, dilation, tuple(spatial))
    return _finished(xp, made, bias, last)


def _folded(
    xp: Kernels,
    columns: NativeArray,
    size: Sides,
    kernel: Sides,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    out: Sides,
) -> NativeArray:
    samples, channels = columns.shape[0], columns.shape[1] // math.prod(kernel)
    parts = xp.reshape(columns, (samples, channels, math.prod(kernel), *out))
    wide = tuple(side + low + high for side, (low, high) in zip(size, pairs, strict=True))
    made = xp.full((samples, channels, *wide), 0.0, columns)
    for i, key in enumerate(places(kernel, stride, dilation, out)):
        made = xp.accumulate_at(made, key, parts[:, :, i])
    inside = (slice(low, low + side) for side, (low, _) in zip(size, pairs, strict=True))
    return made[(slice(None), slice(None), *inside)]


def to_first(xp: Kernels, x: NativeArray) -> NativeArray:
    """With the channels, which are last, behind the samples."""
    return xp.permute_dims(x, (0, x.ndim - 1, *range(1, x.ndim - 1)))


def _finished(xp: Kernels, x: NativeArray, bias: NativeArray | None, last: bool) -> NativeArray:
    if bias is not None:
        x = x + xp.reshape(bias, (-1, *(1,) * (x.ndim - 2)))
    return xp.permute_dims(x, (0, *range(2, x.ndim), 1)) if last else x


# --- Pooling ----------------------------------------------------------------------------------


def extended(
    spatial: Sides, kernel: Sides, stride: Sides, pairs: Pairs, dilation: Sides, ceil: bool
) -> Pairs:
    """Padding with room for a last window that is cut off, as `ceil_mode` has it.

    That window must begin inside of the input or of the padding before it.
    """
    if not ceil:
        return pairs
    made = []
    for side, size, step, (low, high), gap in zip(
        spatial, kernel, stride, pairs, dilation, strict=True
    ):
        extent = (size - 1) * gap + 1
        count = -(-(side + low + high - extent) // step) + 1
        if (count - 1) * step >= side + low:
            count -= 1
        made.append((low, max(high, (count - 1) * step + extent - side - low)))
    return tuple(made)


def max_pool(
    xp: Kernels,
    x: NativeArray,
    kernel: Sides,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    ceil: bool,
) -> NativeArray:
    room = extended(tuple(x.shape[2:]), kernel, stride, pairs, dilation, ceil)
    return own(xp, _pooled(xp, x, xp.maximum, -math.inf, kernel, stride, room, dilation), x)


def own(xp: Kernels, out: NativeArray, x: NativeArray) -> NativeArray:
    """A result with memory of its own, where nothing was left to do."""
    backend = xp._backend
    return backend.copy(out) if backend.shares_memory(out, x) else out


def _pooled(
    xp: Kernels,
    x: NativeArray,
    join: Kernel,
    start: float,
    kernel: Sides,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
) -> NativeArray:
    """Axis by axis: a window of 3 by 3 takes four steps instead of eight."""
    out = lengths(tuple(x.shape[2:]), kernel, stride, pairs, dilation)
    for i, size in enumerate(kernel):
        axis = 2 + i
        if any(pairs[i]):
            widths = [(0, 0)] * x.ndim
            widths[axis] = pairs[i]
            x = xp.pad_with(x, tuple(widths), start)
        before = (slice(None),) * axis
        total = None
        for place in range(size):
            first = place * dilation[i]
            span = slice(first, first + (out[i] - 1) * stride[i] + 1, stride[i])
            part = x[(*before, span)]
            total = part if total is None else join(total, part)
        x = total
    return x


def max_pool_indices(
    xp: Kernels,
    x: NativeArray,
    kernel: Sides,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    ceil: bool,
) -> tuple[NativeArray, NativeArray]:
    """Also where the largest values lie, counted through all spatial axes."""
    spatial = tuple(x.shape[2:])
    room = extended(spatial, kernel, stride, pairs, dilation, ceil)
    table = _table(spatial, kernel, stride, room, dilation)
    flat = xp.reshape(x, (*x.shape[:2], math.prod(spatial)))
    flat = xp.pad_with(flat, ((0, 0), (0, 0), (0, 1)), -math.inf)  # what the padding reads
    out = lengths(spatial, kernel, stride, room, dilation)
    area = math.prod(kernel)
    seen = xp.reshape(xp.take(flat, xp.host(table.reshape(-1), x), 2), (*x.shape[:2], -1, area))
    best = xp._backend.detach(xp.argmax(seen, -1, True))  # MLX asks for a gradient otherwise
    windows = xp.host(np.broadcast_to(table, (1, 1, *table.shape)).copy(), x)
    shape = (*x.shape[:2], *table.shape)
    found = xp.take_along_axis(xp.broadcast_to(windows, shape), best, 3)
    values = xp.take_along_axis(seen, best, 3)
    return xp.reshape(values, (*x.shape[:2], *out)), xp.reshape(found, (*x.shape[:2], *out))


@lru_cache(maxsize=64)
def _table(
    spatial: Sides, kernel: Sides, stride: Sides, pairs: Pairs, dilation: Sides
) -> np.ndarray[Any, Any]:
    """The flat indices of the places of each window; the padding's is the last plus one."""
    area = math.prod(spatial)
    plane = np.arange(area).reshape(spatial)
    plane = np.pad(plane, pairs, constant_values=area)
    out = lengths(spatial, kernel, stride, pairs, dilation)
    keys = places(kernel, stride, dilation, out)
    return np.stack([plane[key[2:]].reshape(-1) for key in keys], -1)


def avg_pool(
    xp: Kernels,
    x: NativeArray,
    kernel: Sides,
    stride: Sides,
    pairs: Pairs,
    ceil: bool,
    include: bool,
) -> NativeArray:
    one = (1,) * len(kernel)
    spatial = tuple(x.shape[2:])
    room = extended(spatial, kernel, stride, pairs, one, ceil)
    total = _pooled(xp, x, xp.add, 0.0, kernel, stride, room, one)
    counts = counts_of(spatial, kernel, stride, pairs, room, include)
    if counts.size and (counts == counts.flat[0]).all():
        return total / float(counts.flat[0])
    return total / xp.cast(xp.host(counts, x), xp.dtype(x))


@lru_cache(maxsize=64)
def counts_of(
    spatial: Sides, kernel: Sides, stride: Sides, pairs: Pairs, room: Pairs, include: bool
) -> np.ndarray[Any, Any]:
    """How many values each window averages: never those that only `ceil_mode` added."""
    made: Any = np.ones((), np.float64)
    out = lengths(spatial, kernel, stride, room, (1,) * len(kernel))
    for side, size, step, (low, high), count in zip(
        spatial, kernel, stride, pairs, out, strict=True
    ):
        first = np.arange(count) * step - low
        begin, end = (-low, side + high) if include else (0, side)
        number = np.minimum(first + size, end) - np.maximum(first, begin)
        made = made[..., None] * number
    return np.asarray(made)


# --- Pooling to a given size ------------------------------------------------------------------


def nothing(xp: Kernels, x: NativeArray, shape: Sides) -> NativeArray:
    """What comes of an empty array, and depends on it; MLX's gradient of `take` is fatal there."""
    return xp.full(shape, 0.0, x) + xp.sum(x, axis=None, keepdims=False)


def adaptive_max_pool(xp: Kernels, x: NativeArray, sizes: Sides) -> NativeArray:
    if not math.prod(x.shape):
        return nothing(xp, x, (*x.shape[:2], *sizes))
    out = x
    for i, size in enumerate(sizes):
        out = _parts(xp, out, 2 + i, size, None)
    return own(xp, out, x)


def adaptive_avg_pool(xp: Kernels, x: NativeArray, sizes: Sides) -> NativeArray:
    if not math.prod(x.shape):
        return nothing(xp, x, (*x.shape[:2], *sizes))
    out = x
    for i, size in enumerate(sizes):
        out = _parts(xp, out, 2 + i, size, "mean")
    return own(xp, out, x)


def _parts(xp: Kernels, x: NativeArray, axis: int, size: int, mean: str | None) -> NativeArray:
    """Part i of an axis runs from floor(i * n / size) to ceil((i + 1) * n / size)."""
    side = x.shape[axis]
    if side == size:
        return x
    reduce = xp.mean if mean else xp.max
    shape = tuple(x.shape)
    if side % size == 0:
        cut = xp.reshape(x, (*shape[:axis], size, side // size, *shape[axis + 1 :]))
        return reduce(cut, axis=axis + 1, keepdims=False)
    indices, inside, counts = bins(side, size)
    seen = xp.take(x, xp.host(indices.reshape(-1), x), axis)
    seen = xp.reshape(seen, (*shape[:axis], *indices.shape, *shape[axis + 1 :]))
    if not mean:
        return xp.max(seen, axis=axis + 1, keepdims=False)  # a part may hold its last value twice
    after = (1,) * (len(shape) - axis - 1)
    mask = xp.host(inside.reshape(*inside.shape, *after), x)
    zero = xp.full((), 0.0, x)
    total = xp.sum(xp.where(mask, seen, zero), axis=axis + 1, keepdims=False)
    return total / xp.cast(xp.host(counts.reshape(-1, *after), x), xp.dtype(x))


@lru_cache(maxsize=64)
def bins(side: int, size: int) -> tuple[np.ndarray[Any, Any], ...]:
    """The indices of each part of an axis, which of them count, and how many do."""
    begin = np.arange(size) * side // size
    end = -(-(np.arange(1, size + 1) * side) // size)
    offsets = begin[:, None] + np.arange(int((end - begin).max(initial=0)))
    inside = offsets < end[:, None]
    return np.minimum(offsets, end[:, None] - 1), inside, (end - begin).astype(np.float64)


KERNELS: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel
    for kernel in (
        unfold,
        fold,
        conv,
        conv_transpose,
        max_pool,
        max_pool_indices,
        avg_pool,
        adaptive_max_pool,
        adaptive_avg_pool,
    )
}
