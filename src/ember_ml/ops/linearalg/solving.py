"""Determinants, inverses, and solutions of systems of equations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ember_ml import dtypes
from ember_ml.backend import pairs
from ember_ml.errors import DomainError, DTypeError, LinAlgError, OutOfBoundsError, ShapeError
from ember_ml.ops import dispatch, elementwise, manipulation, reduction
from ember_ml.ops.axes import axes_of, broadcast, integer_of
from ember_ml.ops.indexing import take_along_axis
from ember_ml.ops.linearalg.diagonals import diagonal
from ember_ml.ops.linearalg.factorisations import singular_values, svd
from ember_ml.ops.linearalg.matrices import (
    adjoint,
    constant,
    identity_of,
    matrix_of,
    pair,
    permutation_of,
    require_nonzero,
    square_of,
    system_of,
)
from ember_ml.ops.registry import LINALG, op
from ember_ml.ops.searching import argsort, where
from ember_ml.tensor import convert, views
from ember_ml.tensor.core import GradTensor, Tensor
from ember_ml.typing import TensorLike

__all__ = [
    "LstsqResult",
    "SlogdetResult",
    "cholesky_inverse",
    "cholesky_solve",
    "det",
    "inv",
    "lstsq",
    "lu_solve",
    "matrix_rank",
    "pinv",
    "slogdet",
    "solve",
    "solve_triangular",
    "tensorinv",
    "tensorsolve",
    "triangular_solve",
]

Side = Literal[0, 1, 2, "N", "T", "C"]


class SlogdetResult(NamedTuple):
    """The result of slogdet."""

    sign: Tensor
    logabsdet: Tensor


@op("linalg.det", accepts=LINALG, lift="float")
def det(x: TensorLike, /) -> Tensor:
    """The determinant of square matrices.

    >>> det([[2.0, 0.0], [0.0, 3.0]]).item()
    6.0
    """
    return dispatch.call("linalg.det", square_of("linalg.det", x))


@op("linalg.slogdet", accepts=LINALG, lift="float")
def slogdet(x: TensorLike, /) -> SlogdetResult:
    """The sign and the logarithm of the absolute value of the determinant.

    >>> slogdet([[1.0, 0.0], [0.0, -1.0]]).sign.item()
    -1.0
    """
    sign, size = dispatch.call_many("linalg.slogdet", square_of("linalg.slogdet", x))
    # Of what is no number, engines give 0, 1 or NaN as the sign.
    return SlogdetResult(where(elementwise.isnan(size), math.nan, sign), size)


@op("linalg.inv", accepts=LINALG, lift="float")
def inv(x: TensorLike, /) -> Tensor:
    """The inverse of square matrices.

    >>> inv([[2.0]]).tolist()
    [[0.5]]
    """
    return dispatch.call("linalg.inv", square_of("linalg.inv", x))


@op("linalg.pinv", accepts=LINALG, lift="float")
def pinv(x: TensorLike, /, *, rtol: TensorLike | None = None) -> Tensor:
    """The Moore-Penrose inverse; singular values up to `rtol` times the largest count as zero.

    >>> pinv([[2.0]]).tolist()
    [[0.5]]
    """
    tensor = dispatch.lifted("linalg.pinv", matrix_of("linalg.pinv", x))
    if not tensor.size:
        return manipulation.reshape(
            tensor, (*tensor.shape[:-2], tensor.shape[-1], tensor.shape[-2])
        ).copy()
    if rtol is None:
        return _pinv(tensor)
    u, s, vh = svd(tensor, full_matrices=False)
    inverse, _ = _inverted(tensor, s, rtol)
    scaled = elementwise.multiply(manipulation.expand_dims(inverse, -1), adjoint(u))
    return dispatch.binary(pairs.MATMUL, adjoint(vh), scaled)


def _pinv(x: Tensor) -> Tensor:
    """The inverse of all that is not zero but for rounding.

    It has a gradient of its own, which unlike that of svd is finite where singular values are
    equal; it would not be exact where larger values are left out.
    """
    share = max(x.shape[-2:]) * dtypes.float_limits(dtypes.real_of(x.dtype)).eps
    return dispatch.call("linalg.pinv", x, share)


def _inverted(x: Tensor, s: Tensor, rtol: TensorLike | None) -> tuple[Tensor, Tensor]:
    """The inverses of singular values, zero for those that count as zero, and which those are."""
    if s.shape[-1]:
        small = elementwise.less_equal(s, cutoff(x, s, rtol))
    else:
        small = elementwise.less_equal(s, 0)
    return where(small, 0.0, elementwise.divide(1.0, where(small, 1.0, s))), small


@op("linalg.matrix_rank", accepts=LINALG, lift="float", result="index")
def matrix_rank(x: TensorLike, /, *, rtol: TensorLike | None = None) -> Tensor:
    """How many singular values exceed `rtol` times the largest.

    >>> matrix_rank([[1.0, 1.0], [1.0, 1.0]]).item()
    1
    """
    tensor = dispatch.lifted("linalg.matrix_rank", matrix_of("linalg.matrix_rank", x))
    s = singular_values("linalg.matrix_rank", tensor)
    if not s.shape[-1]:
        return reduction.count_nonzero(s, axis=-1)
    above = elementwise.greater(s, cutoff(tensor, s, rtol))
    return reduction.count_nonzero(above, axis=-1)


def cutoff(x: Tensor, s: Tensor, rtol: TensorLike | None) -> Tensor:
    """The singular value up to which others count as zero."""
    largest = reduction.max(s, axis=-1, keepdims=True)
    if rtol is None:
        rtol = max(x.shape[-2:]) * dtypes.float_limits(s.dtype).eps
        return elementwise.multiply(largest, rtol)
    factor = convert.cast(convert.to_tensor(rtol, x._spec.backend), s.dtype)
    return elementwise.multiply(largest, manipulation.expand_dims(factor, -1))


@op("linalg.solve", accepts=LINALG, lift="float", arity=2)
def solve(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The y with x1 @ y = x2; a vector x2 counts as one column.

    >>> solve([[2.0]], [4.0]).tolist()
    [2.0]
    """
    a, b, vector = system_of("linalg.solve", x1, x2)
    out = pair("linalg.solve", a, b)
    return manipulation.squeeze(out, -1) if vector else out


