"""Gradients of what puts values in order, picks some of them, or counts them into bins."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml import ops
from ember_ml.autodiff.rules.table import joint_rule, no_gradient, rule
from ember_ml.ops.dispatch import call
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

__all__: list[str] = []


def _sort(g: Tensor, y: Any, x: Tensor, axis: int, descending: bool, stable: bool) -> Tensor:
    """To where each value came from; equal ones kept their order."""
    if not x.size:
        return g
    order = call("argsort", x, axis, descending, True)
    back = call("argsort", order, axis, False, True)
    return call("take_along_axis", g, back.native, axis)


rule("sort", _sort)


def _running_maximum(g: Tensor, y: Tensor, x: Tensor, axis: int) -> Tensor:
    """To the last of the values that are equal to the maximum so far."""
    side = x.shape[axis]
    places = convert.to_tensor(np.arange(side), x._spec.backend)
    places = ops.reshape(places, (side, *(1,) * (x.ndim - 1 - axis)))
    fresh = ops.logical_or(x == y, ops.logical_and(ops.isnan(x), ops.isnan(y)))
    chosen = call("running_maximum", ops.where(fresh, places, 0), axis)
    lines, slopes = (ops.moveaxis(t, axis, -1) for t in (chosen, g))
    rows = ops.reshape(lines, (-1, side))
    first = convert.to_tensor(np.arange(rows.shape[0])[:, None] * side, x._spec.backend)
    sums = ops.bincount(
        ops.reshape(rows + first, (-1,)), ops.reshape(slopes, (-1,)), minlength=x.size
    )
    return ops.moveaxis(ops.reshape(sums, lines.shape), -1, axis)


rule("running_maximum", _running_maximum, output=True)


# --- Sets and bins --------------------------------------------------------------------------


@joint_rule("unique_all", inputs=False, output=True)
def _unique_all(g: list[Any], needs: Any, y: list[Tensor], x: Any) -> tuple[Tensor]:
    """To the first of equal values, which stands for them."""
    indices = ops.reshape(y[1], (-1,))
    return (ops.reshape(ops.bincount(indices, g[0], minlength=x.size), x.shape),)


def _bin_sum(g: Tensor, y: Any, weights: Any, index: Any, length: int) -> Tensor:
    return call("take", g, index, 0)


rule("bin_sum", _bin_sum, inputs=False)
no_gradient("nonzero", "it gives indices")
