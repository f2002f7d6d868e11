"""Factorisations: matrices as products of simpler ones."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from ember_ml.errors import DomainError, LinAlgError
from ember_ml.ops import dispatch, elementwise, manipulation
from ember_ml.ops.linearalg.diagonals import diagonal
from ember_ml.ops.linearalg.matrices import (
    adjoint,
    constant,
    matrix_of,
    permutation_of,
    square_of,
)
from ember_ml.ops.registry import LINALG, op
from ember_ml.ops.searching import where
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = [
    "EigResult",
    "LQResult",
    "LUFactorResult",
    "LUResult",
    "QRResult",
    "SVDResult",
    "cholesky",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "lq",
    "lu",
    "lu_factor",
    "orthogonal",
    "qr",
    "svd",
    "svdvals",
]


class EigResult(NamedTuple):
    """The result of eig and eigh."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """The result of qr."""

    Q: Tensor
    R: Tensor


class SVDResult(NamedTuple):
    """The result of svd."""

    U: Tensor
    S: Tensor
    Vh: Tensor


@op("linalg.cholesky", accepts=LINALG, lift="float")
def cholesky(x: TensorLike, /, *, upper: bool = False) -> Tensor:
    """The triangular L with x = L @ L.H of positive definite matrices.

    >>> cholesky([[4.0]]).tolist()
    [[2.0]]
    """
    return dispatch.call("linalg.cholesky", square_of("linalg.cholesky", x), upper)


@op("linalg.eig", accepts=LINALG, lift="float", result="complex")
def eig(x: TensorLike, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices; always complex.

    >>> eig([[2.0, 0.0], [0.0, 2.0]]).eigenvalues.tolist()
    [(2+0j), (2+0j)]
    """
    return EigResult(*dispatch.call_many("linalg.eig", square_of("linalg.eig", x)))


@op("linalg.eigvals", accepts=LINALG, lift="float", result="complex")
def eigvals(x: TensorLike, /) -> Tensor:
    """Eigenvalues of square matrices; always complex.

    >>> eigvals([[2.0, 0.0], [0.0, 2.0]]).tolist()
    [(2+0j), (2+0j)]
    """
    return dispatch.call("linalg.eigvals", square_of("linalg.eigvals", x))


@op("linalg.eigh", accepts=LINALG, lift="float")
def eigh(x: TensorLike, /) -> EigResult:
    """Eigenvalues, in ascending order, and eigenvectors of symmetric or Hermitian matrices.

    >>> eigh([[2.0, 0.0], [0.0, 1.0]]).eigenvalues.tolist()
    [1.0, 2.0]
    """
    return EigResult(*dispatch.call_many("linalg.eigh", square_of("linalg.eigh", x)))


@op("linalg.eigvalsh", accepts=LINALG, lift="float", result="real")
def eigvalsh(x: TensorLike, /) -> Tensor:
    """Eigenvalues, in ascending order, of symmetric or Hermitian matrices.

    >>> eigvalsh([[2.0, 0.0], [0.0, 1.0]]).tolist()
    [1.0, 2.0]
    """
    return dispatch.call("linalg.eigvalsh", square_of("linalg.eigvalsh", x))


