"""Normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.graph.executors.operators.registry import operator
from ember_ml.graph.executors.operators.slicing import padded
from ember_ml.tensor.core import Tensor

__all__ = ["layer_normalized", "rms_normalized"]


@operator("BatchNormalization", 9)
def batch_normalization_of_old(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
) -> Tensor:
    return _batch_normalized(x, scale, b, mean, var, epsilon)


@operator("BatchNormalization", 14, 15)
def batch_normalization(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    if not training_mode:
        return _batch_normalized(x, scale, b, mean, var, epsilon)
    axes = (0, *range(2, x.ndim))
    own_mean = ops.mean(x, axis=axes)
    own_var = ops.var(x, axis=axes)
    made = _batch_normalized(x, scale, b, own_mean, own_var, epsilon)
    return (made, _blended(mean, own_mean, momentum), _blended(var, own_var, momentum))


def _blended(old: Tensor, new: Tensor, momentum: float) -> Tensor:
    new = ops.astype(new, old.dtype, copy=False)
    return ops.add(ops.multiply(old, momentum), ops.multiply(new, 1 - momentum))


def _batch_normalized(
    x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor, epsilon: float
) -> Tensor:
    dtype = x.dtype
    if var.dtype is not dtype or scale.dtype is not dtype:  # since 15 each has a type of its own
        wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
        x, scale, b, mean, var = (ops.astype(v, wide, copy=False) for v in (x, scale, b, mean, var))
    shape = (-1, *[1] * (x.ndim - 2)) if x.ndim > 1 else (-1,)
    factor = ops.divide(scale, ops.sqrt(ops.add(var, epsilon)))
    shift = ops.subtract(b, ops.multiply(mean, factor))
    made = ops.add(ops.multiply(x, ops.reshape(factor, shape)), ops.reshape(shift, shape))
    return ops.astype(made, dtype, copy=False)


@operator("InstanceNormalization", 6, 22)
def instance_normalization(x: Tensor, scale: Tensor, b: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    return ops.instance_norm(x, scale, b, epsilon)


@operator("LayerNormalization", 17)
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    b: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> Tensor | tuple[Tensor, ...]:
    if outputs == 1 and x.dtype is scale.dtype and x.dtype is dtypes.float32:
        over = tuple(range(axis % x.ndim, x.ndim))
        if scale.shape == x.shape[over[0] :] and (b is None or b.shape == scale.shape):
            return ops.layer_norm(x, None, scale, b, epsilon, axis=over)
    return layer_normalized(x, scale, b, axis, epsilon)[:outputs]


def layer_normalized(
    x: Tensor, scale: Tensor, b: Tensor | None, axis: int, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, the mean and one over the deviation; half precision is computed in float32."""
    over = tuple(range(axis % x.ndim, x.ndim))
    wide = _wide(x)
    mean = ops.mean(wide, axis=over, keepdims=True)
    centred = ops.subtract(wide, mean)
    var = ops.mean(ops.square(centred), axis=over, keepdims=True)
    inverse = ops.divide(1.0, ops.sqrt(ops.add(var, epsilon)))
    made = ops.astype(ops.multiply(centred, inverse), x.dtype, copy=False)
    made = ops.multiply(made, scale)
    return made if b is None else ops.add(made, b), mean, inverse


def _wide(x: Tensor) -> Tensor:
    narrow = x.dtype in (dtypes.float16, dtypes.bfloat16)
    return ops.astype(x, dtypes.float32) if narrow else x


@operator("RMSNormalization", 23)
def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    return rms_normalized(x, scale, axis, epsilon)[0]


def rms_normalized(x: Tensor, scale: Tensor, axis: int, epsilon: float) -> tuple[Tensor, Tensor]:
    """The result, and one over the root of the mean square."""
    over = tuple(range(axis % x.ndim, x.ndim))
    wide = _wide(x)
    square = ops.mean(ops.square(wide), axis=over, keepdims=True)
    inverse = ops.divide(1.0, ops.sqrt(ops.add(square, epsilon)))
    made = ops.astype(ops.multiply(wide, inverse), x.dtype, copy=False)
    return ops.astype(ops.multiply(made, ops.astype(scale, x.dtype, copy=False)), x.dtype,
                      copy=False), inverse  # fmt: skip


@operator("GroupNormalization", 18)
def group_normalization_by_group(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, num_groups: int
) -> Tensor:
    """Scale and bias have a value for each group."""
    each = x.shape[1] // num_groups
    scales, biases = (ops.repeat(v, each, axis=0) for v in (scale, bias))
    return _group_normalized(x, scales, biases, epsilon, num_groups)


@operator("GroupNormalization", 21)
def group_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    epsilon: float = 1e-5,
    num_groups: int,
    stash_type: int = 1,
) -> Tensor:
    """Scale and bias have a value for each channel."""
    return _group_normalized(x, scale, bias, epsilon, num_groups)


def _group_normalized(
    x: Tensor, scale: Tensor, bias: Tensor, epsilon: float, num_groups: int
) -> Tensor:
    wide = _wide(x)
    parts = ops.reshape(wide, (x.shape[0], num_groups, -1))
    mean = ops.mean(parts, axis=2, keepdims=True)
    centred = ops.subtract(parts, mean)
    var = ops.mean(ops.square(centred), axis=2, keepdims=True)
    made = ops.divide(centred, ops.sqrt(ops.add(var, epsilon)))
    made = ops.astype(ops.reshape(made, x.shape), x.dtype, copy=False)
    shape = (-1, *[1] * (x.ndim - 2))
    return ops.add(ops.multiply(made, ops.reshape(scale, shape)), ops.reshape(bias, shape))


@operator("LRN", 1, 13)
def lrn(
    x: Tensor, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int
) -> Tensor:
    """Local response normalisation across channels."""
    before = (size - 1) // 2
    pairs = [(0, 0)] * x.ndim
    pairs[1] = (before, size - 1 - before)
    squares = padded(ops.square(x), pairs)
    channels = x.shape[1]
    total = squares[:, :channels]
    for i in range(1, size):
        total = ops.add(total, squares[:, i : i + channels])
    return ops.divide(x, ops.pow(ops.add(ops.multiply(total, alpha / size), bias), beta))


@operator("LpNormalization", 1, 22)
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Division by the norm; what has the norm zero becomes zero."""
    if p == 1:
        norm = ops.sum(ops.abs(x), axis=axis, keepdims=True)
    else:
        norm = ops.sqrt(ops.sum(ops.square(x), axis=axis, keepdims=True))
    none = ops.equal(norm, 0)
    return ops.where(none, 0, ops.divide(x, ops.where(none, 1, norm)))


@operator("MeanVarianceNormalization", 9, 13)
def mean_variance_normalization(x: Tensor, *, axes: Any = (0, 2, 3)) -> Tensor:
    over = tuple(axes)
    mean = ops.mean(x, axis=over, keepdims=True)
    centred = ops.subtract(x, mean)
    deviation = ops.sqrt(ops.mean(ops.square(centred), axis=over, keepdims=True))
    return ops.divide(centred, ops.add(deviation, float(np.float32(1e-9))))
