"""More ways to arrange elements: turning, flattening, inserting, deleting, and some grids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ember_ml import dtypes
from ember_ml.errors import AxisError, DomainError, DTypeError, OutOfBoundsError, ShapeError
from ember_ml.ops import creation, dispatch, manipulation
from ember_ml.ops.axes import axes_of, axis_of, integer_of, shape_of
from ember_ml.ops.fitting import fitting, take_static
from ember_ml.ops.manipulation import moveaxis
from ember_ml.ops.registry import op
from ember_ml.ops.stacking import at_least
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import DTypeLike, ShapeLike, TensorLike

__all__: list[str] = [
    "append",
    "delete",
    "flatten",
    "fliplr",
    "flipud",
    "geomspace",
    "identity",
    "insert",
    "logspace",
    "movedim",
    "ravel",
    "rot90",
    "swapaxes",
    "tri",
    "unflatten",
]


# --- Turning --------------------------------------------------------------------------------


@op(standard=False)
def rot90(x: TensorLike, /, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """A plane turned by k quarters, from the first of its axes towards the second.

    >>> rot90([[1, 2], [3, 4]]).tolist()
    [[2, 4], [1, 3]]
    """
    tensor = convert.to_tensor(x)
    plane = axes_of("rot90", axes, tensor.ndim)
    if len(plane) != 2:
        raise AxisError(f"ops.rot90 takes two axes, not {axes}")
    quarters = integer_of("rot90", k, "k") % 4
    if quarters == 0:
        return tensor
    if quarters == 2:
        return manipulation.flip(tensor, axis=plane)
    if quarters == 1:
        return swapaxes(manipulation.flip(tensor, axis=plane[1]), *plane)
    return manipulation.flip(swapaxes(tensor, *plane), axis=plane[1])


@op(standard=False)
def fliplr(x: TensorLike, /) -> Tensor:
    """The second axis in reverse order.

    >>> fliplr([[1, 2], [3, 4]]).tolist()
    [[2, 1], [4, 3]]
    """
    return manipulation.flip(at_least("fliplr", x, 2), axis=1)


@op(standard=False)
def flipud(x: TensorLike, /) -> Tensor:
    """The first axis in reverse order.

    >>> flipud([[1, 2], [3, 4]]).tolist()
    [[3, 4], [1, 2]]
    """
    return manipulation.flip(at_least("flipud", x, 1), axis=0)


@op(standard=False)
def swapaxes(x: TensorLike, axis1: int, axis2: int, /) -> Tensor:
    """Two axes in each other's place.

    >>> swapaxes([[1, 2, 3]], 0, 1).shape
    (3, 1)
    """
    tensor = convert.to_tensor(x)
    order = list(range(tensor.ndim))
    first, second = (axis_of("swapaxes", axis, tensor.ndim) for axis in (axis1, axis2))
    order[first], order[second] = second, first
    return manipulation.permute_dims(tensor, order)


movedim = moveaxis


# --- Flat and not ---------------------------------------------------------------------------


@op(standard=False)
def ravel(x: TensorLike, /) -> Tensor:
    """All elements along one axis.

    >>> ravel([[1, 2], [3, 4]]).tolist()
    [1, 2, 3, 4]
    """
    return manipulation.reshape(x, (-1,))


@op(standard=False)
def flatten(x: TensorLike, /, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """The axes from one to another as one; all of them unless said otherwise.

    >>> flatten(ops.ones((2, 3, 4)), 1).shape
    (2, 12)
    """
    tensor = convert.to_tensor(x)
    if not tensor.ndim:
        return manipulation.reshape(tensor, (1,))
    first = axis_of("flatten", start_axis, tensor.ndim)
    last = axis_of("flatten", end_axis, tensor.ndim)
    if first > last:
        raise AxisError(f"ops.flatten got start_axis {first} behind end_axis {last}")
    shape = tensor.shape
    middle = math.prod(shape[first : last + 1])
    return manipulation.reshape(tensor, (*shape[:first], middle, *shape[last + 1 :]))


@op(standard=False)
def unflatten(x: TensorLike, /, axis: int, shape: ShapeLike) -> Tensor:
    """One axis as several of the given lengths, one of which may be -1.

    >>> unflatten([1, 2, 3, 4], 0, (2, -1)).tolist()
    [[1, 2], [3, 4]]
    """
    tensor = convert.to_tensor(x)
    place = axis_of("unflatten", axis, tensor.ndim)
    sides = list(shape_of("unflatten", shape, unknown=True))
    side, known = tensor.shape[place], math.prod(s for s in sides if s != -1)
    if sides.count(-1) == 1 and known and side % known == 0:
        sides[sides.index(-1)] = side // known
    if math.prod(sides) != side or -1 in sides:
        raise ShapeError(
            f"ops.unflatten cannot make {tuple(sides)} of axis {place} of shape {tensor.shape}"
        )
    return manipulation.reshape(tensor, (*tensor.shape[:place], *sides, *tensor.shape[place + 1 :]))


# --- More and fewer elements ----------------------------------------------------------------


@op(standard=False, arity=2)
def append(x: TensorLike, values: TensorLike, /, axis: int | None = None) -> Tensor:
    """`values` behind `x` along an axis; without one, both are flattened.

    >>> append([[1, 2]], [[3, 4]]).tolist()
    [1, 2, 3, 4]
    """
    return manipulation.concat([x, values], axis=axis)


@op(standard=False)
def insert(x: TensorLike, obj: Any, values: TensorLike, /, axis: int | None = None) -> Tensor:
    """`values` before some indices of an axis, or of the flattened tensor, as in NumPy.

    The indices are an integer, a slice or a list; they refer to `x` as it is given.

    >>> insert([1, 2, 3], 1, 9).tolist(), insert([1, 2, 3], [0, 2], [8, 9]).tolist()
    ([1, 9, 2, 3], [8, 1, 2, 9, 3])
    """
    home = dispatch.home_of("insert", (x, values))
    tensor, place = _flat_unless(convert.to_tensor(x, home), axis, "insert")
    added = fitting("insert", tensor, values)
    where = _host_indices("insert", obj)
    if added.ndim > tensor.ndim:
        raise ShapeError(
            f"ops.insert got values of shape {added.shape} for a tensor of shape {tensor.shape}"
        )
    added = manipulation.reshape(added, (1,) * (tensor.ndim - added.ndim) + added.shape)
    side = tensor.shape[place]
    if not isinstance(where, slice) and not np.ndim(where):
        # For one index NumPy takes the first axis of the values for the one that is inserted.
        added = moveaxis(added, 0, place)
        count = added.shape[place]
    else:
        count = len(np.arange(side)[where]) if isinstance(where, slice) else _count(where)
    target = (*tensor.shape[:place], count, *tensor.shape[place + 1 :])
    added = manipulation.broadcast_to(added, target)
    try:
        order = np.insert(np.arange(side), where, side + np.arange(count))
    except IndexError as error:
        raise OutOfBoundsError(f"ops.insert for shape {tensor.shape}: {error}") from None
    except ValueError as error:
        raise ShapeError(f"ops.insert for shape {tensor.shape}: {error}") from None
    joined = manipulation.concat([tensor, added], axis=place)
    return take_static(joined, order, place)


@op(standard=False)
def delete(x: TensorLike, obj: Any, /, axis: int | None = None) -> Tensor:
    """Without the elements at some indices of an axis, or of the flattened tensor.

    The indices are an integer, a slice, a list or a mask.

    >>> delete([1, 2, 3, 4], [0, -1]).tolist()
    [2, 3]
    """
    tensor, place = _flat_unless(convert.to_tensor(x), axis, "delete")
    try:
        kept = np.delete(np.arange(tensor.shape[place]), _host_indices("delete", obj))
    except IndexError as error:
        raise OutOfBoundsError(f"ops.delete for shape {tensor.shape}: {error}") from None
    except ValueError as error:
        raise ShapeError(f"ops.delete for shape {tensor.shape}: {error}") from None
    return take_static(tensor, kept, place)


def _flat_unless(x: Tensor, axis: int | None, name: str) -> tuple[Tensor, int]:
    if axis is None:
        return manipulation.reshape(x, (-1,)), 0
    return x, axis_of(name, axis, x.ndim)


def _host_indices(name: str, obj: Any) -> Any:
    if isinstance(obj, slice):
        return obj
    array = obj.numpy() if isinstance(obj, Tensor) else np.asarray(obj)
    if not array.size:
        return array.astype(np.int64)
    if array.dtype.kind not in "iub":
        raise DTypeError(f"ops.{name} takes integer indices, not {array.dtype}")
    return array.astype(np.int64) if array.dtype.kind == "u" else array


def _count(where: Any) -> int:
    return int(np.count_nonzero(where)) if where.dtype == bool else int(where.size)


# --- Grids ----------------------------------------------------------------------------------


@op(creates=True, standard=False)
def tri(
    n: int,
    m: int | None = None,
    k: int = 0,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
) -> Tensor:
    """Ones on and below the k-th diagonal of an n x m matrix, zeros above.

    >>> tri(2).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    rows = shape_of("tri", n)[0]
    columns = rows if m is None else shape_of("tri", m)[0]
    values = np.tri(rows, columns, integer_of("tri", k, "k"), dtype=np.bool_)
    return creation.asarray(
        values, dtype=dtypes.default_float if dtype is None else dtype, device=device
    )