@op("linalg.qr", accepts=LINALG, lift="float")
def qr(x: TensorLike, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Orthonormal columns Q and the upper triangular R with x = Q @ R.

    >>> [t.shape for t in qr([[1.0], [2.0]])]
    [(2, 1), (1, 1)]
    """
    if mode not in ("reduced", "complete"):
        raise DomainError(f"ops.linalg.qr takes mode 'reduced' or 'complete', not {mode!r}")
    return QRResult(*dispatch.call_many("linalg.qr", matrix_of("linalg.qr", x), mode))


@op("linalg.svd", accepts=LINALG, lift="float")
def svd(x: TensorLike, /, *, full_matrices: bool = True) -> SVDResult:
    """U, the singular values in descending order, and V.H, with x = U @ diag(S) @ Vh.

    >>> svd([[2.0, 0.0], [0.0, 1.0]]).S.tolist()
    [2.0, 1.0]
    """
    return SVDResult(*dispatch.call_many("linalg.svd", matrix_of("linalg.svd", x), full_matrices))


@op("linalg.svdvals", accepts=LINALG, lift="float", result="real")
def svdvals(x: TensorLike, /) -> Tensor:
    """The singular values, in descending order.

    >>> svdvals([[2.0, 0.0], [0.0, 1.0]]).tolist()
    [2.0, 1.0]
    """
    return dispatch.call("linalg.svdvals", matrix_of("linalg.svdvals", x))


def singular_values(name: str, x: Tensor) -> Tensor:
    """The singular values on which another op is built; an error names that one."""
    try:
        return svdvals(x)
    except LinAlgError as error:
        raise LinAlgError(str(error).replace("linalg.svdvals", name)) from error


class LQResult(NamedTuple):
    """The result of lq."""

    L: Tensor
    Q: Tensor


class LUResult(NamedTuple):
    """The result of lu."""

    P: Tensor
    L: Tensor
    U: Tensor


class LUFactorResult(NamedTuple):
    """The result of lu_factor."""

    LU: Tensor
    pivots: Tensor


@op("linalg.lq", accepts=LINALG, lift="float", standard=False)
def lq(x: TensorLike, /, *, mode: Literal["reduced", "complete"] = "reduced") -> LQResult:
    """The lower triangular L and orthonormal rows Q with x = L @ Q.

    >>> [t.shape for t in lq([[1.0, 2.0]])]
    [(1, 1), (1, 2)]
    """
    if mode not in ("reduced", "complete"):
        raise DomainError(f"ops.linalg.lq takes mode 'reduced' or 'complete', not {mode!r}")
    tensor = dispatch.lifted("linalg.lq", matrix_of("linalg.lq", x))
    q, r = qr(adjoint(tensor), mode=mode)
    return LQResult(adjoint(r), adjoint(q))


@op("linalg.orthogonal", accepts=LINALG, lift="float", standard=False)
def orthogonal(x: TensorLike, /) -> Tensor:
    """The orthonormal factor of x, in its shape: columns of a tall matrix, rows of a wide one.

    It is the Q of x = Q @ R (x = L @ Q) whose triangle has a positive diagonal, and so unique
    where x has full rank: of a matrix of normal random numbers, a uniform random rotation.

    >>> [round(value, 4) for value in orthogonal([[3.0], [4.0]])[:, 0].tolist()]
    [0.6, 0.8]
    """
    tensor = dispatch.lifted("linalg.orthogonal", matrix_of("linalg.orthogonal", x))
    wide = tensor.shape[-2] < tensor.shape[-1]
    q, r = qr(adjoint(tensor) if wide else tensor)
    along = diagonal(r)
    zero = elementwise.equal(along, 0)
    phase = where(zero, 1.0, elementwise.sign(along))
    q = elementwise.multiply(q, manipulation.expand_dims(phase, -2))
    return adjoint(q) if wide else q


@op("linalg.lu_factor", accepts=LINALG, lift="float", standard=False)
def lu_factor(x: TensorLike, /) -> LUFactorResult:
    """L and U in one matrix, and the row (from 0) with which each row was exchanged in turn.

    The diagonal of L is one and is not stored; `lu` gives the factors apart.

    >>> lu_factor([[1.0, 2.0], [4.0, 8.0]]).LU.tolist()
    [[4.0, 8.0], [0.25, 0.0]]
    """
    return LUFactorResult(*dispatch.call_many("linalg.lu_factor", matrix_of("linalg.lu_factor", x)))


@op("linalg.lu", accepts=LINALG, lift="float", standard=False)
def lu(x: TensorLike, /) -> LUResult:
    """A permutation P, the unit lower triangular L and the upper triangular U with x = P @ L @ U.

    Shapes of x (..., m, n): P (..., m, m), L (..., m, k), U (..., k, n), with k = min(m, n).

    >>> lu([[1.0, 2.0], [4.0, 8.0]]).L.tolist()
    [[1.0, 0.0], [0.25, 1.0]]
    """
    tensor = dispatch.lifted("linalg.lu", matrix_of("linalg.lu", x))
    rows, columns = tensor.shape[-2:]
    both, pivots = lu_factor(tensor)
    small = min(rows, columns)
    below = dispatch.call("tril", both[..., :, :small], -1)
    one = constant(np.eye(rows, small, dtype=tensor.dtype.numpy), tensor)
    upper = dispatch.call("triu", both[..., :small, :], 0)
    order = manipulation.expand_dims(permutation_of(pivots, rows), -2)
    places = constant(np.arange(rows)[:, None], tensor)
    p = convert.cast(elementwise.equal(places, order), tensor.dtype)
    return LUResult(p, elementwise.add(below, one), upper)
