"""Where MLX differs from the standard element by element."""

from __future__ import annotations

import math
import threading
from typing import Any, Final

import mlx.core as mx

from ember_ml.backend import checks
from ember_ml.backend.contract import Kernel
from ember_ml.backend.mlx.hosting import evaluated
from ember_ml.backend.mlx.slopes import (
    choosing,
    extreme,
    limited,
    one,
    with_pulls,
    with_slopes,
    zero,
)
from ember_ml.backend.portable.arithmetic import sinc_slope
from ember_ml.errors import DomainError, IntegerDivisionError

__all__ = [
    "BATCHING",
    "COMPLEX",
    "FLOAT64",
    "INTEGERS",
    "OVERRIDES",
    "WIDE",
    "batched",
    "exp64",
    "through_float32",
    "values_known",
]

Array = Any  # mx.array; its operators are untyped

# The integers with the bits of a floating dtype.
_BITS: Final = {2: mx.int16, 4: mx.int32, 8: mx.int64}


def values_known(x: Array) -> bool:
    """True where checks that read values run: eager, and where the user has them."""
    where = checks.mode()
    on_cpu = mx.default_device().type == mx.DeviceType.cpu
    return (where == "all" or (where != "none" and on_cpu)) and evaluated(x)


# --- Signs and bits -------------------------------------------------------------------------


def _bits(x: Array) -> Array:
    return mx.view(mx.stop_gradient(x), _BITS[x.dtype.size])


def signbit(x: Array) -> Array:
    bits = _bits(x)
    return mx.less(bits, mx.array(0, dtype=bits.dtype))


def copysign(x: Array, y: Array) -> Array:
    size = mx.abs(x)
    return mx.where(signbit(y), -size, size)


def sign(x: Array) -> Array:
    return mx.where(x == x, mx.sign(x), x)  # MLX gives 0 for NaN


def nextafter(x: Array, y: Array) -> Array:
    """One step of the bits towards y: away from zero is up, for either sign."""
    x, y = mx.broadcast_arrays(mx.stop_gradient(x), mx.stop_gradient(y))
    bits = _bits(x)
    one = mx.array(1, dtype=bits.dtype)
    outwards = (x > 0) == (y > x)
    stepped = mx.where(outwards, bits + one, bits - one)
    smallest = copysign(mx.view(mx.broadcast_to(one, x.shape), x.dtype), y)
    out = mx.where(x == 0, smallest, mx.view(stepped, x.dtype))
    out = mx.where(x == y, y, out)
    return mx.where(mx.logical_or(x != x, y != y), x + y, out)


# --- Division -------------------------------------------------------------------------------


def remainder(x: Array, y: Array) -> Array:
    rest = mx.remainder(x, y)
    return mx.where(rest == 0, copysign(mx.zeros_like(rest), y), rest)  # MLX drops the sign


def floor_divide(x: Array, y: Array) -> Array:
    """By the remainder, which is exact: the quotient may round up to a whole number."""
    rest = mx.remainder(x, y)
    quotient = (x - rest) / y
    whole = mx.floor(quotient)
    whole = mx.where(quotient - whole > 0.5, whole + 1, whole)
    whole = mx.where(whole == 0, copysign(mx.zeros_like(whole), x / y), whole)
    # By zero and with one infinity, the standard gives what division gives.
    numbers = mx.logical_and(x == x, y == y)
    one_infinite = mx.logical_and(mx.isinf(x) != mx.isinf(y), numbers)
    lost = mx.logical_or(y == 0, one_infinite)
    return mx.where(lost, x / y, whole)


def _divisor(name: str, x: Array, y: Array) -> tuple[Array, Array | None]:
    """A divisor that the processor takes, and where it stands for -1.

    Zero and the smallest integer by -1 end the process.
    """
    if values_known(y):
        if mx.any(y == 0).item():
            raise IntegerDivisionError(f"ops.{name} got an integer divisor of zero")
    else:
        y = mx.where(y == 0, mx.array(1, dtype=y.dtype), y)
    if mx.issubdtype(y.dtype, mx.unsignedinteger):
        return y, None
    minus = y == -1
    return mx.where(minus, mx.array(1, dtype=y.dtype), y), minus


def integer_floor_divide(x: Array, y: Array) -> Array:
    divisor, minus = _divisor("floor_divide", x, y)
    out = mx.floor_divide(x, divisor)
    return out if minus is None else mx.where(minus, -x, out)


def integer_remainder(x: Array, y: Array) -> Array:
    return mx.remainder(x, _divisor("remainder", x, y)[0])


