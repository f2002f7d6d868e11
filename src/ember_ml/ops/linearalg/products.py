"""Products of vectors, matrices and tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ember_ml.backend.pairs import MATMUL
from ember_ml.errors import AxisError, ShapeError
from ember_ml.ops import dispatch, elementwise, manipulation, reduction, typed
from ember_ml.ops.axes import axes_of, axis_of, broadcast, integer_of
from ember_ml.ops.dispatch import binary
from ember_ml.ops.linearalg.matrices import matrix_of
from ember_ml.ops.registry import NUMERIC, op
from ember_ml.tensor import convert, views
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

if TYPE_CHECKING:
    from ember_ml.markers import D, R, V
    from ember_ml.tensor.typed import Like

__all__ = [
    "cross",
    "kron",
    "matmul",
    "matrix_transpose",
    "multi_dot",
    "outer",
    "tensordot",
    "vecdot",
]


@op(accepts=NUMERIC, lift="int", arity=2)
@typed.product
def matmul(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The matrix product; vectors count as a row or a column, stacks broadcast.

    >>> matmul([[1, 2], [3, 4]], [1, 1]).tolist()
    [3, 7]
    """
    return binary(MATMUL, x1, x2)


@op()
def matrix_transpose(x: Like[D, V, R], /) -> Tensor[D, V, R]:
    """Rows and columns in each other's place.

    >>> matrix_transpose([[1, 2], [3, 4]]).tolist()
    [[1, 3], [2, 4]]
    """
    return views.rearranged("matrix_transpose", matrix_of("matrix_transpose", x))


@op(accepts=NUMERIC, lift="int", arity=2)
def tensordot(
    x1: TensorLike,
    x2: TensorLike,
    /,
    *,
    axes: int | tuple[Any, Any] = 2,
) -> Tensor:
    """The sum of products over some axes of both: so many, or a pair of lists of axes.

    >>> tensordot([[1, 2], [3, 4]], [[1, 0], [0, 1]]).item()
    5
    """
    home = dispatch.home_of("tensordot", (x1, x2))
    a, b = convert.to_tensor(x1, home), convert.to_tensor(x2, home)
    first, second = _contracted(a, b, axes)
    if any(a.shape[i] != b.shape[j] for i, j in zip(first, second, strict=True)):
        raise ShapeError(
            f"ops.tensordot got shapes {a.shape} and {b.shape}, whose axes {first} and {second} "
            f"differ in length"
        )
    rest_a = [i for i in range(a.ndim) if i not in first]
    rest_b = [j for j in range(b.ndim) if j not in second]
    inner = math.prod(a.shape[i] for i in first)
    rows = tuple(a.shape[i] for i in rest_a)
    columns = tuple(b.shape[j] for j in rest_b)
    left = manipulation.permute_dims(a, (*rest_a, *first))
    right = manipulation.permute_dims(b, (*second, *rest_b))
    product = binary(
        MATMUL,
        manipulation.reshape(left, (math.prod(rows), inner)),
        manipulation.reshape(right, (inner, math.prod(columns))),
    )
    return manipulation.reshape(product, (*rows, *columns))