@op("linalg.solve_triangular", accepts=LINALG, lift="float", arity=2, standard=False)
def solve_triangular(
    a: TensorLike,
    b: TensorLike,
    /,
    *,
    lower: bool = False,
    trans: Side = 0,
    unit_diagonal: bool = False,
) -> Tensor:
    """The y with a @ y = b for triangular matrices, of which only that triangle is read.

    `trans` solves for the transpose (1, "T") or the adjoint (2, "C") of `a`; with
    `unit_diagonal`, ones stand for a diagonal that is not read.

    >>> solve_triangular([[2.0, 0.0], [1.0, 1.0]], [2.0, 3.0], lower=True).tolist()
    [1.0, 2.0]
    """
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise DomainError(
            f"ops.linalg.solve_triangular takes trans 0, 1, 2, 'N', 'T' or 'C', not {trans!r}"
        )
    left, right, vector = system_of("linalg.solve_triangular", a, b)
    if trans in (1, "T"):
        left = views.rearranged("matrix_transpose", left)
    elif trans in (2, "C"):
        left = adjoint(left)
    if trans not in (0, "N"):
        lower = not lower
    out = _triangular("linalg.solve_triangular", left, right, lower, unit_diagonal)
    return manipulation.squeeze(out, -1) if vector else out


triangular_solve = solve_triangular


def _triangular(name: str, a: Tensor, b: Tensor, lower: bool, unit: bool = False) -> Tensor:
    if not unit:
        require_nonzero(name, diagonal(a))
    return pair("linalg.solve_triangular", a, b, bool(lower), bool(unit))


@op("linalg.cholesky_solve", accepts=LINALG, lift="float", arity=2, standard=False)
def cholesky_solve(b: TensorLike, factor: TensorLike, /, *, upper: bool = False) -> Tensor:
    """The y with x @ y = b, of the Cholesky factor of x.

    >>> cholesky_solve([8.0], [[2.0]]).tolist()
    [2.0]
    """
    name = "linalg.cholesky_solve"
    left, right, vector = system_of(name, factor, b)
    low = adjoint(left) if upper else left
    half = _triangular(name, low, right, True)
    out = _triangular(name, adjoint(low), half, False)
    return manipulation.squeeze(out, -1) if vector else out


