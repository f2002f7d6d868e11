"""Functions of square matrices: powers, exponential, root."""

from __future__ import annotations

from ember_ml.backend import pairs
from ember_ml.ops import dispatch, manipulation
from ember_ml.ops.axes import integer_of
from ember_ml.ops.linearalg.matrices import identity_of, square_of
from ember_ml.ops.linearalg.solving import inv
from ember_ml.ops.registry import LINALG, NUMERIC, op
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["expm", "matrix_exp", "matrix_power"]


@op("linalg.matrix_power", accepts=NUMERIC, lift="int")
def matrix_power(x: TensorLike, n: int, /) -> Tensor:
    """A square matrix multiplied by itself n times; negative n inverts it first.

    >>> matrix_power([[1, 1], [0, 1]], 3).tolist()
    [[1, 3], [0, 1]]
    """
    tensor = dispatch.lifted("linalg.matrix_power", square_of("linalg.matrix_power", x))
    count = integer_of("linalg.matrix_power", n, "n")
    if count < 0:
        tensor, count = inv(tensor), -count
    if count == 0:
        return manipulation.broadcast_to(identity_of(tensor), tensor.shape).copy()
    result = tensor.copy() if count & 1 else None
    while count := count >> 1:
        tensor = dispatch.binary(pairs.MATMUL, tensor, tensor)
        if count & 1:
            result = tensor if result is None else dispatch.binary(pairs.MATMUL, result, tensor)
    assert result is not None  # a positive count has a bit that is set
    return result


@op("linalg.expm", accepts=LINALG, lift="float", standard=False)
def expm(x: TensorLike, /) -> Tensor:
    """The exponential of square matrices: the sum of x^k / k!.

    >>> expm([[0.0, 1.0], [0.0, 0.0]]).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    return dispatch.call("linalg.expm", square_of("linalg.expm", x))


matrix_exp = expm