# --- Integers -------------------------------------------------------------------------------


def integer_pow(x: Array, y: Array) -> Array:
    if mx.issubdtype(y.dtype, mx.signedinteger) and values_known(y) and mx.any(y < 0).item():
        raise DomainError("ops.pow takes no negative integer exponents for integers; cast to float")
    return mx.power(x, y)


class _Batching(threading.local):
    """How many batches of mx.vmap this thread is in."""

    depth = 0


BATCHING: Final = _Batching()


def batched(x: Array, like: Array) -> Array:
    """`x` with the batch of `like`, where mx.vmap is wrong about arrays that have none."""
    if not BATCHING.depth:
        return x
    return mx.where(mx.any(like == like), x, x)  # what is chosen by values of a batch has it


def _bitwise(function: Kernel) -> Kernel:
    """An operation on bits, for which mx.vmap reads beyond an operand that has no batch."""

    def kernel(x: Array, y: Array) -> Array:
        return function(batched(x, y), batched(y, x))

    return kernel


_left_shift = _bitwise(mx.left_shift)
_right_shift = _bitwise(mx.right_shift)


def bitwise_left_shift(x: Array, y: Array) -> Array:
    inside = (y >= 0) & (y < 8 * y.dtype.size)
    zero = mx.array(0, dtype=x.dtype)
    return mx.where(inside, _left_shift(x, mx.where(inside, y, zero)), zero)


def bitwise_right_shift(x: Array, y: Array) -> Array:
    # By all bits is by all but one, twice: C leaves it undefined.
    last = mx.array(8 * y.dtype.size - 1, dtype=y.dtype)
    beyond = (y < 0) | (y > last)
    shifted = _right_shift(x, mx.where(beyond, last, y))
    return mx.where(beyond, _right_shift(shifted, mx.array(1, dtype=y.dtype)), shifted)


# --- float64: MLX computes exp, sin and cos of it in float32 ---------------------------------


_E: Final = mx.array(math.e, dtype=mx.float64)
# What float64 has rounded away of e, in parts of it: a power multiplies it by the exponent.
_E_REST: Final = 5.318237706605891e-17


def _exp64(x: Array) -> Array:
    return mx.power(_E, x) * (1 + mx.clip(x, -1000, 1000) * _E_REST)


exp64 = with_slopes(_exp64, lambda out, x: out)


@mx.custom_function
def sin64(x: Array) -> Array:
    half = mx.tan(x * 0.5)
    return 2 * half / (1 + half * half)


@mx.custom_function
def cos64(x: Array) -> Array:
    half = mx.tan(x * 0.5)
    return (1 - half) * (1 + half) / (1 + half * half)


sin64.vjp(lambda x, cotangent, _: cotangent * cos64(x))
cos64.vjp(lambda x, cotangent, _: -cotangent * sin64(x))
sin64.jvp(lambda x, tangent: tangent * cos64(x))
cos64.jvp(lambda x, tangent: -tangent * sin64(x))


def _share(x: Array, y: Array) -> Array:
    """exp(x) / (exp(x) + exp(y)); equal infinities share evenly."""
    gap = mx.where(mx.logical_and(x == y, mx.isinf(x)), mx.zeros_like(x), x - y)
    if gap.dtype != mx.float64:
        return mx.sigmoid(gap)
    return 1 / (1 + exp64(-mx.maximum(gap, -709.0)))  # where exp is finite


def _sum_of_exponentials(plain: Kernel) -> Kernel:
    return with_slopes(plain, lambda out, x, y: _share(x, y), lambda out, x, y: _share(y, x))


def _logaddexp64(x: Array, y: Array) -> Array:
    large = mx.maximum(x, y)
    gap = mx.where(x == y, mx.zeros_like(large), -mx.abs(x - y))  # equal infinities have none
    return large + mx.log1p(exp64(gap))


logaddexp64 = _sum_of_exponentials(_logaddexp64)


# --- float32 and halves -----------------------------------------------------------------------


def sin(x: Array) -> Array:
    return mx.where(x, mx.sin(x), x)  # MLX drops the sign of zero


def hypot(x: Array, y: Array) -> Array:
    """Scaled by the longer side, so that squares do not overflow; infinity wins over NaN."""
    a, b = mx.abs(x), mx.abs(y)
    large = mx.stop_gradient(mx.maximum(a, b))
    scale = mx.where(large == 0, mx.ones_like(large), large)
    length = scale * mx.sqrt(mx.square(a / scale) + mx.square(b / scale))
    infinite = mx.logical_or(mx.isinf(a), mx.isinf(b))
    return mx.where(infinite, mx.array(math.inf, dtype=length.dtype), length)