@op("linalg.cholesky_inverse", accepts=LINALG, lift="float", standard=False)
def cholesky_inverse(factor: TensorLike, /, *, upper: bool = False) -> Tensor:
    """The inverse of a matrix, of its Cholesky factor.

    >>> cholesky_inverse([[2.0]]).tolist()
    [[0.25]]
    """
    name = "linalg.cholesky_inverse"
    tensor = dispatch.lifted(name, square_of(name, factor))
    low = adjoint(tensor) if upper else tensor
    half = _triangular(name, low, identity_of(tensor), True)
    return dispatch.binary(pairs.MATMUL, adjoint(half), half)


@op("linalg.lu_solve", accepts=LINALG, lift="float", standard=False)
def lu_solve(
    lu: TensorLike, pivots: TensorLike, b: TensorLike, /, *, adjoint: bool = False
) -> Tensor:
    """The y with x @ y = b, of what lu_factor(x) gave; with `adjoint`, x.H stands for x.

    >>> lu_solve(*em.ops.linalg.lu_factor([[0.0, 2.0], [4.0, 0.0]]), [2.0, 4.0]).tolist()
    [1.0, 1.0]
    """
    name = "linalg.lu_solve"
    both, right, vector = system_of(name, lu, b)
    rows = both.shape[-1]
    swaps = convert.to_tensor(pivots, dispatch.home_of(name, (lu, pivots, b)))
    if not swaps.dtype.is_integer:
        raise DTypeError(f"ops.{name} takes integer pivots, not {swaps.dtype}")
    if swaps.shape != both.shape[:-1]:
        raise ShapeError(
            f"ops.{name} got pivots of shape {swaps.shape} for matrices of {both.shape}"
        )
    _require_rows(name, swaps, rows)
    order = permutation_of(convert.cast(swaps, dtypes.int64), rows)
    require_nonzero(name, diagonal(both))
    if adjoint:
        out = _adjoint_solution(both, order, right)
    else:
        moved = rows_at(right, order)
        half = pair("linalg.solve_triangular", both, moved, True, True)
        out = pair("linalg.solve_triangular", both, half, False, False)
    return manipulation.squeeze(out, -1) if vector else out


def _require_rows(name: str, pivots: Tensor, rows: int) -> None:
    """Raise OutOfBoundsError where a pivot is no row: engines would read beyond the matrix."""
    if not pivots.size or not pivots._spec.backend.checks_values(pivots.native):
        return
    first, last = reduction.min(pivots).item(), reduction.max(pivots).item()
    if first < 0 or last >= rows:
        raise OutOfBoundsError(
            f"ops.{name} got pivots from {first} to {last} for {rows} rows, counted from 0"
        )


def _adjoint_solution(both: Tensor, order: Tensor, b: Tensor) -> Tensor:
    turned = adjoint(both)
    half = pair("linalg.solve_triangular", turned, b, True, False)
    out = pair("linalg.solve_triangular", turned, half, False, True)
    return rows_at(out, argsort(order, axis=-1))


def rows_at(x: Tensor, order: Tensor) -> Tensor:
    """The rows of matrices in another order, that of each stack its own."""
    shape = broadcast("linalg.lu_solve", [x.shape[:-2], order.shape[:-1]])
    x = manipulation.broadcast_to(x, (*shape, *x.shape[-2:]))
    order = manipulation.broadcast_to(order, (*shape, x.shape[-2]))
    places = manipulation.expand_dims(order, -1)
    return take_along_axis(x, places, axis=-2)


