"""Norms of vectors and matrices, and the condition that they give."""

from __future__ import annotations

import math
from typing import Any, Literal

from ember_ml.errors import AxisError, DomainError, LinAlgError, ShapeError
from ember_ml.ops import dispatch, elementwise, manipulation, reduction
from ember_ml.ops.axes import axes_of, number_of
from ember_ml.ops.linearalg.diagonals import diagonal
from ember_ml.ops.linearalg.factorisations import lu_factor, singular_values
from ember_ml.ops.linearalg.matrices import identity_of, matrix_of, square_of
from ember_ml.ops.linearalg.solving import inv
from ember_ml.ops.registry import FLOATING, LINALG, op
from ember_ml.ops.searching import where
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import Axis, TensorLike

__all__ = ["cond", "matrix_norm", "norm", "vector_norm"]

Order = float | Literal["fro", "nuc"] | None


@op("linalg.matrix_norm", accepts=LINALG, lift="float", result="real")
def matrix_norm(
    x: TensorLike,
    /,
    *,
    keepdims: bool = False,
    ord: Order = "fro",
) -> Tensor:
    """A norm of matrices: 'fro', 'nuc', 1, -1, 2, -2, inf or -inf.

    >>> matrix_norm([[3.0, 0.0], [0.0, 4.0]]).item()
    5.0
    """
    tensor = dispatch.lifted("linalg.matrix_norm", matrix_of("linalg.matrix_norm", x))
    out = _matrix_norm("linalg.matrix_norm", tensor, ord)
    return manipulation.expand_dims(out, (-2, -1)) if keepdims else out


def _matrix_norm(name: str, x: Tensor, ord: Order) -> Tensor:
    if ord in ("fro", None):
        return vector_norm(x, axis=(-2, -1))
    if ord in ("nuc", 2, -2):
        values = singular_values(name, x)
        if ord == "nuc":
            return reduction.sum(values, axis=-1)
        return (_largest if ord == 2 else _smallest)(name, values, (values.ndim - 1,))
    if ord in (1, -1, math.inf, -math.inf):
        along = -2 if abs(ord) == 1 else -1
        sums = reduction.sum(elementwise.abs(x), axis=along)
        return (_largest if ord > 0 else _smallest)(name, sums, (sums.ndim - 1,))
    raise DomainError(f"ops.{name} takes ord 'fro', 'nuc', 1, -1, 2, -2, inf, -inf, not {ord!r}")


def _largest(name: str, sizes: Tensor, axes: tuple[int, ...], keepdims: bool = False) -> Tensor:
    """The largest of some sizes; of none it is zero, below which no size lies."""
    choose = reduction.max if all(sizes.shape[axis] for axis in axes) else reduction.sum
    return choose(sizes, axis=axes, keepdims=keepdims)


def _smallest(name: str, sizes: Tensor, axes: tuple[int, ...], keepdims: bool = False) -> Tensor:
    if not all(sizes.shape[axis] for axis in axes):
        raise ShapeError(f"ops.{name} got no elements, among which none is the smallest")
    return reduction.min(sizes, axis=axes, keepdims=keepdims)


@op("linalg.vector_norm", accepts=FLOATING, lift="float", result="real")
def vector_norm(
    x: TensorLike,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    ord: float | None = 2,
) -> Tensor:
    """The norm of order `ord` over axes; inf is the largest, 0 counts what is not zero.

    Without an order it is that of order 2.

    >>> vector_norm([3.0, 4.0]).item()
    5.0
    """
    return _vector_norm("linalg.vector_norm", x, axis, keepdims, ord)


