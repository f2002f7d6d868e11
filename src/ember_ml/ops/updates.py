"""Elements picked and replaced by index; the tensors that are given stay as they are.

Indices are checked where values can be read; while a compiler traces, they are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ember_ml import dtypes
from ember_ml.autodiff.tape import recorded
from ember_ml.errors import DTypeError, EmberError, OutOfBoundsError, ShapeError
from ember_ml.ops import dispatch, elementwise, indexing, manipulation, reduction, searching
from ember_ml.ops.axes import axis_of, broadcast, integer_of, shape_of
from ember_ml.ops.explain import explain
from ember_ml.ops.fitting import beside, fitting
from ember_ml.ops.registry import BOOLEAN, NUMERIC, REAL, op
from ember_ml.ops.scattering import scatter_add, scatter_max, scatter_min
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill
from ember_ml.tensor.indexing import read_key
from ember_ml.typing import ShapeLike, TensorLike

__all__: list[str] = [
    "dynamic_slice",
    "fill_diagonal",
    "gather",
    "gather_nd",
    "index_add",
    "index_update",
    "masked_fill",
    "masked_select",
    "put_along_axis",
    "scatter_nd",
    "slice_update",
    "tensor_scatter_nd_add",
    "tensor_scatter_nd_max",
    "tensor_scatter_nd_min",
    "tensor_scatter_nd_update",
]


def _integers(name: str, x: Tensor, indices: TensorLike) -> Tensor:
    """Indices as an int64 tensor beside `x`."""
    tensor = convert.to_tensor(indices, dispatch.home_of(name, (x, indices)))
    if not tensor.size and isinstance(indices, list | tuple):
        tensor = convert.cast(tensor, dtypes.int64)
    if not tensor.dtype.is_integer:
        raise DTypeError(f"ops.{name} takes integer indices, not {tensor.dtype}")
    dispatch.same_device(name, x.device, tensor.device)
    return convert.cast(tensor, dtypes.int64)


# --- Keys -----------------------------------------------------------------------------------


@op(standard=False)
def index_update(x: TensorLike, index: Any, value: TensorLike, /) -> Tensor:
    """`x` with `value` at an index, which is written as in `x[index] = value`.

    Where an index stands twice, either of its values may stay.

    >>> index_update([1, 2, 3], [0, 2], 9).tolist()
    [9, 2, 9]
    """
    tensor = convert.to_tensor(x, dispatch.home_of("index_update", (x, value)))
    return _updated("index_update", tensor, index, fitting("index_update", tensor, value))


def written(x: Tensor, key: tuple[Any, ...], value: Any) -> Tensor:
    """What `x[key] = value` makes of a tensor, for a key that is checked."""
    return _set("__setitem__", x, key, fitting("__setitem__", x, value))


def _updated(name: str, x: Tensor, index: Any, value: Tensor) -> Tensor:
    return _set(name, x, read_key(x, index)[0], value)


def _set(name: str, x: Tensor, key: tuple[Any, ...], value: Tensor) -> Tensor:
    backend = x._spec.backend
    try:
        # Arrays that cannot be written are replaced, not changed.
        target = backend.copy(x.native) if backend.mutable else x.native
        native = backend.setitem(target, key, value.native)
    except EmberError:
        raise
    except Exception as error:
        try:
            shape = tuple(backend.getitem(x.native, key).shape)
        except Exception as wrong:
            raise explain(name, wrong, (x,), options=(key,)) from error
        if not _fits(value.shape, shape):
            raise ShapeError(
                f"ops.{name} got a value of shape {value.shape} for elements of shape {shape}"
            ) from error
        raise explain(name, error, (x, value)) from error
    if type(x) is GradTensor or type(value) is GradTensor:
        return recorded("setitem", native, x._spec, (x, value), (key,))
    return fill(native, x._spec)


def _fits(given: tuple[int, ...], target: tuple[int, ...]) -> bool:
    while len(given) > len(target) and given[0] == 1:
        given = given[1:]
    try:
        return broadcast("index_update", [given, target]) == target
    except ShapeError:
        return False


@op(accepts=NUMERIC, standard=False)
def index_add(x: TensorLike, index: Any, value: TensorLike, /) -> Tensor:
    """`x` with `value` added at an index; where an index stands twice, both values are.

    >>> index_add([1, 2, 3], [0, 0, 2], 10).tolist()
    [21, 2, 13]
    """
    tensor = convert.to_tensor(x, dispatch.home_of("index_add", (x, value)))
    tensor = dispatch.lifted("index_add", tensor)
    added = fitting("index_add", tensor, value)
    _, advanced = read_key(tensor, index)
    if not advanced:
        part = tensor[index]
        _require_fit("index_add", added, part.shape)
        return _updated("index_add", tensor, index, elementwise.add(part, added))
    numbers = beside(tensor, np.arange(tensor.size).reshape(tensor.shape))
    places = numbers[index]
    _require_fit("index_add", added, places.shape)
    added = manipulation.broadcast_to(_without_leading(added, places.ndim), places.shape)
    flat = scatter_add(_flat(added), _flat(places), tensor.size)
    return elementwise.add(tensor, manipulation.reshape(flat, tensor.shape))


def _require_fit(name: str, value: Tensor, shape: tuple[int, ...]) -> None:
    if not _fits(value.shape, shape):
        raise ShapeError(
            f"ops.{name} got a value of shape {value.shape} for elements of shape {shape}"
        )


def _without_leading(x: Tensor, ndim: int) -> Tensor:
    return manipulation.reshape(x, x.shape[x.ndim - ndim :]) if x.ndim > ndim else x


def _flat(x: Tensor) -> Tensor:
    return manipulation.reshape(x, (-1,))


# --- Slices ---------------------------------------------------------------------------------


@op(standard=False)
def slice_update(x: TensorLike, start_indices: Any, updates: TensorLike, /) -> Tensor:
    """`x` with a block of the shape of `updates` replaced from some indices on.

    `start_indices` has an integer for each axis, or a slice: then it is the key of the block.

    >>> slice_update([[0, 0, 0], [0, 0, 0]], (0, 1), [[1, 2]]).tolist()
    [[0, 1, 2], [0, 0, 0]]
    >>> slice_update([0, 0, 0, 0], slice(0, 4, 2), 5).tolist()
    [5, 0, 5, 0]
    """
    tensor = convert.to_tensor(x, dispatch.home_of("slice_update", (x, updates)))
    value = fitting("slice_update", tensor, updates)
    if isinstance(start_indices, slice) or _has_slices(start_indices):
        return _updated("slice_update", tensor, start_indices, value)
    if value.ndim != tensor.ndim:
        raise ShapeError(
            f"ops.slice_update got updates of shape {value.shape} for shape {tensor.shape}; "
            f"they must have as many axes"
        )
    key = _block_key("slice_update", tensor, start_indices, value.shape)
    return _updated("slice_update", tensor, key, value)


def _has_slices(given: Any) -> bool:
    return isinstance(given, tuple) and any(isinstance(item, slice) for item in given)


@op(standard=False)
def dynamic_slice(x: TensorLike, start_indices: Any, sizes: Sequence[int], /) -> Tensor:
    """The block of some lengths that begins at some indices, which may be traced.

    >>> dynamic_slice([[1, 2, 3], [4, 5, 6]], (0, 1), (2, 2)).tolist()
    [[2, 3], [5, 6]]
    """
    tensor = convert.to_tensor(x, dispatch.home_of("dynamic_slice", (x, start_indices)))
    lengths = shape_of("dynamic_slice", sizes)
    return tensor[_block_key("dynamic_slice", tensor, start_indices, lengths)]


def _block_key(name: str, x: Tensor, starts: Any, lengths: tuple[int, ...]) -> tuple[Any, ...]:
    """The key of a block: slices, or arrays of indices where its start is being traced."""
    if not isinstance(starts, Tensor) and convert.backend_of(starts) is None:
        given: list[Any] = list(starts) if isinstance(starts, Sequence | np.ndarray) else [starts]
    else:
        tensor = convert.to_tensor(starts)
        given = [tensor] if not tensor.ndim else [tensor[i] for i in range(tensor.shape[0])]
    if len(given) != x.ndim or len(lengths) != x.ndim:
        raise ShapeError(
            f"ops.{name} got {len(given)} starts and {len(lengths)} lengths for a tensor of "
            f"{x.ndim} axes; give one for each"
        )
    if any(_is_traced(start) for start in given):
        return _open_grid(x, [
            elementwise.add(beside(x, np.arange(n)), start)
            for start, n in zip(given, lengths, strict=True)
        ])  # fmt: skip
    key = []
    for axis, (start, length) in enumerate(zip(given, lengths, strict=True)):
        first = integer_of(name, start, "start")
        if first < 0 or first + length > x.shape[axis]:
            raise OutOfBoundsError(
                f"ops.{name} got a block from {first} to {first + length} of axis {axis} of "
                f"shape {x.shape}"
            )
        key.append(slice(first, first + length))
    return tuple(key)


def _is_traced(value: Any) -> bool:
    if not isinstance(value, Tensor):
        if convert.backend_of(value) is None:
            return False
        value = convert.to_tensor(value)
    return bool(value._spec.backend.is_traced(value.native))


def _open_grid(x: Tensor, indices: list[Tensor]) -> tuple[Tensor, ...]:
    """Index vectors, each along an axis of its own."""
    ndim = len(indices)
    return tuple(
        manipulation.reshape(one, tuple(-1 if i == axis else 1 for i in range(ndim)))
        for axis, one in enumerate(indices)
    )


# --- Along an axis --------------------------------------------------------------------------


@op(standard=False)
def gather(x: TensorLike, indices: TensorLike, /, axis: int = 0) -> Tensor:
    """torch.gather: for each index, the element there along `axis`, in the shape of `indices`.

    `indices` has as many axes as `x`, none of the others longer. For whole rows at some indices,
    as TensorFlow's gather gives them, use take.

    >>> gather([[1, 2], [3, 4]], [[0, 0], [1, 0]], axis=1).tolist()
    [[1, 1], [4, 3]]
    """
    tensor = convert.to_tensor(x, dispatch.home_of("gather", (x, indices)))
    place = axis_of("gather", axis, tensor.ndim)
    chosen = _integers("gather", tensor, indices)
    if chosen.ndim != tensor.ndim or any(
        n > side
        for i, (n, side) in enumerate(zip(chosen.shape, tensor.shape, strict=True))
        if i != place
    ):
        raise ShapeError(
            f"ops.gather got indices of shape {chosen.shape} for shape {tensor.shape}; they have "
            f"as many axes, none longer but axis {place}. For rows at indices use ops.take"
        )
    sides = [slice(n) for n in chosen.shape]
    sides[place] = slice(None)
    return indexing.take_along_axis(tensor[tuple(sides)], chosen, axis=place)


@op(standard=False)
def put_along_axis(
    x: TensorLike, indices: TensorLike, values: TensorLike, /, axis: int = -1
) -> Tensor:
    """`x` with values put at indices of their own for each place along the other axes.

    What take_along_axis reads; NumPy's function of this name changes `x`, this one does not.

    >>> put_along_axis([[1, 2], [3, 4]], [[1], [0]], 9, axis=1).tolist()
    [[1, 9], [9, 4]]
    """
    tensor = convert.to_tensor(x, dispatch.home_of("put_along_axis", (x, indices, values)))
    place = axis_of("put_along_axis", axis, tensor.ndim)
    chosen = _integers("put_along_axis", tensor, indices)
    if chosen.ndim != tensor.ndim:
        raise ShapeError(
            f"ops.put_along_axis got indices of shape {chosen.shape} for {tensor.shape}; "
            f"they must have as many axes"
        )
    grid = np.ogrid[tuple(slice(side) for side in tensor.shape)]
    key: list[Any] = [beside(tensor, one) for one in grid]
    key[place] = chosen
    added = fitting("put_along_axis", tensor, values)
    return _updated("put_along_axis", tensor, tuple(key), added)


# --- Masks ----------------------------------------------------------------------------------


def _mask_of(name: str, x: Tensor, mask: TensorLike) -> Tensor:
    tensor = convert.to_tensor(mask, dispatch.home_of(name, (x, mask)))
    if tensor.dtype is not dtypes.bool:
        raise DTypeError(f"ops.{name} takes a mask of truth values, not {tensor.dtype}")
    return tensor


@op(standard=False)
def masked_fill(x: TensorLike, mask: TensorLike, value: TensorLike, /) -> Tensor:
    """`x` with `value` where the mask, which broadcasts to `x`, is true.

    >>> masked_fill([1, 2, 3], [True, False, True], 0).tolist()
    [0, 2, 0]
    """
    tensor = convert.to_tensor(x, dispatch.home_of("masked_fill", (x, mask, value)))
    chosen = _mask_of("masked_fill", tensor, mask)
    put = fitting("masked_fill", tensor, value)
    shape = broadcast("masked_fill", [tensor.shape, chosen.shape, put.shape])
    if shape != tensor.shape:
        raise ShapeError(
            f"ops.masked_fill got a mask of shape {chosen.shape} and a value of shape {put.shape} "
            f"for shape {tensor.shape}; both must broadcast to it"
        )
    return searching.where(chosen, put, tensor)


@op(standard=False)
def masked_select(x: TensorLike, mask: TensorLike, /) -> Tensor:
    """The elements where a mask is true, along one axis; both broadcast.

    How many there are depends on values, so it cannot be traced.

    >>> masked_select([[1, 2], [3, 4]], [True, False]).tolist()
    [1, 3]
    """
    tensor = convert.to_tensor(x, dispatch.home_of("masked_select", (x, mask)))
    chosen = _mask_of("masked_select", tensor, mask)
    shape = broadcast("masked_select", [tensor.shape, chosen.shape])
    spread = manipulation.broadcast_to(tensor, shape)
    return _flat(spread)[_flat(manipulation.broadcast_to(chosen, shape))]


# --- Points: indices whose last axis is a key ------------------------------------------------


def _points(name: str, x: Tensor, indices: TensorLike) -> tuple[Tensor, tuple[int, ...], int]:
    """For points [..., k], the number of each among the first k axes, their shape, and k."""
    points = _integers(name, x, indices)
    if not points.ndim or points.shape[-1] > x.ndim:
        raise ShapeError(
            f"ops.{name} got indices of shape {points.shape} for shape {x.shape}; "
            f"the last axis holds at most {x.ndim} numbers, one for each axis"
        )
    count = points.shape[-1]
    sides = x.shape[:count]
    if points.size and points._spec.backend.checks_values(points.native):
        host = points.numpy().reshape(-1, count)
        for axis, side in enumerate(sides):
            low, high = int(host[:, axis].min()), int(host[:, axis].max())
            if low < -side or high >= side:
                raise OutOfBoundsError(
                    f"ops.{name} got index {low if low < -side else high} for axis {axis} of "
                    f"shape {x.shape}"
                )
    lengths = beside(x, np.array(sides, dtype=np.int64))
    steps = [math.prod(sides[i + 1 :]) for i in range(count)]
    strides = beside(x, np.array(steps, dtype=np.int64))
    inside = searching.where(elementwise.less(points, 0), elementwise.add(points, lengths), points)
    flat = reduction.sum(elementwise.multiply(inside, strides), axis=-1)
    return flat, points.shape[:-1], count


def _rows_of(x: Tensor, count: int) -> Tensor:
    return manipulation.reshape(x, (math.prod(x.shape[:count]), *x.shape[count:]))


@op(standard=False)
def gather_nd(x: TensorLike, indices: TensorLike, /) -> Tensor:
    """The elements, or blocks, at points: the last axis of `indices` is the key of each.

    >>> gather_nd([[1, 2], [3, 4]], [[0, 1], [1, 0]]).tolist()
    [2, 3]
    >>> gather_nd([[1, 2], [3, 4]], [[1]]).tolist()
    [[3, 4]]
    """
    tensor = convert.to_tensor(x, dispatch.home_of("gather_nd", (x, indices)))
    flat, _, count = _points("gather_nd", tensor, indices)
    return indexing.take(_rows_of(tensor, count), flat, axis=0)


def _nd(
    name: str, x: TensorLike, indices: TensorLike, updates: TensorLike
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The tensor, its rows, the numbers of those that points name, and their updates."""
    tensor = convert.to_tensor(x, dispatch.home_of(name, (x, indices, updates)))
    tensor = dispatch.lifted(name, tensor)
    value = fitting(name, tensor, updates)
    flat, shape, count = _points(name, tensor, indices)
    wanted = (*shape, *tensor.shape[count:])
    if value.shape != wanted:
        raise ShapeError(
            f"ops.{name} got updates of shape {value.shape}; for these indices and shape "
            f"{tensor.shape} they have shape {wanted}"
        )
    rows = manipulation.reshape(value, (math.prod(shape), *tensor.shape[count:]))
    return tensor, _rows_of(tensor, count), _flat(flat), rows


