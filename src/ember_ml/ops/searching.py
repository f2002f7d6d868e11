"""Functions that look for elements: extremes, order, sets, conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ember_ml import dtypes
from ember_ml.autodiff.tape import recorded
from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import dispatch, reducing, typed
from ember_ml.ops.axes import axis_of
from ember_ml.ops.explain import explain
from ember_ml.ops.indexing import take
from ember_ml.ops.registry import ANY, BOOLEAN, REAL, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill
from ember_ml.typing import TensorLike

if TYPE_CHECKING:
    from ember_ml.markers import D, Int64, R, Rank1, V
    from ember_ml.tensor.typed import Like

__all__ = [
    "argmax",
    "argmin",
    "argsort",
    "isin",
    "nonzero",
    "searchsorted",
    "sort",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "where",
]

_NUMBERS = (bool, int, float, complex)


@op(accepts=REAL | BOOLEAN, result="index")
@reducing.index
def argmax(x: TensorLike, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first largest value along an axis, or in the flattened tensor.

    >>> argmax([3, 9, 9]).item()
    1
    """
    return _arg_extreme("argmax", x, axis, keepdims)


@op(accepts=REAL | BOOLEAN, result="index")
@reducing.index
def argmin(x: TensorLike, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first smallest value along an axis, or in the flattened tensor.

    >>> argmin([3, 1, 1]).item()
    1
    """
    return _arg_extreme("argmin", x, axis, keepdims)


def _arg_extreme(name: str, x: TensorLike, axis: int | None, keepdims: bool) -> Tensor:
    tensor = convert.to_tensor(x)
    place = None if axis is None else axis_of(name, axis, tensor.ndim)
    if (tensor.size if place is None else tensor.shape[place]) == 0:
        raise ShapeError(f"ops.{name} got shape {tensor.shape}; nothing has no {name[3:]}imum")
    return dispatch.call(name, tensor, place, keepdims)


@op(accepts=REAL | BOOLEAN)
def sort(
    x: Like[D, V, R], /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor[D, V, R]:
    """The values in order along an axis; NaN comes last in either direction of NumPy's order.

    >>> sort([3, 1, 2]).tolist(), sort([3, 1, 2], descending=True).tolist()
    ([1, 2, 3], [3, 2, 1])
    """
    tensor = convert.to_tensor(x)
    place = axis_of("sort", axis, tensor.ndim)
    return dispatch.call("sort", tensor, place, descending, stable)


@op(accepts=REAL | BOOLEAN, result="index")
def argsort(
    x: Like[Any, V, R], /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor[Int64, V, R]:
    """The indices that put the values in order along an axis; equal values keep their order.

    >>> argsort([3, 1, 2]).tolist()
    [1, 2, 0]
    """
    tensor = convert.to_tensor(x)
    place = axis_of("argsort", axis, tensor.ndim)
    return dispatch.call("argsort", tensor, place, descending, stable)


@op()
def nonzero(x: Like[Any, V], /) -> tuple[Tensor[Int64, V, Rank1], ...]:
    """The indices of the elements that are not zero, one tensor for each axis.

    >>> [t.tolist() for t in nonzero([[0, 1], [2, 0]])]
    [[0, 1], [1, 0]]
    """
    tensor = convert.to_tensor(x)
    if not tensor.ndim:
        raise ShapeError("ops.nonzero takes at least one axis, not a 0-d tensor")
    return dispatch.call_many("nonzero", tensor)


@op(accepts=REAL, result="index", arity=2)
def searchsorted(
    x1: TensorLike,
    x2: TensorLike,
    /,
    *,
    side: str = "left",
    sorter: TensorLike | None = None,
) -> Tensor:
    """Where the values of x2 would go into the sorted x1 so that it stays sorted.

    >>> searchsorted([1, 3, 5], [3, 4]).tolist()
    [1, 2]
    """
    if side not in ("left", "right"):
        raise DomainError(f"ops.searchsorted takes side 'left' or 'right', not {side!r}")
    home = dispatch.home_of("searchsorted", (x1, x2))
    first = convert.to_tensor(x1, home)
    if first.ndim != 1:
        raise ShapeError(f"ops.searchsorted takes a sorted x1 of one axis, not {first.shape}")
    if sorter is not None:
        first = take(first, sorter, axis=0)
    spec, (a, b), _ = dispatch.operands("searchsorted", first, x2)
    kernel, result = spec.backend.entry(spec, "searchsorted")
    try:
        return fill(*dispatch.settled(kernel(a, b, side), result))
    except Exception as error:
        raise explain("searchsorted", error, (x1, x2)) from error


@op(accepts=ANY, arity=3)
@typed.choosing
def where(condition: TensorLike, x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Elements of x1 where the condition is true, of x2 elsewhere.

    >>> where([True, False], [1, 2], 0).tolist()
    [1, 0]
    """
    quick = dispatch.chosen(condition, x1, x2)
    if quick is not None:
        return quick
    home = dispatch.home_of("where", (condition, x1, x2))
    mask = convert.to_tensor(condition, home)
    if mask.dtype is not dtypes.bool:
        mask = convert.cast(mask, dtypes.bool)
    # A tensor decides where scalars live; the mask does where both branches are scalars.
    if isinstance(x1, _NUMBERS) and isinstance(x2, _NUMBERS):
        x1 = convert.to_tensor(x1, home)
    spec, (a, b), taped = dispatch.operands("where", *(_beside(mask, x) for x in (x1, x2)))
    dispatch.same_device("where", mask.device, spec.device)
    try:
        native = spec.backend.entry(spec, "where")[0](mask.native, a, b)
    except Exception as error:
        raise explain("where", error, (mask, x1, x2)) from error
    if type(native) is not spec.native_type:
        native = spec.backend.settle_native(native, spec)
    if taped:
        return recorded("where", native, spec, (mask, *taped))
    return fill(native, spec)


def _beside(mask: Tensor, x: TensorLike) -> Any:
    if isinstance(x, list | tuple):
        return convert.to_tensor(x, mask._spec.backend)
    return x


# --- Sets -----------------------------------------------------------------------------------


@op(accepts=ANY, result="bool", arity=2)
def isin(x1: TensorLike, x2: TensorLike, /, *, invert: bool = False) -> Tensor:
    """True where an element of x1 is among those of x2; `invert` turns it round.

    >>> isin([1, 2, 3], [2, 4]).tolist()
    [False, True, False]
    """
    spec, (a, b), _ = dispatch.operands("isin", x1, x2)
    kernel, result = spec.backend.entry(spec, "isin")
    try:
        return fill(*dispatch.settled(kernel(a, b, invert), result))
    except Exception as error:
        raise explain("isin", error, (x1, x2)) from error


class UniqueAll(NamedTuple):
    """The result of unique_all."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of unique_counts."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of unique_inverse."""

    values: Tensor
    inverse_indices: Tensor


@op()
def unique_all(x: TensorLike, /) -> UniqueAll:
    """The distinct values, where each first stands, which one each element is, how often.

    Every NaN is a value of its own, as the standard says.

    >>> unique_all([3, 1, 3]).counts.tolist()
    [1, 2]
    """
    return UniqueAll(*dispatch.call_many("unique_all", x))


@op()
def unique_counts(x: TensorLike, /) -> UniqueCounts:
    """The distinct values and how often each stands.

    >>> unique_counts([3, 1, 3]).values.tolist()
    [1, 3]
    """
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


@op()
def unique_inverse(x: TensorLike, /) -> UniqueInverse:
    """The distinct values, and which of them each element is.

    >>> unique_inverse([3, 1, 3]).inverse_indices.tolist()
    [1, 0, 1]
    """
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


@op()
def unique_values(x: TensorLike, /) -> Tensor:
    """The distinct values, in order.

    >>> unique_values([3, 1, 3]).tolist()
    [1, 3]
    """
    if type(x) is GradTensor:  # its gradient asks where the values stood
        return unique_all(x).values
    return dispatch.call("unique_values", x)
