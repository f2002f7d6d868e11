"""Arithmetic by the names that users of NumPy and PyTorch know, beside those of the standard."""

from __future__ import annotations

import math

from ember_ml import ops
from ember_ml.backend import pairs
from ember_ml.ops import dispatch
from ember_ml.ops.dispatch import binary, lifted, unary
from ember_ml.ops.registry import FLOATING, NUMERIC, REAL, REAL_FLOATING, op
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__: list[str] = [
    "absolute",
    "cbrt",
    "deg2rad",
    "degrees",
    "exp2",
    "fmax",
    "fmin",
    "fmod",
    "heaviside",
    "lerp",
    "mod",
    "power",
    "rad2deg",
    "radians",
    "sinc",
    "true_divide",
]


@op(accepts=NUMERIC, result="real", standard=False)
def absolute(x: TensorLike, /) -> Tensor:
    """Absolute value: another name of `abs`.

    >>> absolute([-1.0, 2.0]).tolist()
    [1.0, 2.0]
    """
    return unary("abs", x)


@op(accepts=REAL, arity=2, standard=False)
def mod(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The rest of x1 / x2 with the sign of x2: another name of `remainder`.

    >>> mod([5, -5], 3).tolist()
    [2, 1]
    """
    return binary(pairs.REMAINDER, x1, x2)


@op(accepts=NUMERIC, arity=2, standard=False)
def power(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 to the power x2: another name of `pow`.

    >>> power([2.0, 3.0], 2).tolist()
    [4.0, 9.0]
    """
    return binary(pairs.POW, x1, x2)


@op(accepts=FLOATING, lift="float", arity=2, standard=False)
def true_divide(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 / x2 in floats: another name of `divide`.

    >>> true_divide([1, 3], 2).tolist()
    [0.5, 1.5]
    """
    return binary(pairs.DIVIDE, x1, x2)


@op(accepts=REAL, arity=2, standard=False)
def fmod(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The rest of x1 / x2 with the sign of x1, as in C.

    >>> fmod([5, -5], 3).tolist()
    [2, -2]
    """
    a, b = _pair("fmod", x1, x2)
    if a.dtype.is_floating:
        # The rest of two sizes is exact, and signs and infinite divisors make no difference. The
        # sign is turned twice, not taken away: at zero the slope is one as well.
        turned = ops.signbit(a)
        rest = ops.remainder(ops.where(turned, -a, a), ops.abs(b))
        return ops.where(turned, -rest, rest)
    rest = ops.remainder(a, b)
    if not rest.dtype.is_signed:
        return rest
    turned = ops.logical_and(rest != 0, ops.not_equal(rest < 0, a < 0))
    return ops.where(turned, rest - b, rest)


def _pair(name: str, x1: TensorLike, x2: TensorLike) -> tuple[Tensor, Tensor]:
    """Two operands as tensors of their common dtype, in which the op runs."""
    a, b = dispatch.aligned(name, x1, x2)
    return lifted(name, a), lifted(name, b)


@op(accepts=REAL, arity=2, standard=False)
def fmax(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The larger of two, and the other one where one is NaN.

    >>> fmax([1.0, ops.nan], [2.0, 3.0]).tolist()
    [2.0, 3.0]
    """
    return binary(pairs.FMAX, x1, x2)


@op(accepts=REAL, arity=2, standard=False)
def fmin(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The smaller of two, and the other one where one is NaN.

    >>> fmin([1.0, ops.nan], [2.0, 3.0]).tolist()
    [1.0, 3.0]
    """
    return binary(pairs.FMIN, x1, x2)


@op(accepts=FLOATING, lift="float", arity=2, standard=False)
def lerp(start: TensorLike, end: TensorLike, weight: TensorLike, /) -> Tensor:
    """From `start` (weight 0) to `end` (weight 1) in a straight line.

    >>> lerp([0.0, 10.0], [1.0, 20.0], 0.5).tolist()
    [0.5, 15.0]
    """
    first, last = _pair("lerp", start, end)
    return ops.add(first, ops.multiply(last - first, weight))


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def deg2rad(x: TensorLike, /) -> Tensor:
    """Degrees as radians.

    >>> round(deg2rad(180.0).item(), 5)
    3.14159
    """
    return lifted("deg2rad", x) * (math.pi / 180)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def radians(x: TensorLike, /) -> Tensor:
    """Degrees as radians: another name of `deg2rad`.

    >>> round(radians(180.0).item(), 5)
    3.14159
    """
    return lifted("radians", x) * (math.pi / 180)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def rad2deg(x: TensorLike, /) -> Tensor:
    """Radians as degrees.

    >>> round(rad2deg(ops.pi).item(), 3)
    180.0
    """
    return lifted("rad2deg", x) * (180 / math.pi)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def degrees(x: TensorLike, /) -> Tensor:
    """Radians as degrees: another name of `rad2deg`.

    >>> round(degrees(ops.pi).item(), 3)
    180.0
    """
    return lifted("degrees", x) * (180 / math.pi)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def exp2(x: TensorLike, /) -> Tensor:
    """Two to the power x.

    >>> exp2([3.0, -1.0]).tolist()
    [8.0, 0.5]
    """
    return unary("exp2", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def cbrt(x: TensorLike, /) -> Tensor:
    """The cube root, also of negative numbers.

    >>> cbrt([-8.0, 1.0]).tolist()
    [-2.0, 1.0]
    """
    return unary("cbrt", x)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def sinc(x: TensorLike, /) -> Tensor:
    """sin(pi x) / (pi x), which is one at zero.

    >>> sinc([0.0, 0.5]).tolist()
    [1.0, 0.6366197466850281]
    """
    return unary("sinc", x)


@op(accepts=REAL_FLOATING, lift="float", arity=2, standard=False)
def heaviside(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Zero below zero, one above it, and x2 at zero.

    >>> heaviside([-1.0, 0.0, 2.0], 0.5).tolist()
    [0.0, 0.5, 1.0]
    """
    a, b = _pair("heaviside", x1, x2)
    above = ops.where(a > 0, 1.0, ops.where(a < 0, 0.0, a))  # NaN stays
    return ops.where(a == 0, b, above)