def _contracted(a: Tensor, b: Tensor, axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not isinstance(axes, tuple | list):
        count = integer_of("tensordot", axes, "axes")
        if not 0 <= count <= min(a.ndim, b.ndim):
            raise AxisError(
                f"ops.tensordot got axes={count} for tensors of {a.ndim} and {b.ndim} axes"
            )
        return tuple(range(a.ndim - count, a.ndim)), tuple(range(count))
    first, second = (tuple(one) if isinstance(one, tuple | list) else (one,) for one in axes)
    if len(first) != len(second):
        raise AxisError(f"ops.tensordot got {len(first)} axes for {len(second)}")
    return axes_of("tensordot", first, a.ndim), axes_of("tensordot", second, b.ndim)


@op(accepts=NUMERIC, lift="int", arity=2)
def vecdot(x1: TensorLike, x2: TensorLike, /, *, axis: int = -1) -> Tensor:
    """The dot product along an axis; of complex numbers, x1 is conjugated.

    >>> vecdot([1, 2, 3], [4, 5, 6]).item()
    32
    """
    a, b = dispatch.aligned("vecdot", x1, x2)
    if not a.ndim or not b.ndim:
        raise ShapeError("ops.vecdot takes tensors of at least one axis")
    place_a, place_b = axis_of("vecdot", axis, a.ndim), axis_of("vecdot", axis, b.ndim)
    if a.shape[place_a] != b.shape[place_b]:
        raise ShapeError(
            f"ops.vecdot got shapes {a.shape} and {b.shape}, which differ along axis {axis}"
        )
    a = manipulation.moveaxis(a, place_a, -1)
    b = manipulation.moveaxis(b, place_b, -1)
    if a.dtype.is_complex:
        a = elementwise.conj(a)
    return reduction.sum(elementwise.multiply(a, b), axis=-1, dtype=a.dtype)


@op("linalg.outer", accepts=NUMERIC, lift="int", arity=2)
def outer(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The products of all pairs of elements of two vectors.

    >>> outer([1, 2], [3, 4]).tolist()
    [[3, 4], [6, 8]]
    """
    home = dispatch.home_of("linalg.outer", (x1, x2))
    a, b = convert.to_tensor(x1, home), convert.to_tensor(x2, home)
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"ops.linalg.outer takes two vectors, not shapes {a.shape}, {b.shape}")
    return elementwise.multiply(
        manipulation.reshape(a, (-1, 1)) if a.size else manipulation.reshape(a, (0, 1)),
        manipulation.reshape(b, (1, b.size)),
    )


@op("linalg.cross", accepts=NUMERIC, arity=2)
def cross(x1: TensorLike, x2: TensorLike, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements along an axis.

    >>> cross([1, 0, 0], [0, 1, 0]).tolist()
    [0, 0, 1]
    """
    home = dispatch.home_of("linalg.cross", (x1, x2))
    a, b = convert.to_tensor(x1, home), convert.to_tensor(x2, home)
    places = [axis_of("linalg.cross", axis, t.ndim) for t in (a, b)]
    if any(t.shape[place] != 3 for t, place in zip((a, b), places, strict=True)):
        raise ShapeError(
            f"ops.linalg.cross takes 3 elements along axis {axis}, not shapes {a.shape}, {b.shape}"
        )
    ndim = max(a.ndim, b.ndim)
    a0, a1, a2 = manipulation.unstack(a, axis=places[0])
    b0, b1, b2 = manipulation.unstack(b, axis=places[1])
    broadcast("linalg.cross", [a.shape, b.shape])
    parts = [a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0]
    return manipulation.stack(parts, axis=axis_of("linalg.cross", axis, ndim))


@op("linalg.kron", accepts=NUMERIC, lift="int", arity=2, standard=False)
def kron(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The Kronecker product: every element of x1 times all of x2, along each axis.

    >>> kron([1, 10], [1, 2, 3]).tolist()
    [1, 2, 3, 10, 20, 30]
    >>> kron([[1, 0], [0, 1]], [[1, 2]]).tolist()
    [[1, 2, 0, 0], [0, 0, 1, 2]]
    """
    home = dispatch.home_of("linalg.kron", (x1, x2))
    a, b = (dispatch.lifted("linalg.kron", convert.to_tensor(x, home)) for x in (x1, x2))
    ndim = max(a.ndim, b.ndim)
    first = (1,) * (ndim - a.ndim) + a.shape
    second = (1,) * (ndim - b.ndim) + b.shape
    product = elementwise.multiply(
        manipulation.reshape(a, tuple(side for n in first for side in (n, 1))),
        manipulation.reshape(b, tuple(side for n in second for side in (1, n))),
    )
    return manipulation.reshape(product, tuple(m * n for m, n in zip(first, second, strict=True)))


@op("linalg.multi_dot", accepts=NUMERIC, lift="int", standard=False)
def multi_dot(arrays: Sequence[TensorLike], /) -> Tensor:
    """The product of several matrices, multiplied in the order that needs the fewest steps.

    The first and the last may be vectors.

    >>> multi_dot([[1, 2], [[1, 0], [0, 1]], [3, 4]]).item()
    11
    """
    home = dispatch.home_of("linalg.multi_dot", tuple(arrays))
    chain = [dispatch.lifted("linalg.multi_dot", convert.to_tensor(x, home)) for x in arrays]
    if len(chain) < 2:
        raise ShapeError(f"ops.linalg.multi_dot takes two matrices or more, not {len(chain)}")
    row, column = chain[0].ndim == 1, chain[-1].ndim == 1
    if row:
        chain[0] = manipulation.expand_dims(chain[0], 0)
    if column:
        chain[-1] = manipulation.expand_dims(chain[-1], 1)
    shapes = [t.shape for t in chain]
    fits = all(a[-1:] == b[-2:-1] for a, b in pairwise(shapes))
    if any(len(shape) < 2 for shape in shapes) or not fits:
        raise ShapeError(
            f"ops.linalg.multi_dot got shapes {', '.join(map(str, shapes))}, which do not fit"
        )
    sides = [*(shape[-2] for shape in shapes), shapes[-1][-1]]
    out = _multiplied(chain, _splits(sides), 0, len(chain) - 1)
    axes = (-2,) * row + (-1,) * column
    return manipulation.squeeze(out, axes) if axes else out


def _splits(sides: list[int]) -> dict[tuple[int, int], int]:
    """Where to split each part of a chain: the classic table of the cheapest products."""
    count = len(sides) - 1
    cost = {(i, i): 0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i, j], split[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + sides[i] * sides[k + 1] * sides[j + 1], k)
                for k in range(i, j)
            )
    return split


def _multiplied(chain: list[Tensor], split: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if i == j:
        return chain[i]
    k = split[i, j]
    return matmul(_multiplied(chain, split, i, k), _multiplied(chain, split, k + 1, j))
