"""Factorisations: JAX returns NaN where NumPy raises, and symmetrises what NumPy reads half of."""

from __future__ import annotations

from typing import Final

import jax.numpy as jnp
import numpy as np
from jax import lax

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.jax.kernels import readable
from ember_ml.errors import LinAlgError

__all__ = ["OVERRIDES"]


def _all_finite(x: NativeArray) -> bool:
    return bool(np.isfinite(np.asarray(x)).all())


def _require_pivots(name: str, x: NativeArray, out: NativeArray) -> None:
    """Raise where a pivot is exactly zero; a result that is finite tells that none is."""
    if readable(out) and not _all_finite(out):
        pivots = jnp.linalg.diagonal(lax.linalg.lu(x)[0])
        if not np.asarray(pivots).all():
            raise LinAlgError(f"ops.{name} got a singular matrix")


def _require_finite(name: str, x: NativeArray) -> None:
    if readable(x) and not _all_finite(x):
        raise LinAlgError(f"ops.{name} takes finite numbers, not NaN or infinity")


def cholesky(x: NativeArray, upper: bool) -> NativeArray:
    _require_finite("linalg.cholesky", x)
    # Read one triangle only, as LAPACK does: the upper one as the lower of the adjoint.
    half = jnp.conj(jnp.matrix_transpose(x)) if upper else x
    out = lax.linalg.cholesky(half, symmetrize_input=False)
    if readable(out) and np.isnan(np.asarray(out)).any():
        raise LinAlgError("ops.linalg.cholesky got a matrix that is not positive definite")
    return jnp.conj(jnp.matrix_transpose(out)) if upper else out


def eig(x: NativeArray) -> tuple[NativeArray, ...]:
    _require_finite("linalg.eig", x)
    return tuple(jnp.linalg.eig(x))


def eigvals(x: NativeArray) -> NativeArray:
    _require_finite("linalg.eigvals", x)
    return jnp.linalg.eigvals(x)


def eigh(x: NativeArray) -> tuple[NativeArray, ...]:
    _require_finite("linalg.eigh", x)
    return tuple(jnp.linalg.eigh(x, "L", symmetrize_input=False))


def eigvalsh(x: NativeArray) -> NativeArray:
    _require_finite("linalg.eigvalsh", x)
    return jnp.linalg.eigvalsh(x, "L", symmetrize_input=False)


def inv(x: NativeArray) -> NativeArray:
    out = jnp.linalg.inv(x)
    _require_pivots("linalg.inv", x, out)
    return out


def solve(x: NativeArray, y: NativeArray) -> NativeArray:
    out = jnp.linalg.solve(x, y)
    _require_pivots("linalg.solve", x, out)
    return out


def svd(x: NativeArray, full_matrices: bool) -> tuple[NativeArray, ...]:
    _require_finite("linalg.svd", x)
    return tuple(jnp.linalg.svd(x, full_matrices=full_matrices))


def svdvals(x: NativeArray) -> NativeArray:
    _require_finite("linalg.svdvals", x)
    return jnp.linalg.svdvals(x)


OVERRIDES: Final[dict[str, Kernel]] = {
    f"linalg.{kernel.__name__}": kernel
    for kernel in (cholesky, eig, eigvals, eigh, eigvalsh, inv, solve, svd, svdvals)
}
