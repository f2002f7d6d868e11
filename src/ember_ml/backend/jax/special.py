"""Special functions on JAX, which keeps them beside its arrays' namespace.

Its gammaln and digamma lose all digits near their roots and digamma has no sign at zero, so these
two are the portable formulas, with their derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.portable.special import FORMULAS, Maths, trigamma

__all__ = ["OVERRIDES"]


def _maths(dtype: Any) -> Maths:
    return Maths(
        wide=dtype == np.float64,
        number=np.dtype(dtype).type,
        abs=jnp.abs,
        exp=jnp.exp,
        floor=jnp.floor,
        log=jnp.log,
        minimum=jnp.minimum,
        sin=jnp.sin,
        sqrt=jnp.sqrt,
        where=jnp.where,
    )


def _with_slope(name: str, slope: Callable[[NativeArray], NativeArray]) -> Kernel:
    formula = FORMULAS[name]

    def run(x: NativeArray) -> NativeArray:
        wide = _wide(x)
        return formula(_maths(wide.dtype), wide).astype(x.dtype)

    function: Any = jax.custom_jvp(run)
    function.defjvp(lambda x, dx: (function(*x), dx[0] * slope(x[0])))
    kernel: Kernel = jax.jit(function)
    return kernel


def _trigamma(x: NativeArray) -> NativeArray:
    wide = _wide(x)  # JAX's own has no value at infinity
    return trigamma(_maths(wide.dtype), wide).astype(x.dtype)


@partial(jax.jit, static_argnums=(1, 2))
def logsumexp(x: NativeArray, axes: tuple[int, ...], keepdims: bool) -> NativeArray:
    return jax.nn.logsumexp(_wide(x), axes, keepdims=keepdims).astype(x.dtype)


@partial(jax.jit, static_argnums=1)
def cumulative_logsumexp(x: NativeArray, axis: int) -> NativeArray:
    wide = _wide(x)
    # Before the first number, sums are -inf, which have no difference: values have no slope there.
    lowest = np.finfo(wide.dtype).min
    out = jax.lax.cumlogsumexp(jnp.where(wide < lowest, lowest, wide), axis)
    return jnp.where(out <= lowest, -jnp.inf, out).astype(x.dtype)


def _wide(x: NativeArray) -> NativeArray:
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


_digamma = _with_slope("digamma", _trigamma)

_erfinv64 = _with_slope(
    "erfinv", lambda x: jnp.exp(jnp.square(special.erfinv(x))) * (math.sqrt(math.pi) / 2)
)


def erfinv(x: NativeArray) -> NativeArray:
    # JAX's own is a fit that is off by some twenty places in float64.
    return _erfinv64(x) if x.dtype == np.float64 else special.erfinv(x)


OVERRIDES: Final[dict[str, Kernel]] = {
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": erfinv,
    "lgamma": _with_slope("lgamma", _digamma),
    "digamma": _digamma,
    "logsumexp": logsumexp,
    "cumulative_logsumexp": cumulative_logsumexp,
}
