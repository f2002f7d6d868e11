"""The parts of networks on MLX."""

from __future__ import annotations

from typing import Any, Final

import mlx.core as mx

from ember_ml.backend.contract import Kernel
from ember_ml.backend.mlx.elementwise import exp64, logaddexp64
from ember_ml.backend.portable import activations

__all__ = ["FLOAT64", "OVERRIDES", "PORTABLE64", "WIDE"]

Array = Any  # mx.array; its operators are untyped


# --- Activations ------------------------------------------------------------------------------


def softmax(x: Array, axis: int) -> Array:
    return mx.softmax(x, axis=axis, precise=True) if x.size else x


# The gradient of a maximum is that of one side also where both are equal; that of logaddexp is
# the one half that belongs there.
def _logaddexp(x: Array) -> Array:
    """log(exp(x) + 1)."""
    zero = mx.array(0, dtype=x.dtype)
    return logaddexp64(x, zero) if x.dtype == mx.float64 else mx.logaddexp(x, zero)


def log_sigmoid(x: Array) -> Array:
    return -_logaddexp(-x)


def softplus(x: Array, beta: float, limit: float) -> Array:
    scaled = x * beta
    return mx.where(scaled > limit, x, _logaddexp(scaled) / beta)


def sigmoid64(x: Array) -> Array:
    near = mx.maximum(x, -709.0)  # where exp is finite, and its gradient with it
    return mx.where(x < -709.0, mx.zeros_like(x), 1 / (1 + exp64(-near)))


OVERRIDES: Final[dict[str, Kernel]] = {
    "log_sigmoid": log_sigmoid,
    "softmax": softmax,
    "softplus": softplus,
}
# MLX computes exp of float64 in float32, also where exp is a part of something else.
FLOAT64: Final[dict[str, Kernel]] = {"sigmoid": sigmoid64}
PORTABLE64: Final = frozenset(("softmax",))
# 16-bit floats lose digits in several steps.
WIDE: Final = frozenset(activations.KERNELS) - {"relu", "relu6", "softmax"}
