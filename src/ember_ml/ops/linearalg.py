"""Linear algebra over stacks of matrices: products, factorisations, solutions, norms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ember_ml import dtypes
from ember_ml.errors import AxisError, DomainError, ShapeError
from ember_ml.ops import dispatch, elementwise, manipulation, reduction, typed
from ember_ml.ops.axes import axes_of, axis_of, broadcast, integer_of
from ember_ml.ops.explain import explain
from ember_ml.ops.registry import ANY, BOOLEAN, FLOATING, LINALG, NUMERIC, op
from ember_ml.ops.searching import where
from ember_ml.tensor import convert, views
from ember_ml.tensor.core import Tensor, fill, fill_grad
from ember_ml.typing import Axis, DTypeLike, TensorLike

if TYPE_CHECKING:
    from ember_ml.markers import D, R, V
    from ember_ml.tensor.typed import Like

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


class EigResult(NamedTuple):
    """The result of eig and eigh."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """The result of qr."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The result of slogdet."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """The result of svd."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def matrix_of(name: str, x: TensorLike) -> Tensor:
    """A tensor that is a matrix or a stack of matrices."""
    tensor = convert.to_tensor(x)
    if tensor.ndim < 2:
        raise ShapeError(f"ops.{name} takes matrices, not shape {tensor.shape}")
    return tensor


def _square(name: str, x: TensorLike) -> Tensor:
    tensor = matrix_of(name, x)
    if tensor.shape[-1] != tensor.shape[-2]:
        raise ShapeError(f"ops.{name} takes square matrices, not shape {tensor.shape}")
    return tensor


# --- Products -------------------------------------------------------------------------------


@op(accepts=NUMERIC, lift="int", arity=2)
@typed.product
def matmul(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The matrix product; vectors count as a row or a column, stacks broadcast.

    >>> matmul([[1, 2], [3, 4]], [1, 1]).tolist()
    [3, 7]
    """
    return dispatch.binary("matmul", x1, x2)


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
    product = dispatch.binary(
        "matmul",
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
    spec, natives, needs_grad = dispatch.operands("vecdot", x1, x2)
    make = fill_grad if needs_grad else fill
    a, b = (make(native, spec) for native in natives)
    if not a.ndim or not b.ndim:
        raise ShapeError("ops.vecdot takes tensors of at least one axis")
    place_a, place_b = axis_of("vecdot", axis, a.ndim), axis_of("vecdot", axis, b.ndim)
    if a.shape[place_a] != b.shape[place_b]:
        raise ShapeError(
            f"ops.vecdot got shapes {a.shape} and {b.shape}, which differ along axis {axis}"
        )
    a = manipulation.moveaxis(a, place_a, -1)
    b = manipulation.moveaxis(b, place_b, -1)
    if spec.dtype.is_complex:
        a = elementwise.conj(a)
    return reduction.sum(elementwise.multiply(a, b), axis=-1, dtype=spec.dtype)


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


@op("linalg.matrix_power", accepts=NUMERIC, lift="int")
def matrix_power(x: TensorLike, n: int, /) -> Tensor:
    """A square matrix multiplied by itself n times; negative n inverts it first.

    >>> matrix_power([[1, 1], [0, 1]], 3).tolist()
    [[1, 3], [0, 1]]
    """
    tensor = dispatch.lifted("linalg.matrix_power", _square("linalg.matrix_power", x))
    count = integer_of("linalg.matrix_power", n, "n")
    if count < 0:
        tensor, count = inv(tensor), -count
    if count == 0:
        return manipulation.broadcast_to(_identity(tensor), tensor.shape).copy()
    result = tensor.copy() if count & 1 else None
    while count := count >> 1:
        tensor = dispatch.binary("matmul", tensor, tensor)
        if count & 1:
            result = tensor if result is None else dispatch.binary("matmul", result, tensor)
    assert result is not None  # a positive count has a bit that is set
    return result


def _identity(x: Tensor) -> Tensor:
    spec = x._spec
    return fill(spec.backend.from_numpy(np.eye(x.shape[-1], dtype=spec.dtype.numpy), spec), spec)


# --- Parts ----------------------------------------------------------------------------------


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
    steps = range(count)
    return tensor[(..., [first + i for i in steps], [second + i for i in steps])]


@op("linalg.trace", accepts=NUMERIC | BOOLEAN, lift="sum")
def trace(x: TensorLike, /, *, offset: int = 0, dtype: DTypeLike = None) -> Tensor:
    """The sum of a diagonal of each matrix.

    >>> trace([[1, 2], [3, 4]]).item()
    5
    """
    return reduction.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


# --- Factorisations and solutions -----------------------------------------------------------


@op("linalg.cholesky", accepts=LINALG, lift="float")
def cholesky(x: TensorLike, /, *, upper: bool = False) -> Tensor:
    """The triangular L with x = L @ L.H of positive definite matrices.

    >>> cholesky([[4.0]]).tolist()
    [[2.0]]
    """
    return dispatch.call("linalg.cholesky", _square("linalg.cholesky", x), upper)


@op("linalg.det", accepts=LINALG, lift="float")
def det(x: TensorLike, /) -> Tensor:
    """The determinant of square matrices.

    >>> det([[2.0, 0.0], [0.0, 3.0]]).item()
    6.0
    """
    return dispatch.call("linalg.det", _square("linalg.det", x))


@op("linalg.eig", accepts=LINALG, lift="float", result="complex")
def eig(x: TensorLike, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices; always complex.

    >>> eig([[2.0, 0.0], [0.0, 2.0]]).eigenvalues.tolist()
    [(2+0j), (2+0j)]
    """
    return EigResult(*dispatch.call_many("linalg.eig", _square("linalg.eig", x)))


@op("linalg.eigvals", accepts=LINALG, lift="float", result="complex")
def eigvals(x: TensorLike, /) -> Tensor:
    """Eigenvalues of square matrices; always complex.

    >>> eigvals([[2.0, 0.0], [0.0, 2.0]]).tolist()
    [(2+0j), (2+0j)]
    """
    return dispatch.call("linalg.eigvals", _square("linalg.eigvals", x))


@op("linalg.eigh", accepts=LINALG, lift="float")
def eigh(x: TensorLike, /) -> EigResult:
    """Eigenvalues, in ascending order, and eigenvectors of symmetric or Hermitian matrices.

    >>> eigh([[2.0, 0.0], [0.0, 1.0]]).eigenvalues.tolist()
    [1.0, 2.0]
    """
    return EigResult(*dispatch.call_many("linalg.eigh", _square("linalg.eigh", x)))


@op("linalg.eigvalsh", accepts=LINALG, lift="float", result="real")
def eigvalsh(x: TensorLike, /) -> Tensor:
    """Eigenvalues, in ascending order, of symmetric or Hermitian matrices.

    >>> eigvalsh([[2.0, 0.0], [0.0, 1.0]]).tolist()
    [1.0, 2.0]
    """
    return dispatch.call("linalg.eigvalsh", _square("linalg.eigvalsh", x))


@op("linalg.inv", accepts=LINALG, lift="float")
def inv(x: TensorLike, /) -> Tensor:
    """The inverse of square matrices.

    >>> inv([[2.0]]).tolist()
    [[0.5]]
    """
    return dispatch.call("linalg.inv", _square("linalg.inv", x))


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
    u, s, vh = svd(tensor, full_matrices=False)
    small = elementwise.less_equal(s, _cutoff(tensor, s, rtol))
    inverse = where(small, 0.0, elementwise.divide(1.0, where(small, 1.0, s)))
    v, uh = _adjoint(vh), _adjoint(u)
    scaled = elementwise.multiply(manipulation.expand_dims(inverse, -1), uh)
    return dispatch.binary("matmul", v, scaled)


@op("linalg.matrix_rank", accepts=LINALG, lift="float", result="index")
def matrix_rank(x: TensorLike, /, *, rtol: TensorLike | None = None) -> Tensor:
    """How many singular values exceed `rtol` times the largest.

    >>> matrix_rank([[1.0, 1.0], [1.0, 1.0]]).item()
    1
    """
    tensor = dispatch.lifted("linalg.matrix_rank", matrix_of("linalg.matrix_rank", x))
    s = svdvals(tensor)
    if not s.shape[-1]:
        return reduction.count_nonzero(s, axis=-1)
    above = elementwise.greater(s, _cutoff(tensor, s, rtol))
    return reduction.count_nonzero(above, axis=-1)


def _cutoff(x: Tensor, s: Tensor, rtol: TensorLike | None) -> Tensor:
    """The singular value up to which others count as zero."""
    largest = reduction.max(s, axis=-1, keepdims=True)
    if rtol is None:
        rtol = max(x.shape[-2:]) * dtypes.float_limits(s.dtype).eps
        return elementwise.multiply(largest, rtol)
    factor = convert.cast(convert.to_tensor(rtol, x._spec.backend), s.dtype)
    return elementwise.multiply(largest, manipulation.expand_dims(factor, -1))


def _adjoint(x: Tensor) -> Tensor:

    turned = matrix_transpose(x)
    return elementwise.conj(turned) if x.dtype.is_complex else turned


@op("linalg.qr", accepts=LINALG, lift="float")
def qr(x: TensorLike, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Orthonormal columns Q and the upper triangular R with x = Q @ R.

    >>> [t.shape for t in qr([[1.0], [2.0]])]
    [(2, 1), (1, 1)]
    """
    if mode not in ("reduced", "complete"):
        raise DomainError(f"ops.linalg.qr takes mode 'reduced' or 'complete', not {mode!r}")
    return QRResult(*dispatch.call_many("linalg.qr", matrix_of("linalg.qr", x), mode))


@op("linalg.slogdet", accepts=LINALG, lift="float")
def slogdet(x: TensorLike, /) -> SlogdetResult:
    """The sign and the logarithm of the absolute value of the determinant.

    >>> slogdet([[1.0, 0.0], [0.0, -1.0]]).sign.item()
    -1.0
    """
    return SlogdetResult(*dispatch.call_many("linalg.slogdet", _square("linalg.slogdet", x)))


@op("linalg.solve", accepts=LINALG, lift="float", arity=2)
def solve(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The y with x1 @ y = x2; a vector x2 counts as one column.

    >>> solve([[2.0]], [4.0]).tolist()
    [2.0]
    """
    home = dispatch.home_of("linalg.solve", (x1, x2))
    a = _square("linalg.solve", convert.to_tensor(x1, home))
    b = convert.to_tensor(x2, home)
    vector = b.ndim == 1
    if not b.ndim or b.shape[0 if vector else -2] != a.shape[-1]:
        raise ShapeError(f"ops.linalg.solve got shapes {a.shape} and {b.shape}, which do not fit")
    spec, (left, right), needs_grad = dispatch.operands("linalg.solve", a, b)
    kernel, result = spec.backend.entry(spec, "linalg.solve")
    try:
        if vector:
            right = spec.backend.entry(spec, "reshape")[0](right, (*b.shape, 1))
        native = kernel(left, right)
    except Exception as error:
        raise explain("linalg.solve", error, (a, b)) from error
    out = (fill_grad if needs_grad else fill)(native, result)
    return manipulation.squeeze(out, -1) if vector else out


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


# --- Norms ----------------------------------------------------------------------------------


@op("linalg.matrix_norm", accepts=LINALG, lift="float", result="real")
def matrix_norm(
    x: TensorLike,
    /,
    *,
    keepdims: bool = False,
    ord: float | Literal["fro", "nuc"] | None = "fro",
) -> Tensor:
    """A norm of matrices: 'fro', 'nuc', 1, -1, 2, -2, inf or -inf.

    >>> matrix_norm([[3.0, 0.0], [0.0, 4.0]]).item()
    5.0
    """
    tensor = dispatch.lifted("linalg.matrix_norm", matrix_of("linalg.matrix_norm", x))
    if ord in ("fro", None):
        return vector_norm(tensor, axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        values = svdvals(tensor)
        choose = {"nuc": reduction.sum, 2: reduction.max, -2: reduction.min}[ord]
        out = choose(values, axis=-1)
    elif ord in (1, -1, math.inf, -math.inf):
        along = -2 if abs(ord) == 1 else -1
        sums = reduction.sum(elementwise.abs(tensor), axis=along)
        out = (reduction.max if ord > 0 else reduction.min)(sums, axis=-1)
    else:
        raise DomainError(
            f"ops.linalg.matrix_norm takes ord 'fro', 'nuc', 1, -1, 2, -2, inf, -inf, not {ord!r}"
        )
    return manipulation.expand_dims(out, (-2, -1)) if keepdims else out


@op("linalg.vector_norm", accepts=FLOATING, lift="float", result="real")
def vector_norm(
    x: TensorLike,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    ord: float = 2,
) -> Tensor:
    """The norm of order `ord` over axes; inf is the largest, 0 counts what is not zero.

    >>> vector_norm([3.0, 4.0]).item()
    5.0
    """
    tensor = dispatch.lifted("linalg.vector_norm", convert.to_tensor(x))
    axes = axes_of("linalg.vector_norm", axis, tensor.ndim)
    if not axes and tensor.ndim:
        return elementwise.abs(tensor)
    size = elementwise.abs(tensor)
    options: dict[str, Any] = {"axis": axes, "keepdims": keepdims}
    if ord == math.inf:
        return reduction.max(size, **options)
    if ord == -math.inf:
        return reduction.min(size, **options)
    if ord == 0:
        return convert.cast(reduction.count_nonzero(size, **options), size.dtype)
    if ord == 1:
        return reduction.sum(size, **options)
    if ord == 2:
        return _euclidean(size, options)
    powers = reduction.sum(elementwise.pow(size, float(ord)), **options)
    return elementwise.pow(powers, 1.0 / ord)


def _euclidean(size: Tensor, options: dict[str, Any]) -> Tensor:
    """The root of the sum of squares."""
    return elementwise.sqrt(reduction.sum(elementwise.square(size), **options))