def _length(x: Array, y: Array) -> Array:
    """The distance from the origin, and one in the origin itself."""
    origin = mx.logical_and(x == 0, y == 0)
    return hypot(mx.where(origin, mx.ones_like(x), x), y)


def _base_slope(out: Array, x: Array, y: Array) -> Array:
    lost = mx.logical_and(x == 0, y == 0).astype(y.dtype)
    return y * mx.power(x, y - 1 + 2 * lost)


def _exponent_slope(out: Array, x: Array, y: Array) -> Array:
    at_zero = x == 0
    slope = out * mx.log(mx.where(at_zero, mx.ones_like(x), x))
    endless = mx.array(-math.inf, dtype=out.dtype)
    return mx.where(mx.logical_and(at_zero, y < 0), endless, slope)


def _copied(out: Array, x: Array, y: Array) -> Array:
    ones = mx.ones_like(x)
    return mx.where(x == 0, mx.zeros_like(x), mx.where(signbit(x) == signbit(y), ones, -ones))


def sinc(x: Array) -> Array:
    at_zero = x == 0
    one = mx.ones_like(x)
    angle = mx.where(at_zero, one, x) * math.pi
    sine: Array = sin64(angle) if x.dtype == mx.float64 else mx.sin(angle)
    return mx.where(at_zero, one, sine / angle)


def _sinc_slope(out: Array, x: Array) -> Array:
    return sinc_slope(mx.where, cos64 if x.dtype == mx.float64 else mx.cos, x, out)


def fmax(x: Array, y: Array) -> Array:
    return mx.where(mx.isnan(x), y, mx.where(mx.isnan(y), x, mx.maximum(x, y)))


def fmin(x: Array, y: Array) -> Array:
    return mx.where(mx.isnan(x), y, mx.where(mx.isnan(y), x, mx.minimum(x, y)))


def through_float32(kernel: Kernel) -> Kernel:
    """A kernel of several steps for 16-bit floats, rounded once."""

    def run(*args: Any, **options: Any) -> Array:
        dtype = next(a.dtype for a in args if isinstance(a, mx.array))
        wide = [
            a.astype(mx.float32) if isinstance(a, mx.array) and a.dtype == dtype else a
            for a in args
        ]
        out = kernel(*wide, **options)
        return tuple(y.astype(dtype) for y in out) if isinstance(out, tuple) else out.astype(dtype)

    return run


# --- Complex numbers --------------------------------------------------------------------------


def _join(real: Array, imag: Array) -> Array:
    """Two parts as one array; arithmetic would make NaN of an infinite part."""
    return mx.view(mx.stack([real, imag], axis=-1), mx.complex64)[..., 0]


_complex: Any = mx.custom_function(_join)  # a view has no gradient of its own
_complex.vjp(lambda parts, cotangent, _: (mx.real(cotangent), mx.imag(cotangent)))


def complex_expm1(x: Array) -> Array:
    real, imag = mx.real(x), mx.imag(x)
    out = mx.exp(x) - 1
    # cos(b) - 1 as -2 sin(b/2)**2 does not cancel.
    half = mx.sin(imag * 0.5)
    fine_real = mx.expm1(real) * mx.cos(imag) - 2 * half * half
    fine_imag = mx.exp(real) * mx.sin(imag)
    fine = mx.isfinite(fine_real) & mx.isfinite(fine_imag)
    out = mx.where(fine, _complex(fine_real, fine_imag), out)
    return mx.where(imag == 0, _complex(mx.expm1(real) + 0.0, imag), out)


def complex_sign(x: Array) -> Array:
    real, imag = mx.real(x), mx.imag(x)
    wide_real, wide_imag = mx.isinf(real), mx.isinf(imag)
    zero = mx.zeros_like(real)
    # One infinite part decides the direction.
    real = mx.where(wide_real != wide_imag, mx.where(wide_real, mx.sign(real), zero), real)
    imag = mx.where(wide_real != wide_imag, mx.where(wide_imag, mx.sign(imag), zero), imag)
    out = mx.sign(_complex(real, imag))
    out = mx.where(x == 0, mx.zeros_like(x), out)
    lost = mx.real(x) + mx.imag(x)
    return mx.where(x == x, out, _complex(lost, lost))


