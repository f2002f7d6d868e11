"""Values put at indices, alone or joined with what is there."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.errors import UnsupportedOpError
from ember_ml.graph.executors.operators.registry import Host, operator
from ember_ml.graph.executors.operators.slicing import beside
from ember_ml.tensor.core import Tensor

__all__: list[str] = []


@operator("Scatter", 9, 11)
@operator("ScatterElements", 11, 13)
def scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0) -> Tensor:
    return scatter_elements_joined(x, indices, updates, axis=axis)


@operator("ScatterElements", 16, 18)
def scatter_elements_joined(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """Each update at its own place, but for the axis, where an index says it."""
    place = axis % x.ndim
    own = ops.astype(indices, dtypes.int64)
    own = ops.where(ops.less(own, 0), ops.add(own, x.shape[place]), own)
    grids = np.indices(indices.shape)
    keys = [own if i == place else beside(x, grid) for i, grid in enumerate(grids)]
    points = ops.stack(keys, axis=-1)
    return _scattered(x, points, updates, reduction)


@operator("ScatterND", 11, 13)
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    return _scattered(x, indices, updates, "none")


@operator("ScatterND", 16, 18)
def scatter_nd_joined(
    x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none"
) -> Tensor:
    return _scattered(x, indices, updates, reduction)


def _scattered(x: Tensor, points: Tensor, updates: Tensor, reduction: str) -> Tensor:
    if not updates.size:
        return x
    if reduction == "none":
        return ops.tensor_scatter_nd_update(x, points, updates)
    if reduction == "add":
        return _kept(ops.tensor_scatter_nd_add(x, points, updates), x)
    if reduction == "max":
        return _kept(ops.tensor_scatter_nd_max(x, points, updates), x)
    if reduction == "min":
        return _kept(ops.tensor_scatter_nd_min(x, points, updates), x)
    if reduction == "mul":
        return _multiplied(x, points, updates)
    raise UnsupportedOpError(f"ScatterND has no reduction '{reduction}'")


def _kept(made: Tensor, x: Tensor) -> Tensor:
    return made if made.dtype is x.dtype else ops.astype(made, x.dtype)


def _multiplied(x: Tensor, points: Tensor, updates: Tensor) -> Tensor:
    """All updates of a point multiplied, and what was there with them."""
    count = points.shape[-1]
    sides = x.shape[:count]
    strides = np.cumprod([1, *sides[:0:-1]])[::-1].astype(np.int64)
    wrapped = ops.where(ops.less(points, 0), ops.add(points, beside(x, np.array(sides))), points)
    flat = ops.sum(ops.multiply(wrapped, beside(x, np.ascontiguousarray(strides))), axis=-1)
    rows = ops.reshape(x, (int(np.prod(sides)), *x.shape[count:]))
    values = ops.reshape(updates, (-1, *x.shape[count:]))
    factors = ops.scatter_mul(values, ops.reshape(flat, (-1,)), rows.shape[0])
    ones = ops.ones_like(ops.reshape(flat, (-1,)))
    touched = ops.greater(ops.scatter_add(ones, ops.reshape(flat, (-1,)), rows.shape[0]), 0)
    touched = ops.reshape(touched, (rows.shape[0], *[1] * (rows.ndim - 1)))
    made = ops.where(touched, ops.multiply(rows, _kept(factors, x)), rows)
    return ops.reshape(made, x.shape)


@operator("TensorScatter", 24)
def tensor_scatter(
    past: Tensor,
    update: Tensor,
    write_indices: Host | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Tensor:
    """A cache with new entries, from an index of each batch on; "circular" begins again."""
    place = axis % past.ndim
    starts: Any = np.zeros(past.shape[0], np.int64) if write_indices is None else write_indices
    steps = np.arange(update.shape[place])
    places = starts.reshape(-1, 1) + steps
    if mode == "circular":
        places = places % past.shape[place]
    shape = [1] * past.ndim
    shape[0], shape[place] = places.shape
    keys = np.broadcast_to(places.reshape(shape), update.shape)
    return ops.put_along_axis(past, beside(past, np.ascontiguousarray(keys)), update, axis=place)
