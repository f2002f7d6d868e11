"""Diagonals: read from matrices, summed, and made into matrices."""

from __future__ import annotations

import numpy as np

from ember_ml.errors import AxisError, DomainError, ShapeError
from ember_ml.ops import dispatch, manipulation, reduction
from ember_ml.ops.axes import axis_of, integer_of
from ember_ml.ops.linearalg.matrices import constant, matrix_of
from ember_ml.ops.registry import ANY, BOOLEAN, NUMERIC, op
from ember_ml.ops.searching import where
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import DTypeLike, TensorLike

__all__ = ["diag", "diag_embed", "diagonal", "trace", "vander"]


@op("linalg.diagonal", accepts=ANY)
def diagonal(x: TensorLike, /, *, offset: int = 0) -> Tensor:
    """The elements on a diagonal of each matrix.

    >>> diagonal([[1, 2], [3, 4]]).tolist()
    [1, 4]
    """
    tensor = matrix_of("linalg.diagonal", x)
    rows, columns = tensor.shape[-2:]
    shift = integer_of("linalg.diagonal", offset, "offset")
    first, second = max(-shift, 0), max(shift, 0)
    count = max(min(rows - first, columns - second), 0)
    if type(count) is not int:  # one that varies, in a function that is exported
        from ember_ml.ops import creation  # which makes triangles by ops of this folder

        places = creation.arange(count)
        return tensor[(..., places + first, places + second)]
    steps = range(count)
    return tensor[(..., [first + i for i in steps], [second + i for i in steps])]


@op("linalg.trace", accepts=NUMERIC | BOOLEAN, lift="sum")
def trace(x: TensorLike, /, *, offset: int = 0, dtype: DTypeLike = None) -> Tensor:
    """The sum of a diagonal of each matrix.

    >>> trace([[1, 2], [3, 4]]).item()
    5
    """
    return reduction.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


@op("linalg.diag", accepts=ANY, standard=False)
def diag(x: TensorLike, /, offset: int = 0) -> Tensor:
    """A matrix with a vector on its diagonal; of a matrix, its diagonal.

    >>> diag([1, 2]).tolist()
    [[1, 0], [0, 2]]
    >>> diag([[1, 2], [3, 4]], 1).tolist()
    [2]
    """
    tensor = convert.to_tensor(x)
    if tensor.ndim not in (1, 2):
        raise ShapeError(
            f"ops.linalg.diag takes a vector or a matrix, not shape {tensor.shape}; "
            f"for stacks there are ops.linalg.diag_embed and ops.linalg.diagonal"
        )
    if tensor.ndim == 1:
        return diag_embed(tensor, offset)
    return diagonal(tensor, offset=offset)


@op("linalg.diag_embed", accepts=ANY, standard=False)
def diag_embed(x: TensorLike, /, offset: int = 0, *, axis1: int = -2, axis2: int = -1) -> Tensor:
    """Matrices, along two new axes, with the vectors of the last axis on a diagonal.

    >>> diag_embed([[1, 2], [3, 4]]).tolist()
    [[[1, 0], [0, 2]], [[3, 0], [0, 4]]]
    """
    tensor = convert.to_tensor(x)
    if not tensor.ndim:
        raise ShapeError("ops.linalg.diag_embed takes vectors, not a 0-d tensor")
    shift = integer_of("linalg.diag_embed", offset, "offset")
    rows, columns = (axis_of("linalg.diag_embed", a, tensor.ndim + 1) for a in (axis1, axis2))
    if rows == columns:
        raise AxisError(f"ops.linalg.diag_embed got axis {rows} for rows and for columns")
    side = tensor.shape[-1] + abs(shift)
    if shift:
        like = manipulation.broadcast_to(
            constant(np.zeros((), tensor.dtype.numpy), tensor), (*tensor.shape[:-1], abs(shift))
        )
        tensor = manipulation.concat([tensor, like], axis=-1)
    # Above the diagonal an element knows its row, below it its column.
    spread = manipulation.expand_dims(tensor, -1 if shift > 0 else -2)
    if type(side) is int:
        on = constant(np.eye(side, k=shift, dtype=bool), tensor)
    else:  # one that varies, in a function that is exported
        from ember_ml.ops import creation

        on = creation.eye(side, k=shift, dtype="bool")
    zero = constant(np.zeros((), tensor.dtype.numpy), tensor)
    return manipulation.moveaxis(where(on, spread, zero), (-2, -1), (rows, columns))


@op("linalg.vander", accepts=NUMERIC, lift="int", standard=False)
def vander(x: TensorLike, /, N: int | None = None, *, increasing: bool = False) -> Tensor:
    """The powers of each element as a row, from N - 1 down to 0, or from 0 up.

    >>> vander([1, 2, 3]).tolist()
    [[1, 1, 1], [4, 2, 1], [9, 3, 1]]
    """
    tensor = dispatch.lifted("linalg.vander", x)
    if not tensor.ndim:
        raise ShapeError("ops.linalg.vander takes vectors, not a 0-d tensor")
    count = tensor.shape[-1] if N is None else integer_of("linalg.vander", N, "N")
    if count < 0:
        raise DomainError(f"ops.linalg.vander takes N of 0 or more, not {count}")
    column = manipulation.expand_dims(tensor, -1)
    one = manipulation.broadcast_to(constant(np.ones((), tensor.dtype.numpy), tensor), column.shape)
    if count < 2:
        return one[..., :count].copy()
    rest = manipulation.broadcast_to(column, (*tensor.shape, count - 1))
    powers = reduction.cumulative_prod(
        manipulation.concat([one, rest], axis=-1), axis=-1, dtype=tensor.dtype
    )
    return powers if increasing else manipulation.flip(powers, axis=-1)
