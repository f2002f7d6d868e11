"""Activations whose gradients MLX would make of infinity times zero at large arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import mlx.core as mx

from ember_ml.backend.contract import Kernel
from ember_ml.backend.mlx.elementwise import exp64
from ember_ml.backend.mlx.network import sigmoid64, softplus_of_one
from ember_ml.backend.mlx.slopes import with_slopes
from ember_ml.backend.mlx.special import OVERRIDES as _SPECIAL

__all__ = ["AROUND"]

Array = Any  # mx.array; its operators are untyped


def _near(x: Array, limit: float) -> Array:
    """The argument, limited to where the slope has long settled."""
    return mx.minimum(mx.maximum(x, -limit), limit)


def _sigmoid(x: Array) -> Array:
    return sigmoid64(x) if x.dtype == mx.float64 else mx.sigmoid(x)


def _silu_slope(out: Array, x: Array) -> Array:
    x = _near(x, 1e3)
    s = _sigmoid(x)
    return s * (x * (1 - s) + 1)


def _mish_slope(out: Array, x: Array) -> Array:
    x = _near(x, 1e3)
    t = mx.tanh(softplus_of_one(x))
    return t + x * _sigmoid(x) * (1 - t * t)


def _hard_swish_slope(out: Array, x: Array) -> Array:
    inside = mx.logical_and(x > -3, x < 3).astype(x.dtype)
    return inside * (_near(x, 4.0) * (1 / 3) + 0.5) + (x >= 3).astype(x.dtype)


def _gelu_slope(out: Array, x: Array) -> Array:
    x = _near(x, 100.0)
    square = x * x * -0.5
    bell = exp64(square) if x.dtype == mx.float64 else mx.exp(square)
    return _SPECIAL["erfc"](x * -math.sqrt(0.5)) * 0.5 + x * bell * (1 / math.sqrt(2 * math.pi))


def _gelu_tanh_slope(out: Array, x: Array) -> Array:
    x = _near(x, 100.0)
    square, scale = x * x, math.sqrt(8 / math.pi)
    s = _sigmoid(x * (square * 0.044715 + 1) * scale)
    return s + s * (1 - s) * x * (square * (3 * 0.044715) + 1) * scale


def _gelu(kernel: Kernel) -> Kernel:
    exact = with_slopes(lambda x: kernel(x, False), _gelu_slope)
    by_tanh = with_slopes(lambda x: kernel(x, True), _gelu_tanh_slope)
    return lambda x, tanh: by_tanh(x) if tanh else exact(x)


# By name, what is put around a kernel.
AROUND: Final[dict[str, Callable[[Kernel], Kernel]]] = {
    "gelu": _gelu,
    "hard_swish": lambda kernel: with_slopes(kernel, _hard_swish_slope),
    "mish": lambda kernel: with_slopes(kernel, _mish_slope),
    "silu": lambda kernel: with_slopes(kernel, _silu_slope),
    "cbrt": lambda kernel: with_slopes(kernel, lambda out, x: 1 / (3 * mx.square(out))),
}
