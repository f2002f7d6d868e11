"""Statistics that go by order on NumPy: selection, which is quicker than sorting."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.numpy.kernels import argsort, quiet

__all__ = ["OVERRIDES", "quantiles_at"]

Array = NativeArray

# Selecting one place after another beats a sort up to here.
_FEW: Final = 4
# Below this many values, or where a good part of them is asked for, sorting is the short way.
_SHORT: Final = 256


@quiet
def quantiles_at(
    x: Array, low: tuple[int, ...], high: tuple[int, ...], weight: tuple[float, ...]
) -> Any:
    places = sorted({*low, *high, x.shape[-1] - 1})
    found = _selected(x, places)
    a, b = (found[..., [places.index(k) for k in one]] for one in (low, high))
    share = np.array(weight, x.dtype)
    out = np.where(a == b, a, a * (1 - share) + b * share)
    last = found[..., -1:]
    return np.where(np.isnan(last), last, out)


def _selected(x: Array, places: list[int]) -> Any:
    """The values that sorting the last axis, NaN behind all, would bring to some places."""
    last = x.shape[-1] - 1
    if len(places) > _FEW:
        return np.sort(x, axis=-1)[..., places]
    found = [
        np.maximum.reduce(x, axis=-1) if k == last else np.partition(x, k, axis=-1)[..., k]
        for k in places
    ]
    return np.stack(found, axis=-1)


def topk_indices(x: Array, k: int, largest: bool) -> tuple[Array, ...]:
    side = x.shape[-1]
    if side < _SHORT or 4 * k > side or not k or _has_nan(x):
        return (argsort(x, x.ndim - 1, largest, True)[..., :k],)
    place = side - k if largest else k - 1
    limit = np.partition(x, place, axis=-1)[..., place, None]
    chosen = x > limit if largest else x < limit
    # Of those that equal the last one, the first in order.
    ties = x == limit
    missing = k - np.count_nonzero(chosen, axis=-1, keepdims=True)
    chosen |= ties & (np.cumsum(ties, axis=-1) <= missing)
    index = np.nonzero(chosen)[-1].reshape(*x.shape[:-1], k)
    order = argsort(np.take_along_axis(x, index, axis=-1), x.ndim - 1, largest, True)
    return (np.take_along_axis(index, order, axis=-1),)


def _has_nan(x: Array) -> bool:
    return x.dtype.kind == "f" and bool(np.isnan(np.maximum.reduce(x, axis=None, initial=-np.inf)))


def running_maximum(x: Array, axis: int) -> Any:
    return np.maximum.accumulate(x, axis=axis)


@quiet
def bin_index(x: Array, edges: Array, even: bool) -> tuple[Array, ...]:
    """How many edges are not above each value, less one."""
    count = len(edges) - 1
    if not even or x.size < _SHORT or count > x.size:
        return (np.searchsorted(edges, x, "right") - 1,)
    # The place of a value among even edges is known but for rounding: a look at both sides.
    first, last = (float(edge) for edge in (edges[0], edges[-1]))
    place = (x - x.dtype.type(first)) * x.dtype.type(count / (last - first))
    index = np.fmax(np.fmin(place, count - 1), 0).astype(np.int64)
    index -= x < edges[index]
    index += x >= edges[index + 1]
    if x.dtype.kind == "f":
        index[np.isnan(x)] = count
    return (index,)


def bin_sum(index: Array, weights: Array | None, length: int) -> Any:
    """How often each of 0 to length - 1 stands in `index`, or the sum of the weights there."""
    if weights is None:
        return np.bincount(index, minlength=length)
    if weights.dtype.kind == "f":
        return np.bincount(index, weights, minlength=length).astype(weights.dtype)
    out = np.zeros(length, weights.dtype)
    np.add.at(out, index, weights)  # bincount would add whole numbers as floats
    return out


OVERRIDES: Final[dict[str, Kernel]] = {
    "quantiles_at": quantiles_at,
    "topk_indices": topk_indices,
    "running_maximum": running_maximum,
    "bin_index": bin_index,
    "bin_sum": bin_sum,
}
