"""Functions that work element by element, with broadcasting and promotion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ember_ml.backend.pairs import (
    ADD,
    ATAN2,
    BITWISE_AND,
    BITWISE_LEFT_SHIFT,
    BITWISE_OR,
    BITWISE_RIGHT_SHIFT,
    BITWISE_XOR,
    COPYSIGN,
    DIVIDE,
    EQUAL,
    FLOOR_DIVIDE,
    GREATER,
    GREATER_EQUAL,
    HYPOT,
    LESS,
    LESS_EQUAL,
    LOGADDEXP,
    LOGICAL_AND,
    LOGICAL_OR,
    LOGICAL_XOR,
    MAXIMUM,
    MINIMUM,
    MULTIPLY,
    NEXTAFTER,
    NOT_EQUAL,
    POW,
    REMAINDER,
    SUBTRACT,
)
from ember_ml.ops import typed
from ember_ml.ops.dispatch import binary, lifted, together, unary
from ember_ml.ops.registry import (
    BITS,
    BOOLEAN,
    FLOATING,
    INTEGRAL,
    NUMERIC,
    REAL,
    REAL_FLOATING,
    op,
)
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

if TYPE_CHECKING:
    from ember_ml.markers import Bool, D, R, V
    from ember_ml.tensor.typed import Like, LikeFloat, LikeParts, Limit

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "clip",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
]

REAL_BOOL: Final = REAL | BOOLEAN


@op(accepts=NUMERIC, result="real")
def abs(x: LikeParts[D, V, R], /) -> Tensor[D, V, R]:
    """Absolute value; the magnitude of complex numbers.

    >>> abs([-1.0, 2.0]).tolist()
    [1.0, 2.0]
    """
    return unary("abs", x)


@op(accepts=FLOATING, lift="float")
def acos(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Inverse cosine, in radians.

    >>> acos([1.0]).tolist()
    [0.0]
    """
    return unary("acos", x)


