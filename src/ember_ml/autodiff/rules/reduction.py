"""Gradients of sums, extremes, averages, running totals and sums of exponentials."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ember_ml import ops
from ember_ml.autodiff.rules.shapes import spread
from ember_ml.autodiff.rules.table import rule
from ember_ml.backend import pairs
from ember_ml.ops.dispatch import binary, call, reduce, unary
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

__all__: list[str] = []


def _count(x: Any, axis: Any) -> int:
    """How many values one result is made of."""
    shape: tuple[int, ...] = x.shape
    if axis is None:
        return math.prod(shape)
    return math.prod(shape[a] for a in axis) if isinstance(axis, tuple) else shape[axis]


def _conj(x: Tensor) -> Tensor:
    return unary("conj", x) if x.dtype.is_complex else x


# --- Sums and averages ----------------------------------------------------------------------


def _sum(g: Tensor, y: Any, x: Any, axis: Any, keepdims: bool) -> Tensor:
    return call("broadcast_to", spread(g, x, axis, keepdims), x.shape)


def _mean(g: Tensor, y: Any, x: Any, axis: Any, keepdims: bool) -> Tensor:
    # Scaled before it is spread. float16 has no large counts, and has their reciprocals.
    share = binary(pairs.MULTIPLY, g, 1 / (_count(x, axis) or 1))
    return call("broadcast_to", spread(share, x, axis, keepdims), x.shape)


def _var(
    g: Tensor, y: Any, x: Tensor, axes: tuple[int, ...], correction: float, keepdims: bool
) -> Tensor:
    free = _count(x, axes) - correction
    share = binary(pairs.MULTIPLY, g, 2 / free if free > 0 else math.nan)
    centred = binary(pairs.SUBTRACT, x, reduce("mean", x, axes, True))
    return binary(pairs.MULTIPLY, centred, spread(share, x, axes, keepdims))


def _root(g: Tensor, y: Tensor, x: Any) -> Tensor:
    # An infinite divisor where the root is zero: the slope there is set to zero, for good.
    return g / (2 * ops.where(y == 0, math.inf, y))


rule("sum", _sum, inputs=False)
rule("mean", _mean, inputs=False)
rule("var", _var)
rule("root", _root, inputs=False, output=True)


# --- Extremes -------------------------------------------------------------------------------


def _extreme(g: Tensor, y: Tensor, x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    """Shared evenly by all that are equal to the extreme; NaN where that is NaN."""
    chosen = convert.cast(binary(pairs.EQUAL, x, spread(y, x, axis, keepdims)), g.dtype)
    share = binary(pairs.DIVIDE, g, reduce("sum", chosen, axis, keepdims))
    return binary(pairs.MULTIPLY, chosen, spread(share, x, axis, keepdims))


rule("max", _extreme, output=True)
rule("min", _extreme, output=True)


# --- Products, also of zeros: no rule here divides by a value -------------------------------


def _prod(g: Tensor, y: Any, x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    """What stands before a value times what stands behind it."""
    share = spread(g, x, axis, keepdims)
    if not x.size:
        return call("broadcast_to", share, x.shape)
    ndim = x.ndim
    given = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = [a % ndim for a in given]
    order = (*(a for a in range(ndim) if a not in axes), *axes)
    moved = call("permute_dims", x, order)
    lines = call("reshape", moved, (*moved.shape[: ndim - len(axes)], _count(x, tuple(axes))))
    behind = call("flip", _before(call("flip", lines, (lines.ndim - 1,))), (lines.ndim - 1,))
    others = call("reshape", binary(pairs.MULTIPLY, _before(lines), behind), moved.shape)
    back = tuple(int(place) for place in np.argsort(order))
    return binary(pairs.MULTIPLY, _conj(call("permute_dims", others, back)), share)


def _before(x: Tensor) -> Tensor:
    """The product of all that stands before a place, along the last axis."""
    first = ops.ones_like(x[..., :1])
    if type(x.shape[-1]) is not int:  # a size that varies, in a function that is exported
        return call("cumulative_prod", ops.concat([first, x[..., :-1]], axis=-1), x.ndim - 1)
    if x.shape[-1] < 2:
        return first
    return ops.concat([first, call("cumulative_prod", x[..., :-1], x.ndim - 1)], axis=-1)


def _cumulative_prod(g: Tensor, y: Any, x: Tensor, axis: int) -> Tensor:
    if not x.size:
        return g
    last = axis == x.ndim - 1
    lines, slopes = (x, g) if last else (ops.moveaxis(t, axis, -1) for t in (x, g))
    lines = _conj(lines)
    # A value counts in its own product and in all that follow, each by the values between.
    following = ops.concat([lines[..., 1:], ops.ones_like(lines[..., :1])], axis=-1)
    out = _before(lines) * _from_behind(following, slopes)
    return out if last else ops.moveaxis(out, -1, axis)


def _from_behind(a: Tensor, b: Tensor) -> Tensor:
    """h[i] = b[i] + a[i] h[i + 1] along the last axis.

    By doubling: each step takes in what twice as many places give.
    """
    side = b.shape[-1]
    if type(side) is not int:  # a size that varies, in a function that is exported: one by one
        return _one_by_one(a, b)
    step = 1
    while step < side:
        rest = side - step
        b = ops.concat([b[..., :rest] + a[..., :rest] * b[..., step:], b[..., rest:]], axis=-1)
        if 2 * step < side:
            a = ops.concat([a[..., :rest] * a[..., step:], a[..., rest:]], axis=-1)
        step *= 2
    return b


def _one_by_one(a: Tensor, b: Tensor) -> Tensor:
    """The same by a loop of the engine from the last place on."""
    from ember_ml.ops.control import scan

    def step(behind: Tensor, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        here = pair[1] + pair[0] * behind
        return here, here

    rows = ops.moveaxis(a, -1, 0), ops.moveaxis(b, -1, 0)
    made: Tensor = scan(step, ops.zeros_like(b[..., 0]), rows, reverse=True)[1]
    return ops.moveaxis(made, 0, -1)


def _cumulative_sum(g: Tensor, y: Any, x: Any, axis: int) -> Tensor:
    turned = call("cumulative_sum", call("flip", g, (axis,)), axis)
    return call("flip", turned, (axis,))


rule("prod", _prod)
rule("cumulative_prod", _cumulative_prod)
rule("cumulative_sum", _cumulative_sum, inputs=False)


# --- Sums of exponentials -------------------------------------------------------------------


def _logsumexp(g: Tensor, y: Tensor, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    shares = unary("exp", binary(pairs.SUBTRACT, x, spread(y, x, axes, keepdims)))
    return binary(pairs.MULTIPLY, shares, spread(g, x, axes, keepdims))


def _cumulative_logsumexp(g: Tensor, y: Tensor, x: Tensor, axis: int) -> Tensor:
    if not x.size:
        return g
    last = axis == x.ndim - 1
    lines, sums, slopes = (x, y, g) if last else (ops.moveaxis(t, axis, -1) for t in (x, y, g))
    # Before the first number, sums are -inf, which have no difference, and values no slope.
    level = ops.maximum(sums, ops.finfo(y.dtype).min)
    # Sums never fall, so these exponentials are at most one.
    steps = ops.exp(sums[..., :-1] - level[..., 1:])
    following = ops.concat([steps, ops.ones_like(sums[..., :1])], axis=-1)
    out = ops.exp(lines - level) * _from_behind(following, slopes)
    return out if last else ops.moveaxis(out, -1, axis)


rule("logsumexp", _logsumexp, output=True)
rule("cumulative_logsumexp", _cumulative_logsumexp, output=True)
