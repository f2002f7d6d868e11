"""Normalization over settled kernels: deviations first, so that squares do not cancel."""

from __future__ import annotations

import math
from typing import Final

from ember_ml.backend.contract import Kernel, Kernels, NativeArray

__all__ = ["KERNELS"]

Optional = NativeArray | None


def layer_norm(
    xp: Kernels, x: NativeArray, weight: Optional, bias: Optional, ndim: int, eps: float
) -> NativeArray:
    axes = tuple(range(x.ndim - ndim, x.ndim))
    centred = x - xp.mean(x, axis=axes, keepdims=True)
    variance = xp.mean(centred * centred, axis=axes, keepdims=True)
    return _affine(centred / xp.sqrt(variance + eps), weight, bias)


def rms_norm(xp: Kernels, x: NativeArray, weight: Optional, ndim: int, eps: float) -> NativeArray:
    axes = tuple(range(x.ndim - ndim, x.ndim))
    return _affine(x / xp.sqrt(xp.mean(x * x, axis=axes, keepdims=True) + eps), weight, None)


def _affine(x: NativeArray, weight: Optional, bias: Optional) -> NativeArray:
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


def group_norm(
    xp: Kernels, x: NativeArray, weight: Optional, bias: Optional, groups: int, eps: float
) -> NativeArray:
    """Channels are axis 1."""
    shape = tuple(x.shape)
    rows = xp.reshape(x, (shape[0], groups, math.prod(shape[1:]) // groups))
    out = xp.reshape(xp.layer_norm(rows, None, None, 1, eps), shape)
    return _affine(out, _by_channel(xp, weight, x), _by_channel(xp, bias, x))


def _by_channel(xp: Kernels, vector: Optional, x: NativeArray) -> Optional:
    return None if vector is None else xp.reshape(vector, (-1, *(1,) * (x.ndim - 2)))


def batch_norm(
    xp: Kernels,
    x: NativeArray,
    mean: NativeArray,
    variance: NativeArray,
    weight: Optional,
    bias: Optional,
    eps: float,
) -> NativeArray:
    """Channels are axis 1; mean and variance are given."""
    scale = 1.0 / xp.sqrt(variance + eps)
    if weight is not None:
        scale = scale * weight
    out = (x - _by_channel(xp, mean, x)) * _by_channel(xp, scale, x)
    return out if bias is None else out + _by_channel(xp, bias, x)


def batch_norm_training(
    xp: Kernels,
    x: NativeArray,
    mean: Optional,
    variance: Optional,
    weight: Optional,
    bias: Optional,
    momentum: float,
    eps: float,
) -> tuple[NativeArray, NativeArray, NativeArray]:
    """With the batch's own mean and variance, and the running ones moved towards these."""
    axes = (0, *range(2, x.ndim))
    count = math.prod(x.shape[axis] for axis in axes)
    here = xp.mean(x, axis=axes, keepdims=False)
    centred = x - _by_channel(xp, here, x)
    spread = xp.mean(centred * centred, axis=axes, keepdims=False)
    out = centred * _by_channel(xp, 1.0 / xp.sqrt(spread + eps), x)
    out = _affine(out, _by_channel(xp, weight, x), _by_channel(xp, bias, x))
    # The running variance is the unbiased one, the variance divided by is not: as in PyTorch.
    unbiased = spread * (count / (count - 1))
    if mean is None or variance is None:
        return out, here, unbiased
    return (
        out,
        mean * (1 - momentum) + here * momentum,
        variance * (1 - momentum) + unbiased * momentum,
    )


def normalize(
    xp: Kernels, x: NativeArray, axis: tuple[int, ...], order: float, eps: float
) -> NativeArray:
    if order == 2:
        # The limit goes under the root, whose gradient at zero is infinite.
        least = xp.full((), eps * eps, x)
        length = xp.sqrt(xp.maximum(xp.sum(x * x, axis=axis, keepdims=True), least))
    elif order == math.inf:
        length = xp.maximum(xp.max(xp.abs(x), axis=axis, keepdims=True), xp.full((), eps, x))
    else:
        total = xp.sum(xp.pow(xp.abs(x), xp.full((), order, x)), axis=axis, keepdims=True)
        least = xp.full((), eps**order, x)
        length = xp.pow(xp.maximum(total, least), xp.full((), 1 / order, x))
    return x / length


KERNELS: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel
    for kernel in (
        layer_norm,
        rms_norm,
        group_norm,
        batch_norm,
        batch_norm_training,
        normalize,
    )
}
