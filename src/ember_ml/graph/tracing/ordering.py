"""Order, sets and look-ups as nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.graph.tracing.elementwise import choose
from ember_ml.graph.tracing.indexing import taken
from ember_ml.graph.tracing.moving import reshaped, unsqueezed
from ember_ml.graph.tracing.operand import Operand
from ember_ml.graph.tracing.reductions import any_of, ordered, summed, unordered
from ember_ml.graph.tracing.trace import cast, current, emit, emit_many

__all__ = ["EMITTERS"]


_WIDER: Final = {"float16": dtypes.float32, "bfloat16": dtypes.float32}


def _top(x: Operand, count: int, axis: int, largest: bool) -> tuple[Operand, Operand]:
    """The first values by order and their places; equal ones keep their order."""
    if x.dtype.kind in "iub":
        inner, turned = ordered(x)
        values, places = _first(inner, count, axis, largest)
        return (unordered(values) if turned else values), places
    # NaN counts as the largest; ONNX Runtime leaves its place open. A wider dtype has room for it
    # above infinity. (In float64 infinity is as large as the largest number.)
    wide = _WIDER.get(x.dtype.name, dtypes.float64)
    key = cast(x, wide)
    limit = np.array(np.finfo(wide.numpy).max, wide.numpy)
    mask = emit("IsNaN", [key], np.isnan(key.shadow))
    key = emit("Min", [key, limit], np.minimum(key.shadow, limit))
    key = choose(mask, np.array(np.inf, wide.numpy), key)
    places = _first(key, count, axis, largest)[1]
    return take_along_axis(None, x, places, axis), places


def _first(x: Operand, count: int, axis: int, largest: bool) -> tuple[Operand, Operand]:
    order = _argsorted(x.shadow, axis, largest)
    order = np.take(order, np.arange(int(count)), axis=axis)
    values = np.take_along_axis(x.shadow, order, axis=axis)
    shape = tuple(count if i == axis else side for i, side in enumerate(x.shape))
    made = emit_many(
        "TopK",
        [x, current().size(count)],
        [values, order.astype(np.int64)],
        shapes=[shape, shape],
        axis=axis,
        largest=int(largest),
        sorted=1,
    )
    return made[0], made[1]


def _argsorted(x: Any, axis: int, descending: bool) -> Any:
    if not descending:
        return np.argsort(x, axis=axis, stable=True)
    turned = np.argsort(np.flip(x, axis=axis), axis=axis, stable=True)
    return x.shape[axis] - 1 - np.flip(turned, axis=axis)


def sort(eager: Any, x: Operand, axis: int, descending: bool, stable: bool) -> Any:
    place = axis % x.ndim
    return _top(x, x.shape[place], place, descending)[0]


def argsort(eager: Any, x: Operand, axis: int, descending: bool, stable: bool) -> Any:
    place = axis % x.ndim
    return _top(x, x.shape[place], place, descending)[1]


def topk_indices(eager: Any, x: Operand, k: int, largest: bool) -> Any:
    return (_top(x, k, x.ndim - 1, largest)[1],)


def searchsorted(eager: Any, x: Operand, y: Operand, side: str) -> Any:
    """How many values are below, or not above, each."""
    wide = unsqueezed(y, [y.ndim])
    below = x <= wide if side == "right" else x < wide
    if x.dtype.kind not in "iub":
        # NaN counts as the largest; comparisons pass over it.
        last = emit("IsNaN", [wide], np.isnan(wide.shadow))
        if side != "right":
            last = last & ~emit("IsNaN", [x], np.isnan(x.shadow))
        below = below | last
    return summed(cast(below, dtypes.int64), -1)


def isin(eager: Any, x: Operand, y: Operand, invert: bool) -> Any:
    found = any_of(unsqueezed(x, [x.ndim]) == reshaped(y, (-1,)), -1, False)
    return ~found if invert else found


def take(eager: Any, x: Operand, indices: Operand, axis: int) -> Any:
    return taken(x, indices, axis % max(x.ndim, 1))


def take_along_axis(eager: Any, x: Operand, indices: Operand, axis: int) -> Any:
    place = axis % x.ndim
    side = max(x.shadow.shape[place], 1)
    array = np.take_along_axis(x.shadow, np.mod(indices.shadow, side), axis=place)
    return emit("GatherElements", [x, indices], array, shape=indices.shape, axis=place)


EMITTERS: Final[dict[str, Callable[..., Any]]] = {
    "sort": sort,
    "argsort": argsort,
    "topk_indices": topk_indices,
    "searchsorted": searchsorted,
    "isin": isin,
    "take": take,
    "take_along_axis": take_along_axis,
}
