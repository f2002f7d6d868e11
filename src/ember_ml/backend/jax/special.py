"""Special functions on JAX, which keeps them beside its arrays' namespace.

Its gammaln and digamma lose all digits near their roots and digamma has no sign at zero, so these
two are the portable formulas with JAX's own derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.portable.special import FORMULAS, Maths

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
        wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
        return formula(_maths(wide.dtype), wide).astype(x.dtype)

    function: Any = jax.custom_jvp(run)
    function.defjvp(lambda x, dx: (function(*x), dx[0] * slope(x[0])))
    kernel: Kernel = jax.jit(function)
    return kernel


def _trigamma(x: NativeArray) -> NativeArray:
    return special.polygamma(1, x)


_digamma = _with_slope("digamma", _trigamma)

OVERRIDES: Final[dict[str, Kernel]] = {
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "lgamma": _with_slope("lgamma", _digamma),
    "digamma": _digamma,
}
