"""Scatter as nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.graph.tracing.elementwise import choose, number
from ember_ml.graph.tracing.moving import expanded, reshaped
from ember_ml.graph.tracing.operand import Operand
from ember_ml.graph.tracing.reductions import ordered, unordered
from ember_ml.graph.tracing.trace import cast, constant, emit, emit_many

__all__ = ["EMITTERS"]


def _places(values: Operand, indices: Operand, axis: int) -> Operand:
    """One index for each value."""
    if indices.ndim == 1 and values.ndim > 1:
        sides = tuple(indices.shape[0] if i == axis else 1 for i in range(values.ndim))
        indices = reshaped(indices, sides)
    return expanded(indices, values.shape)


def _scattered(
    start: Operand, places: Operand, values: Operand, axis: int, how: str, array: Any
) -> Operand:
    return emit_many(
        "ScatterElements",
        [start, places, values],
        [array],
        shapes=[start.shape],
        key="ScatterElements+",
        axis=axis,
        reduction=how,
    )[0]


def _start(value: Any, values: Operand, axis: int, size: int) -> Operand:
    shape = (*values.shape[:axis], size, *values.shape[axis + 1 :])
    return expanded(constant(np.array(value, values.dtype)), shape)


def _sum(how: str, first: int) -> Callable[..., Any]:
    def run(eager: Any, values: Operand, indices: Operand, axis: int, size: int) -> Any:
        if values.dtype == np.bool_:
            wide = cast(values, dtypes.int32)
            return cast(_plain(how, first, wide, indices, axis, size), dtypes.bool)
        return _plain(how, first, values, indices, axis, size)

    return run


def _plain(
    how: str, first: int, values: Operand, indices: Operand, axis: int, size: int
) -> Operand:
    places = _places(values, indices, axis)
    start = _start(first, values, axis, size)
    ufunc: Any = np.add if how == "add" else np.multiply
    return _scattered(start, places, values, axis, how, _at(ufunc, start, places, values, axis))


def _at(ufunc: Any, start: Operand, places: Operand, values: Operand, axis: int) -> Any:
    made = np.array(start.shadow)
    side = max(made.shape[axis], 1)
    grid: list[Any] = list(np.indices(values.shadow.shape, sparse=True))
    grid[axis] = np.mod(places.shadow, side)
    if values.shadow.size:
        ufunc.at(made, tuple(grid), values.shadow)
    return made


def _extreme(how: str) -> Callable[..., Any]:
    ufunc: Any = np.maximum if how == "max" else np.minimum

    def run(eager: Any, values: Operand, indices: Operand, axis: int, size: int) -> Any:
        kind = values.dtype.kind
        if kind == "b":
            wide = cast(values, dtypes.int32)
            return cast(run(eager, wide, indices, axis, size), dtypes.bool)
        if kind in "iu":
            limits = np.iinfo(values.dtype)
            limit: Any = limits.min if how == "max" else limits.max
            if values.dtype == np.uint64:  # by int64, in which it would run, in the same order
                limits = np.iinfo(np.int64)
                limit = limits.min if how == "max" else limits.max
        else:
            limit = -math.inf if how == "max" else math.inf
        places = _places(values, indices, axis)
        inner, turned = ordered(values)
        start = _start(limit, inner, axis, size)
        made = _scattered(start, places, inner, axis, how, _at(ufunc, start, places, inner, axis))
        made = unordered(made) if turned else made
        ones = expanded(constant(np.ones((), np.int64)), values.shape)
        count = _plain("add", 0, ones, indices, axis, size)
        if kind not in "iu":
            # ONNX Runtime passes over NaN.
            lost = cast(emit("IsNaN", [values], np.isnan(values.shadow)), dtypes.int64)
            some = _plain("add", 0, lost, indices, axis, size) > 0
            made = choose(some, number(math.nan, values), made)
        return choose(count == 0, number(0, values), made)  # places that got nothing hold zero

    return run


def bin_sum(eager: Any, index: Operand, weights: Operand | None, length: int) -> Any:
    if weights is None:
        weights = expanded(constant(np.ones((), np.int64)), index.shape)
    return _plain("add", 0, weights, index, 0, length)


EMITTERS: Final[dict[str, Callable[..., Any]]] = {
    "scatter_add": _sum("add", 0),
    "scatter_mul": _sum("mul", 1),
    "scatter_max": _extreme("max"),
    "scatter_min": _extreme("min"),
    "bin_sum": bin_sum,
}
