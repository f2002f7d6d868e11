"""Gradients of factorisations, solutions and functions of matrices.

`x.H` below is the adjoint, and the gradient of a matrix is that of each of its elements. Some
conventions are the same on every backend:

- cholesky, eigh and eigvalsh read one triangle of a matrix that is symmetric or Hermitian. Their
  gradient is symmetric or Hermitian as well, so that a step along it leaves the matrix so.
- Eigenvectors and singular vectors have a sign, or a phase where they are complex, that nothing
  determines: only of losses that do not depend on it are the gradients defined. Where values are
  equal, no basis is determined, and gradients of losses that depend on vectors are not finite;
  those by values alone are.
- Of complete bases (qr with mode="complete", svd with full_matrices=True), columns beyond the
  matrix's own are any basis of what is left. They have the gradient of losses that do not depend
  on which.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.autodiff.rules.shapes import spread, summed_to
from ember_ml.autodiff.rules.table import joint_rule, rule
from ember_ml.ops.linearalg.matrices import adjoint, constant, identity_of, pair, permutation_of
from ember_ml.ops.linearalg.solving import rows_at
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

__all__: list[str] = []


# --- Parts ------------------------------------------------------------------------------------


def _times_columns(x: Tensor, factors: Tensor) -> Tensor:
    """x @ diag(factors)."""
    return x * ops.expand_dims(convert.cast(factors, x.dtype), -2)


def _times_rows(factors: Tensor, x: Tensor) -> Tensor:
    """diag(factors) @ x."""
    return ops.expand_dims(convert.cast(factors, x.dtype), -1) * x


def _diagonal_of(x: Tensor) -> Tensor:
    """Matrices with all but their diagonal set to zero."""
    return x * identity_of(x)


def _on_diagonal(values: Tensor, dtype: Any) -> Tensor:
    """Matrices with values on their diagonal."""
    one = constant(np.eye(values.shape[-1], dtype=dtype.numpy), values)
    return ops.expand_dims(convert.cast(values, dtype), -1) * one


def _hermitian(x: Tensor) -> Tensor:
    return (x + adjoint(x)) * 0.5


def _real_like(g: Tensor, x: Any) -> Tensor:
    """The gradient of a real operand of a complex function."""
    return ops.real(g) if g.dtype.is_complex and not x.dtype.is_complex else g


def _solved(a: Tensor, b: Tensor, lower: bool, unit: bool = False) -> Tensor:
    """Triangular systems, without the check for zeros: infinity is the answer to those."""
    return pair("linalg.solve_triangular", a, b, lower, unit)


def _behind_upper(x: Tensor, u: Tensor) -> Tensor:
    """x @ inv(u).H, of which only the upper triangle of u is read."""
    return adjoint(_solved(u, adjoint(x), False))


def _gaps(values: Tensor, unused: list[Tensor]) -> Tensor:
    """The difference of each value (column) from each other (row); one on the diagonal."""
    gaps = ops.expand_dims(values, -2) - ops.expand_dims(values, -1)
    return _divisor(gaps + identity_of(gaps), unused)


def _divisor(x: Tensor, unused: list[Tensor]) -> Tensor:
    """Numbers by which gradients are divided.

    Engines that do not tell which results were not used give zeros for their gradients: where all
    are zero, what is zero here is replaced by one.
    """
    idle: Any = True
    for g in unused:
        none = ops.all(g == 0, axis=(-2, -1), keepdims=x.ndim == g.ndim)
        none = none if x.ndim == g.ndim else ops.expand_dims(none, -1)
        idle = none if idle is True else ops.logical_and(idle, none)
    return ops.where(ops.logical_and(x == 0, idle), 1.0, x)


# --- Solutions --------------------------------------------------------------------------------


def _inv(g: Tensor, y: Tensor, x: Any) -> Tensor:
    turned = adjoint(y)
    return -(turned @ g @ turned)


rule("linalg.inv", _inv, inputs=False, output=True)


@joint_rule("linalg.solve", output=True)
def _solve(
    g: Tensor, needs: tuple[bool, ...], y: Tensor, a: Tensor, b: Tensor
) -> tuple[Tensor | None, Tensor]:
    for_b = pair("linalg.solve", adjoint(a), g)
    for_a = summed_to(-(for_b @ adjoint(y)), a) if needs[0] else None
    return for_a, summed_to(for_b, b)


@joint_rule("linalg.solve_triangular", output=True)
def _solve_triangular(
    g: Tensor,
    needs: tuple[bool, ...],
    y: Tensor,
    a: Tensor,
    b: Tensor,
    lower: bool,
    unit: bool,
) -> tuple[Tensor | None, Tensor]:
    for_b = _solved(adjoint(a), g, not lower, unit)
    for_a = None
    if needs[0]:
        whole = summed_to(-(for_b @ adjoint(y)), a)
        # Only what was read has a gradient.
        for_a = ops.tril(whole, k=-int(unit)) if lower else ops.triu(whole, k=int(unit))
    return for_a, summed_to(for_b, b)


def _det(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """The cofactors: det * inv(x).H, and another way to them where there is no inverse."""
    if not x.size:
        return ops.zeros_like(x)
    singular = ops.expand_dims(y == 0, (-2, -1))
    factor = ops.expand_dims(g, (-2, -1))
    known = x._spec.backend.checks_values(singular.native)
    if known and not bool(ops.any(singular)):
        return factor * adjoint(ops.expand_dims(y, (-2, -1)) * ops.linalg.inv(x))
    regular = ops.where(singular, identity_of(x), x)
    by_inverse = adjoint(ops.expand_dims(y, (-2, -1)) * ops.linalg.inv(regular))
    return factor * ops.where(singular, _cofactors(x, singular), by_inverse)


def _cofactors(x: Tensor, singular: Tensor) -> Tensor:
    """Those of singular matrices, by products of all singular values but one."""
    side = x.shape[-1]
    # Others are replaced by a matrix whose own factors have finite gradients.
    other = constant(np.diag(np.arange(side, 0.0, -1.0)).astype(x.dtype.numpy), x)
    u, s, vh = ops.linalg.svd(ops.where(singular, x, other), full_matrices=False)
    others = ops.expand_dims(s, -2) * constant(1 - np.eye(side, dtype=s.dtype.numpy), s)
    left_out = ops.prod(others + identity_of(others), axis=-1)
    turn = ops.linalg.det(u) * ops.linalg.det(vh)
    turn = ops.conj(turn) if turn.dtype.is_complex else turn
    return ops.expand_dims(turn, (-2, -1)) * (_times_columns(u, left_out) @ vh)


rule("linalg.det", _det, output=True)


@joint_rule("linalg.slogdet", output=True)
def _slogdet(
    gs: list[Tensor | None], needs: tuple[bool, ...], ys: list[Tensor], x: Tensor
) -> tuple[Tensor | None]:
    by_sign, by_log = gs
    factor = None if by_log is None else convert.cast(by_log, x.dtype)
    if by_sign is not None and x.dtype.is_complex:
        # The sign turns with the imaginary part of the trace of inv(x) @ dx.
        turn = ops.imag(by_sign * ops.conj(ys[0]))
        turned = convert.cast(turn, x.dtype) * 1j
        factor = turned if factor is None else factor + turned
    if factor is None:  # the sign of a real determinant is constant
        return (ops.zeros_like(x),)
    return (ops.expand_dims(factor, (-2, -1)) * adjoint(ops.linalg.inv(x)),)


def _euclidean(g: Tensor, y: Tensor, x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    length, scale = spread(y, x, axis, keepdims), spread(g, x, axis, keepdims)
    none = length == 0
    return x * ops.where(none, 0.0, scale / ops.where(none, 1.0, length))


rule("linalg.euclidean", _euclidean, output=True)


def _pinv(g: Tensor, y: Tensor, x: Tensor, rtol: Any) -> Tensor:
    """For matrices whose rank does not change, in which case alone it is continuous."""
    h = adjoint(y)
    gh = adjoint(g)
    tall = (gh - x @ (y @ gh)) @ (y @ h)
    wide = (h @ y) @ (gh - (gh @ y) @ x)
    return tall + wide - h @ g @ h


rule("linalg.pinv", _pinv, output=True)


def _expm(g: Tensor, y: Any, x: Tensor) -> Tensor:
    # The derivative along a direction is a block of the exponential of [[x, direction], [0, x]].
    turned, side = adjoint(x), x.shape[-1]
    above = ops.concat([turned, g], axis=-1)
    below = ops.concat([ops.zeros_like(turned), turned], axis=-1)
    return ops.linalg.expm(ops.concat([above, below], axis=-2))[..., :side, side:]


rule("linalg.expm", _expm)


# --- Factorisations ---------------------------------------------------------------------------


def _cholesky(g: Tensor, y: Tensor, x: Any, upper: bool) -> Tensor:
    low, for_low = (adjoint(y), adjoint(g)) if upper else (y, g)
    inner = adjoint(low) @ ops.tril(for_low)
    half = ops.tril(inner) - _diagonal_of(inner) * 0.5
    # inv(L).H @ half @ inv(L)
    turned = adjoint(low)
    return _hermitian(adjoint(_solved(turned, adjoint(_solved(turned, half, False)), False)))


rule("linalg.cholesky", _cholesky, inputs=False, output=True)


@joint_rule("linalg.eigh", inputs=False, output=True)
def _eigh(
    gs: list[Tensor | None], needs: tuple[bool, ...], ys: list[Tensor], x: Any
) -> tuple[Tensor]:
    by_values, by_vectors = gs
    values, vectors = ys
    inner: Any = None
    if by_vectors is not None:
        # dV = V @ (F * (V.H @ dx @ V)), with F one over the gaps.
        mixed = adjoint(vectors) @ by_vectors
        off = mixed - _diagonal_of(mixed)
        inner = off / convert.cast(_gaps(values, [by_vectors]), off.dtype)
    if by_values is not None:
        on = _on_diagonal(by_values, vectors.dtype)
        inner = on if inner is None else inner + on
    return (_hermitian(vectors @ inner @ adjoint(vectors)),)


def _eigvalsh(g: Tensor, y: Any, x: Tensor) -> Tensor:
    vectors = ops.linalg.eigh(x).eigenvectors
    return _times_columns(vectors, g) @ adjoint(vectors)


rule("linalg.eigvalsh", _eigvalsh)


@joint_rule("linalg.eig", inputs=False, output=True)
def _eig(
    gs: list[Tensor | None], needs: tuple[bool, ...], ys: list[Tensor], x: Any
) -> tuple[Tensor]:
    by_values, by_vectors = gs
    values, vectors = ys
    turned = adjoint(vectors)
    inner: Any = None
    if by_vectors is not None:
        # Each vector keeps its length: what is along it takes no part.
        mixed = turned @ by_vectors
        lengths = convert.cast(ops.real(ops.linalg.diagonal(mixed)), mixed.dtype)
        mixed = mixed - _times_columns(turned @ vectors, lengths)
        off = mixed - _diagonal_of(mixed)
        inner = off / ops.conj(_gaps(values, [by_vectors]))
    if by_values is not None:
        on = _on_diagonal(by_values, vectors.dtype)
        inner = on if inner is None else inner + on
    return (_real_like(pair("linalg.solve", turned, inner @ turned), x),)


def _eigvals(g: Tensor, y: Any, x: Tensor) -> Tensor:
    turned = adjoint(ops.linalg.eig(x).eigenvectors)
    return _real_like(pair("linalg.solve", turned, _times_rows(g, turned)), x)


rule("linalg.eigvals", _eigvals)


@joint_rule("linalg.svd", inputs=False, output=True)
def _svd(
    gs: list[Tensor | None], needs: tuple[bool, ...], ys: list[Tensor], x: Any, full: bool
) -> tuple[Tensor]:
    u, s, vh = ys
    side, rows, columns = s.shape[-1], u.shape[-2], vh.shape[-1]
    by_u, by_s, by_vh = gs
    v, by_v = adjoint(vh), None if by_vh is None else adjoint(by_vh)
    u, by_u = _own(u, by_u, side)
    v, by_v = _own(v, by_v, side)
    vh = adjoint(v)
    inner = None if by_s is None else _on_diagonal(by_s, u.dtype)
    beyond: list[Tensor] = []
    parts: list[Tensor | None] = []
    for basis, g, tall in ((u, by_u, rows > side), (v, by_v, columns > side)):
        if g is None:
            parts.append(None)
            continue
        mixed = adjoint(basis) @ g
        parts.append(mixed)
        if tall:
            rest = g - basis @ mixed  # what is outside of the basis
            outer = _times_columns(rest, 1 / _divisor(s, [g]))
            beyond.append(outer @ vh if basis is u else u @ adjoint(outer))
    if parts[0] is not None or parts[1] is not None:
        mixed = _mixed(parts[0], parts[1], s, [g for g in (by_u, by_v) if g is not None])
        inner = mixed if inner is None else inner + mixed
    out = (u @ inner) @ vh
    for part in beyond:
        out = out + part
    return (out,)


def _mixed(by_u: Tensor | None, by_v: Tensor | None, s: Tensor, unused: list[Tensor]) -> Tensor:
    """How the bases turn within themselves: with F = 1 / (s_j^2 - s_i^2) off the diagonal."""
    gaps = _gaps(s * s, unused)
    sides: list[Tensor] = []
    phases: list[Tensor] = []
    for mixed in (by_u, by_v):
        if mixed is None:
            continue
        skew = mixed - adjoint(mixed)
        alone = _diagonal_of(skew)
        part = (skew - alone) / convert.cast(gaps, skew.dtype)
        sides.append(_times_columns(part, s) if mixed is by_u else _times_rows(s, part))
        phases.append(alone if mixed is by_u else -alone)
    out = sides[0] if len(sides) == 1 else sides[0] + sides[1]
    if not out.dtype.is_complex:
        return out
    # The phases of a pair of vectors turn against each other.
    phase = phases[0] if len(phases) == 1 else (phases[0] + phases[1]) * 0.5
    return out + _times_columns(phase, 0.5 / _divisor(s, unused))


def _own(basis: Tensor, g: Tensor | None, side: int) -> tuple[Tensor, Tensor | None]:
    """The columns of a basis that are the matrix's own, with the gradient of all.

    Others stay at right angles to these: what turns them is what turns these the other way.
    """
    if basis.shape[-1] == side:
        return basis, g
    own, rest = basis[..., :side], basis[..., side:]
    if g is None:
        return own, None
    return own, g[..., :side] - rest @ (adjoint(g[..., side:]) @ own)


def _svdvals(g: Tensor, y: Any, x: Tensor) -> Tensor:
    u, _, vh = ops.linalg.svd(x, full_matrices=False)
    return _times_columns(u, g) @ vh


rule("linalg.svdvals", _svdvals)


@joint_rule("linalg.qr", inputs=False, output=True)
def _qr(
    gs: list[Tensor | None], needs: tuple[bool, ...], ys: list[Tensor], x: Any, mode: str
) -> tuple[Tensor]:
    q, r = ys
    rows, columns = x.shape[-2:]
    side = min(rows, columns)
    q, by_q = _own(q, gs[0], side)
    by_r = None if gs[1] is None else ops.triu(gs[1][..., :side, :])
    r = r[..., :side, :]
    if columns <= rows:
        return (_square_qr(q, r, by_q, by_r),)
    # Behind a square matrix, R is Q.H times what stands there.
    first, second = r[..., :side], r[..., side:]
    if by_r is None:
        left = _square_qr(q, first, by_q, None)
        right = ops.zeros_like(second)
    else:
        right = q @ by_r[..., side:]
        more = q @ (second @ adjoint(by_r[..., side:]))
        by_q = more if by_q is None else by_q + more
        left = _square_qr(q, first, by_q, by_r[..., :side])
    return (ops.concat([left, right], axis=-1),)


def _square_qr(q: Tensor, r: Tensor, by_q: Tensor | None, by_r: Tensor | None) -> Tensor:
    inner: Any = None
    if by_r is not None:
        inner = r @ adjoint(by_r)
    if by_q is not None:
        part = adjoint(by_q) @ q
        inner = -part if inner is None else inner - part
    below = ops.tril(inner, k=-1)
    diagonal = _diagonal_of(inner)
    if inner.dtype.is_complex:  # that of R is real
        diagonal = convert.cast(ops.real(diagonal), inner.dtype)
    out = q @ (below + adjoint(below) + diagonal)
    return _behind_upper(out if by_q is None else out + by_q, r)


@joint_rule("linalg.lu_factor", inputs=False, output=True)
def _lu_factor(
    gs: list[Tensor | None], needs: tuple[bool, ...], ys: list[Tensor], x: Any
) -> tuple[Tensor]:
    g, (both, pivots) = gs[0], ys
    assert g is not None, "the other result is of integers"
    rows, columns = x.shape[-2:]
    side = min(rows, columns)
    head = both[..., :side, :side]
    by_head = g[..., :side, :side]
    unit = ops.tril(head, k=-1) + identity_of(head)
    below = adjoint(unit) @ ops.tril(by_head, k=-1)
    above = ops.triu(by_head) @ adjoint(ops.triu(head))
    # Empty where the matrix is not wide, or not tall.
    right, under = g[..., :side, side:], g[..., side:, :side]
    if columns > side:
        below = below - right @ adjoint(both[..., :side, side:])
    elif rows > side:
        above = above - adjoint(both[..., side:, :side]) @ under
    inner = _behind_upper(ops.tril(below, k=-1) + ops.triu(above), head)
    if columns > side:
        inner = ops.concat([inner, right], axis=-1)
    out = _solved(adjoint(head), inner, False, True)
    if rows > side:
        out = ops.concat([out, _behind_upper(under, head)], axis=-2)
    order = permutation_of(convert.cast(pivots, dtypes.int64), rows)
    return (rows_at(out, ops.argsort(order, axis=-1)),)
