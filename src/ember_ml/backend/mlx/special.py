"""Special functions on MLX: the portable formulas, with their derivatives.

mx.erf is off by thousands of units in the last place near zero, and loses the sign of zero; mx.erf
and mx.erfinv of float64 run in float32; the others do not exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import mlx.core as mx

from ember_ml.backend.contract import Kernel
from ember_ml.backend.mlx.elementwise import exp64, logaddexp64, sin64
from ember_ml.backend.portable.special import FORMULAS, Maths, trigamma

__all__ = ["OVERRIDES"]

Array = Any  # mx.array; its operators are untyped


def _maths(wide: bool) -> Maths:
    dtype = mx.float64 if wide else mx.float32
    return Maths(
        wide=wide,
        number=lambda value: mx.array(value, dtype=dtype),
        abs=mx.abs,
        exp=exp64 if wide else mx.exp,
        floor=mx.floor,
        log=mx.log,
        minimum=mx.minimum,
        sin=sin64 if wide else mx.sin,
        sqrt=mx.sqrt,
        where=mx.where,
    )


_NARROW: Final = _maths(False)
_WIDE: Final = _maths(True)


def _run(formula: Callable[[Maths, Array], Array], x: Array) -> Array:
    if x.dtype == mx.float64:
        return formula(_WIDE, x)
    return formula(_NARROW, x.astype(mx.float32)).astype(x.dtype)


def _with_slope(name: str, slope: Callable[[Array, Array], Array]) -> Kernel:
    """A formula whose derivative is `slope(x, f(x))`: that of a choice of branches would be NaN."""
    formula = FORMULAS[name]
    function: Any = mx.custom_function(lambda x: _run(formula, x))
    function.vjp(lambda x, cotangent, out: cotangent * slope(x, out))
    function.jvp(lambda x, tangent: tangent * slope(x, function(x)))

    def kernel(x: Array) -> Array:
        return function(x)

    return kernel


def _bell(x: Array) -> Array:
    """The derivative of erf."""
    square = -mx.square(x)
    bell = exp64(square) if x.dtype == mx.float64 else mx.exp(square)
    return bell * (2 / math.sqrt(math.pi))


# --- Sums of exponentials: in float64 MLX computes them in float32 -----------------------------


def logsumexp(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    if not axes:
        return mx.array(x)
    if not x.size:  # MLX refuses to reduce nothing, also along other axes
        return mx.sum(x, axis=axes, keepdims=keepdims)
    if x.dtype != mx.float64:
        return mx.logsumexp(x.astype(mx.float32), axes, keepdims).astype(x.dtype)
    largest = mx.stop_gradient(mx.max(x, axis=axes, keepdims=True))
    largest = mx.where(mx.isfinite(largest), largest, mx.zeros_like(largest))
    out = mx.log(mx.sum(exp64(x - largest), axis=axes, keepdims=True)) + largest
    return out if keepdims else mx.squeeze(out, axes)


def cumulative_logsumexp(x: Array, axis: int) -> Array:
    wide = x if x.dtype == mx.float64 else x.astype(mx.float32)
    # Before the first number, sums are -inf, which have no difference: values have no slope there.
    lowest = mx.array(float(mx.finfo(wide.dtype).min), dtype=wide.dtype)
    wide = mx.where(wide < lowest, lowest, wide)
    out = _running(wide, axis) if x.dtype == mx.float64 else mx.logcumsumexp(wide, axis=axis)
    return mx.where(out <= lowest, mx.array(-math.inf, dtype=out.dtype), out).astype(x.dtype)


def _running(x: Array, axis: int) -> Array:
    step = 1
    while step < x.shape[axis]:  # each step adds what lies twice as far back
        gap = mx.full((*x.shape[:axis], step, *x.shape[axis + 1 :]), -math.inf, dtype=x.dtype)
        behind = x[(*(slice(None),) * axis, slice(None, -step))]
        x = logaddexp64(x, mx.concatenate([gap, behind], axis=axis))
        step *= 2
    return x


OVERRIDES: Final[dict[str, Kernel]] = {
    "logsumexp": logsumexp,
    "cumulative_logsumexp": cumulative_logsumexp,
    "erf": _with_slope("erf", lambda x, out: _bell(x)),
    "erfc": _with_slope("erfc", lambda x, out: -_bell(x)),
    "erfinv": _with_slope("erfinv", lambda x, out: 1 / _bell(out)),
    "digamma": _with_slope("digamma", lambda x, out: _run(trigamma, x)),
    "lgamma": _with_slope("lgamma", lambda x, out: _run(FORMULAS["digamma"], x)),
}
