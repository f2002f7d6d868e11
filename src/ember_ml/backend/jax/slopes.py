"""Kernels whose gradients JAX has otherwise: at ties, at zero, at infinity, or not at all.

Forward they are JAX's own. Their derivatives are those of the rules in autodiff/rules, in which
nothing overflows and nothing that is not taken makes NaN of what is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.portable.arithmetic import sinc_slope

__all__ = ["KERNELS", "settled_far", "with_slopes"]

Array = NativeArray
# From the result and the operands to what the tangent of one operand is multiplied by.
Slope = Callable[..., Any]


def with_slopes(function: Kernel, *slopes: Slope) -> Kernel:
    """A function of arrays with a derivative for each of them, compiled."""
    custom: Any = jax.custom_jvp(function)

    def forward(operands: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
        y = custom(*operands)
        total = jnp.zeros_like(y)
        for slope, tangent in zip(slopes, tangents, strict=True):
            if not isinstance(tangent, SymbolicZero):
                total = total + slope(y, *operands) * tangent
        return y, total

    custom.defjvp(forward, symbolic_zeros=True)
    return jax.jit(custom, inline=True)


def _zero(y: Array, *operands: Array) -> float:
    return 0.0


def _one(y: Array, *operands: Array) -> float:
    return 1.0


# --- One operand ------------------------------------------------------------------------------


def settled_far(kernel: Kernel, limit: float) -> Kernel:
    """An activation that is x above some limit and zero below its negative, in which infinities
    meet no zeros on the way back.
    """

    def run(x: Array, *options: Any) -> Array:
        near = jnp.abs(x) < limit
        inner = kernel(jnp.where(near, x, 0), *options)
        return jnp.where(near, inner, jnp.where(x > 0, x, x * 0))

    return run


_abs = with_slopes(jnp.abs, lambda y, x: jnp.sign(x))
_cbrt: Kernel = with_slopes(jnp.cbrt, lambda y, x: 1 / (3 * _cbrt(x) ** 2))
_sinc: Kernel = with_slopes(
    lambda x: jnp.sinc(x), lambda y, x: sinc_slope(jnp.where, jnp.cos, x, _sinc(x))
)


# --- Two operands -----------------------------------------------------------------------------


def _power(x: Array, y: Array) -> Array:
    return jnp.power(x, y)


def _base_slope(out: Array, x: Array, y: Array) -> Array:
    lost = (x == 0) & (y == 0)
    return y * _pow(x, jnp.where(lost, 1, y - 1))


def _exponent_slope(out: Array, x: Array, y: Array) -> Array:
    zero = x == 0
    slope = _pow(x, y) * jnp.log(jnp.where(zero, 1, x))
    return jnp.where(zero & (y < 0), -math.inf, slope)


_pow = with_slopes(_power, _base_slope, _exponent_slope)


def _share(x: Array, y: Array) -> Array:
    """exp(x) / (exp(x) + exp(y)); equal infinities share evenly."""
    return jax.nn.sigmoid(jnp.where((x == y) & jnp.isinf(x), 0, x - y))


_logaddexp = with_slopes(
    lambda x, y: jnp.logaddexp(x, y),
    lambda out, x, y: _share(x, y),
    lambda out, x, y: _share(y, x),
)


def _length(x: Array, y: Array) -> Array:
    """The distance from the origin, and one in the origin itself."""
    origin = (x == 0) & (y == 0)
    return _hypot(jnp.where(origin, 1, x), y)


_hypot = with_slopes(
    lambda x, y: jnp.hypot(x, y),
    lambda out, x, y: x / _length(x, y),
    lambda out, x, y: y / _length(x, y),
)
_atan2 = with_slopes(
    lambda x, y: jnp.atan2(x, y),
    lambda out, x, y: y / _length(x, y) / _length(x, y),
    lambda out, x, y: -x / _length(x, y) / _length(x, y),
)


def _copied(out: Array, x: Array, y: Array) -> Array:
    return jnp.where(x == 0, 0, jnp.where(jnp.signbit(x) == jnp.signbit(y), 1.0, -1.0))


def _choosing(function: Kernel, ahead: Kernel) -> Kernel:
    def first(out: Array, x: Array, y: Array) -> Array:
        return (ahead(x, y) | jnp.isnan(y)).astype(out.dtype)

    return with_slopes(function, first, lambda out, x, y: 1 - first(out, x, y))


# --- Division ---------------------------------------------------------------------------------


def _quotient(x: Array, y: Array) -> Array:
    quotient = x / y
    out = jnp.floor_divide(x, y)
    # JAX gives NaN for an infinite dividend, -1 for an infinite divisor of the other sign, and
    # zeros without the sign of the quotient; before 0.10, NaN for a divisor of zero.
    far = ((jnp.isinf(x) ^ jnp.isinf(y)) & ~(jnp.isnan(x) | jnp.isnan(y))) | (y == 0)
    return jnp.where(far, quotient, jnp.where(out == 0, jnp.copysign(0.0, quotient), out))


_floor_divide = with_slopes(_quotient, _zero, _zero)


def _rest(x: Array, y: Array) -> Array:
    out = jnp.remainder(x, y)
    return jnp.where(out == 0, jnp.copysign(0.0, y), out)  # a zero has the sign of y


_remainder = with_slopes(_rest, _one, lambda out, x, y: -_floor_divide(x, y))


# --- Limits -----------------------------------------------------------------------------------


def _limited(x: Array, low: Array | None, high: Array | None) -> Array:
    """The limits are part of the range, as they are not where two maxima meet; NaN stays."""
    if low is not None:
        x = jnp.where((x >= low) | jnp.isnan(x), x, low)
    if high is not None:
        x = jnp.where((x <= high) | jnp.isnan(x), x, high)
    return x


# Kernels of real floating dtypes, by op name.
KERNELS: Final[dict[str, Kernel]] = {
    "abs": _abs,
    "atan2": _atan2,
    "cbrt": _cbrt,
    "clip": jax.jit(_limited),
    "copysign": with_slopes(lambda x, y: jnp.copysign(x, y), _copied, _zero),
    "floor_divide": _floor_divide,
    "fmax": _choosing(lambda x, y: jnp.fmax(x, y), jnp.greater_equal),
    "fmin": _choosing(lambda x, y: jnp.fmin(x, y), jnp.less_equal),
    "hypot": _hypot,
    "logaddexp": _logaddexp,
    "nextafter": with_slopes(lambda x, y: jnp.nextafter(x, y), lambda out, x, y: x != y, _zero),
    "pow": _pow,
    "remainder": _remainder,
    "sinc": _sinc,
}
