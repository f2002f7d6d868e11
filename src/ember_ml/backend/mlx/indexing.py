"""`x[key]` and `x[key] = value` with NumPy's meaning, over MLX's gather and scatter.

A key is split in two: what is basic (integers, slices, new axes) runs first, as MLX does it; then
the arrays of integers act on the axes that they meet. Masks become arrays of integers.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import mlx.core as mx
import numpy as np

from ember_ml.backend.contract import Kernel
from ember_ml.backend.gradients import TRANSFORMING
from ember_ml.backend.mlx.elementwise import batched
from ember_ml.backend.mlx.hosting import evaluated
from ember_ml.backend.mlx.slopes import tied
from ember_ml.errors import UnsupportedOpError

__all__ = ["OVERRIDES", "get", "put"]

Array = Any  # mx.array; its operators are untyped
_ALL = slice(None)


class _Plan(NamedTuple):
    """A key with arrays: the basic key, then `arrays` on `axes` of what that gives.

    The axes of the arrays' common shape come to stand at `place` of the result.
    """

    basic: tuple[Any, ...]
    axes: tuple[int, ...]
    arrays: list[Array]
    place: int


def get(x: Array, key: tuple[Any, ...]) -> Array:
    """The elements of `x` at a checked key."""
    if not any(isinstance(item, mx.array) for item in key):
        return x[key]
    plan = _plan(x, key)
    front = _to_front(x[plan.basic], plan.axes)
    common = plan.arrays[0].shape
    rest = front.shape[len(plan.axes) :]
    if not math.prod((*common, *rest)):
        # Made as it is: reductions run astray in what is empty and has been permuted.
        made = mx.zeros((*rest[: plan.place], *common, *rest[plan.place :]), dtype=x.dtype)
        return _with_nothing(made, x)
    return _moved(front[tuple(plan.arrays)], len(common), 0, plan.place)


def put(x: Array, key: tuple[Any, ...], value: Array) -> Array:
    """`x` with `value` at a checked key; `x` itself stays as it is."""
    x, value = batched(x, value), batched(value, x)
    if len(key) == 1 and _is_mask(key[0]) and not value.ndim:
        # No index is needed, so this can be traced.
        mask = mx.reshape(key[0], (*key[0].shape, *(1,) * (x.ndim - key[0].ndim)))
        return mx.where(mask, value, x)
    # Item assignment gives the object another array; one of our own keeps `x` as it was.
    target = mx.reshape(x, x.shape)
    if not any(isinstance(item, mx.array) for item in key):
        shape = x[key].shape
        if math.prod(shape):
            target[key] = _fit(value, shape)
            return target
        _fit(value, shape)
        return _with_nothing(target, value)
    plan = _plan(x, key)
    part = x[plan.basic]
    front = _to_front(part, plan.axes)
    common = plan.arrays[0].shape
    rest = front.shape[len(plan.axes) :]
    value = _fit(value, (*rest[: plan.place], *common, *rest[plan.place :]))
    if not value.size:
        return _with_nothing(target, value)
    value = _moved(value, len(common), plan.place, 0)
    front[tuple(plan.arrays)] = _staying(front, plan.arrays, value) if TRANSFORMING.get() else value
    target[plan.basic] = _from_front(front, plan.axes)
    return target


def _staying(front: Array, arrays: list[Array], value: Array) -> Array:
    """A value whose gradient, where a place is named twice, goes to the element that stays."""
    places = mx.zeros(front.shape, dtype=mx.int64)
    numbers = mx.arange(1, value.size + 1, dtype=mx.int64).reshape(value.shape)
    places[tuple(arrays)] = numbers
    return mx.where(places[tuple(arrays)] == numbers, value, mx.stop_gradient(value))


def _fit(value: Array, shape: tuple[int, ...]) -> Array:
    """A value in the shape of its place; leading axes of length one may fall away."""
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = mx.squeeze(value, 0)
    return mx.broadcast_to(value, shape)


def _plan(x: Array, key: tuple[Any, ...]) -> _Plan:
    items = _spread(x, key)
    basic: list[Any] = []
    axes: list[int] = []
    arrays: list[Array] = []
    places: list[int] = []  # where in the key integers and arrays stand
    first = 0
    axis = 0
    for place, item in enumerate(items):
        if item is Ellipsis:
            continue
        if isinstance(item, int | mx.array):
            first = first if places else axis
            places.append(place)
        if isinstance(item, int):
            basic.append(item)
            continue
        if isinstance(item, mx.array):
            for array in _integers(item):
                axes.append(axis)
                arrays.append(array)
                axis += 1
            # A mask of no axes acts on a new axis of length one.
            basic.extend([_ALL] * _span(item) or [None])
            continue
        basic.append(item)
        axis += 1
    apart = places[-1] - places[0] + 1 != len(places)
    try:
        arrays = list(mx.broadcast_arrays(*arrays))
    except ValueError as error:
        raise IndexError(f"the arrays of a key do not broadcast: {error}") from error
    return _Plan(tuple(basic), tuple(axes), arrays, 0 if apart else first)


def _spread(x: Array, key: tuple[Any, ...]) -> list[Any]:
    """The key with slices after its ellipsis, which parts arrays even where it is empty."""
    used = sum(_span(item) for item in key)
    items: list[Any] = []
    for item in key:
        if item is Ellipsis:
            items.extend([Ellipsis, *[_ALL] * (x.ndim - used)])
        else:
            items.append(item)
    return items


def _is_mask(item: Any) -> bool:
    return isinstance(item, mx.array) and item.dtype == mx.bool_


def _span(item: Any) -> int:
    """How many axes an item takes."""
    if item is None or item is Ellipsis:
        return 0
    return int(item.ndim) if _is_mask(item) else 1


def _integers(item: Array) -> list[Array]:
    """The arrays of integers for an array of integers or a mask."""
    if not _is_mask(item):
        return [mx.stop_gradient(item)]
    if not evaluated(item):
        raise UnsupportedOpError(
            "a mask chooses as many elements as it has true values, which are unknown "
            "while mx.compile or mx.vmap traces; use ops.where"
        )
    mask = np.asarray(item)
    found = np.nonzero(mask) if mask.ndim else (np.zeros(int(mask), dtype=np.int64),)
    return [mx.array(indices) for indices in found]


def _to_front(x: Array, axes: tuple[int, ...]) -> Array:
    return mx.permute_dims(x, (*axes, *(i for i in range(x.ndim) if i not in axes)))


def _from_front(x: Array, axes: tuple[int, ...]) -> Array:
    order = [*axes, *(i for i in range(x.ndim) if i not in axes)]
    return mx.permute_dims(x, tuple(order.index(i) for i in range(x.ndim)))


def _moved(x: Array, count: int, source: int, target: int) -> Array:
    """`count` neighbouring axes moved from one place to another."""
    if source == target or not count:
        return x
    rest = [i for i in range(x.ndim) if not source <= i < source + count]
    order = [*rest[:target], *range(source, source + count), *rest[target:]]
    return mx.permute_dims(x, tuple(order))


# MLX asks for gradients by indices too, where these were worked out from what it differentiates
# by, and has none.


def _with_nothing(out: Array, x: Array) -> Array:
    """A result that took no element of `x`, and counts as made of it all the same."""
    inexact = mx.issubdtype(x.dtype, mx.inexact)
    return tied(out, x) if inexact and TRANSFORMING.get() else out


def take(x: Array, indices: Array, axis: int) -> Array:
    if not x.size or not indices.size:
        # The gradient of what is empty ends the process, or is refused.
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        return _with_nothing(mx.zeros(shape, dtype=x.dtype), x)
    return mx.take(x, mx.stop_gradient(indices), axis)


def take_along_axis(x: Array, indices: Array, axis: int) -> Array:
    if not x.size or not indices.size:
        return _with_nothing(mx.zeros(indices.shape, dtype=x.dtype), x)
    return mx.take_along_axis(x, mx.stop_gradient(indices), axis)


OVERRIDES: Final[dict[str, Kernel]] = {"take": take, "take_along_axis": take_along_axis}
