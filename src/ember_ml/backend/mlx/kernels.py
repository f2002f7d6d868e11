"""Where MLX differs from the standard in order, running totals and sets."""

from __future__ import annotations

import math
from typing import Any, Final

import mlx.core as mx

from ember_ml.backend.contract import Kernel

__all__ = ["HOSTED", "OVERRIDES"]

Array = Any  # mx.array; its operators are untyped


# --- Order: MLX counts in uint32 -----------------------------------------------------------


def _position(find: Kernel) -> Kernel:
    def kernel(x: Array, axis: int | None, keepdims: bool) -> Array:
        if x.ndim and x.size:
            return find(x, axis=axis, keepdims=keepdims).astype(mx.int64)
        # MLX refuses scalars, and empty arrays also where another axis is the empty one.
        return mx.zeros(mx.sum(x, axis=axis, keepdims=keepdims).shape, dtype=mx.int64)

    return kernel


def sort(x: Array, axis: int, descending: bool, stable: bool) -> Array:
    if not descending:
        return mx.sort(x, axis=axis)
    # Turned round before as well, so that gradients find equal values in their order.
    return mx.flip(mx.sort(mx.flip(x, axis), axis=axis), axis)


def argsort(x: Array, axis: int, descending: bool, stable: bool) -> Array:
    if not descending:
        return mx.argsort(x, axis=axis).astype(mx.int64)
    # Sorted from behind and turned round, equal values keep their order.
    turned = mx.argsort(mx.flip(x, axis), axis=axis).astype(mx.int64)
    return x.shape[axis] - 1 - mx.flip(turned, axis)


def searchsorted(x: Array, y: Array, side: str) -> Array:
    return mx.searchsorted(x, y, side=side).astype(mx.int64)


# --- Running totals -------------------------------------------------------------------------


def cumulative_sum(x: Array, axis: int) -> Array:
    return mx.cumsum(x, axis=axis)


def cumulative_prod(x: Array, axis: int) -> Array:
    if not mx.issubdtype(x.dtype, mx.inexact):
        return mx.cumprod(x, axis=axis)
    if axis == x.ndim - 1:
        return _products(x)
    return mx.moveaxis(_products(mx.moveaxis(x, axis, -1)), -1, axis)


# MLX's own gradient is not that of complex numbers, and its derivative is NaN at zeros.
_products: Any = mx.custom_function(lambda x: mx.cumprod(x, axis=-1))


def _products_vjp(x: Array, cotangent: Array, _: Array) -> Array:
    """A value counts in its own product and in all that follow, each by the values between."""
    if not x.size:
        return cotangent
    values = mx.conjugate(x) if x.dtype == mx.complex64 else x
    one = mx.ones_like(values[..., :1])
    a, b = mx.concatenate([values[..., 1:], one], axis=-1), cotangent
    side, step = x.shape[-1], 1
    while step < side:  # each step takes in what twice as many places give
        rest = side - step
        b = mx.concatenate([b[..., :rest] + a[..., :rest] * b[..., step:], b[..., rest:]], axis=-1)
        a = mx.concatenate([a[..., :rest] * a[..., step:], a[..., rest:]], axis=-1)
        step *= 2
    return mx.concatenate([one, _products(values[..., :-1])], axis=-1) * b


def _products_jvp(x: Array, tangent: Array) -> Array:
    out, moved = x, tangent
    step = 1
    while step < x.shape[-1]:
        one = mx.ones_like(out[..., :step])
        before = mx.concatenate([one, out[..., :-step]], axis=-1)
        came = mx.concatenate([mx.zeros_like(one), moved[..., :-step]], axis=-1)
        out, moved = out * before, moved * before + out * came
        step *= 2
    return moved


_products.vjp(_products_vjp)
_products.jvp(_products_jvp)


# --- Deviations -----------------------------------------------------------------------------


_root: Any = mx.custom_function(mx.sqrt)


def _slope(y: Array) -> Array:
    # The slope at zero counts as zero; MLX has infinity there.
    return 0.5 / mx.where(y == 0, mx.array(math.inf, dtype=y.dtype), y)


_root.vjp(lambda x, cotangent, y: cotangent * _slope(y))
_root.jvp(lambda x, tangent: tangent * _slope(_root(x)))


def root(x: Array) -> Array:
    """The square root whose slope at zero counts as zero."""
    return _root(x)


OVERRIDES: Final[dict[str, Kernel]] = {
    "argmax": _position(mx.argmax),
    "argmin": _position(mx.argmin),
    **{
        kernel.__name__: kernel
        for kernel in (sort, argsort, searchsorted, cumulative_sum, cumulative_prod, root)
    },
}

# The shapes of these depend on values, which only the host knows.
HOSTED: Final = frozenset(("isin", "nonzero", "unique_all"))
