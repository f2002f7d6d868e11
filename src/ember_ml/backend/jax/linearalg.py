"""Factorisations: JAX returns NaN where NumPy raises, and symmetrises what NumPy reads half of."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

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
    half = _adjoint(x) if upper else x
    out = lax.linalg.cholesky(_symmetric(half), symmetrize_input=False)
    if readable(out) and np.isnan(np.asarray(out)).any():
        raise LinAlgError("ops.linalg.cholesky got a matrix that is not positive definite")
    return _adjoint(out) if upper else out


def eig(x: NativeArray) -> tuple[NativeArray, ...]:
    _require_finite("linalg.eig", x)
    return _eig(x) if isinstance(x, Tracer) else tuple(jnp.linalg.eig(x))


def eigvals(x: NativeArray) -> NativeArray:
    _require_finite("linalg.eigvals", x)
    return jnp.linalg.eigvals(x)


def eigh(x: NativeArray) -> tuple[NativeArray, ...]:
    _require_finite("linalg.eigh", x)
    return tuple(jnp.linalg.eigh(_symmetric(x), "L", symmetrize_input=False))


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
    if isinstance(x, Tracer):
        return _svd(x, full_matrices)
    return tuple(jnp.linalg.svd(x, full_matrices=full_matrices))


def det(x: NativeArray) -> NativeArray:
    # Up to three rows JAX multiplies out.
    if x.shape[-1] < 4 or not isinstance(x, Tracer):
        return jnp.linalg.det(x)
    return _det(x)


def pinv(x: NativeArray, rtol: Any) -> NativeArray:
    _require_finite("linalg.pinv", x)
    return jnp.linalg.pinv(x, rtol=rtol)


def qr(x: NativeArray, mode: str) -> tuple[NativeArray, ...]:
    rows, columns = x.shape[-2:]
    if not isinstance(x, Tracer) or (rows >= columns and mode == "reduced"):
        return tuple(jnp.linalg.qr(x, mode))
    if rows > columns:
        return _complete_qr(x)
    # Of a wide matrix JAX has no gradient: R goes on with Q.H times what is behind the square.
    q, r = jnp.linalg.qr(x[..., :rows])
    behind = jnp.matmul(_adjoint(q), x[..., rows:], precision="highest")
    return q, jnp.concatenate([r, behind], -1)


def svdvals(x: NativeArray) -> NativeArray:
    _require_finite("linalg.svdvals", x)
    return jnp.linalg.svdvals(x)


# --- Gradients: see autodiff/rules/linearalg.py for the conventions -----------------------------


def _adjoint(x: NativeArray) -> NativeArray:
    return jnp.conj(jnp.matrix_transpose(x))


@jax.custom_jvp
def _halved(x: NativeArray) -> NativeArray:
    return x


@_halved.defjvp
def _halved_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return x, (t + _adjoint(t)) * 0.5


def _symmetric(x: NativeArray) -> NativeArray:
    """A matrix of which half is read, with a gradient for both halves."""
    return _halved(x) if isinstance(x, Tracer) else x


def _product(*factors: NativeArray) -> NativeArray:
    out = factors[0]
    for factor in factors[1:]:
        out = jnp.matmul(out, factor, precision="highest")
    return out


@jax.custom_jvp
def _eig(x: NativeArray) -> tuple[NativeArray, ...]:
    """JAX refuses gradients of vectors unless asked by an option of newer versions."""
    return tuple(jnp.linalg.eig(x))


@_eig.defjvp
def _eig_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    values, vectors = _eig(x)
    inner = jnp.linalg.solve(vectors, _product(t.astype(vectors.dtype), vectors))
    one = jnp.eye(x.shape[-1], dtype=values.dtype)
    gaps = values[..., None, :] - values[..., :, None] + one
    moved = _product(vectors, inner * ((1 - one) / gaps))
    # Each vector keeps its length.
    along = jnp.sum(jnp.conj(vectors) * moved, -2, keepdims=True).real
    return (values, vectors), (jnp.linalg.diagonal(inner), moved - vectors * along)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _svd(x: NativeArray, full_matrices: bool) -> tuple[NativeArray, ...]:
    """JAX's own has no gradient for full matrices, and a wrong one where values are equal."""
    return tuple(jnp.linalg.svd(x, full_matrices=full_matrices))