@op(creates=True, standard=False)
def identity(n: int, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """A square matrix with ones on its diagonal and zeros elsewhere.

    >>> identity(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return creation.eye(n, dtype=dtype, device=device)


@op(creates=True, standard=False)
def logspace(
    start: float,
    stop: float,
    /,
    num: int = 50,
    *,
    endpoint: bool = True,
    base: float = 10.0,
    dtype: DTypeLike = None,
    device: str | None = None,
) -> Tensor:
    """Powers of `base` whose exponents have equal distances.

    >>> logspace(0, 2, 3).tolist()
    [1.0, 10.0, 100.0]
    """
    count = _number_of("logspace", num)
    with np.errstate(all="ignore"):
        values = np.logspace(start, stop, count, endpoint=endpoint, base=base)
    return _spaced(values, dtype, device)


@op(creates=True, standard=False)
def geomspace(
    start: float,
    stop: float,
    /,
    num: int = 50,
    *,
    endpoint: bool = True,
    dtype: DTypeLike = None,
    device: str | None = None,
) -> Tensor:
    """Numbers between two bounds, each the same multiple of the one before.

    >>> geomspace(1, 8, 4).tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    count = _number_of("geomspace", num)
    if start == 0 or stop == 0:
        raise DomainError(f"ops.geomspace got {start} and {stop}; multiples never reach zero")
    with np.errstate(all="ignore"):
        values = np.geomspace(start, stop, count, endpoint=endpoint)
    return _spaced(values, dtype, device)


def _number_of(name: str, num: int) -> int:
    count = integer_of(name, num, "num")
    if count < 0:
        raise DomainError(f"ops.{name} got num={count}; a count is not negative")
    return count


def _spaced(values: np.ndarray[Any, Any], dtype: DTypeLike, device: str | None) -> Tensor:
    default = dtypes.default_complex if values.dtype.kind == "c" else dtypes.default_float
    return creation.asarray(values, dtype=default if dtype is None else dtype, device=device)
