"""Elements at indices, and the indices of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.errors import DomainError
from ember_ml.graph.executors.operators.registry import Host, operator
from ember_ml.graph.executors.operators.shaping import hosted
from ember_ml.graph.executors.operators.slicing import beside
from ember_ml.tensor.core import Tensor

__all__: list[str] = []


@operator("Gather", 11, 13)
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """Slices at indices; one beyond the axis, an error in ONNX, raises OutOfBoundsError."""
    if indices.ndim == 1:
        return ops.take(x, indices, axis=axis)
    place = axis % x.ndim
    flat = ops.take(x, ops.reshape(indices, (-1,)), axis=place)
    return ops.reshape(flat, (*x.shape[:place], *indices.shape, *x.shape[place + 1 :]))


@operator("GatherElements", 11, 13)
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return ops.gather(x, indices, axis)


@operator("GatherND", 11, 12, 13)
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    if not batch_dims:
        return ops.gather_nd(x, indices)
    return ops.gather_nd(x, batched(indices, x.shape[:batch_dims]))


def batched(indices: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Indices with the numbers of their batches before them."""
    shape = indices.shape[:-1]
    numbers = np.moveaxis(np.indices(batch), 0, -1)
    numbers = numbers.reshape(*batch, *[1] * (len(shape) - len(batch)), len(batch))
    spread = np.broadcast_to(numbers, (*shape, len(batch)))
    own = ops.astype(indices, dtypes.int64)
    return ops.concat([beside(indices, np.ascontiguousarray(spread)), own], axis=-1)


@operator("Compress", 11, 28)
def compress(x: Tensor, condition: Host, *, axis: int | None = None) -> Tensor:
    """The slices where a condition holds; how many there are depends on its values."""
    chosen = np.nonzero(condition)[0]
    if axis is None:
        return ops.take(ops.reshape(x, (-1,)), beside(x, chosen), axis=0)
    return ops.take(x, beside(x, chosen), axis=axis)


@operator("NonZero", 9, 13)
def nonzero(x: Tensor) -> Tensor:
    if not x.ndim:  # ONNX, unlike NumPy, has no rows for a number
        return hosted(np.zeros((0, int(bool(x))), np.int64))
    return ops.stack(ops.nonzero(x), axis=0)


@operator("OneHot", 11, 28)
def one_hot(indices: Tensor, depth: Host, values: Tensor, *, axis: int = -1) -> Tensor:
    """`on` at the index, `off` elsewhere; indices count from the end where they are negative."""
    count = int(depth.reshape(-1)[0])
    places = ops.astype(indices, dtypes.int64)
    places = ops.where(ops.less(places, 0), ops.add(places, count), places)
    place = axis % (indices.ndim + 1)
    sizes = [1] * (indices.ndim + 1)
    sizes[place] = count
    found = ops.equal(ops.expand_dims(places, place), np.arange(count).reshape(sizes))
    return ops.where(found, values[1], values[0])


@operator("TopK", 11, 24)
def top_k(
    x: Tensor, k: Host, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Tensor, Tensor]:
    """The largest or smallest along an axis; of equal ones the first."""
    count = int(k.reshape(-1)[0])
    if not 0 <= count <= x.shape[axis]:
        raise DomainError(f"TopK asks for {count} of {x.shape[axis]} elements")
    order = ops.argsort(x, axis=axis, descending=bool(largest), stable=True)
    keys: list[Any] = [slice(None)] * x.ndim
    keys[axis] = slice(0, count)
    chosen = order[tuple(keys)]
    return ops.take_along_axis(x, chosen, axis=axis), chosen


@operator("Unique", 11, 28)
def unique(x: Tensor, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor, ...]:
    """Unique values or slices, by NumPy: how many there are depends on the values."""
    array = x.numpy()
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        rank = np.argsort(order)
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    home = values.astype(array.dtype, copy=False)
    return (beside(x, np.ascontiguousarray(home)), hosted(first), hosted(inverse), hosted(counts))