@op(standard=False)
def tensor_scatter_nd_update(x: TensorLike, indices: TensorLike, updates: TensorLike, /) -> Tensor:
    """`x` with updates at points: the last axis of `indices` is the key of each.

    Where a point stands twice, either of its updates may stay.

    >>> tensor_scatter_nd_update([1, 2, 3], [[0], [2]], [8, 9]).tolist()
    [8, 2, 9]
    """
    tensor, rows, places, values = _nd("tensor_scatter_nd_update", x, indices, updates)
    out = _updated("tensor_scatter_nd_update", rows, (places,), values)
    return manipulation.reshape(out, tensor.shape)


@op(accepts=NUMERIC, standard=False)
def tensor_scatter_nd_add(x: TensorLike, indices: TensorLike, updates: TensorLike, /) -> Tensor:
    """`x` with updates added at points; all of them where a point stands twice.

    >>> tensor_scatter_nd_add([1, 2, 3], [[0], [0]], [10, 20]).tolist()
    [31, 2, 3]
    """
    tensor, rows, places, values = _nd("tensor_scatter_nd_add", x, indices, updates)
    out = elementwise.add(rows, scatter_add(values, places, rows.shape[0]))
    return manipulation.reshape(out, tensor.shape)


@op(accepts=REAL | BOOLEAN, standard=False)
def tensor_scatter_nd_max(x: TensorLike, indices: TensorLike, updates: TensorLike, /) -> Tensor:
    """`x` with the larger of itself and the updates at points.

    >>> tensor_scatter_nd_max([1, 2, 3], [[0], [2]], [9, 0]).tolist()
    [9, 2, 3]
    """
    tensor, rows, places, values = _nd("tensor_scatter_nd_max", x, indices, updates)
    best = scatter_max(values, places, rows.shape[0])
    return _where_touched(tensor, rows, places, elementwise.maximum(rows, best))


