"""Kernels whose gradients MLX has otherwise: at ties, at zero, at infinity, or none at all.

A function with a derivative of its own costs MLX three times a plain one, so these are plain but
while a function of ours is being differentiated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import mlx.core as mx

from ember_ml.backend.contract import Kernel

__all__ = [
    "AROUND",
    "TRANSFORMING",
    "choosing",
    "differentiated",
    "extreme",
    "limited",
    "one",
    "with_slopes",
    "zero",
]

Array = Any  # mx.array; its operators are untyped
# From the result and the operands to what the gradient of one operand is.
Slope = Callable[..., Any]


class _Transforming(threading.local):
    """How many functions are being differentiated in this thread, one within the other."""

    depth = 0


TRANSFORMING: Final = _Transforming()


def differentiated(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that MLX is about to differentiate, with kernels that have their own gradients."""

    def run(*args: Any) -> Any:
        TRANSFORMING.depth += 1
        try:
            return function(*args)
        finally:
            TRANSFORMING.depth -= 1

    return run


def with_slopes(plain: Kernel, *slopes: Slope) -> Kernel:
    """A kernel of arrays with a derivative for each of them."""
    custom: Any = mx.custom_function(plain)

    def back(operands: Any, gradient: Array, out: Array) -> Any:
        given = operands if isinstance(operands, tuple | list) else (operands,)
        pulled = tuple(
            _summed(gradient * slope(out, *given), x.shape)
            for slope, x in zip(slopes, given, strict=True)
        )
        return pulled if len(pulled) > 1 else pulled[0]

    custom.vjp(back)

    def kernel(*operands: Array) -> Array:
        return custom(*operands) if TRANSFORMING.depth else plain(*operands)

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


def limited(x: Array, low: Array | None, high: Array | None) -> Array:
    """Limits are part of the range: of a maximum, MLX would give them all of the gradient."""
    if not TRANSFORMING.depth:
        if low is not None:
            x = mx.maximum(x, low)
        return x if high is None else mx.minimum(x, high)
    if low is not None:
        x = mx.where(mx.logical_or(x >= low, mx.isnan(x)), x, low)
    if high is not None:
        x = mx.where(mx.logical_or(x <= high, mx.isnan(x)), x, high)
    return x


# --- Around portable kernels --------------------------------------------------------------------


def _settled_far(kernel: Kernel, limit: float) -> Kernel:
    """An activation that is x above some limit and zero below its negative, in which infinities
    meet no zeros on the way back."""

    def run(x: Array, *options: Any) -> Array:
        if not TRANSFORMING.depth:
            return kernel(x, *options)
        near = mx.abs(x) < limit
        inner = kernel(mx.where(near, x, mx.zeros_like(x)), *options)
        return mx.where(near, inner, mx.where(x > 0, x, x * 0))

    return run


def _cbrt(kernel: Kernel) -> Kernel:
    return with_slopes(kernel, lambda out, x: 1 / (3 * mx.square(out)))


# By name, what is put around the kernel that MLX has otherwise.
AROUND: Final[dict[str, Callable[[Kernel], Kernel]]] = {
    "cbrt": _cbrt,
    "gelu": partial(_settled_far, limit=100.0),
    "hard_swish": partial(_settled_far, limit=4.0),
    "mish": partial(_settled_far, limit=1e3),
    "silu": partial(_settled_far, limit=1e3),
}
