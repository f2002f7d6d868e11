"""Factorisations, solutions and functions of matrices beyond the standard.

Factorisations are put together again and compared, and their parts are checked for their form;
where signs or pivots make them unique, they are compared with NumPy's in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample
from ember_ml.testing.mistakes_decompositions import MISTAKES

__all__ = ["DECOMPOSITIONS", "MISTAKES"]

_LINALG: Final = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)
_NUMERIC: Final = tuple(d for d in dtypes.ALL if d is not dtypes.bool)
_RECTANGLES: Final = ((2, 3, 4), (4, 3), (3, 3), (0, 2, 2), (0, 3), (3, 0), (0, 0))
# One dtype meets every shape and the others the first few: JAX compiles each pair of the two.
_THOROUGH: Final = (dtypes.float32, dtypes.int32)


def _first(dtype: DType, shapes: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    return shapes if dtype in _THOROUGH else shapes[:count]


def _of(*shapes: tuple[int, ...]) -> Callable[[DType], list[Inputs]]:
    return lambda dtype: [
        (sample(f"linalg{s}", s, dtype, -2, 2),) for s in _first(dtype, shapes, 1)
    ]


def _square(*shapes: tuple[int, ...]) -> Callable[[DType], list[Inputs]]:
    """Well-conditioned matrices."""
    return lambda dtype: [
        ((sample(f"well{s}", s, dtype, -1, 1) + 4 * np.eye(s[-1])).astype(dtype.numpy),)
        for s in _first(dtype, shapes, 1)
    ]


def _systems(dtype: DType) -> list[Inputs]:
    shapes = (
        ((2, 3, 3), (3, 2)),
        ((3, 3), (3,)),
        ((3, 3), (3, 2)),
        ((2, 3, 3), (2, 3, 1)),
        ((3, 3), (2, 3, 1)),
        ((0, 3, 3), (0, 3, 2)),
        ((0, 0), (0, 2)),
        ((3, 3), (3, 0)),
    )
    return [
        (_square(a)(dtype)[0][0], sample(f"right{b}", b, dtype, -1, 1))
        for a, b in _first(dtype, shapes, 1)
    ]


def _definite_systems(dtype: DType) -> list[Inputs]:
    return [((a @ _adjoint(a)).astype(dtype.numpy), b) for a, b in _systems(dtype)]


def _definite(dtype: DType) -> list[Inputs]:
    return [
        ((a @ _adjoint(a)).astype(dtype.numpy),)
        for (a,) in _square((2, 3, 3), (3, 3), (0, 2, 2), (0, 0))(dtype)
    ]


def _exact(*matrices: Any) -> Callable[[DType], list[Inputs]]:
    """The same small numbers in every dtype."""
    return lambda dtype: [(np.array(m, dtype.numpy),) for m in matrices]


def _adjoint(x: Array) -> Array:
    return np.conj(np.swapaxes(x, -1, -2))


def _solve(a: Array, b: Array) -> Array:
    return np.linalg.solve(a, b[..., None])[..., 0] if b.ndim == 1 else np.linalg.solve(a, b)


def _anything(dtype: DType) -> None:
    return None


def _real(dtype: DType) -> DType:
    return dtypes.real_of(dtype)


def _case(
    op: str,
    run: Callable[..., Any],
    expect: Callable[..., Any],
    inputs: Callable[[DType], list[Inputs]],
    over: tuple[DType, ...] = _LINALG,
    result: Callable[[DType], DType | None] = lambda dtype: dtype,
    label: str = "",
    ulps: float = 400,
) -> Case:
    return Case(f"linalg.{op}", run, expect, inputs, over, result, ulps, label)


# --- Products and diagonals -------------------------------------------------------------------


def _pairs(*shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Callable[[DType], list[Inputs]]:
    return lambda dtype: [
        (sample(f"a{a}", a, dtype, -3, 3), sample(f"b{b}", b, dtype, -3, 3))
        for a, b in _first(dtype, shapes, 1)
    ]


def _chain(dtype: DType) -> list[Inputs]:
    sides = ((2, 3), (3, 1), (1, 4), (4, 2))
    ends = ((3,), (3, 4), (4,))
    chains = (ends, sides, sides[:2], ((3,), (3, 2)), ((2, 0), (0, 3), (3, 2)))
    return [
        tuple(sample(f"chain{s}", s, dtype, -2, 2) for s in shapes)
        for shapes in _first(dtype, chains, 1)
    ]


def _in_order(*arrays: Array) -> Array:
    out = arrays[0]
    for other in arrays[1:]:
        out = np.matmul(out, other)
    return out


def _embedded(offset: int, axes: tuple[int, int] = (-2, -1)) -> Callable[[Array], Array]:
    def expect(x: Array) -> Array:
        side = x.shape[-1] + abs(offset)
        out = np.zeros((*x.shape[:-1], side, side), x.dtype)
        for place in np.ndindex(x.shape[:-1]):
            out[place] = np.diag(x[place], offset)
        return np.moveaxis(out, (-2, -1), axes)

    return expect


def _powers(x: Array) -> Array:
    return np.stack([x**k for k in range(4)], -1)


_SHAPED: Final = (
    _case("kron", lambda xp, a, b: xp.linalg.kron(a, b), np.kron,
          _pairs(((2, 3), (4, 2)), ((3,), (2, 2)), ((2, 1, 2), (3,)), ((), (2,)), ((0, 2), (2, 2))),
          _NUMERIC, law("linalg.kron")),
    _case("kron", lambda xp, a, b: xp.kron(a, b), np.kron, lambda dtype: [
          (np.array([1, 0], bool), np.array([1, 1], bool))], (dtypes.bool,), law("linalg.kron"),
          label="bool"),
    _case("multi_dot", lambda xp, *arrays: xp.linalg.multi_dot(arrays), _in_order, _chain,
          _NUMERIC, law("linalg.multi_dot")),
    _case("diag", lambda xp, x: xp.linalg.diag(x), np.diag, _of((3,), (4, 3), (0,), (0, 3)),
          dtypes.ALL),
    _case("diag", lambda xp, x: xp.diag(x, 1), lambda x: np.diag(x, 1), _of((3,), (4, 3), (0,)),
          dtypes.ALL, label="above"),
    _case("diag", lambda xp, x: xp.diag(x, offset=-2), lambda x: np.diag(x, -2),
          _of((3,), (4, 3)), dtypes.ALL, label="below"),
    _case("diag", lambda xp, x: xp.diag(x), np.diag,
          _exact([np.inf, 1, np.nan]), _LINALG[:2], label="not-finite"),
    _case("diag_embed", lambda xp, x: xp.linalg.diag_embed(x), _embedded(0),
          _of((2, 3), (0, 2), (2, 0), (3,)), dtypes.ALL),
    _case("diag_embed", lambda xp, x: xp.linalg.diag_embed(x, -1, axis1=0, axis2=1),
          _embedded(-1, (0, 1)), _of((2, 3)), dtypes.ALL, label="axes"),
    _case("vander", lambda xp, x: xp.linalg.vander(x), np.vander, _of((3,), (0,)), _NUMERIC,
          law("linalg.vander")),
    _case("vander", lambda xp, x: xp.linalg.vander(x, 4, increasing=True), _powers,
          _of((2, 3)), _NUMERIC, law("linalg.vander"), label="increasing"),
    _case("vander", lambda xp, x: xp.linalg.vander(x, N=1), lambda x: np.ones((*x.shape, 1)),
          _of((3,)), _LINALG, label="one"),
)  # fmt: skip


# --- Factorisations ---------------------------------------------------------------------------


def _small(x: Array) -> int:
    return int(min(x.shape[-2:]))


def _identities(x: Array, side: int) -> Array:
    return np.broadcast_to(np.eye(side), (*x.shape[:-2], side, side))


def _zeros(x: Array, *shape: int) -> Array:
    return np.zeros((*x.shape[:-2], *shape))


def _gram(xp: Any, q: Any) -> Any:
    return xp.matmul(xp.conj(xp.matrix_transpose(q)), q)


def _from_lu(xp: Any, x: Any) -> Any:
    p, lower, upper = xp.linalg.lu(x)
    unit = xp.linalg.diagonal(lower) - 1
    again = xp.matmul(xp.matmul(p, lower), upper)
    # Of a permutation, all elements are 0 or 1, with one 1 in each row and column.
    return (again, xp.triu(lower, k=1), unit, xp.tril(upper, k=-1), p * (p - 1), _gram(xp, p))


def _lu_form(x: Array) -> tuple[Array, ...]:
    rows, columns, side = x.shape[-2], x.shape[-1], _small(x)
    return (x, _zeros(x, rows, side), _zeros(x, side), _zeros(x, side, columns),
            _zeros(x, rows, rows), _identities(x, rows))  # fmt: skip


def _eliminated(x: Array) -> tuple[Array, Array]:
    """Gaussian elimination by the book, matrix by matrix."""
    out, steps = x.copy(), _small(x)
    pivots = np.zeros((*x.shape[:-2], steps), np.int64)
    for place in np.ndindex(x.shape[:-2]):
        m = out[place]
        for k in range(steps):
            best = k + int(np.argmax(np.abs(m[k:, k].real) + np.abs(m[k:, k].imag)))
            pivots[(*place, k)] = best
            m[[k, best]] = m[[best, k]]
            if m[k, k] != 0:
                m[k + 1 :, k] /= m[k, k]
            m[k + 1 :, k + 1 :] -= np.outer(m[k + 1 :, k], m[k, k + 1 :])
    return out, pivots


def _from_lu_factor(xp: Any, x: Any) -> Any:
    both, pivots = xp.linalg.lu_factor(x)
    assert both.dtype is x.dtype
    assert pivots.dtype is dtypes.int64
    return both, pivots


def _from_lq(xp: Any, x: Any) -> Any:
    lower, q = xp.linalg.lq(x)
    return xp.matmul(lower, q), xp.triu(lower, k=1), _gram(xp, xp.matrix_transpose(q))


def _positive_q(x: Array) -> Array:
    wide = x.shape[-2] < x.shape[-1]
    q, r = np.linalg.qr(_adjoint(x) if wide else x)
    d = np.diagonal(r, 0, -2, -1)
    q = q * (d / np.abs(d))[..., None, :]
    return _adjoint(q) if wide else q


_FACTORISATIONS: Final = (
    _case("lu", _from_lu, _lu_form, _of(*_RECTANGLES)),
    _case("lu", _from_lu, _lu_form, _exact(
        [np.ones((3, 4)), np.zeros((3, 4)), np.eye(3, 4)[::-1]]), label="singular"),
    _case("lu_factor", _from_lu_factor, _eliminated, _of(*_RECTANGLES), result=_anything),
    _case("lq", _from_lq, lambda x: (x, _zeros(x, x.shape[-2], _small(x)),
          _identities(x, _small(x))), _of(*_RECTANGLES)),
    _case("lq", lambda xp, x: (xp.matmul(*xp.linalg.lq(x, mode="complete")),
          _gram(xp, xp.linalg.lq(x, mode="complete").Q)),
          lambda x: (x, _identities(x, x.shape[-1])), _of((4, 3), (2, 3, 4)), label="complete"),
    _case("orthogonal", lambda xp, x: xp.linalg.orthogonal(x), _positive_q, _of(*_RECTANGLES)),
    _case("orthogonal", lambda xp, x: _gram(xp, xp.linalg.orthogonal(x)),
          lambda x: _identities(x, x.shape[-1]), _exact(
              [np.zeros((3, 2)), np.ones((3, 2))]), label="rank-deficient"),
)  # fmt: skip


# --- Solutions --------------------------------------------------------------------------------


def _triangular(lower: bool, trans: Any, unit: bool) -> Case:
    def expect(a: Array, b: Array) -> Array:
        half = np.tril(a) if lower else np.triu(a)
        if unit:
            half = np.tril(half, -1) + np.triu(half, 1) + np.eye(a.shape[-1])
        if trans:
            half = np.swapaxes(half, -1, -2)
        return _solve(np.conj(half) if trans == "C" else half, b)

    options = {"lower": lower, "trans": trans, "unit_diagonal": unit}
    plain = not trans and not unit
    return _case("solve_triangular", lambda xp, a, b: xp.linalg.solve_triangular(a, b, **options),
                 expect, _systems if plain else lambda dtype: _systems(dtype)[:1],
                 label=f"{lower}-{trans}-{unit}")  # fmt: skip


def _unread(dtype: DType) -> list[Inputs]:
    """NaN stands where nothing is read."""
    return [(np.array([[np.nan, np.nan], [2, np.nan]], dtype.numpy), np.ones((2, 1), dtype.numpy))]


def _fits(dtype: DType) -> list[Inputs]:
    shapes = (
        ((2, 4, 3), (2, 4, 2)),
        ((4, 3), (4,)),
        ((4, 3), (4, 2)),
        ((3, 4), (3,)),
        ((2, 3, 4), (3, 2)),
        ((0, 3), (0, 2)),
        ((0, 4, 3), (4,)),
    )
    return [
        (sample(f"fit{a}", a, dtype, -2, 2), sample(f"right{b}", b, dtype, -1, 1))
        for a, b in _first(dtype, shapes, 1)
    ]


def _deficient(dtype: DType) -> list[Inputs]:
    thin = np.array([[1, 2], [2, 4], [3, 6]], dtype.numpy)
    right = np.array([[1, 0], [2, 1], [4, 1]], dtype.numpy)
    return [(thin, right), (np.zeros((3, 2), dtype.numpy), right), (thin.T.copy(), right[:2])]


def _run_lstsq(xp: Any, a: Any, b: Any) -> Any:
    fit = xp.linalg.lstsq(a, b)
    real = dtypes.real_of(a.dtype)
    wanted = (a.dtype, real, dtypes.int64, real)
    assert tuple(part.dtype for part in fit) == wanted
    return tuple(fit)


def _least_squares(a: Array, b: Array) -> Any:
    if a.ndim == 2 and b.ndim < 3:
        return np.linalg.lstsq(a, b)
    vector = b.ndim == 1
    columns = b[:, None] if vector else b
    stack = np.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    left = np.broadcast_to(a, (*stack, *a.shape[-2:]))
    right = np.broadcast_to(columns, (*stack, *columns.shape[-2:]))
    rows, side = a.shape[-2:]
    out = np.zeros((*stack, side, right.shape[-1]), a.dtype)
    gaps = np.zeros((*stack, right.shape[-1]))
    rank = np.zeros(stack, np.int64)
    values = np.zeros((*stack, min(rows, side)))
    for place in np.ndindex(stack):
        found = np.linalg.lstsq(left[place], right[place])
        out[place], rank[place], values[place] = found[0], found[2], found[3]
        if rows > side:
            gaps[place] = found[1]
    if rows <= side:
        gaps = np.zeros((0,))
    if vector:
        out = out[..., 0]
    return out, gaps, rank, values


def _rcond(a: Array, b: Array) -> Any:
    return np.linalg.lstsq(a, b, rcond=0.1)


def _graded(dtype: DType) -> list[Inputs]:
    return [(np.diag([10, 1, 0.5, 0])[:, :3].astype(dtype.numpy), np.ones(4, dtype.numpy))]


def _tensor_system(dtype: DType) -> list[Inputs]:
    a = _square((4, 4))(dtype)[0][0].reshape((2, 2, 4))
    return [(a, sample("tensor", (2, 2), dtype, -1, 1))]


_SOLUTIONS: Final = (
    _case("det", lambda xp, x: xp.linalg.det(x), lambda x: np.zeros(x.shape[:-2]), _exact(
        [[1, 2], [2, 4]], np.zeros((2, 2, 2)), np.ones((3, 3))), label="singular"),
    *(_triangular(lower, trans, unit) for lower in (False, True) for trans, unit in
      ((0, False), ("T", False), ("C", False), (0, True), ("C", True))),
    _case("solve_triangular", lambda xp, a, b: xp.linalg.triangular_solve(
        a, b, lower=True, unit_diagonal=True),
        lambda a, b: np.array([[1.0], [-1.0]]), _unread, _LINALG[:2], label="unread"),
    _case("lu_solve", lambda xp, a, b: xp.linalg.lu_solve(*xp.linalg.lu_factor(a), b), _solve,
          _systems),
    _case("lu_solve", lambda xp, a, b: xp.linalg.lu_solve(
        *xp.linalg.lu_factor(a), b, adjoint=True), lambda a, b: _solve(_adjoint(a), b), _systems,
        label="adjoint"),
    _case("cholesky_solve", lambda xp, a, b: xp.linalg.cholesky_solve(b, xp.linalg.cholesky(a)),
          _solve, _definite_systems, ulps=4000),
    _case("cholesky_solve", lambda xp, a, b: xp.linalg.cholesky_solve(
        b, xp.linalg.cholesky(a, upper=True), upper=True), _solve, _definite_systems,
        label="upper", ulps=4000),
    _case("cholesky_inverse", lambda xp, a: xp.linalg.cholesky_inverse(xp.linalg.cholesky(a)),
          np.linalg.inv, _definite, ulps=4000),
    _case("cholesky_inverse", lambda xp, a: xp.linalg.cholesky_inverse(
        xp.linalg.cholesky(a, upper=True), upper=True), np.linalg.inv, _definite,
        label="upper", ulps=4000),
    _case("lstsq", _run_lstsq, _least_squares, _fits, result=_anything, ulps=4000),
    _case("lstsq", _run_lstsq, _least_squares, _deficient, result=_anything,
          label="rank-deficient", ulps=4000),
    _case("lstsq", lambda xp, a, b: tuple(xp.linalg.lstsq(a, b, 0.1)), _rcond, _graded,
          result=_anything, label="rcond"),
    _case("tensorsolve", lambda xp, a, b: xp.linalg.tensorsolve(a, b),
          np.linalg.tensorsolve, _tensor_system),
    _case("tensorsolve", lambda xp, a, b: xp.linalg.tensorsolve(
        xp.permute_dims(a, (2, 0, 1)), b, (0,)), np.linalg.tensorsolve, _tensor_system,
        label="axes"),
    _case("tensorinv", lambda xp, a, b: xp.linalg.tensorinv(a), lambda a, b: np.linalg.tensorinv(a),
          _tensor_system),
)  # fmt: skip


# --- Functions and norms ----------------------------------------------------------------------


def _series(x: Array) -> Array:
    """The sum that defines the exponential, of matrices made small first."""
    halvings = 3
    small = x / 2**halvings
    term = out = np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape)
    for k in range(1, 25):
        term = term @ small / k
        out = out + term
    for _ in range(halvings):
        out = out @ out
    return out


# Rotations; a matrix of eigenvalues -1 and -17 whose series cancels all digits; a large one that
# is nilpotent; one that vanishes; one that is no number.
_HARD: Final = [
    *([[0, -angle], [angle, 0]] for angle in (0.0, 0.5, 3.0, 20.0)),
    [[-49, 24], [-64, 31]],
    [[0, 1e4], [0, 0]],
    [[-1e6, 0], [0, -1e5]],
    [[float("nan"), 0], [0, 0]],
]


def _closed_forms(x: Array) -> Array:
    c, s = np.cos(x[:4, 1, 0]), np.sin(x[:4, 1, 0])
    turns = np.stack([np.stack([c, -s], -1), np.stack([s, c], -1)], -2)
    basis = np.array([[1.0, 3.0], [2.0, 4.0]])  # the eigenvectors of the fifth
    fifth = basis @ np.diag(np.exp([-1, -17])) @ np.linalg.inv(basis)
    others = [fifth, [[1, 1e4], [0, 1]], np.zeros((2, 2)), np.full((2, 2), np.nan)]
    return np.concatenate([turns, np.array(others)])


def _norm(label: str, shapes: tuple[tuple[int, ...], ...], *args: Any, **options: Any) -> Case:
    return _case("norm", lambda xp, x: xp.linalg.norm(x, *args, **options),
                 lambda x: np.linalg.norm(x, *args, **options), _of(*shapes),
                 result=_real, label=label)  # fmt: skip


def _cond(p: Any) -> Case:
    return _case("cond", lambda xp, x: xp.linalg.cond(x, p), lambda x: np.linalg.cond(x, p),
                 _square((2, 3, 3), (0, 2, 2)), _LINALG if p == 1 else _LINALG[:2], _real,
                 str(p), 4000)  # fmt: skip


_INF: Final = float("inf")
_FUNCTIONS: Final = (
    _case("expm", lambda xp, x: xp.linalg.expm(x), _series,
          _of((2, 3, 3), (3, 3), (0, 2, 2), (0, 0), (1, 1))),
    _case("expm", lambda xp, x: xp.linalg.matrix_exp(x), _closed_forms, _exact(_HARD),
          _LINALG[:2], label="closed-form"),
    _case("cond", lambda xp, x: xp.linalg.cond(x), np.linalg.cond, _of((4, 3), (2, 3, 4)),
          result=_real, ulps=4000),
    *map(_cond, (2, -2, 1, _INF, "fro", "nuc")),
    _case("cond", lambda xp, x: (xp.linalg.cond(x, 1), xp.linalg.cond(x)),
          lambda x: (np.array([np.inf, 2.0, np.inf]), np.array([np.inf, 2.0, np.inf])),
          _exact([[[1, 0], [1, 0]], [[1, 0], [0, 2]], [[0, 0], [0, 0]]]), _LINALG[:2], _real,
          "singular"),
    _case("norm", lambda xp, x: xp.linalg.norm(x), lambda x: np.sqrt(np.sum(np.abs(x.astype(
          complex if np.iscomplexobj(x) else float)) ** 2)), _of((3,), (2, 3, 4), (), (0,)),
          accepted("linalg.norm"), law("linalg.norm")),
    _norm("keepdims", ((2, 3, 4),), keepdims=True),
    *(_norm(f"vector-{ord}", ((5,),), ord) for ord in (0, 1, 2, 3, _INF, -_INF)),
    _norm("axis", ((2, 3, 4),), None, 1),
    _norm("axis-keepdims", ((2, 3, 4),), 1, -1, True),
    *(_norm(f"matrix-{ord}", ((4, 3),), ord)
      for ord in ("fro", "nuc", 1, -1, 2, -2, _INF, -_INF)),
    _norm("axes", ((2, 3, 4),), 1, (2, 0)),
    _norm("axes-keepdims", ((2, 3, 4),), "nuc", (0, 2), True),
)  # fmt: skip

DECOMPOSITIONS: Final[tuple[Case, ...]] = (*_SHAPED, *_FACTORISATIONS, *_SOLUTIONS, *_FUNCTIONS)
