"""Gradients of what only moves elements: shapes, axes, joining, repeating, copies, casts.

These run for nearly every model, so they go to the kernels: what a user would be told about memory
that is shared does not concern gradients on their way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ember_ml import ops
from ember_ml.autodiff.rules.indexing import part, scattered
from ember_ml.autodiff.rules.shapes import summed_to
from ember_ml.autodiff.rules.table import joint_rule, rule
from ember_ml.ops.dispatch import call, reduce
from ember_ml.ops.fitting import beside
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

__all__: list[str] = []

_ALL = slice(None)


# --- Copies ---------------------------------------------------------------------------------


def _cast_back(g: Tensor, y: Any, x: Any) -> Tensor:
    if g.dtype.is_complex and not x.dtype.is_complex:
        g = ops.real(g)
    return convert.cast(g, x.dtype)


rule("copy", lambda g, y, x: g, inputs=False)
rule("astype", _cast_back, inputs=False)
rule("to_device", lambda g, y, x: convert.to_device(g, x._spec.device), inputs=False)


# --- Shapes and axes ------------------------------------------------------------------------


def _permute_back(g: Tensor, y: Any, x: Any, order: Sequence[int]) -> Tensor:
    back = [0] * len(order)
    for place, axis in enumerate(order):
        back[axis] = place
    return call("permute_dims", g, tuple(back))


rule("reshape", lambda g, y, x, shape: call("reshape", g, x.shape), inputs=False)
rule("broadcast_to", lambda g, y, x, shape: summed_to(g, x), inputs=False)
rule("permute_dims", _permute_back, inputs=False)
rule("matrix_transpose", lambda g, y, x: call("matrix_transpose", g), inputs=False)
rule("flip", lambda g, y, x, axes: call("flip", g, axes), inputs=False)
rule(
    "roll",
    lambda g, y, x, shifts, axes: call("roll", g, tuple(-shift for shift in shifts), axes),
    inputs=False,
)
rule("tril", lambda g, y, x, k: call("tril", g, k), inputs=False)
rule("triu", lambda g, y, x, k: call("triu", g, k), inputs=False)


# --- Joining --------------------------------------------------------------------------------


@joint_rule("concat", inputs=False)
def _cut(g: Tensor, needs: tuple[bool, ...], y: Any, *rest: Any) -> list[Tensor | None]:
    *parts, axis = rest
    before = (_ALL,) * axis
    start = 0
    found: list[Tensor | None] = []
    for needed, one in zip(needs, parts, strict=True):
        stop = start + one.shape[axis]
        found.append(part(g, (*before, slice(start, stop))) if needed else None)
        start = stop
    return found


@joint_rule("stack", inputs=False)
def _unstack(g: Tensor, needs: tuple[bool, ...], y: Any, *rest: Any) -> list[Tensor | None]:
    before = (_ALL,) * rest[-1]
    return [part(g, (*before, i)) if needed else None for i, needed in enumerate(needs)]


# --- Repeating and padding ------------------------------------------------------------------


def _unrepeat(g: Tensor, y: Any, x: Any, counts: np.ndarray[Any, Any], axis: int) -> Tensor:
    shape = x.shape
    side = shape[axis]
    if counts.size == 1:  # as often for all
        folded = call("reshape", g, (*shape[: axis + 1], int(counts.item()), *shape[axis + 1 :]))
        return reduce("sum", folded, (axis + 1,), False)
    places = beside(g, np.repeat(np.arange(side), counts))
    return scattered(g, places.native, axis, side)


def _untile(g: Tensor, y: Any, x: Any, counts: tuple[int, ...]) -> Tensor:
    sides = [side for pair in zip(counts, x.shape, strict=True) for side in pair]
    folded = call("reshape", g, tuple(sides))
    return reduce("sum", folded, tuple(range(0, len(sides), 2)), False)


def _inside(g: Tensor, y: Any, x: Any, widths: tuple[tuple[int, int], ...]) -> Tensor:
    sides = zip(x.shape, widths, strict=True)
    return part(g, tuple(slice(first, first + side) for side, (first, _) in sides))


rule("repeat", _unrepeat, inputs=False)
rule("tile", _untile, inputs=False)
rule("surround", _inside, inputs=False)
