"""Gradients of reading, writing and gathering by index.

What a key read gets its gradient at that key, all of it where an index stood several times; what
a key wrote takes the gradient there from what was overwritten.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.autodiff.pulls import Mold
from ember_ml.autodiff.rules.shapes import summed_to
from ember_ml.autodiff.rules.table import rule
from ember_ml.autodiff.tape import recorded
from ember_ml.backend.contract import Backend, NativeArray
from ember_ml.ops import updates
from ember_ml.ops.dispatch import call
from ember_ml.ops.fitting import beside
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill

__all__ = ["part", "placed", "scattered"]


# --- Keys -----------------------------------------------------------------------------------


def part(g: Tensor, key: tuple[Any, ...]) -> Tensor:
    """The elements of a gradient at a checked key."""
    spec = g._spec
    native = spec.backend.getitem(g.native, key)
    if type(native) is not spec.native_type:
        native = spec.backend.settle_native(native, spec)
    if type(g) is GradTensor:
        return recorded("getitem", native, spec, (g,), (key,))
    return fill(native, spec)


def placed(g: Tensor, key: tuple[Any, ...], shape: tuple[int, ...]) -> Tensor:
    """Zeros with the elements of a gradient added at a checked key."""
    spec = g._spec
    backend = spec.backend
    if 0 in g.shape:
        native = backend.full(shape, 0, spec)
    elif _repeats(key, g._spec.backend):
        return _gathered_up(g, key, shape)
    else:
        native = backend.setitem(backend.full(shape, 0, spec), key, g.native)
    if type(g) is GradTensor:
        return recorded("placed", native, spec, (g,), (key, shape))
    return fill(native, spec)


def _repeats(key: tuple[Any, ...], backend: Backend) -> bool:
    """True where a key can name an element twice: by integers in an array, not by a mask."""
    return any(hasattr(item, "shape") and backend.dtype_of(item) is not dtypes.bool for item in key)


def _gathered_up(g: Tensor, key: tuple[Any, ...], shape: tuple[int, ...]) -> Tensor:
    """The same where elements may be named twice: they are added up."""
    axis = len(key) - 1
    last = key[axis]
    whole = all(type(item) is slice and item == slice(None) for item in key[:axis])
    if whole and hasattr(last, "shape") and last.ndim == 1:  # rows of a table
        return scattered(g, last, axis, shape[axis])
    size = math.prod(shape)
    numbers = beside(g, np.arange(size).reshape(shape))
    places = call("reshape", part(numbers, key), (-1,))
    flat = scattered(call("reshape", g, (-1,)), places.native, 0, size)
    return call("reshape", flat, shape)


rule("getitem", lambda g, y, x, key: placed(g, key, x.shape), inputs=False)
rule("placed", lambda g, y, x, key, shape: part(g, key), inputs=False)


def _set_target(g: Tensor, y: Any, x: Any, value: Any, key: tuple[Any, ...]) -> Tensor:
    return updates.written(g, key, 0)


def _set_value(g: Tensor, y: Any, x: Any, value: Any, key: tuple[Any, ...]) -> Tensor:
    found = part(g, key)
    if _repeats(key, g._spec.backend) and found.size:
        found = ops.where(_stayed(found, x, key), found, 0)
    excess = max(value.ndim - found.ndim, 0)  # axes of length one that were passed over
    found = summed_to(found, Mold(value.shape[excess:], value._spec))
    return call("reshape", found, value.shape) if excess else found


def _stayed(found: Tensor, x: Any, key: tuple[Any, ...]) -> Tensor:
    """True for the values that are there after a write: where a place is named twice, one is."""
    numbers = beside(found, np.arange(1, found.size + 1).reshape(found.shape))
    blank = beside(found, np.zeros(x.shape, dtype=np.int64))
    written = updates.written(blank, key, numbers)
    return ops.equal(part(written, key), numbers)


rule("setitem", _set_target, _set_value, inputs=False)


# --- Along an axis --------------------------------------------------------------------------


def scattered(g: Tensor, indices: NativeArray, axis: int, size: int) -> Tensor:
    """Elements of a gradient added up where their indices, one for each place of `axis`, say."""
    return call("scatter_add", g, indices, axis, size)


def _untake(g: Tensor, y: Any, x: Any, indices: NativeArray, axis: int) -> Tensor:
    if indices.ndim != 1:
        shape = x.shape
        indices = call("reshape", convert.wrap(indices, g._spec.backend), (-1,)).native
        g = call("reshape", g, (*shape[:axis], -1, *shape[axis + 1 :]))
    return scattered(g, indices, axis, x.shape[axis])


rule("take", _untake, inputs=False)
rule(
    "take_along_axis",
    lambda g, y, x, indices, axis: scattered(g, indices, axis, x.shape[axis]),
    inputs=False,
)


# --- Scatter --------------------------------------------------------------------------------


def _spread(x: Tensor, indices: NativeArray, axis: int) -> Tensor:
    """What each value's place has, in the shape of the values."""
    return call("take" if indices.ndim == 1 else "take_along_axis", x, indices, axis)


def _others(
    g: Tensor, y: Any, values: Tensor, indices: NativeArray, axis: int, size: int
) -> Tensor:
    """Each value has the product of the others, which zeros forbid to get by division."""
    zero = ops.equal(values, 0)
    filled = ops.where(zero, 1, values)
    rest = call("scatter_mul", filled, indices, axis, size)
    zeros = convert.cast(zero, g.dtype)
    left = _spread(call("scatter_add", zeros, indices, axis, size), indices, axis) - zeros
    others = ops.where(ops.equal(left, 0), _spread(rest, indices, axis) / filled, 0)
    if others.dtype.is_complex:
        others = ops.conj(others)
    return _spread(g, indices, axis) * others


def _shared(
    g: Tensor, y: Tensor, values: Tensor, indices: NativeArray, axis: int, size: int
) -> Tensor:
    """Equal values share the gradient of their place."""
    chosen = convert.cast(ops.equal(values, _spread(y, indices, axis)), g.dtype)
    count = ops.maximum(call("scatter_add", chosen, indices, axis, size), 1)
    return chosen * _spread(g / count, indices, axis)


rule(
    "scatter_add",
    lambda g, y, values, indices, axis, size: _spread(g, indices, axis),
    inputs=False,
)
rule("scatter_mul", _others)
rule("scatter_max", _shared, output=True)
rule("scatter_min", _shared, output=True)
