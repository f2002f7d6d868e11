"""Kernels whose gradients MLX has otherwise: at ties, at zero, at infinity, or none at all.

A function with a derivative of its own costs MLX three times a plain one, so these are plain but
while a function of ours is being differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import mlx.core as mx

from ember_ml.backend.contract import Kernel
from ember_ml.backend.gradients import TRANSFORMING

__all__ = [
    "choosing",
    "extreme",
    "limited",
    "one",
    "tied",
    "with_pulls",
    "with_slopes",
    "zero",
]

Array = Any  # mx.array; its operators are untyped
# From the result and the operands to what the gradient of one operand is.
Slope = Callable[..., Any]


@mx.custom_function
def tied(out: Any, *inputs: Any) -> Any:
    """A result that counts as one of all inputs, also of those whose slope is zero."""
    return out


@tied.vjp
def _tied_slopes(given: Any, gradient: Any, out: Any) -> Any:
    _, *inputs = given
    return [gradient, *[mx.zeros_like(x) for x in inputs]]


def with_slopes(plain: Kernel, *slopes: Slope) -> Kernel:
    """A kernel of arrays with a derivative for each of them.

    On the CPU mx.where takes ten times a product: slopes are best written with masks as numbers.
    """

    def pull(slope: Slope) -> Slope:
        return lambda gradient, out, *operands: gradient * slope(out, *operands)

    return with_pulls(plain, *map(pull, slopes))


def with_pulls(plain: Kernel, *pulls: Slope) -> Kernel:
    """A kernel of arrays with a function for each that gives its gradient."""
    custom: Any = mx.custom_function(plain)

    def back(operands: Any, gradient: Array, out: Array) -> Any:
        given = operands if isinstance(operands, tuple | list) else (operands,)
        pulled = [
            _summed(pull(gradient, out, *given), x.shape)
            for pull, x in zip(pulls, given, strict=True)
        ]
        return tuple(pulled) if len(pulled) > 1 else pulled[0]

    custom.vjp(back)

    def kernel(*operands: Array) -> Array:
        return custom(*operands) if TRANSFORMING.get() else plain(*operands)

    return kernel


def _summed(g: Array, shape: tuple[int, ...]) -> Array:
    if g.shape == shape:
        return g
    ahead = g.ndim - len(shape)
    axes = [
        i for i, side in enumerate(g.shape) if i < ahead or (shape[i - ahead] == 1 and side != 1)
    ]
    return mx.sum(g, axis=axes).reshape(shape)


def zero(out: Array, *operands: Array) -> Array:
    """The slope of what is constant between its steps."""
    return mx.array(0, dtype=out.dtype)


def one(out: Array, *operands: Array) -> Array:
    """The slope of a straight line."""
    return mx.array(1, dtype=out.dtype)


# --- Choices ----------------------------------------------------------------------------------


def extreme(plain: Kernel, behind: Kernel) -> Kernel:
    """A maximum or minimum: equal operands share its gradient."""

    def slope(x: Array, y: Array) -> Array:
        return 1 - behind(x, y).astype(x.dtype) - 0.5 * (x == y).astype(x.dtype)

    return with_slopes(plain, lambda out, x, y: slope(x, y), lambda out, x, y: slope(y, x))


def choosing(plain: Kernel, ahead: Kernel) -> Kernel:
    """fmax or fmin: of equal operands, the first has all of the gradient."""

    def first(out: Array, x: Array, y: Array) -> Array:
        return mx.logical_or(ahead(x, y), mx.isnan(y)).astype(out.dtype)

    return with_slopes(plain, first, lambda out, x, y: 1 - first(out, x, y))


def _inside(low: Array | None, high: Array | None, x: Array) -> Array:
    """One from one limit to the other, both included, and zero outside."""
    inside = mx.ones_like(x) if low is None else (x >= low).astype(x.dtype)
    return inside if high is None else inside * (x <= high).astype(x.dtype)


_AT_LEAST: Final = with_slopes(
    mx.maximum,
    lambda out, x, low: _inside(low, None, x),
    lambda out, x, low: (x < low).astype(x.dtype),
)
_AT_MOST: Final = with_slopes(
    mx.minimum,
    lambda out, x, high: _inside(None, high, x),
    lambda out, x, high: (x > high).astype(x.dtype),
)


def limited(x: Array, low: Array | None, high: Array | None) -> Array:
    """Limits are part of the range: of a maximum, MLX would give them all of the gradient."""
    if low is not None:
        x = _AT_LEAST(x, low)
    return x if high is None else _AT_MOST(x, high)