@_svd.defjvp
def _svd_jvp(full_matrices: bool, primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    u, s, vh = _svd(x, full_matrices)
    side = s.shape[-1]
    own_u, own_v = u[..., :side], _adjoint(vh[..., :side, :])
    inner = _product(_adjoint(own_u), t, own_v)
    turned = _adjoint(inner)
    rows, columns = s[..., :, None], s[..., None, :]
    one = jnp.eye(side, dtype=s.dtype)
    off = (1 - one) / (columns**2 - rows**2 + one)
    for_u, for_v = off * (inner * columns + rows * turned), off * (rows * inner + turned * columns)
    if jnp.iscomplexobj(x):
        # The phases of a pair of vectors turn against each other.
        phase = one * (inner - turned) / (4 * columns)
        for_u, for_v = for_u + phase, for_v - phase
    du, dv = _product(own_u, for_u), _product(own_v, for_v)
    if u.shape[-2] > side:
        du = du + (_product(t, own_v) - _product(own_u, inner)) / columns
    if vh.shape[-1] > side:
        dv = dv + (_product(_adjoint(t), own_u) - _product(own_v, turned)) / columns
    ds = jnp.linalg.diagonal(inner).real
    du = _completed(own_u, du, u[..., side:])
    dvh = _adjoint(_completed(own_v, dv, _adjoint(vh[..., side:, :])))
    return (u, s, vh), (du, ds, dvh)


def _completed(own: NativeArray, moved: NativeArray, rest: NativeArray) -> NativeArray:
    """How all columns of a basis move: the others stay at right angles to the own."""
    if not rest.shape[-1]:
        return moved
    return jnp.concatenate([moved, -_product(own, _adjoint(moved), rest)], -1)


@jax.custom_jvp
def _det(x: NativeArray) -> NativeArray:
    """JAX's own gradient of singular matrices is zero where the last pivot is not."""
    return jnp.linalg.det(x)


@_det.defjvp
def _det_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    out = _det(x)
    return out, jnp.sum(_cofactors(x, out) * t, (-2, -1))


def _cofactors(x: NativeArray, out: NativeArray) -> NativeArray:
    singular = (out == 0)[..., None, None]
    side = x.shape[-1]
    regular = jnp.where(singular, jnp.eye(side, dtype=x.dtype), x)
    found = jnp.matrix_transpose(out[..., None, None] * jnp.linalg.inv(regular))

    def of_singular(x: NativeArray) -> NativeArray:
        """By products of all singular values but one."""
        distinct = jnp.diag(jnp.arange(side, 0, -1).astype(x.dtype))
        u, s, vh = _svd(jnp.where(singular, x, distinct), False)
        left_out = jnp.prod(jnp.where(jnp.eye(side, dtype=bool), 1, s[..., None, :]), -1)
        turn = (jnp.linalg.det(u) * jnp.linalg.det(vh))[..., None, None]
        products = turn * jnp.conj(_product(u * left_out[..., None, :], vh))
        return jnp.where(singular, products, found)

    return lax.cond(singular.any(), of_singular, lambda x: found, x)


@jax.custom_jvp
def _complete_qr(x: NativeArray) -> tuple[NativeArray, ...]:
    return tuple(jnp.linalg.qr(x, "complete"))


@_complete_qr.defjvp
def _complete_qr_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    q, r = _complete_qr(x)
    side = x.shape[-1]
    own, upper = q[..., :side], r[..., :side, :]
    scaled = lax.linalg.triangular_solve(upper, t, left_side=False, lower=False)
    inner = _product(_adjoint(own), scaled)
    low = jnp.tril(inner, -1)
    turn = low - _adjoint(low)
    if jnp.iscomplexobj(x):  # the diagonal of R is real
        turn = turn + jnp.eye(side, dtype=x.dtype) * (1j * inner.imag)
    moved = _product(own, turn - inner) + scaled
    dr = _product(inner - turn, upper)
    dr = jnp.concatenate([dr, jnp.zeros_like(r[..., side:, :])], -2)
    return (q, r), (_completed(own, moved, q[..., side:]), dr)


@jax.custom_jvp
def _root(x: NativeArray) -> NativeArray:
    return jnp.sqrt(x)


@_root.defjvp
def _root_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    out = _root(x)
    none = out == 0
    return out, jnp.where(none, 0, t * 0.5 / jnp.where(none, 1, out))


@partial(jax.jit, static_argnames=("axis", "keepdims"), inline=True)
def euclidean(x: NativeArray, *, axis: Any = None, keepdims: bool = False) -> NativeArray:
    """The root of the sum of squares, whose gradient at zero is zero."""
    return _root(jnp.sum(jnp.square(x), axis=axis, keepdims=keepdims))


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


OVERRIDES: Final[dict[str, Kernel]] = (
    {"linalg.euclidean": euclidean}
    | {
        f"linalg.{kernel.__name__}": kernel
        for kernel in (
            cholesky,
            det,
            eig,
            eigvals,
            eigh,
            eigvalsh,
            inv,
            pinv,
            qr,
            solve,
            svd,
            svdvals,
        )
    }
    | {
        f"linalg.{kernel.__name__}": kernel
        for kernel in (solve_triangular, lu_factor, permutation_of_pivots, expm)
    }
)
