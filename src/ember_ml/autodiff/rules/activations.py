"""Gradients of activations.

At a corner the slope is the one on the left, as in torch. Where a formula has a product of zero and
infinity at large arguments, the argument is limited first to where the slope has long settled.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ember_ml import ops
from ember_ml.autodiff.rules.choosing import cleared, gated
from ember_ml.autodiff.rules.shapes import summed_to
from ember_ml.autodiff.rules.table import rule
from ember_ml.backend import pairs
from ember_ml.ops.dispatch import binary, reduce, unary
from ember_ml.tensor.core import Tensor

__all__: list[str] = []

# From "Self-Normalizing Neural Networks", as in backend/portable/activations.py.
_SELU_SCALE: Final = 1.0507009873554804934193349852946
_SELU_ALPHA: Final = 1.6732632423543772848170429916717


# --- Pieces of straight lines -----------------------------------------------------------------


def _relu(g: Tensor, y: Tensor, x: Any) -> Tensor:
    return gated(binary(pairs.NOT_EQUAL, y, 0.0), g)  # NaN is no zero


def _between(x: Tensor, low: float, high: float) -> Tensor:
    return ops.logical_and(x > low, x < high)


def _outside(x: Tensor, size: float) -> Tensor:
    return ops.logical_or(x < -size, x > size)


def _leaky_relu(g: Tensor, y: Any, x: Tensor, slope: float) -> Tensor:
    return ops.where(x > 0, g, g * slope)


def _hard_swish(g: Tensor, y: Any, x: Tensor) -> Tensor:
    inner = g * (x * (1 / 3) + 0.5)
    return ops.where(x < 3, cleared(x <= -3, inner), g)


rule("relu", _relu, inputs=False, output=True)
rule("relu6", lambda g, y, x: gated(_between(y, 0.0, 6.0), g), inputs=False, output=True)
rule("relu_squared", lambda g, y, x: g * ops.relu(x) * 2.0)
rule("leaky_relu", _leaky_relu)
rule("threshold", lambda g, y, x, limit, value: cleared(x <= limit, g))
rule("hard_tanh", lambda g, y, x, low, high: gated(_between(x, low, high), g))
rule("hard_sigmoid", lambda g, y, x: gated(_between(x, -3.0, 3.0), g * (1 / 6)))
rule("hard_swish", _hard_swish)
rule("hard_shrink", lambda g, y, x, size: gated(_outside(x, size), g))
rule("soft_shrink", lambda g, y, x, size: gated(_outside(x, size), g))


def _beside(weight: Tensor, x: Tensor) -> Tensor:
    """The weights of prelu in a shape that broadcasts with its operand."""
    if x.ndim > 1:
        return ops.reshape(weight, (-1, *(1,) * (x.ndim - 2)))
    return ops.reshape(weight, (1,) * x.ndim)


def _prelu1(g: Tensor, y: Any, x: Tensor, weight: Tensor) -> Tensor:
    return ops.where(x > 0, g, g * _beside(weight, x))


def _prelu2(g: Tensor, y: Any, x: Tensor, weight: Tensor) -> Tensor:
    pulled = summed_to(cleared(x > 0, g * x), _beside(weight, x))
    return ops.reshape(pulled, weight.shape)


rule("prelu", _prelu1, _prelu2)


# --- Curves -----------------------------------------------------------------------------------


def _sigmoid(g: Tensor, y: Tensor, x: Any) -> Tensor:
    slope = binary(pairs.MULTIPLY, y, binary(pairs.SUBTRACT, 1.0, y))
    return binary(pairs.MULTIPLY, g, slope)


def _softplus(g: Tensor, y: Any, x: Tensor, beta: float, limit: float) -> Tensor:
    scaled = x if beta == 1 else x * beta
    return ops.where(scaled > limit, g, g * ops.sigmoid(scaled))


def _exponential(g: Tensor, x: Tensor, rate: float, factor: float) -> Tensor:
    """The gradient of a line of slope one that goes on as an exponential below zero."""
    above = x > 0
    below = ops.where(above, 0.0, x)  # what is not taken stays finite
    return ops.where(above, g, g * (ops.exp(below if rate == 1 else below * rate) * factor))


def _near(x: Tensor, limit: float) -> Tensor:
    return ops.clip(x, -limit, limit)


def _silu(g: Tensor, y: Any, x: Tensor) -> Tensor:
    x = _near(x, 1e3)
    s = unary("sigmoid", x)
    return g * (s * (x * (1.0 - s) + 1.0))


def _mish(g: Tensor, y: Any, x: Tensor) -> Tensor:
    x = _near(x, 1e3)
    t = ops.tanh(ops.softplus(x, 1.0, math.inf))
    return g * (t + x * ops.sigmoid(x) * (1.0 - t * t))


def _gelu_slope(x: Tensor, by_tanh: bool) -> Tensor:
    """The derivative of gelu."""
    x = _near(x, 100.0)
    if by_tanh:
        square, scale = ops.square(x), math.sqrt(8 / math.pi)
        s = ops.sigmoid(x * (square * 0.044715 + 1.0) * scale)
        return s + s * (1.0 - s) * x * (square * (3 * 0.044715) + 1.0) * scale
    bell = ops.exp(ops.square(x) * -0.5) * (1 / math.sqrt(2 * math.pi))
    return ops.erfc(x * -math.sqrt(0.5)) * 0.5 + x * bell


rule("sigmoid", _sigmoid, inputs=False, output=True)
rule("log_sigmoid", lambda g, y, x: g * ops.sigmoid(-x))
rule("softplus", _softplus)
rule("softsign", lambda g, y, x: g / ops.square(ops.abs(x) + 1.0))
rule("tanhshrink", lambda g, y, x: g * ops.square(ops.tanh(x)))
rule(
    "lecun_tanh",
    lambda g, y, x: g * (1.7159 * 2 / 3 - ops.square(y) * (2 / 3 / 1.7159)),
    inputs=False,
    output=True,
)
rule("elu", lambda g, y, x, alpha: _exponential(g, x, 1.0, alpha))
rule("celu", lambda g, y, x, alpha: _exponential(g, x, 1 / alpha, 1.0))
rule("selu", lambda g, y, x: _exponential(g * _SELU_SCALE, x, 1.0, _SELU_ALPHA))
rule("silu", _silu)
rule("mish", _mish)
rule("gelu", lambda g, y, x, by_tanh: g * _gelu_slope(x, by_tanh))


# --- Along an axis ----------------------------------------------------------------------------


def _softmax(g: Tensor, y: Tensor, x: Any, axis: int) -> Tensor:
    weighted = binary(pairs.MULTIPLY, g, y)
    total = reduce("sum", weighted, axis, True)
    return binary(pairs.SUBTRACT, weighted, binary(pairs.MULTIPLY, y, total))


def _log_softmax(g: Tensor, y: Tensor, x: Any, axis: int) -> Tensor:
    total = reduce("sum", g, axis, True)
    return binary(pairs.SUBTRACT, g, binary(pairs.MULTIPLY, unary("exp", y), total))


rule("softmax", _softmax, inputs=False, output=True)
rule("log_softmax", _log_softmax, inputs=False, output=True)


def _halves(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    before, half = (slice(None),) * axis, x.shape[axis] // 2
    return x[(*before, slice(half))], x[(*before, slice(half, None))]


def _glu(g: Tensor, y: Any, x: Tensor, axis: int) -> Tensor:
    value, gate = _halves(x, axis)
    s = ops.sigmoid(gate)
    return ops.concat([g * s, g * value * (s * (1.0 - s))], axis=axis)


def _swiglu(g: Tensor, y: Any, x: Tensor, axis: int) -> Tensor:
    value, gate = _halves(x, axis)
    return ops.concat([g * ops.silu(gate), _silu(g * value, None, gate)], axis=axis)


def _geglu(g: Tensor, y: Any, x: Tensor, axis: int, by_tanh: bool) -> Tensor:
    value, gate = _halves(x, axis)
    first = g * ops.gelu(gate, by_tanh)
    return ops.concat([first, g * value * _gelu_slope(gate, by_tanh)], axis=axis)


rule("glu", _glu)
rule("swiglu", _swiglu)
rule("geglu", _geglu)
