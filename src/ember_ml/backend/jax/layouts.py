"""Reading and writing parts of arrays by layout, each as one compiled program.

Where a part starts is an argument of the program, so that one serves all parts of a shape; and an
array that nobody else holds is given up to the write, which then happens in place.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.tensor.layout import Layout, Plan, plan_of

if TYPE_CHECKING:
    Shape = tuple[int, ...]

__all__ = ["read", "write"]


def read(root: NativeArray, layout: Layout) -> NativeArray:
    """The elements of `root` that a layout names."""
    if not layout.size:
        return jnp.zeros(layout.shape, root.dtype)
    found = plan_of(root.shape, layout)
    if found is None:
        return _gather(root, np.int64(layout.offset), layout.shape, layout.strides)
    plan, starts = found
    if isinstance(root, Tracer):
        return _traced(root, tuple(starts), plan)
    return _slice(root, np.array(starts, dtype=np.int64), plan)


def write(root: NativeArray, layout: Layout, value: NativeArray, sole: bool) -> NativeArray:
    """`root` with a value at a layout; where it is held here alone, its memory is used again."""
    if not layout.size:
        return root
    found = plan_of(root.shape, layout)
    if found is None:
        put = _SCATTER[sole]
        return put(root, value, np.int64(layout.offset), layout.shape, layout.strides)
    plan, starts = found
    return _UPDATE[sole](root, value, np.array(starts, dtype=np.int64), plan)


@partial(jax.jit, static_argnums=2)
def _slice(root: NativeArray, starts: NativeArray, plan: Plan) -> NativeArray:
    part = lax.dynamic_slice(root.reshape(plan.root), tuple(starts), plan.extents)
    part = part[tuple(slice(None, None, step) for step in plan.steps)]
    part = jnp.flip(part, plan.turned) if plan.turned else part
    return jnp.broadcast_to(part.transpose(plan.permutation).reshape(plan.core), plan.shape)


def _traced(root: NativeArray, starts: Shape, plan: Plan) -> NativeArray:
    """The same within a program that is traced, where no step is wanted that does nothing."""
    part = root if root.shape == plan.root else root.reshape(plan.root)
    if plan.extents != plan.root or any(step != 1 for step in plan.steps):
        ends = tuple(a + n for a, n in zip(starts, plan.extents, strict=True))
        part = lax.slice(part, starts, ends, plan.steps)
    if plan.turned:
        part = lax.rev(part, plan.turned)
    if plan.permutation != tuple(range(part.ndim)):
        part = lax.transpose(part, plan.permutation)
    if part.shape != plan.core:
        part = part.reshape(plan.core)
    return part if part.shape == plan.shape else jnp.broadcast_to(part, plan.shape)


def _update(root: NativeArray, value: NativeArray, starts: NativeArray, plan: Plan) -> NativeArray:
    part = jnp.broadcast_to(value, plan.shape)
    part = part.reshape([plan.counts[axis] for axis in plan.permutation]).transpose(plan.inverse)
    part = jnp.flip(part, plan.turned) if plan.turned else part
    whole = root.reshape(plan.root)
    if all(step == 1 for step in plan.steps):
        return lax.dynamic_update_slice(whole, part, tuple(starts)).reshape(root.shape)
    lines = (
        start + jnp.arange(count) * step
        for start, count, step in zip(starts, plan.counts, plan.steps, strict=True)
    )
    return whole.at[jnp.ix_(*lines)].set(part).reshape(root.shape)


def _positions(offset: NativeArray, shape: Shape, strides: Shape) -> NativeArray:
    out = jnp.full(shape, offset)
    for axis, (side, stride) in enumerate(zip(shape, strides, strict=True)):
        line = jnp.arange(side) * stride
        out += line.reshape(-1, *(1,) * (len(shape) - axis - 1))
    return out


@partial(jax.jit, static_argnums=(2, 3))
def _gather(root: NativeArray, offset: NativeArray, shape: Shape, strides: Shape) -> NativeArray:
    return root.reshape(-1)[_positions(offset, shape, strides)]


def _scatter(
    root: NativeArray, value: NativeArray, offset: NativeArray, shape: Shape, strides: Shape
) -> NativeArray:
    flat = root.reshape(-1).at[_positions(offset, shape, strides)].set(value)
    return flat.reshape(root.shape)


# Whether the old array is given up -> the program.
_UPDATE: Final[dict[bool, Kernel]] = {
    False: jax.jit(_update, static_argnums=3),
    True: jax.jit(_update, static_argnums=3, donate_argnums=0),
}
_SCATTER: Final[dict[bool, Kernel]] = {
    False: jax.jit(_scatter, static_argnums=(3, 4)),
    True: jax.jit(_scatter, static_argnums=(3, 4), donate_argnums=0),
}