class LstsqResult(NamedTuple):
    """The result of lstsq."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


@op("linalg.lstsq", accepts=LINALG, lift="float", arity=2, standard=False)
def lstsq(a: TensorLike, b: TensorLike, /, rcond: TensorLike | None = None) -> LstsqResult:
    """The y for which the squares of a @ y - b are smallest; of several, that of least norm.

    Shapes: a (..., m, n), b (..., m, k) or one vector (m,), solution (..., n, k) or (..., n).
    Singular values up to `rcond` times the largest count as zero. `residuals` are the sums of
    squares, (..., k); they are empty, of shape (0,), where m <= n or where a matrix has not full
    rank. Compiled code cannot ask for ranks: there they are empty where m <= n.

    >>> fit = lstsq([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], [1.0, 3.0, 5.0])
    >>> [round(value, 4) for value in fit.solution.tolist()], fit.rank.item()
    ([1.0, 2.0], 2)
    """
    name = "linalg.lstsq"
    left, right, vector = system_of(name, a, b, square=False)
    rows, columns = left.shape[-2:]
    if rcond is None and left.size and _may_have_gradient(left, right):
        s = singular_values(name, left)
        _, small = _inverted(left, s, None)
        out = dispatch.binary(pairs.MATMUL, _pinv(left), right)
    else:
        try:
            u, s, vh = svd(left, full_matrices=False)
        except LinAlgError as error:
            raise LinAlgError(str(error).replace("linalg.svd", name)) from error
        inverse, small = _inverted(left, s, rcond)
        parts = dispatch.binary(pairs.MATMUL, adjoint(u), right)
        scaled = elementwise.multiply(manipulation.expand_dims(inverse, -1), parts)
        out = dispatch.binary(pairs.MATMUL, adjoint(vh), scaled)
    rank = reduction.count_nonzero(elementwise.logical_not(small), axis=-1)
    if rows > columns and _all_equal(rank, columns):
        gaps = elementwise.subtract(right, dispatch.binary(pairs.MATMUL, left, out))
        residuals = reduction.sum(_squared(gaps), axis=-2)
    else:
        residuals = constant(np.zeros((0,), s.dtype.numpy), s)
    return LstsqResult(manipulation.squeeze(out, -1) if vector else out, residuals, rank, s)


def _squared(x: Tensor) -> Tensor:
    """The squares of sizes; not by the size, which has no slope at zero."""
    if not x.dtype.is_complex:
        return elementwise.square(x)
    real, imaginary = elementwise.real(x), elementwise.imag(x)
    return elementwise.add(elementwise.square(real), elementwise.square(imaginary))


def _may_have_gradient(*inputs: Tensor) -> bool:
    """True where inputs are differentiated by; engines that transform functions do not tell."""
    if inputs[0]._spec.backend.gradients.transforms:
        return True
    return any(type(x) is GradTensor for x in inputs)


def _all_equal(x: Tensor, value: int) -> bool:
    """True where all elements are a number, or where tracing cannot tell."""
    if x._spec.backend.is_traced(x.native):
        return True
    return bool(reduction.all(elementwise.equal(x, value)))


@op("linalg.tensorsolve", accepts=LINALG, lift="float", arity=2, standard=False)
def tensorsolve(a: TensorLike, b: TensorLike, /, axes: Sequence[int] | None = None) -> Tensor:
    """The y with tensordot(a, y, y.ndim) = b; `axes` of `a` are moved to its end first.

    >>> tensorsolve([[[2.0]]], [[4.0]]).tolist()
    [2.0]
    """
    name = "linalg.tensorsolve"
    home = dispatch.home_of(name, (a, b))
    left, right = convert.to_tensor(a, home), convert.to_tensor(b, home)
    if axes is not None:
        last = axes_of(name, tuple(axes), left.ndim)
        rest = [i for i in range(left.ndim) if i not in last]
        left = manipulation.permute_dims(left, (*rest, *last))
    shape = left.shape[right.ndim :]
    size = math.prod(shape)
    if left.shape[: right.ndim] != right.shape or size != right.size:
        raise ShapeError(
            f"ops.{name} got shapes {left.shape} and {right.shape}; the first must begin with the "
            f"second, and its other axes must have as many elements"
        )
    flat = manipulation.reshape(left, (size, size)), manipulation.reshape(right, (size,))
    matrix, column, _ = system_of(name, *flat)
    return manipulation.reshape(pair("linalg.solve", matrix, column), shape)


@op("linalg.tensorinv", accepts=LINALG, lift="float", standard=False)
def tensorinv(x: TensorLike, /, ind: int = 2) -> Tensor:
    """The inverse of tensordot with x over `ind` axes.

    >>> tensorinv([[[2.0]]], 1).tolist()
    [[[0.5]]]
    """
    name = "linalg.tensorinv"
    tensor = dispatch.lifted(name, x)
    count = integer_of(name, ind, "ind")
    if count <= 0:
        raise DomainError(f"ops.{name} takes ind of 1 or more, not {count}")
    first, last = tensor.shape[:count], tensor.shape[count:]
    size = math.prod(last)
    if size != math.prod(first):
        raise ShapeError(
            f"ops.{name} got shape {tensor.shape}, whose first {count} axes have not as many "
            f"elements as the others"
        )
    flat = manipulation.reshape(tensor, (size, size))
    return manipulation.reshape(inv(flat), (*last, *first))
