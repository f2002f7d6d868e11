"""Activations over settled kernels, in forms that neither overflow nor cancel.

Native arrays take part in arithmetic with Python numbers on every engine and keep their dtype.
"""

from __future__ import annotations

import math
from typing import Final

from ember_ml.backend.contract import Kernel, Kernels, NativeArray

__all__ = ["KERNELS"]

# From "Self-Normalizing Neural Networks": the fixed point of mean zero and variance one.
_SELU_SCALE: Final = 1.0507009873554804934193349852946
_SELU_ALPHA: Final = 1.6732632423543772848170429916717


def relu(xp: Kernels, x: NativeArray) -> NativeArray:
    return xp.maximum(x, 0.0)


def relu6(xp: Kernels, x: NativeArray) -> NativeArray:
    return xp.minimum(xp.maximum(x, 0.0), 6.0)


def relu_squared(xp: Kernels, x: NativeArray) -> NativeArray:
    return xp.square(xp.relu(x))


def leaky_relu(xp: Kernels, x: NativeArray, negative_slope: float) -> NativeArray:
    return xp.where(x > 0, x, x * negative_slope)


def prelu(xp: Kernels, x: NativeArray, weight: NativeArray) -> NativeArray:
    if x.ndim > 1:
        weight = xp.reshape(weight, (-1, *(1,) * (x.ndim - 2)))
    return xp.where(x > 0, x, x * xp.reshape(weight, () if not x.ndim else tuple(weight.shape)))


def threshold(xp: Kernels, x: NativeArray, limit: float, value: float) -> NativeArray:
    return xp.where(x <= limit, value, x)  # NaN stays


def hard_tanh(xp: Kernels, x: NativeArray, low: float, high: float) -> NativeArray:
    return xp.minimum(xp.maximum(x, low), high)


def hard_sigmoid(xp: Kernels, x: NativeArray) -> NativeArray:
    return xp.relu6(x + 3.0) / 6.0


def hard_swish(xp: Kernels, x: NativeArray) -> NativeArray:
    return x * xp.hard_sigmoid(x)


def hard_shrink(xp: Kernels, x: NativeArray, size: float) -> NativeArray:
    return xp.where(xp.abs(x) <= size, 0.0, x)


def soft_shrink(xp: Kernels, x: NativeArray, size: float) -> NativeArray:
    return x - xp.hard_tanh(x, -size, size)


def tanhshrink(xp: Kernels, x: NativeArray) -> NativeArray:
    return x - xp.tanh(x)


def lecun_tanh(xp: Kernels, x: NativeArray) -> NativeArray:
    return xp.tanh(x * (2 / 3)) * 1.7159


def softsign(xp: Kernels, x: NativeArray) -> NativeArray:
    return x / (xp.abs(x) + 1.0)


def _below(xp: Kernels, x: NativeArray) -> NativeArray:
    """What a branch that is not taken may read: finite, or its gradient makes NaN of the other's.

    A minimum would do, but engines halve its gradient at zero.
    """
    return xp.where(x > 0, 0.0, x)


def elu(xp: Kernels, x: NativeArray, alpha: float) -> NativeArray:
    return xp.where(x > 0, x, xp.expm1(_below(xp, x)) * alpha)


def selu(xp: Kernels, x: NativeArray) -> NativeArray:
    return xp.elu(x, _SELU_ALPHA) * _SELU_SCALE


def celu(xp: Kernels, x: NativeArray, alpha: float) -> NativeArray:
    return xp.where(x > 0, x, xp.expm1(_below(xp, x) / alpha) * alpha)


def sigmoid(xp: Kernels, x: NativeArray) -> NativeArray:
    # Where exp is infinite, the quotient is the zero that belongs there.
    return 1.0 / (xp.exp(-x) + 1.0)


def silu(xp: Kernels, x: NativeArray) -> NativeArray:
    return x * xp.sigmoid(x)


def log_sigmoid(xp: Kernels, x: NativeArray) -> NativeArray:
    return xp.minimum(x, 0.0) - xp.log1p(xp.exp(-xp.abs(x)))


def softplus(xp: Kernels, x: NativeArray, beta: float, limit: float) -> NativeArray:
    scaled = x if beta == 1 else x * beta
    soft = xp.maximum(scaled, 0.0) + xp.log1p(xp.exp(-xp.abs(scaled)))
    return xp.where(scaled > limit, x, soft if beta == 1 else soft / beta)


def mish(xp: Kernels, x: NativeArray) -> NativeArray:
    """x * tanh(softplus(x)), where the tangent of the logarithm is a rational of exp(x).

    With e = exp(-|x|): tanh(log(1 + exp(x))) = (1 + 2e) / (1 + 2e + 2e^2) for x >= 0, and
    (e^2 + 2e) / (e^2 + 2e + 2) below.
    """
    e = xp.exp(-xp.abs(x))
    above = e * 2.0 + 1.0
    below = e * (e + 2.0)
    return x * xp.where(x >= 0, above / (above + e * e * 2.0), below / (below + 2.0))


def gelu(xp: Kernels, x: NativeArray, tanh: bool) -> NativeArray:
    if tanh:
        # (1 + tanh(u)) / 2 is the sigmoid of 2u, which does not cancel.
        return x * xp.sigmoid(x * (x * x * 0.044715 + 1.0) * math.sqrt(8 / math.pi))
    return x * (xp.erf(x * math.sqrt(0.5)) + 1.0) * 0.5


def _highest(xp: Kernels, x: NativeArray, axis: int) -> NativeArray:
    """By how much values are moved, which changes nothing: a gradient through it would be zero but
    for the rounding of a long sum, and would put that on the largest value.
    """
    return xp.stop_gradient(xp.max(x, axis=axis, keepdims=True))


def softmax(xp: Kernels, x: NativeArray, axis: int) -> NativeArray:
    if not all(x.shape):
        return x + 0.0  # nothing has no largest value
    e = xp.exp(x - _highest(xp, x, axis))
    return e / xp.sum(e, axis=axis, keepdims=True)


def log_softmax(xp: Kernels, x: NativeArray, axis: int) -> NativeArray:
    if not all(x.shape):
        return x + 0.0
    shifted = x - _highest(xp, x, axis)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))


def _halves(x: NativeArray, axis: int) -> tuple[NativeArray, NativeArray]:
    before, half = (slice(None),) * axis, x.shape[axis] // 2
    return x[(*before, slice(half))], x[(*before, slice(half, None))]


def glu(xp: Kernels, x: NativeArray, axis: int) -> NativeArray:
    value, gate = _halves(x, axis)
    return value * xp.sigmoid(gate)


def swiglu(xp: Kernels, x: NativeArray, axis: int) -> NativeArray:
    value, gate = _halves(x, axis)
    return value * xp.silu(gate)


def geglu(xp: Kernels, x: NativeArray, axis: int, tanh: bool) -> NativeArray:
    value, gate = _halves(x, axis)
    return value * xp.gelu(gate, tanh)


KERNELS: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel
    for kernel in (
        relu,
        relu6,
        relu_squared,
        leaky_relu,
        prelu,
        threshold,
        hard_tanh,
        hard_sigmoid,
        hard_swish,
        hard_shrink,
        soft_shrink,
        tanhshrink,
        lecun_tanh,
        softsign,
        elu,
        selu,
        celu,
        sigmoid,
        silu,
        log_sigmoid,
        softplus,
        mish,
        gelu,
        softmax,
        log_softmax,
        glu,
        swiglu,
        geglu,
    )
}
