"""Factorisations: JAX returns NaN where NumPy raises, and symmetrises what NumPy reads half of."""

from __future__ import annotations

from functools import partial
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ember_ml.backend import exponential
from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.jax import kernels
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


# --- Beyond the standard ----------------------------------------------------------------------


def solve_triangular(a: NativeArray, b: NativeArray, lower: bool, unit: bool) -> NativeArray:
    # XLA takes stacks of one shape only.
    stack = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left = jnp.broadcast_to(a, (*stack, *a.shape[-2:]))
    right = jnp.broadcast_to(b, (*stack, *b.shape[-2:]))
    return lax.linalg.triangular_solve(left, right, left_side=True, lower=lower, unit_diagonal=unit)


def lu_factor(x: NativeArray) -> tuple[NativeArray, ...]:
    _require_finite("linalg.lu_factor", x)
    both, pivots, _ = lax.linalg.lu(x)
    return both, pivots.astype(np.int64)


def permutation_of_pivots(pivots: NativeArray, rows: int) -> NativeArray:
    order = lax.linalg.lu_pivots_to_permutation(pivots.astype(np.int32), rows)
    return order.astype(np.int64)


def expm(x: NativeArray) -> NativeArray:
    if not x.size:
        return kernels.copy(x)
    counts = _squarings(x)
    # XLA loops a number of times that is known beforehand, for the sake of gradients.
    steps = _TRACED
    if readable(counts):
        most = int(np.asarray(counts).max())
        steps = next(bound for bound in _STEPS if most <= bound)
    return _squared(x, counts, steps)


# Every double is below 2 ** 1024; beyond 2 ** 64, which only tracing meets, the result is NaN.
_TRACED: Final = 64
_STEPS: Final = (0, 4, 16, _TRACED, 1024)


@jax.jit
def _squarings(x: NativeArray) -> NativeArray:
    with jax.default_matmul_precision("highest"):
        return exponential.squarings(jnp, lax.stop_gradient(x))


@partial(jax.jit, static_argnums=2)
def _squared(x: NativeArray, counts: NativeArray, steps: int) -> NativeArray:
    counts = counts[..., None, None]
    finite = jnp.isfinite(x).all((-2, -1), keepdims=True) & (counts <= steps)

    def square(out: NativeArray, step: NativeArray) -> tuple[NativeArray, None]:
        more = step < counts
        doubled = lax.cond(
            more.any(), lambda x: jnp.where(more, jnp.matmul(x, x), x), lambda x: x, out
        )
        return doubled, None

    with jax.default_matmul_precision("highest"):
        scaled = jnp.where(finite, x, 0) * jnp.exp2(-counts).astype(x.dtype)
        above, below = exponential.approximant(jnp, scaled)
        out = jnp.linalg.solve(below, above)
        out, _ = lax.scan(square, out, jnp.arange(steps, dtype=counts.dtype))
    return jnp.where(finite, out, jnp.nan)


OVERRIDES: Final[dict[str, Kernel]] = {
    f"linalg.{kernel.__name__}": kernel
    for kernel in (cholesky, eig, eigvals, eigh, eigvalsh, inv, solve, svd, svdvals)
} | {
    f"linalg.{kernel.__name__}": kernel
    for kernel in (solve_triangular, lu_factor, permutation_of_pivots, expm)
}
