"""Products of vectors, matrices and tensors, as NumPy names them."""

from __future__ import annotations

from ember_ml.backend import pairs
from ember_ml.errors import ShapeError
from ember_ml.ops import dispatch, elementwise, linearalg, manipulation
from ember_ml.ops.registry import NUMERIC, op
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__: list[str] = ["dot", "inner", "matvec", "outer", "vdot", "vecmat"]


@op(accepts=NUMERIC, lift="int", arity=2, standard=False)
def dot(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """NumPy's dot: the last axis of x1 with the last but one of x2; a 0-d tensor multiplies.

    >>> dot([1, 2], [3, 4]).item()
    11
    """
    a, b = _operands("dot", x1, x2)
    if not a.ndim or not b.ndim:
        return elementwise.multiply(a, b)
    if a.ndim <= 2 and b.ndim <= 2:
        return dispatch.binary(pairs.MATMUL, a, b)
    return linearalg.tensordot(a, b, axes=((-1,), (-2 if b.ndim > 1 else -1,)))


@op(accepts=NUMERIC, lift="int", arity=2, standard=False)
def inner(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The products of the last axes, summed; a 0-d tensor multiplies.

    >>> inner([1, 2], [[3, 4], [5, 6]]).tolist()
    [11, 17]
    """
    a, b = _operands("inner", x1, x2)
    if not a.ndim or not b.ndim:
        return elementwise.multiply(a, b)
    return linearalg.tensordot(a, b, axes=((-1,), (-1,)))


@op(accepts=NUMERIC, lift="int", arity=2, standard=False)
def outer(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The products of all pairs of elements; tensors are flattened first, as in NumPy.

    >>> outer([1, 2], [3, 4]).tolist()
    [[3, 4], [6, 8]]
    """
    a, b = _operands("outer", x1, x2)
    return elementwise.multiply(manipulation.reshape(a, (-1, 1)), manipulation.reshape(b, (1, -1)))


@op(accepts=NUMERIC, lift="int", arity=2, standard=False)
def vdot(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The dot product of all elements; of complex numbers, x1 is conjugated.

    >>> vdot([[1, 2], [3, 4]], [[1, 1], [1, 1]]).item()
    10
    """
    a, b = _operands("vdot", x1, x2)
    if a.size != b.size:
        raise ShapeError(f"ops.vdot got shapes {a.shape} and {b.shape}, which differ in size")
    a, b = manipulation.reshape(a, (-1,)), manipulation.reshape(b, (-1,))
    return dispatch.binary(pairs.MATMUL, elementwise.conj(a) if a.dtype.is_complex else a, b)


@op(accepts=NUMERIC, lift="int", arity=2, standard=False)
def matvec(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Matrices times vectors; stacks of both broadcast.

    >>> matvec([[1, 2], [3, 4]], [1, 1]).tolist()
    [3, 7]
    """
    a, b = _operands("matvec", x1, x2)
    if a.ndim < 2 or not b.ndim or a.shape[-1] != b.shape[-1]:
        raise ShapeError(
            f"ops.matvec got shapes {a.shape} and {b.shape}; it takes (..., m, n) and (..., n)"
        )
    product = dispatch.binary(pairs.MATMUL, a, manipulation.expand_dims(b, -1))
    return manipulation.squeeze(product, -1)


@op(accepts=NUMERIC, lift="int", arity=2, standard=False)
def vecmat(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Vectors times matrices; stacks of both broadcast. Complex vectors are conjugated.

    >>> vecmat([1, 1], [[1, 2], [3, 4]]).tolist()
    [4, 6]
    """
    a, b = _operands("vecmat", x1, x2)
    if b.ndim < 2 or not a.ndim or a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"ops.vecmat got shapes {a.shape} and {b.shape}; it takes (..., n) and (..., n, m)"
        )
    row = manipulation.expand_dims(elementwise.conj(a) if a.dtype.is_complex else a, -2)
    return manipulation.squeeze(dispatch.binary(pairs.MATMUL, row, b), -2)


def _operands(name: str, x1: TensorLike, x2: TensorLike) -> tuple[Tensor, Tensor]:
    """Both operands in the dtype in which the product runs."""
    a, b = (dispatch.lifted(name, x) for x in dispatch.aligned(name, x1, x2))
    return a, b