@op(accepts=FLOATING, lift="float")
def acosh(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Inverse hyperbolic cosine.

    >>> acosh([1.0]).tolist()
    [0.0]
    """
    return unary("acosh", x)


@op(arity=2)
@typed.pairing
def add(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 + x2; `or` for truth values.

    >>> add([1.0, 2.0], 1).tolist()
    [2.0, 3.0]
    """
    return binary(ADD, x1, x2)


@op(accepts=FLOATING, lift="float")
def asin(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Inverse sine, in radians.

    >>> asin([0.0]).tolist()
    [0.0]
    """
    return unary("asin", x)


@op(accepts=FLOATING, lift="float")
def asinh(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Inverse hyperbolic sine.

    >>> asinh([0.0]).tolist()
    [0.0]
    """
    return unary("asinh", x)


@op(accepts=FLOATING, lift="float")
def atan(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Inverse tangent, in radians.

    >>> atan([0.0]).tolist()
    [0.0]
    """
    return unary("atan", x)


@op(accepts=REAL_FLOATING, lift="float", arity=2)
@typed.dividing
def atan2(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Angle of the point (x2, x1), in radians.

    >>> atan2([0.0], [1.0]).tolist()
    [0.0]
    """
    return binary(ATAN2, x1, x2)


@op(accepts=FLOATING, lift="float")
def atanh(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Inverse hyperbolic tangent.

    >>> atanh([0.0]).tolist()
    [0.0]
    """
    return unary("atanh", x)


@op(accepts=BITS, arity=2)
@typed.pairing
def bitwise_and(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Bits set in both.

    >>> bitwise_and([6], [3]).tolist()
    [2]
    """
    return binary(BITWISE_AND, x1, x2)


@op(accepts=BITS)
def bitwise_invert(x: Like[D, V, R], /) -> Tensor[D, V, R]:
    """Each bit flipped; `not` for truth values.

    >>> bitwise_invert([0, 5]).tolist()
    [-1, -6]
    """
    return unary("bitwise_invert", x)


@op(accepts=INTEGRAL, arity=2)
@typed.pairing
def bitwise_left_shift(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 shifted left by x2 bits.

    >>> bitwise_left_shift([1], [3]).tolist()
    [8]
    """
    return binary(BITWISE_LEFT_SHIFT, x1, x2)


@op(accepts=BITS, arity=2)
@typed.pairing
def bitwise_or(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Bits set in either.

    >>> bitwise_or([6], [3]).tolist()
    [7]
    """
    return binary(BITWISE_OR, x1, x2)


@op(accepts=INTEGRAL, arity=2)
@typed.pairing
def bitwise_right_shift(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 shifted right by x2 bits; the sign is kept.

    >>> bitwise_right_shift([8], [2]).tolist()
    [2]
    """
    return binary(BITWISE_RIGHT_SHIFT, x1, x2)


@op(accepts=BITS, arity=2)
@typed.pairing
def bitwise_xor(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Bits set in one of the two.

    >>> bitwise_xor([6], [3]).tolist()
    [5]
    """
    return binary(BITWISE_XOR, x1, x2)


@op(accepts=REAL)
def ceil(x: Like[D, V, R], /) -> Tensor[D, V, R]:
    """Rounded up; integers stay as they are.

    >>> ceil([1.2, -1.2]).tolist()
    [2.0, -1.0]
    """
    return unary("ceil", x)


@op(accepts=REAL)
def clip(
    x: Like[D, V, R],
    /,
    min: Limit[D, V, R] = None,
    max: Limit[D, V, R] = None,
) -> Tensor[D, V, R]:
    """x limited to the range [min, max]; either may be left out.

    >>> clip([-1, 5, 9], 0, 6).tolist()
    [0, 5, 6]
    """
    tensor = lifted("clip", x)  # truth values have no limits, and would become integers beside some
    if min is None and max is None:
        return unary("positive", tensor)
    return together("clip", (tensor, min, max))


@op(accepts=NUMERIC)
def conj(x: Like[D, V, R], /) -> Tensor[D, V, R]:
    """Complex conjugate; real numbers stay as they are.

    >>> conj([1 + 2j]).tolist()
    [(1-2j)]
    """
    return unary("conj", x)


@op(accepts=REAL_FLOATING, lift="float", arity=2)
@typed.dividing
def copysign(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Magnitude of x1 with the sign of x2.

    >>> copysign([1.0], [-0.0]).tolist()
    [-1.0]
    """
    return binary(COPYSIGN, x1, x2)


@op(accepts=FLOATING, lift="float")
def cos(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Cosine of radians.

    >>> cos([0.0]).tolist()
    [1.0]
    """
    return unary("cos", x)


@op(accepts=FLOATING, lift="float")
def cosh(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Hyperbolic cosine.

    >>> cosh([0.0]).tolist()
    [1.0]
    """
    return unary("cosh", x)


@op(accepts=FLOATING, lift="float", arity=2)
@typed.dividing
def divide(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 / x2; integers give the default float.

    >>> divide([1, 2], [2, 2]).tolist()
    [0.5, 1.0]
    """
    return binary(DIVIDE, x1, x2)


@op(result="bool", arity=2)
@typed.comparing
def equal(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 == x2.

    >>> equal([1, 2], [1, 3]).tolist()
    [True, False]
    """
    return binary(EQUAL, x1, x2)


@op(accepts=FLOATING, lift="float")
def exp(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """e to the power of x.

    >>> exp([0.0]).tolist()
    [1.0]
    """
    return unary("exp", x)


@op(accepts=FLOATING, lift="float")
def expm1(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """exp(x) - 1, exact for small x.

    >>> expm1([0.0]).tolist()
    [0.0]
    """
    return unary("expm1", x)


@op(accepts=REAL)
def floor(x: Like[D, V, R], /) -> Tensor[D, V, R]:
    """Rounded down; integers stay as they are.

    >>> floor([1.8, -1.2]).tolist()
    [1.0, -2.0]
    """
    return unary("floor", x)


@op(accepts=REAL, lift="int", arity=2)
@typed.pairing
def floor_divide(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 / x2, rounded down.

    >>> floor_divide([7, -7], [2, 2]).tolist()
    [3, -4]
    """
    return binary(FLOOR_DIVIDE, x1, x2)


@op(accepts=REAL, lift="int", result="bool", arity=2)
@typed.comparing
def greater(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 > x2.

    >>> greater([1, 2], [1, 1]).tolist()
    [False, True]
    """
    return binary(GREATER, x1, x2)


@op(accepts=REAL, lift="int", result="bool", arity=2)
@typed.comparing
def greater_equal(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 >= x2.

    >>> greater_equal([1, 0], [1, 1]).tolist()
    [True, False]
    """
    return binary(GREATER_EQUAL, x1, x2)


@op(accepts=REAL_FLOATING, lift="float", arity=2)
@typed.dividing
def hypot(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """sqrt(x1**2 + x2**2) without overflow in between.

    >>> hypot([3.0], [4.0]).tolist()
    [5.0]
    """
    return binary(HYPOT, x1, x2)


@op(accepts=NUMERIC, result="real")
def imag(x: LikeParts[D, V, R], /) -> Tensor[D, V, R]:
    """Imaginary part; zeros for real numbers.

    >>> imag([1 + 2j]).tolist()
    [2.0]
    """
    return unary("imag", x)


@op(accepts=NUMERIC, lift="int", result="bool")
def isfinite(x: Like[Any, V, R], /) -> Tensor[Bool, V, R]:
    """True where x is neither infinite nor NaN.

    >>> isfinite([1.0, float("inf")]).tolist()
    [True, False]
    """
    return unary("isfinite", x)


@op(accepts=NUMERIC, lift="int", result="bool")
def isinf(x: Like[Any, V, R], /) -> Tensor[Bool, V, R]:
    """True where x is infinite.

    >>> isinf([1.0, float("inf")]).tolist()
    [False, True]
    """
    return unary("isinf", x)


@op(accepts=NUMERIC, lift="int", result="bool")
def isnan(x: Like[Any, V, R], /) -> Tensor[Bool, V, R]:
    """True where x is NaN.

    >>> isnan([1.0, float("nan")]).tolist()
    [False, True]
    """
    return unary("isnan", x)


@op(accepts=REAL, lift="int", result="bool", arity=2)
@typed.comparing
def less(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 < x2.

    >>> less([1, 2], [1, 3]).tolist()
    [False, True]
    """
    return binary(LESS, x1, x2)


@op(accepts=REAL, lift="int", result="bool", arity=2)
@typed.comparing
def less_equal(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 <= x2.

    >>> less_equal([1, 4], [1, 3]).tolist()
    [True, False]
    """
    return binary(LESS_EQUAL, x1, x2)


@op(accepts=FLOATING, lift="float")
def log(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Natural logarithm.

    >>> log([1.0]).tolist()
    [0.0]
    """
    return unary("log", x)


@op(accepts=FLOATING, lift="float")
def log10(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Logarithm to base 10.

    >>> log10([1.0]).tolist()
    [0.0]
    """
    return unary("log10", x)


@op(accepts=FLOATING, lift="float")
def log1p(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """log(1 + x), exact for small x.

    >>> log1p([0.0]).tolist()
    [0.0]
    """
    return unary("log1p", x)


@op(accepts=FLOATING, lift="float")
def log2(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Logarithm to base 2.

    >>> log2([8.0]).tolist()
    [3.0]
    """
    return unary("log2", x)


@op(accepts=REAL_FLOATING, lift="float", arity=2)
@typed.dividing
def logaddexp(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """log(exp(x1) + exp(x2)) without overflow in between.

    >>> logaddexp([0.0], [float("-inf")]).tolist()
    [0.0]
    """
    return binary(LOGADDEXP, x1, x2)


@op(accepts=BOOLEAN, lift="bool", result="bool", arity=2)
@typed.comparing
def logical_and(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """True where both are true.

    >>> logical_and([True, True], [True, False]).tolist()
    [True, False]
    """
    return binary(LOGICAL_AND, x1, x2)


@op(accepts=BOOLEAN, lift="bool", result="bool")
def logical_not(x: Like[Any, V, R], /) -> Tensor[Bool, V, R]:
    """True where x is false or zero.

    >>> logical_not([True, False]).tolist()
    [False, True]
    """
    return unary("logical_not", x)


@op(accepts=BOOLEAN, lift="bool", result="bool", arity=2)
@typed.comparing
def logical_or(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """True where either is true.

    >>> logical_or([False, True], [False, False]).tolist()
    [False, True]
    """
    return binary(LOGICAL_OR, x1, x2)


@op(accepts=BOOLEAN, lift="bool", result="bool", arity=2)
@typed.comparing
def logical_xor(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """True where one of the two is true.

    >>> logical_xor([True, True], [True, False]).tolist()
    [False, True]
    """
    return binary(LOGICAL_XOR, x1, x2)


@op(accepts=REAL_BOOL, arity=2)
@typed.pairing
def maximum(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The larger of the two; NaN where either is.

    >>> maximum([1, 5], [3, 2]).tolist()
    [3, 5]
    """
    return binary(MAXIMUM, x1, x2)


@op(accepts=REAL_BOOL, arity=2)
@typed.pairing
def minimum(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The smaller of the two; NaN where either is.

    >>> minimum([1, 5], [3, 2]).tolist()
    [1, 2]
    """
    return binary(MINIMUM, x1, x2)


@op(arity=2)
@typed.pairing
def multiply(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 * x2; `and` for truth values.

    >>> multiply([1.0, 2.0], 3).tolist()
    [3.0, 6.0]
    """
    return binary(MULTIPLY, x1, x2)


@op(accepts=NUMERIC)
def negative(x: Like[D, V, R], /) -> Tensor[D, V, R]:
    """-x.

    >>> negative([1, -2]).tolist()
    [-1, 2]
    """
    return unary("negative", x)


@op(accepts=REAL_FLOATING, lift="float", arity=2)
@typed.dividing
def nextafter(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The next number after x1 towards x2.

    >>> nextafter([0.0], [0.0]).tolist()
    [0.0]
    """
    return binary(NEXTAFTER, x1, x2)


@op(result="bool", arity=2)
@typed.comparing
def not_equal(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 != x2.

    >>> not_equal([1, 2], [1, 3]).tolist()
    [False, True]
    """
    return binary(NOT_EQUAL, x1, x2)


@op(accepts=NUMERIC)
def positive(x: Like[D, V, R], /) -> Tensor[D, V, R]:
    """+x: a new tensor of the same values.

    >>> positive([1, -2]).tolist()
    [1, -2]
    """
    return unary("positive", x)


@op(accepts=NUMERIC, lift="int", arity=2)
@typed.pairing
def pow(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 to the power of x2; integers take no negative exponents.

    >>> pow([2, 3], [3, 2]).tolist()
    [8, 9]
    """
    return binary(POW, x1, x2)


@op(accepts=NUMERIC, result="real")
def real(x: LikeParts[D, V, R], /) -> Tensor[D, V, R]:
    """Real part; real numbers stay as they are.

    >>> real([1 + 2j]).tolist()
    [1.0]
    """
    return unary("real", x)


@op(accepts=FLOATING, lift="float")
def reciprocal(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """1 / x.

    >>> reciprocal([4.0]).tolist()
    [0.25]
    """
    return unary("reciprocal", x)


@op(accepts=REAL, lift="int", arity=2)
@typed.pairing
def remainder(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The rest of floor division, with the sign of x2.

    >>> remainder([7, -7], [3, 3]).tolist()
    [1, 2]
    """
    return binary(REMAINDER, x1, x2)


@op(accepts=NUMERIC)
def round(x: Like[D, V, R], /) -> Tensor[D, V, R]:
    """Rounded to the nearest whole number, halves to even.

    >>> round([0.5, 1.5]).tolist()
    [0.0, 2.0]
    """
    return unary("round", x)


@op(accepts=NUMERIC)
def sign(x: Like[D, V, R], /) -> Tensor[D, V, R]:
    """-1, 0 or 1; x / abs(x) for complex numbers.

    >>> sign([-3.0, 0.0, 2.0]).tolist()
    [-1.0, 0.0, 1.0]
    """
    return unary("sign", x)


@op(accepts=REAL_FLOATING, lift="float", result="bool")
def signbit(x: Like[Any, V, R], /) -> Tensor[Bool, V, R]:
    """True where the sign bit is set, as in -0.0.

    >>> signbit([-0.0, 1.0]).tolist()
    [True, False]
    """
    return unary("signbit", x)


@op(accepts=FLOATING, lift="float")
def sin(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Sine of radians.

    >>> sin([0.0]).tolist()
    [0.0]
    """
    return unary("sin", x)


@op(accepts=FLOATING, lift="float")
def sinh(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Hyperbolic sine.

    >>> sinh([0.0]).tolist()
    [0.0]
    """
    return unary("sinh", x)


@op(accepts=FLOATING, lift="float")
def sqrt(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Square root.

    >>> sqrt([9.0]).tolist()
    [3.0]
    """
    return unary("sqrt", x)


@op(accepts=NUMERIC)
def square(x: Like[D, V, R], /) -> Tensor[D, V, R]:
    """x * x.

    >>> square([3, -2]).tolist()
    [9, 4]
    """
    return unary("square", x)


@op(accepts=NUMERIC, arity=2)
@typed.pairing
def subtract(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 - x2.

    >>> subtract([1.0, 2.0], 1).tolist()
    [0.0, 1.0]
    """
    return binary(SUBTRACT, x1, x2)


@op(accepts=FLOATING, lift="float")
def tan(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Tangent of radians.

    >>> tan([0.0]).tolist()
    [0.0]
    """
    return unary("tan", x)


@op(accepts=FLOATING, lift="float")
def tanh(x: LikeFloat[D, V, R], /) -> Tensor[D, V, R]:
    """Hyperbolic tangent.

    >>> tanh([0.0]).tolist()
    [0.0]
    """
    return unary("tanh", x)


@op(accepts=REAL)
def trunc(x: Like[D, V, R], /) -> Tensor[D, V, R]:
    """Rounded towards zero; integers stay as they are.

    >>> trunc([1.8, -1.8]).tolist()
    [1.0, -1.0]
    """
    return unary("trunc", x)
