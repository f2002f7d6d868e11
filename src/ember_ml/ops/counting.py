"""Functions that count and rank: the most frequent value, the k largest, histograms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.autodiff.tape import recorded
from ember_ml.errors import DomainError, DTypeError, ShapeError, UnsupportedOpError
from ember_ml.ops import dispatch
from ember_ml.ops.axes import axis_of, integer_of, number_of
from ember_ml.ops.quantiles import lines_of
from ember_ml.ops.registry import BOOLEAN, INTEGRAL, REAL, REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill
from ember_ml.typing import Axis, TensorLike

__all__: list[str] = ["bincount", "digitize", "histogram", "mode", "topk"]


class TopK(NamedTuple):
    """The result of topk."""

    values: Tensor
    indices: Tensor


class Mode(NamedTuple):
    """The result of mode."""

    values: Tensor
    counts: Tensor


class Histogram(NamedTuple):
    """The result of histogram."""

    counts: Tensor
    edges: Tensor


@op(accepts=REAL | BOOLEAN, standard=False)
def topk(
    x: TensorLike, k: int, /, axis: int = -1, *, largest: bool = True, sorted: bool = True
) -> TopK:
    """The k largest (or smallest) values along an axis, in order, and where they stand.

    Of equal values the one with the lowest index comes first, and NaN counts as the largest, on
    every backend. With `sorted=False` any order would do; this one is given all the same.

    >>> values, indices = topk([3, 9, 1, 9], 3)
    >>> values.tolist(), indices.tolist()
    ([9, 9, 3], [1, 3, 0])
    """
    tensor = dispatch.lifted("topk", x)
    place = axis_of("topk", axis, tensor.ndim)
    count = integer_of("topk", k, "k")
    if not 0 <= count <= tensor.shape[place]:
        raise DomainError(
            f"ops.topk got k={count} for shape {tensor.shape}; "
            f"axis {place} has {tensor.shape[place]} values"
        )
    last = place == tensor.ndim - 1
    lines = tensor if last else ops.moveaxis(tensor, place, -1)
    plain = fill(lines.native, lines._spec)
    (index,) = dispatch.call_many("topk_indices", plain, count, bool(largest))
    if not last:
        index = ops.moveaxis(index, -1, place)
    return TopK(ops.take_along_axis(tensor, index, axis=place), index)


@op(accepts=REAL | BOOLEAN, standard=False)
def mode(x: TensorLike, /, axis: Axis = None, *, keepdims: bool = False) -> Mode:
    """The most frequent value over `axis`, the smallest of several, and how often it stands.

    Where there are NaNs, the value is NaN and the count is theirs.

    >>> found = mode([3, 1, 3, 1, 2])
    >>> found.values.item(), found.counts.item()
    (1, 2)
    """
    tensor = dispatch.lifted("mode", x)
    lines, kept = lines_of("mode", tensor, axis)
    side = lines.shape[-1]
    if not side:
        raise ShapeError(f"ops.mode got shape {tensor.shape}; nothing has no most frequent value")
    ordered = ops.sort(lines, axis=-1)
    starts = ops.not_equal(ordered[..., 1:], ordered[..., :-1])
    # The place of each value in its run is its own place less that of the last start.
    places = convert.to_tensor(np.arange(side), lines._spec.backend)
    begun = ops.where(starts, places[1:], 0)
    first = ops.zeros_like(ordered[..., :1], dtype="int64")
    begun = dispatch.call("running_maximum", ops.concat([first, begun], axis=-1), lines.ndim - 1)
    lengths = places - begun + 1
    best = ops.argmax(lengths, axis=-1, keepdims=True)
    values = ops.take_along_axis(ordered, best, axis=-1)
    counts = ops.take_along_axis(lengths, best, axis=-1)
    if tensor.dtype.is_floating:
        # Each NaN is a run of its own, and they stand last.
        nans = ops.count_nonzero(ops.isnan(lines), axis=-1, keepdims=True)
        values = ops.where(nans > 0, ordered[..., -1:], values)
        counts = ops.where(nans > 0, nans, counts)
    shape = kept if keepdims else tuple(lines.shape[:-1])
    return Mode(ops.reshape(values, shape), ops.reshape(counts, shape))


# --- Bins -----------------------------------------------------------------------------------


@op(accepts=INTEGRAL, result="index", standard=False)
def bincount(x: TensorLike, /, weights: TensorLike | None = None, *, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, 2, ... stands in `x`, or the sum of the weights there.

    The result is as long as the largest value asks for, and at least `minlength`. Under a
    compiler, where values are not known, it has `minlength` elements and larger values are left
    out.

    >>> bincount([1, 3, 1]).tolist()
    [0, 2, 0, 1]
    >>> bincount([1, 3, 1], weights=[0.5, 1.0, 0.25]).tolist()
    [0.0, 0.75, 0.0, 1.0]
    """
    home = dispatch.home_of("bincount", (x, weights))
    tensor = dispatch.lifted("bincount", _not_of_nothing(x, home))
    if tensor.ndim != 1:
        raise ShapeError(f"ops.bincount takes one axis, not shape {tensor.shape}")
    length = integer_of("bincount", minlength, "minlength")
    if length < 0:
        raise DomainError(f"ops.bincount got minlength={length}; a length is not negative")
    index = convert.cast(tensor, dtypes.int64)
    summed = None if weights is None else convert.to_tensor(weights, home)
    if summed is not None and summed.shape != tensor.shape:
        raise ShapeError(
            f"ops.bincount got shapes {tensor.shape} and weights {summed.shape}; they must agree"
        )
    if home.is_traced(index.native):
        if not length:
            raise UnsupportedOpError(
                "ops.bincount gives a shape that depends on values, which a compiler cannot "
                "know; give it minlength"
            )
        return _bin_sum(index, summed, length, (index >= 0) & (index < length))
    if tensor.size:
        values = index.numpy()
        if int(values.min()) < 0:
            raise DomainError(f"ops.bincount takes no negative values, and got {values.min()}")
        length = max(length, int(values.max()) + 1)
    return _bin_sum(index, summed, length, None)


