"""Mistakes in factorisations, solutions and functions of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from ember_ml.errors import (
    AxisError,
    DomainError,
    DTypeError,
    LinAlgError,
    OutOfBoundsError,
    ShapeError,
)
from ember_ml.testing.mistake import Mistake

__all__ = ["MISTAKES"]


def _mistake(label: str, error: Any, run: Callable[[Any, Any], Any], *facts: str) -> Mistake:
    return Mistake(label, error, lambda xp: run(xp, xp.linalg), facts)


def _given(label: str, name: str, fact: str, *shapes: tuple[int, ...]) -> Mistake:
    """Arrays of shapes that do not suit an op."""
    return _mistake(label, ShapeError,
                    lambda xp, la: getattr(la, name)(*map(xp.ones, shapes)),
                    f"ops.linalg.{name}", fact)  # fmt: skip


def _nan(name: str) -> Mistake:
    return _mistake(f"{name}-nan", LinAlgError,
                    lambda xp, la: getattr(la, name)(xp.full((2, 2), float("nan"))))  # fmt: skip


def _smallest(name: str, order: float) -> Mistake:
    return _mistake(f"{name}-smallest-of-nothing-{order}", ShapeError,
                    lambda xp, la: getattr(la, name)(xp.zeros((0, 0)), ord=order),
                    f"ops.linalg.{name} got no elements")  # fmt: skip


_SINGULAR: Final = [[1.0, 2.0], [0.0, 0.0]]

MISTAKES: Final[tuple[Mistake, ...]] = (
    # Matrices that cannot be solved
    *map(_nan, ("lu", "lu_factor", "cond")),
    _mistake("lstsq-nan", LinAlgError,
             lambda xp, la: la.lstsq(xp.full((3, 2), float("nan")), xp.ones((3,)))),
    _mistake("solve-singular-columns", LinAlgError,
             lambda xp, la: la.solve(xp.ones((3, 3)), xp.ones((3, 2)))),
    _mistake("solve-singular-stack", LinAlgError,
             lambda xp, la: la.solve(xp.zeros((4, 3, 3)), xp.ones((3, 2)))),
    _mistake("triangular-singular", LinAlgError,
             lambda xp, la: la.solve_triangular(xp.asarray(_SINGULAR), xp.ones((2,))),
             "ops.linalg.solve_triangular", "singular"),
    _mistake("triangular-singular-columns", LinAlgError,
             lambda xp, la: la.solve_triangular(xp.zeros((3, 3)), xp.ones((3, 2)), trans="C")),
    _mistake("lu_solve-singular", LinAlgError,
             lambda xp, la: la.lu_solve(*la.lu_factor(xp.ones((2, 2))), xp.ones((2,))),
             "ops.linalg.lu_solve"),
    _mistake("cholesky_solve-singular", LinAlgError,
             lambda xp, la: la.cholesky_solve(xp.ones((2,)), xp.asarray(_SINGULAR)),
             "ops.linalg.cholesky_solve"),
    _mistake("cholesky_inverse-singular", LinAlgError,
             lambda xp, la: la.cholesky_inverse(xp.zeros((2, 2))), "ops.linalg.cholesky_inverse"),
    _mistake("cholesky-zero", LinAlgError, lambda xp, la: la.cholesky(xp.zeros((2, 2)))),
    _mistake("tensorsolve-singular", LinAlgError,
             lambda xp, la: la.tensorsolve(xp.ones((2, 2)), xp.ones((2,)))),
    _mistake("tensorinv-singular", LinAlgError, lambda xp, la: la.tensorinv(xp.ones((2, 2)), 1)),
    *map(_smallest, ("vector_norm", "matrix_norm", "matrix_norm", "matrix_norm", "norm"),
         (-math.inf, -math.inf, -1, -2, -2)),
    _mistake("cond-empty", LinAlgError, lambda xp, la: la.cond(xp.ones((0, 0))), "(0, 0)"),
    # Shapes
    *(_given(f"{name}-vector", name, "matrices", (3,))
      for name in ("lu", "lu_factor", "lq", "orthogonal", "cond", "cholesky_inverse", "expm")),
    _mistake("expm-not-square", ShapeError, lambda xp, la: la.expm(xp.ones((2, 3)))),
    _mistake("cond-not-square", ShapeError, lambda xp, la: la.cond(xp.ones((2, 3)), 1)),
    *(_given(f"{name}-shapes", name, "do not fit", (2, 2), (3, 1))
      for name in ("solve_triangular", "lstsq")),
    _mistake("cholesky_solve-shapes", ShapeError,
             lambda xp, la: la.cholesky_solve(xp.ones((3,)), xp.ones((2, 2)))),
    _mistake("triangular-stacks", ShapeError,
             lambda xp, la: la.solve_triangular(xp.ones((2, 2, 2)), xp.ones((3, 2, 1)))),
    _mistake("lstsq-0d", ShapeError, lambda xp, la: la.lstsq(xp.ones((2, 2)), xp.ones(()))),
    _mistake("lu_solve-pivots-shape", ShapeError, lambda xp, la: la.lu_solve(
        xp.eye(2), xp.zeros((3,), dtype="int64"), xp.ones((2,))), "pivots"),
    _mistake("multi_dot-one", ShapeError, lambda xp, la: la.multi_dot([xp.ones((2, 2))])),
    _mistake("multi_dot-shapes", ShapeError,
             lambda xp, la: la.multi_dot([xp.ones((2, 3)), xp.ones((2, 3)), xp.ones((3, 2))])),
    _mistake("multi_dot-inner-vector", ShapeError,
             lambda xp, la: la.multi_dot([xp.ones((2, 3)), xp.ones((3,)), xp.ones((3, 2))])),
    _mistake("diag-stack", ShapeError, lambda xp, la: la.diag(xp.ones((2, 2, 2))), "diag_embed"),
    _mistake("diag-0d", ShapeError, lambda xp, la: xp.diag(xp.ones(()))),
    _mistake("diag_embed-0d", ShapeError, lambda xp, la: la.diag_embed(xp.ones(()))),
    _mistake("vander-0d", ShapeError, lambda xp, la: la.vander(xp.ones(()))),
    _mistake("norm-stack", ShapeError, lambda xp, la: la.norm(xp.ones((2, 2, 2)), 1), "axes"),
    _mistake("tensorinv-shape", ShapeError, lambda xp, la: la.tensorinv(xp.ones((2, 3)), 1)),
    _mistake("tensorsolve-shape", ShapeError,
             lambda xp, la: la.tensorsolve(xp.ones((2, 3)), xp.ones((2,)))),
    # Axes, indices, options
    _mistake("diag_embed-axes", AxisError,
             lambda xp, la: la.diag_embed(xp.ones((2,)), axis1=0, axis2=-2)),
    _mistake("norm-axes", AxisError, lambda xp, la: la.norm(xp.ones((2, 2, 2)), axis=(0, 1, 2))),
    _mistake("norm-axis", AxisError, lambda xp, la: la.norm(xp.ones((2,)), axis=1)),
    _mistake("lu_solve-pivots", OutOfBoundsError, lambda xp, la: la.lu_solve(
        xp.eye(2), xp.asarray([0, 2]), xp.ones((2,))), "2 rows"),
    _mistake("lu_solve-float-pivots", DTypeError, lambda xp, la: la.lu_solve(
        xp.eye(2), xp.ones((2,)), xp.ones((2,))), "float32"),
    _mistake("diag-offset", DTypeError, lambda xp, la: la.diag(xp.ones((2,)), 0.5)),
    _mistake("norm-vector-fro", DomainError, lambda xp, la: la.norm(xp.ones((2,)), "fro")),
    _mistake("norm-matrix-3", DomainError, lambda xp, la: la.norm(xp.ones((2, 2)), 3), "nuc"),
    _mistake("cond-order", DomainError, lambda xp, la: la.cond(xp.eye(2), 3)),
    _mistake("lq-mode", DomainError, lambda xp, la: la.lq(xp.eye(2), mode="full")),
    _mistake("triangular-trans", DomainError,
             lambda xp, la: la.solve_triangular(xp.eye(2), xp.ones((2,)), trans="H"), "'C'"),
    _mistake("vander-negative", DomainError, lambda xp, la: la.vander(xp.ones((2,)), -1)),
    _mistake("tensorinv-ind", DomainError, lambda xp, la: la.tensorinv(xp.ones((2, 2)), 0)),
)  # fmt: skip