@op(accepts=REAL | BOOLEAN, standard=False)
def tensor_scatter_nd_min(x: TensorLike, indices: TensorLike, updates: TensorLike, /) -> Tensor:
    """`x` with the smaller of itself and the updates at points.

    >>> tensor_scatter_nd_min([1, 2, 3], [[0], [2]], [9, 0]).tolist()
    [1, 2, 0]
    """
    tensor, rows, places, values = _nd("tensor_scatter_nd_min", x, indices, updates)
    best = scatter_min(values, places, rows.shape[0])
    return _where_touched(tensor, rows, places, elementwise.minimum(rows, best))


def _where_touched(tensor: Tensor, rows: Tensor, places: Tensor, new: Tensor) -> Tensor:
    """The new rows where a point names them, and the old ones elsewhere."""
    ones = beside(tensor, np.ones(places.shape[0], dtype=np.int64))
    touched = elementwise.greater(scatter_add(ones, places, rows.shape[0]), 0)
    touched = manipulation.reshape(touched, (rows.shape[0],) + (1,) * (rows.ndim - 1))
    return manipulation.reshape(searching.where(touched, new, rows), tensor.shape)


@op(accepts=NUMERIC, standard=False)
def scatter_nd(indices: TensorLike, updates: TensorLike, shape: ShapeLike, /) -> Tensor:
    """Zeros of a shape with updates added at points.

    >>> scatter_nd([[1], [1], [3]], [10, 20, 30], (4,)).tolist()
    [0, 30, 0, 30]
    """
    home = dispatch.home_of("scatter_nd", (indices, updates))
    value = dispatch.lifted("scatter_nd", convert.to_tensor(updates, home))
    spec = value._spec
    zeros = fill(spec.backend.full(shape_of("scatter_nd", shape), 0, spec), spec)
    tensor, rows, places, values = _nd("scatter_nd", zeros, indices, value)
    return manipulation.reshape(scatter_add(values, places, rows.shape[0]), tensor.shape)


# --- Diagonals ------------------------------------------------------------------------------


@op(standard=False)
def fill_diagonal(x: TensorLike, value: TensorLike, /, *, wrap: bool = False) -> Tensor:
    """`x` with `value`, one or one for each place, on its main diagonal.

    Of more than two axes all must be equally long. `wrap` begins the diagonal of a tall matrix
    again below the square, as in NumPy; NumPy's function changes `x`, this one does not.

    >>> fill_diagonal([[1, 2], [3, 4]], 0).tolist()
    [[0, 2], [3, 0]]
    """
    tensor = convert.to_tensor(x, dispatch.home_of("fill_diagonal", (x, value)))
    shape = tensor.shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise ShapeError(
            f"ops.fill_diagonal got shape {shape}; it takes a matrix, or more axes of one length"
        )
    step = sum(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    stop = tensor.size if wrap or len(shape) > 2 else min(tensor.size, shape[1] * shape[1])
    places = np.arange(0, stop, step or 1)
    added = fitting("fill_diagonal", tensor, value)
    out = _updated("fill_diagonal", _flat(tensor), (beside(tensor, places),), added)
    return manipulation.reshape(out, shape)