def _not_of_nothing(x: TensorLike, home: Any) -> Tensor:
    tensor = convert.to_tensor(x, home)
    empty_list = not tensor.size and isinstance(x, list | tuple)  # which has no dtype of its own
    return convert.cast(tensor, dtypes.int64) if empty_list else tensor


def _bin_sum(index: Tensor, weights: Tensor | None, length: int, inside: Tensor | None) -> Tensor:
    """Sums into bins; what is not `inside` goes to one bin more, which is cut off."""
    spec = index._spec
    if inside is not None:
        index = ops.where(inside, index, length)
    size = length if inside is None else length + 1
    kernel, _ = spec.backend.entry(spec, "bin_sum")
    if weights is None:
        out = fill(*dispatch.settled(kernel(index.native, None, size), spec))
    else:
        wide = weights
        if not (wide.dtype.is_floating or wide.dtype.is_complex):
            wide = convert.cast(wide, dtypes.int64)
        elif wide.dtype.bits == 16:  # small sums lose digits
            wide = convert.cast(wide, dtypes.float32)
        native, result = dispatch.settled(kernel(index.native, wide.native, size), wide._spec)
        if type(wide) is GradTensor:
            out = recorded("bin_sum", native, result, (wide,), (index.native, size))
        else:
            out = fill(native, result)
        out = convert.cast(out, _sum_dtype(weights))
    return out if inside is None else out[:length]


def _sum_dtype(weights: Tensor) -> dtypes.DType:
    kept = weights.dtype.is_floating or weights.dtype.is_complex
    return weights.dtype if kept else dtypes.int64


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def histogram(
    x: TensorLike,
    /,
    bins: TensorLike = 10,
    *,
    range: tuple[float, float] | None = None,
    weights: TensorLike | None = None,
    density: bool = False,
) -> Histogram:
    """How many values lie between neighbours among the edges; the last edge belongs to its bin.

    `bins` is the number of bins of equal width over `range` (that of the values, unless given), or
    the edges themselves. With `density` the counts are divided so that the integral is one.
    Gradients are those by the weights and by given edges: the values decide on bins alone.

    >>> histogram([1.0, 2.0, 2.0, 4.0], 3).counts.tolist()
    [1, 2, 1]
    >>> histogram([1.0, 2.0, 2.0, 4.0], [0.0, 2.0, 4.0], density=True).counts.tolist()
    [0.125, 0.375]
    """
    home = dispatch.home_of("histogram", (x, bins, weights))
    given = dispatch.lifted("histogram", convert.to_tensor(x, home))
    tensor = ops.reshape(fill(home.detach(given.native), given._spec), (-1,))
    edges = _edges(tensor, bins, range)
    length = edges.shape[0] - 1
    summed = None if weights is None else convert.to_tensor(weights, home)
    if summed is not None:
        if summed.size != tensor.size:
            raise ShapeError(
                f"ops.histogram got {tensor.size} values and weights of shape {summed.shape}"
            )
        summed = ops.reshape(summed, (-1,))
    even = not _are_edges(bins)
    limits = home.detach(edges.native)
    (index,) = dispatch.call_many("bin_index", tensor, limits, even)
    index = ops.where(tensor == edges[-1], length - 1, index)
    inside = (index >= 0) & (index < length)  # NaN sorts beyond the last edge
    counts = _bin_sum(index, summed, length, inside)
    if density:
        widths = edges[1:] - edges[:-1]
        parts = convert.cast(counts, edges.dtype)
        counts = parts / (ops.sum(parts) * widths)
    return Histogram(counts, edges)


