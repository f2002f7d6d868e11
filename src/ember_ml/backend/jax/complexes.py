"""Complex functions at zeros, infinities and NaN, where XLA departs from the standard.

XLA is right for ordinary arguments, but loses the sign of zeros, and so takes the wrong side of
branch cuts, and gives NaN for most infinities. Every function here is symmetric: its argument is
folded into a half-plane or a quadrant, XLA computes, values at the rim are put right, and the
signs are unfolded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import jax
import jax.numpy as jnp
from jax import lax

from ember_ml.backend.contract import Kernel, NativeArray

__all__ = ["KERNELS"]

Parts = tuple[NativeArray, NativeArray]
# From the parts of the folded argument and of XLA's result to the parts of the right one.
Repair = Callable[[NativeArray, NativeArray, NativeArray, NativeArray], Parts]


def _negative(x: NativeArray) -> NativeArray:
    return jnp.signbit(x) & ~jnp.isnan(x)


def _flip(condition: NativeArray, x: NativeArray) -> NativeArray:
    return jnp.where(condition, -x, x)


def _conjugate(function: Kernel, repair: Repair) -> Kernel:
    """A function with f(conj(z)) = conj(f(z)), computed in the upper half-plane."""

    def kernel(z: NativeArray) -> NativeArray:
        x, im = lax.real(z), lax.imag(z)
        below = _negative(im)
        y = _flip(below, im)
        w = function(lax.complex(x, y))
        u, v = repair(x, y, lax.real(w), lax.imag(w))
        return lax.complex(u, _flip(below, v))

    return jax.jit(kernel)


def _odd(function: Kernel, repair: Repair) -> Kernel:
    """As well f(-z) = -f(z): computed in the first quadrant."""

    def kernel(z: NativeArray) -> NativeArray:
        re, im = lax.real(z), lax.imag(z)
        left, below = _negative(re), _negative(im)
        x, y = _flip(left, re), _flip(below, im)
        w = function(lax.complex(x, y))
        u, v = repair(x, y, lax.real(w), lax.imag(w))
        return lax.complex(_flip(left, u), _flip(below, v))

    return jax.jit(kernel)


def _even(function: Kernel, repair: Repair) -> Kernel:
    """As well f(-z) = f(z): computed in the first quadrant."""

    def kernel(z: NativeArray) -> NativeArray:
        re, im = lax.real(z), lax.imag(z)
        left, below = _negative(re), _negative(im)
        x, y = _flip(left, re), _flip(below, im)
        w = function(lax.complex(x, y))
        u, v = repair(x, y, lax.real(w), lax.imag(w))
        return lax.complex(u, _flip(left ^ below, v))

    return jax.jit(kernel)


def _swapped(function: Kernel) -> Kernel:
    """The circular function of an odd hyperbolic one: f(z) = -i g(iz), which swaps parts twice."""

    def kernel(z: NativeArray) -> NativeArray:
        w = function(lax.complex(lax.imag(z), lax.real(z)))
        return lax.complex(lax.imag(w), lax.real(w))

    return jax.jit(kernel)


# --- Repairs ----------------------------------------------------------------------------------


def _exp(x: NativeArray, y: NativeArray, u: NativeArray, v: NativeArray) -> Parts:
    no_angle = ~jnp.isfinite(y)
    u = jnp.where(y == 0, jnp.exp(x), u)
    u = jnp.where(no_angle & jnp.isinf(x), jnp.where(x > 0, math.inf, 0.0), u)
    v = jnp.where(y == 0, y * _finite(jnp.exp(x)), v)
    return u, jnp.where(no_angle & (x == -math.inf), 0.0, v)


def _expm1(x: NativeArray, y: NativeArray, u: NativeArray, v: NativeArray) -> Parts:
    no_angle = ~jnp.isfinite(y)
    # Of exp(z) - 1, whose imaginary part is that of exp(z), the real part without cancellation.
    u = jnp.expm1(x) * jnp.cos(y) - 2 * jnp.square(jnp.sin(y / 2))
    # On the axis it is expm1 of the real part, but for -0.0: the standard's zero has no sign.
    # A zero less itself is +0.0, and keeps its gradient.
    line = jnp.expm1(x)
    line = jnp.where(line == 0, line - lax.stop_gradient(line), line)
    u = jnp.where(y == 0, line, u)
    u = jnp.where(no_angle & jnp.isinf(x), jnp.where(x > 0, math.inf, -1.0), u)
    v = jnp.where(y == 0, y * _finite(jnp.exp(x)), v)
    return u, jnp.where(no_angle & (x == -math.inf), 0.0, v)


def _log(x: NativeArray, y: NativeArray, u: NativeArray, v: NativeArray) -> Parts:
    return jnp.where(jnp.isinf(x) | jnp.isinf(y), math.inf, u), v


def _sqrt(x: NativeArray, y: NativeArray, u: NativeArray, v: NativeArray) -> Parts:
    no_angle = jnp.isnan(y)
    u = jnp.where((y == math.inf) | (no_angle & (x == math.inf)), math.inf, u)
    return u, jnp.where((y == math.inf) | (no_angle & (x == -math.inf)), math.inf, v)


def _one_nan(x: NativeArray, y: NativeArray) -> NativeArray:
    """Where one part is NaN and the other finite: XLA takes a large one for the whole number."""
    return (jnp.isnan(x) & jnp.isfinite(y)) | (jnp.isfinite(x) & jnp.isnan(y))


def _acos(x: NativeArray, y: NativeArray, u: NativeArray, v: NativeArray) -> Parts:
    v = jnp.where(_one_nan(x, y), math.nan, v)
    return jnp.where((x == 0) & jnp.isnan(y), math.pi / 2, u), v


def _acosh(x: NativeArray, y: NativeArray, u: NativeArray, v: NativeArray) -> Parts:
    u = jnp.where(_one_nan(x, y), math.nan, u)
    return u, jnp.where((x == 0) & jnp.isnan(y), math.pi / 2, v)


def _asinh(x: NativeArray, y: NativeArray, u: NativeArray, v: NativeArray) -> Parts:
    u = jnp.where(_one_nan(x, y), math.nan, u)
    return u, jnp.where(jnp.isnan(x) & (y == 0), 0.0, v)


def _atanh(x: NativeArray, y: NativeArray, u: NativeArray, v: NativeArray) -> Parts:
    u = jnp.where(jnp.isnan(y), jnp.where((x == 0) | (x == math.inf), 0.0, math.nan), u)
    u = jnp.where(jnp.isnan(x), jnp.where(y == math.inf, 0.0, math.nan), u)
    v = jnp.where(jnp.isnan(y) | (jnp.isnan(x) & (y != math.inf)), math.nan, v)
    return u, v


def _sinh(x: NativeArray, y: NativeArray, u: NativeArray, v: NativeArray) -> Parts:
    no_angle = ~jnp.isfinite(y)
    # XLA subtracts exponentials, which cancel out for small x.
    near, s = x < 1, jnp.minimum(x, 1)
    u = jnp.where(near, jnp.sinh(s) * jnp.cos(y), u)
    u = jnp.where(no_angle & ((x == 0) | (x == math.inf)), x, u)
    v = jnp.where(near, jnp.cosh(s) * jnp.sin(y), v)
    return u, jnp.where(y == 0, y * _finite(jnp.cosh(x)), v)


def _cosh(x: NativeArray, y: NativeArray, u: NativeArray, v: NativeArray) -> Parts:
    no_angle = ~jnp.isfinite(y)
    u = jnp.where(no_angle & (x == math.inf), math.inf, u)
    near, s = x < 1, jnp.minimum(x, 1)
    v = jnp.where(near, jnp.sinh(s) * jnp.sin(y), v)
    v = jnp.where(no_angle & (x == 0), 0.0, v)
    return u, jnp.where(y == 0, y * _finite(jnp.sinh(x)), v)


def _tanh(x: NativeArray, y: NativeArray, u: NativeArray, v: NativeArray) -> Parts:
    u = jnp.where((x == 0) & ~jnp.isfinite(y), 0.0, u)
    u = jnp.where(x == math.inf, 1.0, u)
    return u, jnp.where((x == math.inf) | (jnp.isnan(x) & (y == 0)), 0.0, v)


def _finite(x: NativeArray) -> NativeArray:
    return jnp.where(jnp.isfinite(x), x, 0.0)


# --- Functions that are no map of the plane ------------------------------------------------------


@jax.jit
def _abs(z: NativeArray) -> NativeArray:
    return jnp.where(jnp.isinf(z), math.inf, jnp.abs(z))


@jax.jit
def _sign(z: NativeArray) -> NativeArray:
    """z / abs(z); along an infinite part, the unit in its direction."""
    re, im = lax.real(z), lax.imag(z)
    far_re, far_im = jnp.isinf(re), jnp.isinf(im)
    u = jnp.where(far_re, jnp.sign(re), 0.0)
    v = jnp.where(far_im, jnp.sign(im), 0.0)
    both = far_re & far_im
    rim = lax.complex(jnp.where(both, math.nan, u), jnp.where(both, math.nan, v))
    rest = jnp.isinf(z) | (z == 0)
    inner = jnp.where(rest, 1, z)
    # JAX takes the direction for a constant, whose gradient is zero.
    return jnp.where(rest, rim, inner / jnp.abs(inner))


@jax.jit
def _pow(x: NativeArray, y: NativeArray) -> NativeArray:
    # XLA takes the angle of a zero base for the power.
    return jnp.where((x == 0) & (lax.real(y) > 0), 0.0, jnp.power(x, y))


_SINH: Final = _odd(jnp.sinh, _sinh)
_ASINH: Final = _odd(jnp.asinh, _asinh)
_TANH: Final = _odd(jnp.tanh, _tanh)
_ATANH: Final = _odd(jnp.atanh, _atanh)
_COSH: Final = _even(jnp.cosh, _cosh)


@jax.jit
def _cos(z: NativeArray) -> NativeArray:
    return _COSH(lax.complex(-lax.imag(z), lax.real(z)))


# Kernels of complex dtypes, by op name.
KERNELS: Final[dict[str, Kernel]] = {
    "abs": _abs,
    "acos": _conjugate(jnp.acos, _acos),
    "acosh": _conjugate(jnp.acosh, _acosh),
    "asin": _swapped(_ASINH),
    "asinh": _ASINH,
    "atan": _swapped(_ATANH),
    "atanh": _ATANH,
    "cos": _cos,
    "cosh": _COSH,
    "exp": _conjugate(jnp.exp, _exp),
    "expm1": _conjugate(jnp.exp, _expm1),
    "log": _conjugate(jnp.log, _log),
    "log1p": _conjugate(jnp.log1p, _log),
    "log2": _conjugate(jnp.log2, _log),
    "log10": _conjugate(jnp.log10, _log),
    "pow": _pow,
    "sign": _sign,
    "sin": _swapped(_SINH),
    "sinh": _SINH,
    "sqrt": _conjugate(jnp.sqrt, _sqrt),
    "tan": _swapped(_TANH),
    "tanh": _TANH,
}
