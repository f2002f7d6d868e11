"""Reading and writing parts of arrays by layout."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from ember_ml.backend.compiling import tracing
from ember_ml.backend.mlx.elementwise import batched
from ember_ml.backend.mlx.hosting import require_values
from ember_ml.tensor.layout import Layout, Plan, plan_of

__all__ = ["read", "write"]

Array = Any  # mx.array; its operators are untyped


def read(root: Array, layout: Layout) -> Array:
    """The elements of `root` that a layout names: a view of its buffer."""
    if not layout.size:
        return mx.zeros(layout.shape, dtype=root.dtype)
    # Strides count the elements of an array that lies in order; one that does stays as it is.
    return mx.as_strided(mx.contiguous(root), layout.shape, layout.strides, layout.offset)


def write(root: Array, layout: Layout, value: Array, sole: bool) -> Array:
    """`root` with a value at a layout; where it is held here alone, its memory is used again."""
    root, value = batched(root, value), batched(value, root)
    if not layout.size:
        return root
    sole = sole and not tracing()  # the function may be traced again with the same array
    # Writing to an item gives the object another array; others who hold it keep the old one.
    target = root if sole else mx.reshape(root, root.shape)
    shape = tuple(root.shape)
    found = plan_of(shape, layout)
    taken = (-1,) if found is None else found[0].root
    if taken != shape:
        target = mx.reshape(target, taken)
        if sole:
            require_values(value)  # before the old array is gone
            # The buffer is reused where nothing else holds it: the old object lets go of it.
            root[...] = mx.zeros((), dtype=root.dtype)
    if found is None:
        target[mx.array(layout.indices())] = value
    else:
        plan, starts = found
        target[plan.key(starts) or ...] = _arranged(value, plan) if value.ndim else value
    if taken != shape:
        target = mx.reshape(target, shape)
    # At once: another thread could not, writes that wait would pile up, and what is traced, which
    # has no values, must not come into memory that stays. Where em.jit traces, storages see to it.
    if not tracing():
        require_values(target)
    return target


def _arranged(value: Array, plan: Plan) -> Array:
    """A value of the shape of a view with its axes as they lie in the array."""
    part = mx.broadcast_to(value, plan.shape)
    sides = [plan.counts[axis] for axis in plan.permutation]
    part = part if sides == list(plan.shape) else mx.reshape(part, sides)
    if plan.inverse != tuple(range(len(sides))):
        part = mx.transpose(part, plan.inverse)
    return mx.flip(part, plan.turned) if plan.turned else part