def _edges(x: Tensor, bins: TensorLike, limits: tuple[float, float] | None) -> Tensor:
    home = x._spec.backend
    if isinstance(bins, str):
        raise DomainError(f"ops.histogram takes a number of bins or their edges, not {bins!r}")
    if _are_edges(bins):
        edges = convert.to_tensor(bins, home)
        if edges.ndim != 1 or edges.shape[0] < 2:
            raise ShapeError(f"ops.histogram takes at least two edges in one axis, not {bins!r}")
        edges = convert.cast(edges, x.dtype)
        if home.checks_values(edges.native) and not _rises(edges.numpy()):
            raise DomainError(f"ops.histogram takes edges in rising order, not {bins!r}"[:200])
        return edges
    count = integer_of("histogram", bins, "number of bins")
    if count < 1:
        raise DomainError(f"ops.histogram takes at least one bin, not {count}")
    if limits is not None:
        try:
            low, high = limits
        except (TypeError, ValueError):
            raise DomainError(f"ops.histogram takes a range (low, high), not {limits!r}") from None
        low, high = (number_of("histogram", one, "range") for one in (low, high))
        if not (low <= high and np.isfinite([low, high]).all()):
            raise DomainError(f"ops.histogram takes a finite range (low, high), not {limits}")
        return _even_edges(x, low, high, count)
    if not x.size:
        return _even_edges(x, 0.0, 1.0, count)
    if not home.is_traced(x.native):
        low, high = float(ops.min(x).item()), float(ops.max(x).item())
        if not np.isfinite([low, high]).all():
            raise DomainError(
                f"ops.histogram got values from {low} to {high}; give it a finite range"
            )
        return _even_edges(x, low, high, count)
    first, last = ops.min(x), ops.max(x)
    flat = first == last
    first, last = ops.where(flat, first - 0.5, first), ops.where(flat, last + 0.5, last)
    steps = convert.asarray(np.linspace(0, 1, count + 1), dtype=x.dtype, backend=home)
    return first * (1 - steps) + last * steps


def _rises(edges: np.ndarray[Any, Any]) -> bool:
    return bool((edges[:-1] <= edges[1:]).all())  # NaN is nowhere in an order


def _are_edges(bins: TensorLike) -> bool:
    return isinstance(bins, list | tuple) or bool(getattr(bins, "ndim", 0))


def _even_edges(x: Tensor, low: float, high: float, count: int) -> Tensor:
    # On the host in float64: the same edges on every backend.
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, count + 1)
    return convert.asarray(edges, dtype=x.dtype, device=x.device, backend=x._spec.backend)


@op(accepts=REAL, result="index", arity=2, standard=False)
def digitize(x: TensorLike, bins: TensorLike, /, *, right: bool = False) -> Tensor:
    """The bin of each value: the number of edges that lie below it, or at it.

    Edges rise or fall. With `right`, a value at an edge belongs to the bin before it.

    >>> digitize([0.5, 1.0, 3.0], [1.0, 2.0]).tolist()
    [0, 1, 2]
    """
    home = dispatch.home_of("digitize", (x, bins))
    values, edges = convert.to_tensor(x, home), convert.to_tensor(bins, home)
    for one in (values, edges):
        if one.dtype not in REAL:
            raise DTypeError(f"ops.digitize takes real numbers, not {one.dtype}")
    if edges.ndim != 1:
        raise ShapeError(f"ops.digitize takes bins of one axis, not {edges.shape}")
    falls = False
    if edges.size > 1 and home.checks_values(edges.native):
        known = edges.numpy()
        falls = not _rises(known)
        if falls and not _rises(known[::-1]):
            raise DomainError(
                f"ops.digitize takes bins that rise, or that fall, not {bins!r}"[:200]
            )
    side = "left" if right else "right"
    if not falls:
        return ops.searchsorted(edges, values, side=side)
    return edges.shape[0] - ops.searchsorted(ops.flip(edges), values, side=side)
