"""Tables and positions: one-hot vectors, embeddings, where elements are, and numbers of places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ember_ml import dtypes
from ember_ml.autodiff.tape import constant, recorded
from ember_ml.backend.contract import Spec
from ember_ml.dtypes import DType
from ember_ml.errors import (
    DomainError,
    DTypeError,
    OutOfBoundsError,
    ShapeError,
    UnsupportedOpError,
)
from ember_ml.ops import creation, dispatch, elementwise, indexing, manipulation, searching
from ember_ml.ops.axes import axis_of, integer_of, shape_of
from ember_ml.ops.fitting import beside, fitting
from ember_ml.ops.registry import INTEGRAL, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill
from ember_ml.tensor.indexing import check_bounds
from ember_ml.typing import DTypeLike, ShapeLike, TensorLike

__all__: list[str] = [
    "argwhere",
    "diag_indices",
    "embedding",
    "flatnonzero",
    "one_hot",
    "ravel_multi_index",
    "tril_indices",
    "triu_indices",
    "unravel_index",
]


def _integers(name: str, indices: TensorLike) -> Tensor:
    tensor = convert.to_tensor(indices)
    if not tensor.size and isinstance(indices, list | tuple):
        tensor = convert.cast(tensor, dtypes.int64)
    if not tensor.dtype.is_integer:
        raise DTypeError(f"ops.{name} takes integers, not {tensor.dtype}")
    return tensor


def _require_below(name: str, indices: Tensor, bound: int) -> None:
    """Raise OutOfBoundsError for an index that is negative or not below a bound."""
    if indices.size and indices._spec.backend.checks_values(indices.native):
        host = indices.numpy()
        low, high = int(host.min()), int(host.max())
        if low < 0 or high >= bound:
            raise OutOfBoundsError(
                f"ops.{name} got index {low if low < 0 else high}; they go from 0 to {bound - 1}"
            )


@op(accepts=INTEGRAL, standard=False)
def one_hot(
    indices: TensorLike,
    /,
    num_classes: int | None = None,
    *,
    dtype: DTypeLike = None,
    axis: int = -1,
    on_value: Any = 1,
    off_value: Any = 0,
) -> Tensor:
    """For each index, a vector with `on_value` at that place and `off_value` elsewhere.

    The new axis comes last, or at `axis` of the result. Without `num_classes` it is as long as
    the largest index asks for. The dtype is float32 unless said otherwise; an index that is
    negative or too large raises OutOfBoundsError.

    >>> one_hot([0, 2], 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    tensor = _integers("one_hot", indices)
    count = _classes(tensor, num_classes)
    _require_below("one_hot", tensor, count)
    wanted = dtypes.default_float if dtype is None else dtypes.to_dtype(dtype)
    place = axis_of("one_hot", axis, tensor.ndim + 1)
    spec = tensor._spec.with_dtype(wanted)
    on_off = _truth(wanted, on_value), _truth(wanted, off_value)
    numbers = all(isinstance(value, bool | int | float | complex) for value in on_off)
    # Where nobody has looked at the indices, one of them could be a place of another vector.
    if numbers and spec.backend.mutable and spec.backend.checks_values(tensor.native):
        return _written(tensor, spec, count, place, *on_off)
    shape = tuple(-1 if i == place else 1 for i in range(tensor.ndim + 1))
    if type(count) is int:
        classes = beside(tensor, np.arange(count, dtype=np.int64).reshape(shape))
    else:  # a size that varies, in a function that is exported
        classes = manipulation.reshape(creation.arange(count), shape)
    chosen = convert.cast(tensor, dtypes.int64)
    hot = elementwise.equal(manipulation.expand_dims(chosen, place), classes)
    if numbers and on_off == (1, 0):
        return convert.cast(hot, wanted)
    like = beside(tensor, np.zeros((), dtype=wanted.numpy))
    on, off = (fitting("one_hot", like, value) for value in on_off)
    return searching.where(hot, on, off)


def _written(
    indices: Tensor, spec: Spec, count: int, axis: int, on_value: Any, off_value: Any
) -> Tensor:
    """One-hot vectors where arrays can be written: all places once, and few of them again."""
    for value in (on_value, off_value):
        if dtypes.scalar_dtype(value, spec.dtype, "one_hot") is not spec.dtype:
            raise DTypeError(f"ops.one_hot got {value!r}, which does not fit {spec.dtype}")
    starts = beside(indices, np.arange(indices.size, dtype=np.int64) * count)
    flat = manipulation.reshape(convert.cast(indices, dtypes.int64), (-1,))
    places = elementwise.add(flat, starts)
    native = spec.backend.full((indices.size * count,), off_value, spec)
    if indices.size:
        native = spec.backend.setitem(native, (places.native,), spec.scalar(on_value))
    out = manipulation.reshape(fill(native, spec), (*indices.shape, count))
    return manipulation.moveaxis(out, -1, axis)


def _truth(dtype: DType, value: Any) -> Any:
    """The default values 1 and 0 of truth values."""
    return bool(value) if dtype is dtypes.bool and value in (0, 1) else value


def _classes(indices: Tensor, given: int | None) -> int:
    if given is not None:
        count = integer_of("one_hot", given, "num_classes")
        if count < 0:
            raise DomainError(f"ops.one_hot got num_classes={count}; a count is not negative")
        return count
    if not indices.size:
        return 0
    if indices._spec.backend.is_traced(indices.native):
        raise UnsupportedOpError(
            "ops.one_hot without num_classes counts up to the largest index, which is unknown "
            "while a compiler traces; give num_classes"
        )
    return max(int(indices.numpy().max()) + 1, 0)


@op(standard=False)
def embedding(indices: TensorLike, weight: TensorLike, /, padding_idx: int | None = None) -> Tensor:
    """Rows of a table at some indices: the shape of the indices, then that of a row.

    No gradient flows to the row `padding_idx`, as in PyTorch.

    >>> embedding([1, 0], [[1.0, 2.0], [3.0, 4.0]]).tolist()
    [[3.0, 4.0], [1.0, 2.0]]
    """
    home = dispatch.home_of("embedding", (indices, weight))
    table = convert.to_tensor(weight, home)
    if table.ndim != 2:
        raise ShapeError(f"ops.embedding takes a table of rows, not shape {table.shape}")
    chosen = convert.to_tensor(indices, home)
    rows = _rows(table, chosen)
    if padding_idx is None:
        return rows
    count = table.shape[0]
    padding = integer_of("embedding", padding_idx, "padding_idx")
    if not -count <= padding < count:
        raise OutOfBoundsError(f"ops.embedding got padding_idx {padding} for {count} rows")
    places = convert.cast(chosen, dtypes.int64)
    padded = elementwise.equal(elementwise.remainder(places, count), padding % count)
    still = constant(table)[padding]
    return searching.where(manipulation.expand_dims(padded, -1), still, rows)


def _rows(table: Tensor, chosen: Tensor) -> Tensor:
    spec = table._spec
    backend = spec.backend
    embed = backend.overrides.get("embed")
    if embed is None or not spec.floating or not chosen.dtype.is_integer:
        return indexing.take(table, chosen, axis=0)
    dispatch.same_device("embedding", spec.device, chosen._spec.device)
    places = convert.cast(chosen, dtypes.int64).native
    # Where the engine looks at the indices itself, asking whether to look costs more than it does.
    checked = backend.overrides.get("embed_checked")
    native: Any = None if checked is None else checked(table.native, places)
    if native is None:
        if chosen.size and backend.checks_values(chosen.native):
            check_bounds(chosen.numpy(), table.shape[0], 0, table.shape, "embedding")
        native = embed(table.native, places)
    if type(table) is GradTensor:
        return recorded("take", native, spec, (table,), (places, 0))
    return fill(native, spec)


# --- Where elements are ---------------------------------------------------------------------


@op(result="index", standard=False)
def argwhere(x: TensorLike, /) -> Tensor:
    """The indices of the elements that are not zero, one row for each.

    >>> argwhere([[0, 1], [2, 0]]).tolist()
    [[0, 1], [1, 0]]
    """
    return manipulation.stack(searching.nonzero(x), axis=1)


@op(result="index", standard=False)
def flatnonzero(x: TensorLike, /) -> Tensor:
    """The indices of the elements of the flattened tensor that are not zero.

    >>> flatnonzero([[0, 1], [2, 0]]).tolist()
    [1, 2]
    """
    return searching.nonzero(manipulation.reshape(x, (-1,)))[0]


@op(accepts=INTEGRAL, result="index", standard=False)
def unravel_index(indices: TensorLike, shape: ShapeLike, /) -> tuple[Tensor, ...]:
    """Numbers of elements of a flattened tensor of some shape as an index for each axis.

    >>> [i.tolist() for i in unravel_index([1, 5], (2, 3))]
    [[0, 1], [1, 2]]
    """
    sides = shape_of("unravel_index", shape)
    rest = convert.cast(_integers("unravel_index", indices), dtypes.int64)
    _require_below("unravel_index", rest, math.prod(sides))
    found: list[Tensor] = []
    for side in reversed(sides):
        length = max(side, 1)
        found.append(elementwise.remainder(rest, length))
        rest = elementwise.floor_divide(rest, length)
    return tuple(reversed(found))


@op(accepts=INTEGRAL, result="index", standard=False)
def ravel_multi_index(
    multi_index: Sequence[TensorLike], dims: ShapeLike, /, mode: str = "raise"
) -> Tensor:
    """An index for each axis as the number of the element in the flattened tensor.

    What is out of range raises OutOfBoundsError, or is "wrap"ped round or "clip"ped.

    >>> ravel_multi_index(([0, 1], [1, 2]), (2, 3)).tolist()
    [1, 5]
    """
    if mode not in ("raise", "wrap", "clip"):
        raise DomainError(f"ops.ravel_multi_index takes mode raise, wrap or clip, not {mode!r}")
    sides = shape_of("ravel_multi_index", dims)
    home = dispatch.home_of("ravel_multi_index", tuple(multi_index))
    given = [_integers("ravel_multi_index", convert.to_tensor(i, home)) for i in multi_index]
    if len(given) != len(sides) or not sides:
        raise ShapeError(f"ops.ravel_multi_index got {len(given)} indices for dims {sides}")
    flat: Tensor | None = None
    for side, index in zip(sides, given, strict=True):
        one = convert.cast(index, dtypes.int64)
        if mode == "raise":
            _require_below("ravel_multi_index", one, side)
        elif mode == "wrap":
            one = elementwise.remainder(one, side)
        else:
            one = elementwise.clip(one, 0, side - 1)
        flat = one if flat is None else elementwise.add(elementwise.multiply(flat, side), one)
    assert flat is not None  # there is at least one axis
    return flat


# --- Triangles and diagonals ----------------------------------------------------------------


@op(creates=True, standard=False)
def tril_indices(
    n: int, k: int = 0, m: int | None = None, *, device: str | None = None
) -> tuple[Tensor, Tensor]:
    """The rows and columns of the elements on and below the k-th diagonal of an n x m matrix.

    >>> [i.tolist() for i in tril_indices(2)]
    [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle("tril_indices", n, k, m, device, lower=True)


@op(creates=True, standard=False)
def triu_indices(
    n: int, k: int = 0, m: int | None = None, *, device: str | None = None
) -> tuple[Tensor, Tensor]:
    """The rows and columns of the elements on and above the k-th diagonal of an n x m matrix.

    >>> [i.tolist() for i in triu_indices(2)]
    [[0, 0, 1], [0, 1, 1]]
    """
    return _triangle("triu_indices", n, k, m, device, lower=False)


def _triangle(
    name: str, n: int, k: int, m: int | None, device: str | None, *, lower: bool
) -> tuple[Tensor, Tensor]:
    rows = shape_of(name, n)[0]
    columns = rows if m is None else shape_of(name, m)[0]
    diagonal = integer_of(name, k, "k")
    inside = np.tri(rows, columns, diagonal if lower else diagonal - 1, dtype=bool)
    first, second = np.nonzero(inside if lower else ~inside)
    return creation.asarray(first, device=device), creation.asarray(second, device=device)


@op(creates=True, standard=False)
def diag_indices(n: int, ndim: int = 2, *, device: str | None = None) -> tuple[Tensor, ...]:
    """The indices of the main diagonal of a tensor with `ndim` axes of length n.

    >>> [i.tolist() for i in diag_indices(2)]
    [[0, 1], [0, 1]]
    """
    side = shape_of("diag_indices", n)[0]
    count = integer_of("diag_indices", ndim, "ndim")
    return tuple(creation.arange(side, device=device) for _ in range(count))