def _vector_norm(name: str, x: TensorLike, axis: Axis, keepdims: bool, ord: Order) -> Tensor:
    if isinstance(ord, str):
        raise DomainError(f"ops.{name} takes no order {ord!r} for vectors")
    order = 2.0 if ord is None else number_of(name, ord, "ord")
    tensor = dispatch.lifted(name, x)
    axes = axes_of(name, axis, tensor.ndim)
    if not axes and tensor.ndim:
        return elementwise.abs(tensor)
    options: dict[str, Any] = {"axis": axes, "keepdims": keepdims}
    if order == 2:
        size = elementwise.abs(tensor) if tensor.dtype.is_complex else tensor
        return dispatch.reduce("linalg.euclidean", size, axes, keepdims)
    size = elementwise.abs(tensor)
    if order == math.inf:
        return _largest(name, size, axes, keepdims)
    if order == -math.inf:
        return _smallest(name, size, axes, keepdims)
    if order == 0:
        return convert.cast(reduction.count_nonzero(size, **options), size.dtype)
    if order == 1:
        return reduction.sum(size, **options)
    powers = reduction.sum(elementwise.pow(size, order), **options)
    # The gradient at zero is zero, where that of the root is infinite.
    none = elementwise.equal(powers, 0)
    return where(
        none, 0.0 if order > 0 else math.inf, elementwise.pow(where(none, 1.0, powers), 1.0 / order)
    )


@op("linalg.norm", accepts=FLOATING, lift="float", result="real", standard=False)
def norm(
    x: TensorLike,
    /,
    ord: Order = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> Tensor:
    """The norm of vectors along one axis, or of matrices along two.

    Without `axis`, a vector or a matrix is taken as what it is, and without `ord` as well, all
    elements as one vector. Without `ord` it is the root of the sum of squares.

    >>> norm([[3.0, 4.0], [6.0, 8.0]], axis=1).tolist()
    [5.0, 10.0]
    >>> norm([[3.0, 4.0], [6.0, 8.0]], "nuc").item() > norm([[3.0, 4.0], [6.0, 8.0]], 2).item()
    False
    """
    tensor = dispatch.lifted("linalg.norm", x)
    if axis is None and ord is None:
        return vector_norm(tensor, keepdims=keepdims)
    if axis is None and tensor.ndim not in (1, 2):
        raise ShapeError(
            f"ops.linalg.norm of order {ord!r} takes a vector or a matrix, not shape "
            f"{tensor.shape}; say which axes are meant"
        )
    axes = axes_of("linalg.norm", axis, tensor.ndim)
    if len(axes) == 1:
        return _vector_norm("linalg.norm", tensor, axes, keepdims, ord)
    if len(axes) != 2:
        raise AxisError(f"ops.linalg.norm takes one axis or two, not {axis}")
    moved = manipulation.moveaxis(tensor, axes, (-2, -1))
    out = _matrix_norm("linalg.norm", moved, ord)
    return manipulation.expand_dims(out, tuple(sorted(axes))) if keepdims else out


@op("linalg.cond", accepts=LINALG, lift="float", result="real", standard=False)
def cond(x: TensorLike, /, p: Order = None) -> Tensor:
    """How much a matrix can magnify errors: the norm of it times that of its inverse.

    Without `p`, the largest singular value over the smallest; singular matrices have infinity.

    >>> cond([[2.0, 0.0], [0.0, 0.5]]).item()
    4.0
    """
    tensor = dispatch.lifted("linalg.cond", matrix_of("linalg.cond", x))
    if not all(tensor.shape[-2:]):
        raise LinAlgError(f"ops.linalg.cond is not defined for shape {tensor.shape}")
    if p in (None, 2, -2):
        values = singular_values("linalg.cond", tensor)
        first, last = values[..., 0], values[..., -1]
        large, small = (last, first) if p == -2 else (first, last)
        # 0 / 0 of a matrix of zeros is no number; it is as singular as any.
        none = elementwise.equal(small, 0)
        return where(none, math.inf, elementwise.divide(large, where(none, 1.0, small)))
    tensor = square_of("linalg.cond", tensor)
    pivots = diagonal(lu_factor(tensor).LU)
    singular = reduction.any(elementwise.equal(pivots, 0), axis=-1)
    mask = manipulation.expand_dims(singular, (-2, -1))
    inverse = inv(where(mask, identity_of(tensor), tensor))
    product = elementwise.multiply(
        _matrix_norm("linalg.cond", tensor, p), _matrix_norm("linalg.cond", inverse, p)
    )
    return where(singular, math.inf, product)