def complex_tanh(x: Array) -> Array:
    real, imag = mx.real(x), mx.imag(x)
    # At infinity the sign of the imaginary zero is that of the angle, not of sin(2 * angle).
    limit = _complex(copysign(mx.ones_like(real), real), copysign(mx.zeros_like(imag), imag))
    return mx.where(mx.isinf(real) & mx.isfinite(imag), limit, mx.tanh(x))


def complex_pow(x: Array, y: Array) -> Array:
    return mx.where(y == 0, mx.ones_like(x), mx.power(x, y))  # MLX gives NaN for 0 ** 0


def _complex_base(g: Array, out: Array, x: Array, y: Array) -> Array:
    lost = mx.logical_and(x == 0, y == 0)
    power = mx.power(x, mx.where(lost, mx.ones_like(y), y - 1))
    return g * mx.conj(y * power)


def _complex_exponent(g: Array, out: Array, x: Array, y: Array) -> Array:
    return g * mx.conj(out * mx.log(mx.where(x == 0, mx.ones_like(x), x)))


def _across(g: Array, out: Array, x: Array) -> Array:
    """The part of a gradient across a direction, over the distance; MLX gives zero."""
    size = mx.abs(x)
    turn = mx.imag(mx.conj(out) * g) / mx.where(size == 0, mx.ones_like(size), size)
    return out * _complex(mx.zeros_like(turn), turn)


OVERRIDES: Final[dict[str, Kernel]] = {
    # The methods of arrays are the same ops as the functions, found with fewer questions.
    "add": mx.array.__add__,
    "subtract": mx.array.__sub__,
    "multiply": mx.array.__mul__,
    "divide": mx.array.__truediv__,
    "matmul": mx.array.__matmul__,
    "signbit": signbit,
    "sign": sign,
    "sin": sin,
    "clip": limited,
    "atan2": with_slopes(
        mx.arctan2,
        lambda out, x, y: y / _length(x, y) / _length(x, y),
        lambda out, x, y: -x / _length(x, y) / _length(x, y),
    ),
    "copysign": with_slopes(copysign, _copied, zero),
    "floor_divide": with_slopes(floor_divide, zero, zero),
    "fmax": choosing(fmax, mx.greater_equal),
    "fmin": choosing(fmin, mx.less_equal),
    "hypot": with_slopes(
        hypot, lambda out, x, y: x / _length(x, y), lambda out, x, y: y / _length(x, y)
    ),
    "logaddexp": _sum_of_exponentials(mx.logaddexp),
    "maximum": extreme(mx.maximum, mx.less),
    "minimum": extreme(mx.minimum, mx.greater),
    "nextafter": with_slopes(nextafter, lambda out, x, y: (x != y).astype(out.dtype), zero),
    "pow": with_slopes(mx.power, _base_slope, _exponent_slope),
    "sinc": with_slopes(sinc, _sinc_slope),
    "remainder": with_slopes(remainder, one, lambda out, x, y: -floor_divide(x, y)),
}

INTEGERS: Final[dict[str, Kernel]] = {
    "floor_divide": integer_floor_divide,
    "remainder": integer_remainder,
    "pow": integer_pow,
    "fmax": mx.maximum,
    "fmin": mx.minimum,
    "maximum": mx.maximum,
    "minimum": mx.minimum,
    "sign": mx.sign,
    "bitwise_and": _bitwise(mx.bitwise_and),
    "bitwise_left_shift": bitwise_left_shift,
    "bitwise_or": _bitwise(mx.bitwise_or),
    "bitwise_right_shift": bitwise_right_shift,
    "bitwise_xor": _bitwise(mx.bitwise_xor),
}

FLOAT64: Final[dict[str, Kernel]] = {
    "exp": exp64,
    "sin": sin64,
    "cos": cos64,
    "logaddexp": logaddexp64,
    # The derivatives of these go through float32.
    "log2": with_slopes(mx.log2, lambda out, x: 1 / (x * math.log(2))),
    "log10": with_slopes(mx.log10, lambda out, x: 1 / (x * math.log(10))),
    "tan": with_slopes(mx.tan, lambda out, x: 1 + mx.square(out)),
}

COMPLEX: Final[dict[str, Kernel]] = {
    "expm1": complex_expm1,
    "sign": with_pulls(complex_sign, _across),
    "sin": mx.sin,
    "tanh": complex_tanh,
    # MLX turns the gradient of the base the wrong way.
    "pow": with_pulls(complex_pow, _complex_base, _complex_exponent),
}

# Ops of several steps, which lose digits in 16-bit floats.
WIDE: Final = frozenset(
    ("cumulative_prod", "cumulative_sum", "floor_divide", "hypot", "logaddexp", "mean", "var")
)
