"""Activation functions."""

from __future__ import annotations

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.graph.executors.operators.registry import operator
from ember_ml.tensor.core import Tensor

__all__: list[str] = []

operator("Sigmoid", 6, 13)(ops.sigmoid)
operator("HardSwish", 14, 22)(ops.hard_swish)
operator("Mish", 18, 22)(ops.mish)
operator("Softsign", 1, 22)(ops.softsign)


@operator("Relu", 6, 13, 14)
def relu(x: Tensor) -> Tensor:
    return ops.relu(x) if x.dtype.is_floating else ops.maximum(x, 0)


@operator("LeakyRelu", 6, 16)
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return ops.leaky_relu(x, alpha)


@operator("PRelu", 9, 16)
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    return ops.where(ops.less(x, 0), ops.multiply(x, slope), x)


@operator("Elu", 6, 22)
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return ops.elu(x, alpha)


@operator("Celu", 12, 28)
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return ops.celu(x, alpha)


@operator("Selu", 6, 22)
def selu(
    x: Tensor,
    *,
    alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875,
) -> Tensor:
    return ops.multiply(ops.elu(x, alpha), gamma)


@operator("ThresholdedRelu", 10, 22)
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return ops.where(ops.greater(x, alpha), x, 0)


@operator("HardSigmoid", 6, 22)
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return ops.clip(ops.add(ops.multiply(x, alpha), beta), 0, 1)


@operator("Shrink", 9)
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    if not x.dtype.is_floating:
        wide = ops.astype(x, dtypes.float64)
        return ops.astype(shrink(wide, bias=bias, lambd=lambd), x.dtype)
    low = ops.where(ops.less(x, -lambd), ops.add(x, bias), 0)
    return ops.where(ops.greater(x, lambd), ops.subtract(x, bias), low)


@operator("Gelu", 20)
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return ops.gelu(x, approximate)


@operator("Swish", 24)
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return ops.multiply(x, ops.sigmoid(ops.multiply(x, alpha)))


@operator("Softplus", 1, 22)
def softplus(x: Tensor) -> Tensor:
    return ops.softplus(x)


@operator("Softmax", 11)
def softmax_of_rows(x: Tensor, *, axis: int = 1) -> Tensor:
    return ops.reshape(softmax(_rows(x, axis)), x.shape)


@operator("Softmax", 13)
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return ops.softmax(x, axis)


@operator("LogSoftmax", 11)
def log_softmax_of_rows(x: Tensor, *, axis: int = 1) -> Tensor:
    return ops.reshape(log_softmax(_rows(x, axis)), x.shape)


@operator("LogSoftmax", 13)
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return ops.log_softmax(x, axis)


@operator("Hardmax", 11)
def hardmax_of_rows(x: Tensor, *, axis: int = 1) -> Tensor:
    return ops.reshape(hardmax(_rows(x, axis)), x.shape)


@operator("Hardmax", 13)
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """One at the first of the largest values along an axis, zero elsewhere."""
    place = ops.argmax(x, axis=axis, keepdims=True)
    numbers = [1] * x.ndim
    numbers[axis] = x.shape[axis]
    return ops.astype(ops.equal(place, np.arange(x.shape[axis]).reshape(numbers)), x.dtype)


@operator("SwiGLU", 28)
def swiglu(gate: Tensor, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return ops.multiply(swish(gate, alpha=alpha), x)


def _rows(x: Tensor, axis: int) -> Tensor:
    """A matrix of all axes before one and all from it on, over which old versions work."""
    place = axis % x.ndim
    return ops.reshape(x, (int(np.prod(x.shape[:place])), -1))
