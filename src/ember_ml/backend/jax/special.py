"""Special functions, which JAX keeps beside its arrays' namespace."""

from __future__ import annotations

from typing import Final

from jax.scipy import special

from ember_ml.backend.contract import Kernel

__all__ = ["OVERRIDES"]

OVERRIDES: Final[dict[str, Kernel]] = {
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "lgamma": special.gammaln,
    "digamma": special.digamma,
}
