"""The parts of networks on MLX."""

from __future__ import annotations

import math
from typing import Any, Final

import mlx.core as mx

from ember_ml.backend.contract import Kernel
from ember_ml.backend.gradients import TRANSFORMING
from ember_ml.backend.mlx import recurrent, windows
from ember_ml.backend.mlx.elementwise import exp64
from ember_ml.backend.mlx.slopes import with_pulls
from ember_ml.backend.portable.network import KERNELS

__all__ = ["FLOAT64", "OVERRIDES", "PORTABLE64", "WIDE", "sigmoid64", "softplus_of_one"]

Array = Any  # mx.array; its operators are untyped


# --- Activations ------------------------------------------------------------------------------


# Where both are equal MLX's extremes take the second, the limit, which is right for these.


def _relu(x: Array) -> Array:
    return mx.maximum(x, 0.0)


def _where_positive(g: Array, out: Array, x: Array) -> Array:
    return mx.where(x <= 0, mx.zeros_like(g), g)


# By a choice: MLX multiplies by zeros, which is NaN where the gradient is infinite.
relu: Final = with_pulls(_relu, _where_positive)


def relu6(x: Array) -> Array:
    return mx.minimum(mx.maximum(x, 0.0), 6.0)


def hard_tanh(x: Array, low: float, high: float) -> Array:
    return mx.minimum(mx.maximum(x, low), high)


def soft_shrink(x: Array, size: float) -> Array:
    out = x - hard_tanh(x, -size, size)
    if not TRANSFORMING.get():
        return out
    return mx.where(mx.abs(x) <= size, mx.zeros_like(x), out)


def softmax(x: Array, axis: int) -> Array:
    return mx.softmax(x, axis=axis, precise=True) if x.size else x


def sigmoid64(x: Array) -> Array:
    near = mx.maximum(x, -709.0)  # where exp is finite, and its gradient with it
    return mx.where(x < -709.0, mx.zeros_like(x), 1 / (1 + exp64(-near)))


@mx.custom_function
def softplus64(x: Array) -> Array:
    return mx.maximum(x, 0.0) + mx.log1p(exp64(-mx.abs(x)))


# That of the maximum would be one or the other at zero.
softplus64.vjp(lambda x, cotangent, _: cotangent * sigmoid64(x))
softplus64.jvp(lambda x, tangent: tangent * sigmoid64(x))


def softplus_of_one(x: Array) -> Array:
    """log(exp(x) + 1)."""
    if x.dtype == mx.float64:
        return softplus64(x)
    return mx.logaddexp(x, mx.array(0, dtype=x.dtype))


def log_sigmoid(x: Array) -> Array:
    return -softplus_of_one(-x)


def softplus(x: Array, beta: float, limit: float) -> Array:
    scaled = x * beta
    return mx.where(scaled > limit, x, softplus_of_one(scaled) / beta)


# --- Attention --------------------------------------------------------------------------------


def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    causal: bool,
    scale: float,
    groups: int,
) -> Array:
    rows, columns = query.shape[-2], key.shape[-2]
    shape = (*query.shape[:-1], value.shape[-1])
    if not columns or not math.prod(shape):
        return mx.zeros(shape, dtype=query.dtype)
    if causal:
        # MLX's own causal mask ends in the corner of the last key; ours starts in the first.
        if mask is None and rows == columns:
            mask = "causal"
        else:
            seen = mx.tri(rows, columns).astype(mx.bool_)
            mask = _both(mask, seen)
    if isinstance(mask, mx.array):
        mask = mx.broadcast_to(mask, (*query.shape[:-1], columns))
        blind = ~mx.any(_seen(mask), axis=-1, keepdims=True)
        mask = _in_four(mask)
    else:
        blind = None
    out = mx.fast.scaled_dot_product_attention(
        _in_four(query), _in_four(key), _in_four(value), scale=scale, mask=mask
    ).reshape(shape)
    # For a query that sees nothing MLX gives the mean of all values, or NaN.
    return out if blind is None else mx.where(blind, mx.zeros_like(out), out)


def _both(mask: Array | None, seen: Array) -> Array:
    if mask is None:
        return seen
    if mask.dtype == mx.bool_:
        return mx.logical_and(mask, seen)  # mx.vmap takes `&` wrongly
    return mx.where(seen, mask, mx.array(-math.inf, dtype=mask.dtype))


def _seen(mask: Array) -> Array:
    return mask if mask.dtype == mx.bool_ else mask != -math.inf


def _in_four(x: Array) -> Array:
    """With the four axes that MLX's kernel takes."""
    if x.ndim == 4:
        return x
    lead = (1,) * (4 - x.ndim) if x.ndim < 4 else (math.prod(x.shape[:-3]),)
    return x.reshape((*lead, *x.shape[max(x.ndim - 3, 0) :]))


def linear(x: Array, weight: Array, bias: Array | None) -> Array:
    if bias is None:
        return mx.matmul(x, weight.T)
    return mx.addmm(bias, x, weight.T)


# --- Normalization ----------------------------------------------------------------------------


def layer_norm(x: Array, weight: Array | None, bias: Array | None, ndim: int, eps: float) -> Array:
    return _on_rows(mx.fast.layer_norm, x, (weight, bias), ndim, eps)


def rms_norm(x: Array, weight: Array | None, ndim: int, eps: float) -> Array:
    return _on_rows(mx.fast.rms_norm, x, (weight,), ndim, eps)


def _on_rows(
    kernel: Kernel, x: Array, parameters: tuple[Array | None, ...], ndim: int, eps: float
) -> Array:
    """MLX's kernels take one axis."""
    if not x.size:
        return x
    if ndim == 1:
        return kernel(x, *parameters, eps)
    shape = x.shape
    flat = [None if p is None else p.reshape(-1) for p in parameters]
    return kernel(x.reshape((*shape[: len(shape) - ndim], -1)), *flat, eps).reshape(shape)


OVERRIDES: Final[dict[str, Kernel]] = {
    "layer_norm": layer_norm,
    "linear": linear,
    "rms_norm": rms_norm,
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "hard_tanh": hard_tanh,
    "log_sigmoid": log_sigmoid,
    "relu": relu,
    "relu6": relu6,
    "soft_shrink": soft_shrink,
    "softmax": softmax,
    "softplus": softplus,
    **windows.KERNELS,
    **recurrent.KERNELS,
}
# MLX computes exp of float64 in float32, also where it is a part of something else, and so are
# the kernels of mx.fast.
FLOAT64: Final[dict[str, Kernel]] = {"sigmoid": sigmoid64}
PORTABLE64: Final = frozenset(
    ("conv", "conv_transpose", "layer_norm", "rms_norm", "scaled_dot_product_attention", "softmax")
)
# 16-bit floats lose digits in several steps.
WIDE: Final = frozenset(KERNELS) - {
    "relu",
    "relu6",
    "softmax",
    "layer_norm",
    "rms_norm",
    "scaled_dot_product_attention",
}
