"""Gradients of the elementwise functions of the standard, and of their kin.

A small network spends its time on the first of these, in Python: they go straight to the
dispatch and do no more than they must.
"""

from __future__ import annotations

import math
from typing import Any

from ember_ml import ops
from ember_ml.autodiff.rules.choosing import cleared, gated, has_none
from ember_ml.autodiff.rules.shapes import summed_to
from ember_ml.autodiff.rules.table import rule, zero_gradient
from ember_ml.backend import pairs
from ember_ml.backend.portable.arithmetic import sinc_slope
from ember_ml.ops.dispatch import binary, unary
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

__all__: list[str] = []


def _conj(x: Tensor) -> Tensor:
    return unary("conj", x) if x._spec.dtype.is_complex else x


# --- Arithmetic -------------------------------------------------------------------------------


def _same(g: Tensor, y: Any, x: Any) -> Tensor:
    return g


def _add1(g: Tensor, y: Any, a: Any, b: Any) -> Tensor:
    return summed_to(g, a)


def _add2(g: Tensor, y: Any, a: Any, b: Any) -> Tensor:
    return summed_to(g, b)


def _subtract2(g: Tensor, y: Any, a: Any, b: Any) -> Tensor:
    return summed_to(unary("negative", g), b)


def _multiply1(g: Tensor, y: Any, a: Tensor, b: Tensor) -> Tensor:
    return summed_to(binary(pairs.MULTIPLY, g, _conj(b)), a)


def _multiply2(g: Tensor, y: Any, a: Tensor, b: Tensor) -> Tensor:
    return summed_to(binary(pairs.MULTIPLY, g, _conj(a)), b)


def _divide1(g: Tensor, y: Any, a: Tensor, b: Tensor) -> Tensor:
    return summed_to(binary(pairs.DIVIDE, g, _conj(b)), a)


def _divide2(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    pulled = binary(pairs.DIVIDE, binary(pairs.MULTIPLY, g, _conj(y)), _conj(b))
    return unary("negative", summed_to(pulled, b))


def _negative(g: Tensor, y: Any, x: Any) -> Tensor:
    return unary("negative", g)


def _square(g: Tensor, y: Any, x: Tensor) -> Tensor:
    return binary(pairs.MULTIPLY, g, _conj(binary(pairs.ADD, x, x)))


def _sqrt(g: Tensor, y: Tensor, x: Any) -> Tensor:
    return binary(pairs.DIVIDE, g, _conj(binary(pairs.ADD, y, y)))


def _reciprocal(g: Tensor, y: Tensor, x: Any) -> Tensor:
    return unary("negative", binary(pairs.MULTIPLY, g, unary("square", _conj(y))))


rule("add", _add1, _add2, inputs=False)
rule("subtract", _add1, _subtract2, inputs=False)
rule("multiply", _multiply1, _multiply2)
rule("divide", _divide1, _divide2, output=True)
rule("negative", _negative, inputs=False)
rule("positive", _same, inputs=False)
rule("square", _square)
rule("sqrt", _sqrt, inputs=False, output=True)
rule("reciprocal", _reciprocal, inputs=False, output=True)
rule("cbrt", lambda g, y, x: g / (3.0 * ops.square(y)), inputs=False, output=True)


def _remainder2(g: Tensor, y: Any, a: Tensor, b: Tensor) -> Tensor:
    return summed_to(-(g * ops.floor_divide(a, b)), b)


rule("remainder", _add1, _remainder2)


# --- Powers -----------------------------------------------------------------------------------


def _pow1(g: Tensor, y: Any, a: Tensor, b: Tensor) -> Tensor:
    """b * a**(b - 1), and zero for an exponent of zero, also where the base is zero."""
    if b.ndim == 0 and type(b) is Tensor and b._spec.backend.name == "numpy":
        # A number, and its value is at hand: most often the 2 of a square.
        exponent = b.native.item()
        if exponent == 2:
            return summed_to(_square(g, y, a), a)
        if exponent == 1:
            return summed_to(g, a)
        if exponent == 0:
            return summed_to(ops.zeros_like(g), a)
    lost = ops.logical_and(b == 0, a == 0)
    slope = b * ops.pow(a, ops.where(lost, 1.0, b - 1.0))
    return summed_to(g * _conj(slope), a)


def _pow2(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """y * log(a), and zero for a base of zero, whose powers are all zero."""
    zero = a == 0
    slope = ops.where(zero, 0.0, y) * ops.log(ops.where(zero, 1.0, a))
    positive = ops.real(b) >= 0 if b.dtype.is_complex else b >= 0
    # With a negative exponent the power of zero is infinite, and falls without end.
    slope = ops.where(ops.logical_and(zero, ops.logical_not(positive)), -ops.inf, slope)
    return summed_to(g * _conj(slope), b)


rule("pow", _pow1, _pow2, output=True)


# --- Exponentials and logarithms --------------------------------------------------------------


def _exp(g: Tensor, y: Tensor, x: Any) -> Tensor:
    return binary(pairs.MULTIPLY, g, _conj(y))


def _log(g: Tensor, y: Any, x: Tensor) -> Tensor:
    return binary(pairs.DIVIDE, g, _conj(x))


rule("exp", _exp, inputs=False, output=True)
rule("exp2", lambda g, y, x: g * y * math.log(2), inputs=False, output=True)
rule("expm1", lambda g, y, x: g * _conj(y + 1.0), inputs=False, output=True)
rule("log", _log)
rule("log1p", lambda g, y, x: g / _conj(x + 1.0))
rule("log2", lambda g, y, x: g / (_conj(x) * math.log(2)))
rule("log10", lambda g, y, x: g / (_conj(x) * math.log(10)))


def _share(a: Tensor, b: Tensor) -> Tensor:
    """exp(a) / (exp(a) + exp(b)); equal infinities share evenly."""
    equal = ops.logical_and(a == b, ops.isinf(a))
    return ops.sigmoid(ops.where(equal, 0.0, a) - ops.where(equal, 0.0, b))


rule(
    "logaddexp",
    lambda g, y, a, b: summed_to(g * _share(a, b), a),
    lambda g, y, a, b: summed_to(g * _share(b, a), b),
)


# --- Circular and hyperbolic functions ------------------------------------------------------------


def _tanh(g: Tensor, y: Tensor, x: Any) -> Tensor:
    slope = binary(pairs.SUBTRACT, 1.0, unary("square", y))
    return binary(pairs.MULTIPLY, g, _conj(slope))


def _root_of_one_less_square(x: Tensor) -> Tensor:
    """sqrt(1 - x^2) without the cancellation at one."""
    return ops.sqrt(1.0 - x) * ops.sqrt(1.0 + x)


def _root_of_one_and_square(x: Tensor) -> Tensor:
    if x.dtype.is_complex:
        return ops.sqrt(1.0 - 1j * x) * ops.sqrt(1.0 + 1j * x)
    return ops.hypot(x, 1.0)  # whose square may overflow


rule("sin", lambda g, y, x: g * _conj(ops.cos(x)))
rule("cos", lambda g, y, x: -(g * _conj(ops.sin(x))))
rule("tan", lambda g, y, x: g * _conj(1.0 + ops.square(y)), inputs=False, output=True)
rule("sinh", lambda g, y, x: g * _conj(ops.cosh(x)))
rule("cosh", lambda g, y, x: g * _conj(ops.sinh(x)))
rule("tanh", _tanh, inputs=False, output=True)
rule("asin", lambda g, y, x: g / _conj(_root_of_one_less_square(x)))
rule("acos", lambda g, y, x: -(g / _conj(_root_of_one_less_square(x))))
rule("atan", lambda g, y, x: g / _conj(1.0 + ops.square(x)))
rule("asinh", lambda g, y, x: g / _conj(_root_of_one_and_square(x)))
rule("acosh", lambda g, y, x: g / _conj(ops.sqrt(x - 1.0) * ops.sqrt(x + 1.0)))
rule("atanh", lambda g, y, x: g / _conj((1.0 - x) * (1.0 + x)))


rule("sinc", lambda g, y, x: g * sinc_slope(ops.where, ops.cos, x, y), output=True)


def _length(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The distance of a point from the origin, one in the origin itself, and where that is."""
    origin = ops.logical_and(a == 0, b == 0)
    return ops.where(origin, 1.0, ops.hypot(ops.where(origin, 1.0, a), b)), origin


def _atan2_1(g: Tensor, y: Any, a: Tensor, b: Tensor) -> Tensor:
    length, _ = _length(a, b)
    return summed_to(g * (b / length / length), a)


def _atan2_2(g: Tensor, y: Any, a: Tensor, b: Tensor) -> Tensor:
    length, _ = _length(a, b)
    return summed_to(-(g * (a / length / length)), b)


rule("atan2", _atan2_1, _atan2_2)


def _hypot1(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a / y, and zero in the origin, as for any norm."""
    return summed_to(g * (a / ops.where(y == 0, 1.0, y)), a)


def _hypot2(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return summed_to(g * (b / ops.where(y == 0, 1.0, y)), b)


rule("hypot", _hypot1, _hypot2, output=True)


# --- Parts and signs --------------------------------------------------------------------------


def _abs(g: Tensor, y: Any, x: Tensor) -> Tensor:
    return binary(pairs.MULTIPLY, g, unary("sign", x))


def _real(g: Tensor, y: Any, x: Any) -> Tensor:
    return convert.cast(g, x.dtype)


def _imag(g: Tensor, y: Any, x: Any) -> Tensor:
    return convert.cast(g, x.dtype) * 1j if x.dtype.is_complex else ops.zeros_like(g)


def _sign(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Zero on the line; in the plane, the part of g across the direction, over the distance."""
    if not x.dtype.is_complex:
        return ops.zeros_like(g)
    size = ops.abs(x)
    size = ops.where(size == 0, 1.0, size)
    return (1j * y) * (ops.imag(ops.conj(y) * g) / size)


rule("abs", _abs)
rule("real", _real, inputs=False)
rule("imag", _imag, inputs=False)
rule("conj", lambda g, y, x: _conj(g), inputs=False)
rule("sign", _sign, output=True)


def _copysign1(g: Tensor, y: Tensor, a: Tensor, b: Any) -> Tensor:
    turned = ops.not_equal(ops.signbit(a), ops.signbit(y))
    return summed_to(gated(a != 0, ops.where(turned, -g, g)), a)


def _copysign2(g: Tensor, y: Any, a: Any, b: Any) -> Tensor:
    return summed_to(ops.zeros_like(g), b)


rule("copysign", _copysign1, _copysign2, output=True)


# --- Steps ------------------------------------------------------------------------------------

zero_gradient("ceil", "floor", "round", "trunc")
rule(
    "floor_divide",
    lambda g, y, a, b: summed_to(ops.zeros_like(g), a),
    lambda g, y, a, b: summed_to(ops.zeros_like(g), b),
    inputs=False,
)
rule(
    "nextafter",
    lambda g, y, a, b: summed_to(gated(a != b, g), a),  # where both are equal, none moves alone
    lambda g, y, a, b: summed_to(ops.zeros_like(g), b),
)


# --- Choices ----------------------------------------------------------------------------------


def _ahead(g: Tensor, a: Tensor, b: Tensor, behind: int) -> Tensor:
    """The gradient where `a` is not behind `b`: half of it where they are level."""
    part = cleared(binary(behind, a, b), g)  # NaN is not behind
    level = binary(pairs.EQUAL, a, b)
    return part if has_none(level) else ops.where(level, part * 0.5, part)


def _maximum1(g: Tensor, y: Any, a: Tensor, b: Tensor) -> Tensor:
    return summed_to(_ahead(g, a, b, pairs.LESS), a)


def _maximum2(g: Tensor, y: Any, a: Tensor, b: Tensor) -> Tensor:
    return summed_to(_ahead(g, b, a, pairs.LESS), b)


def _minimum1(g: Tensor, y: Any, a: Tensor, b: Tensor) -> Tensor:
    return summed_to(_ahead(g, a, b, pairs.GREATER), a)


def _minimum2(g: Tensor, y: Any, a: Tensor, b: Tensor) -> Tensor:
    return summed_to(_ahead(g, b, a, pairs.GREATER), b)


rule("maximum", _maximum1, _maximum2)
rule("minimum", _minimum1, _minimum2)


def _takes_first(a: Tensor, b: Tensor, ahead: int) -> Tensor:
    """Where fmax and fmin take the first: where both are equal, too, and beside a NaN."""
    return ops.logical_or(binary(ahead, a, b), ops.isnan(b))


def _choosing(name: str, ahead: int) -> None:
    rule(
        name,
        lambda g, y, a, b: summed_to(gated(_takes_first(a, b, ahead), g), a),
        lambda g, y, a, b: summed_to(cleared(_takes_first(a, b, ahead), g), b),
    )


_choosing("fmax", pairs.GREATER_EQUAL)
_choosing("fmin", pairs.LESS_EQUAL)


def _clip1(g: Tensor, y: Any, x: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
    """All of it from one bound to the other, both included."""
    if low is not None:
        g = gated(binary(pairs.GREATER_EQUAL, x, low), g)
    if high is not None:
        g = gated(binary(pairs.LESS_EQUAL, x, high), g)
    return summed_to(g, x)


def _clip2(g: Tensor, y: Any, x: Tensor, low: Tensor, high: Tensor | None) -> Tensor:
    below = binary(pairs.LESS, x, low)
    if high is not None:
        below = ops.logical_and(below, binary(pairs.LESS, low, high))
    return summed_to(gated(below, g), low)


def _clip3(g: Tensor, y: Any, x: Tensor, low: Tensor | None, high: Tensor) -> Tensor:
    above = binary(pairs.GREATER, x, high)
    if low is not None:  # the upper bound wins where it is below the lower one
        above = ops.logical_or(above, binary(pairs.LESS, high, low))
    return summed_to(gated(above, g), high)


rule("clip", _clip1, _clip2, _clip3)
rule(
    "where",
    None,
    lambda g, y, mask, a, b: summed_to(gated(mask, g), a),
    lambda g, y, mask, a, b: summed_to(cleared(mask, g), b),
)
