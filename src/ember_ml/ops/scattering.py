"""Scatter: values put together in groups, each into the place of the result that its index names.

The indices are integers, one for each place of `axis`, or one for each value as in
`torch.scatter_add`. They may be fewer than the values along `axis`: those beyond are left out.
Without `dim_size` the result is as long as the largest index asks for; with it, negative indices
count from its end. An index beyond it raises OutOfBoundsError. The result does not depend on how
the work is divided: on a CPU it is the same each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from ember_ml import dtypes
from ember_ml.errors import (
    DomainError,
    DTypeError,
    OutOfBoundsError,
    ShapeError,
    UnsupportedOpError,
)
from ember_ml.ops import creation, dispatch, elementwise, manipulation
from ember_ml.ops.axes import axis_of, integer_of
from ember_ml.ops.registry import BOOLEAN, FLOATING, NUMERIC, REAL, REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__: list[str] = [
    "scatter",
    "scatter_add",
    "scatter_max",
    "scatter_mean",
    "scatter_min",
    "scatter_mul",
    "scatter_softmax",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_sum",
]

_HALVES: Final = (dtypes.float16, dtypes.bfloat16)


@op(accepts=NUMERIC, lift="int", standard=False)
def scatter(
    values: TensorLike,
    indices: TensorLike,
    dim_size: int | None = None,
    aggr: str = "add",
    axis: int = 0,
) -> Tensor:
    """Values of equal index put together: "add", "mean", "max", "min", "mul" or "softmax".

    The same as scatter_add, scatter_mean and so on, which say what becomes of groups without
    values; "sum" and "prod" are other names of "add" and "mul".

    >>> scatter([1.0, 2.0, 3.0], [0, 1, 0]).tolist()
    [4.0, 2.0]
    >>> scatter([1.0, 2.0, 3.0], [0, 2, 0], 4, "mean").tolist()
    [2.0, 0.0, 2.0, 0.0]
    """
    found = _WAYS.get(aggr)
    if found is None:
        raise DomainError(f"ops.scatter takes aggr {', '.join(map(repr, _WAYS))}, not {aggr!r}")
    return found(values, indices, dim_size, axis)


@op(accepts=NUMERIC, lift="int", standard=False)
def scatter_add(
    values: TensorLike, indices: TensorLike, dim_size: int | None = None, axis: int = 0
) -> Tensor:
    """The sum of the values of each index, in their dtype; 0 where there are none.

    16-bit floats are added in float32, and truth values are counted.

    >>> scatter_add([[1, 2], [3, 4], [5, 6]], [1, 0, 1]).tolist()
    [[3, 4], [6, 8]]
    """
    return _aggregated("scatter_add", values, indices, dim_size, axis)


@op(accepts=NUMERIC, lift="int", standard=False)
def scatter_mul(
    values: TensorLike, indices: TensorLike, dim_size: int | None = None, axis: int = 0
) -> Tensor:
    """The product of the values of each index, in their dtype; 1 where there are none.

    >>> scatter_mul([2, 3, 4], [0, 2, 0]).tolist()
    [8, 1, 3]
    """
    return _aggregated("scatter_mul", values, indices, dim_size, axis)


@op(accepts=REAL | BOOLEAN, standard=False)
def scatter_max(
    values: TensorLike, indices: TensorLike, dim_size: int | None = None, axis: int = 0
) -> Tensor:
    """The largest value of each index, NaN where there is one; 0 where there are no values.

    >>> scatter_max([-2.0, -3.0, 4.0], [0, 0, 2]).tolist()
    [-2.0, 0.0, 4.0]
    """
    return _aggregated("scatter_max", values, indices, dim_size, axis)


@op(accepts=REAL | BOOLEAN, standard=False)
def scatter_min(
    values: TensorLike, indices: TensorLike, dim_size: int | None = None, axis: int = 0
) -> Tensor:
    """The smallest value of each index, NaN where there is one; 0 where there are no values.

    >>> scatter_min([2.0, 3.0, 4.0], [0, 0, 2]).tolist()
    [2.0, 0.0, 4.0]
    """
    return _aggregated("scatter_min", values, indices, dim_size, axis)


@op(accepts=FLOATING, lift="float", standard=False)
def scatter_mean(
    values: TensorLike, indices: TensorLike, dim_size: int | None = None, axis: int = 0
) -> Tensor:
    """The average of the values of each index; 0 where there are none.

    >>> scatter_mean([1, 2, 4], [0, 1, 1]).tolist()
    [1.0, 3.0]
    """
    x, chosen, place, size = _prepared("scatter_mean", values, indices, dim_size, axis)
    wide = convert.cast(x, dtypes.float32) if x.dtype in _HALVES else x
    total = dispatch.call("scatter_add", wide, chosen.native, place, size)
    ones = creation.ones_like(chosen, dtype=dtypes.real_of(wide.dtype))
    count = dispatch.call("scatter_add", ones, chosen.native, place if chosen.ndim > 1 else 0, size)
    if chosen.ndim == 1:
        count = _along(count, place, x.ndim)
    mean = elementwise.divide(total, convert.cast(elementwise.maximum(count, 1), wide.dtype))
    return convert.cast(mean, x.dtype)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def scatter_softmax(
    values: TensorLike, indices: TensorLike, dim_size: int | None = None, axis: int = 0
) -> Tensor:
    """The softmax among the values of each index, in the shape of the values.

    As in libraries for graphs, each value becomes its share of its group: the shares of an index
    sum to 1, and `dim_size` only bounds the indices.

    >>> scatter_softmax([0.0, 0.0, 5.0], [0, 0, 1]).tolist()
    [0.5, 0.5, 1.0]
    """
    x, chosen, place, size = _prepared("scatter_softmax", values, indices, dim_size, axis)
    wide = convert.cast(x, dtypes.float32) if x.dtype in _HALVES else x
    # A shift of all values of a group changes nothing, so no gradient passes through it.
    largest = dispatch.call("scatter_max", wide.detach(), chosen.native, place, size)
    with np.errstate(invalid="ignore"):  # a group of infinities has no shares, and NumPy warns
        powers = elementwise.exp(elementwise.subtract(wide, _spread(largest, chosen, place)))
    total = dispatch.call("scatter_add", powers, chosen.native, place, size)
    return convert.cast(elementwise.divide(powers, _spread(total, chosen, place)), x.dtype)


_WAYS: Final[dict[str, Callable[..., Tensor]]] = {
    "add": scatter_add,
    "sum": scatter_add,
    "mean": scatter_mean,
    "max": scatter_max,
    "min": scatter_min,
    "mul": scatter_mul,
    "prod": scatter_mul,
    "softmax": scatter_softmax,
}


def _aggregated(
    name: str, values: TensorLike, indices: TensorLike, dim_size: int | None, axis: int
) -> Tensor:
    x, chosen, place, size = _prepared(name, values, indices, dim_size, axis)
    return dispatch.call(name, x, chosen.native, place, size)


def _prepared(
    name: str, values: TensorLike, indices: TensorLike, dim_size: int | None, axis: int
) -> tuple[Tensor, Tensor, int, int]:
    """The values that have an index, the indices, the axis, and how long it becomes."""
    home = dispatch.home_of(name, (values, indices))
    x = dispatch.lifted(name, convert.to_tensor(values, home))
    chosen = convert.to_tensor(indices, home)
    if not chosen.size and isinstance(indices, list | tuple):
        chosen = convert.cast(chosen, dtypes.int64)
    if not chosen.dtype.is_integer:
        raise DTypeError(f"ops.{name} takes integer indices, not {chosen.dtype}")
    dispatch.same_device(name, x.device, chosen.device)
    place = axis_of(name, axis, x.ndim)
    flat = chosen.ndim == 1
    count, side = chosen.shape[0 if flat else place] if chosen.ndim else 0, x.shape[place]
    outer = (*x.shape[:place], count, *x.shape[place + 1 :])
    if count > side or not (flat or chosen.shape == outer):
        raise ShapeError(
            f"ops.{name} got indices of shape {chosen.shape} for values of shape {x.shape}; "
            f"give one for each of the {side} places of axis {place}, or one for each value"
        )
    if count < side:
        x = x[(*(slice(None),) * place, slice(count))]
    return x, convert.cast(chosen, dtypes.int64), place, _size(name, chosen, dim_size)


def _size(name: str, chosen: Tensor, dim_size: int | None) -> int:
    if dim_size is not None:
        size = integer_of(name, dim_size, "dim_size")
        if size < 0:
            raise ShapeError(f"ops.{name} got dim_size={size}; lengths are not negative")
        return size
    if not chosen.size:
        return 0
    if chosen._spec.backend.is_traced(chosen.native):
        raise UnsupportedOpError(
            f"ops.{name} without dim_size is as long as its largest index, which is unknown "
            f"while a compiler traces; give dim_size"
        )
    host = chosen.numpy()
    if int(host.min()) < 0:
        raise OutOfBoundsError(
            f"ops.{name} got index {int(host.min())}; negative ones count from the end of "
            f"dim_size, which is not given"
        )
    return int(host.max()) + 1


def _along(x: Tensor, axis: int, ndim: int) -> Tensor:
    """A vector as a tensor of `ndim` axes that is long only along `axis`."""
    return manipulation.reshape(x, tuple(-1 if i == axis else 1 for i in range(ndim)))


def _spread(x: Tensor, chosen: Tensor, axis: int) -> Tensor:
    """The result of each value's group, in the shape of the values."""
    name = "take" if chosen.ndim == 1 else "take_along_axis"
    return dispatch.call(name, x, chosen.native, axis)


# --- Segments -------------------------------------------------------------------------------


@op(accepts=NUMERIC, lift="int", standard=False)
def segment_sum(
    data: TensorLike, segment_ids: TensorLike, num_segments: int | None = None
) -> Tensor:
    """The sum of the rows of each segment; 0 where there are none. See scatter_add.

    >>> segment_sum([1, 2, 3], [0, 0, 1]).tolist()
    [3, 3]
    """
    return scatter_add(*_rows("segment_sum", data, segment_ids), num_segments)


@op(accepts=FLOATING, lift="float", standard=False)
def segment_mean(
    data: TensorLike, segment_ids: TensorLike, num_segments: int | None = None
) -> Tensor:
    """The average of the rows of each segment; 0 where there are none. See scatter_mean.

    >>> segment_mean([1, 2, 3], [0, 0, 1]).tolist()
    [1.5, 3.0]
    """
    return scatter_mean(*_rows("segment_mean", data, segment_ids), num_segments)


@op(accepts=REAL | BOOLEAN, standard=False)
def segment_max(
    data: TensorLike, segment_ids: TensorLike, num_segments: int | None = None
) -> Tensor:
    """The largest of the rows of each segment; 0 where there are none. See scatter_max.

    >>> segment_max([1, 2, 3], [0, 0, 1]).tolist()
    [2, 3]
    """
    return scatter_max(*_rows("segment_max", data, segment_ids), num_segments)


@op(accepts=REAL | BOOLEAN, standard=False)
def segment_min(
    data: TensorLike, segment_ids: TensorLike, num_segments: int | None = None
) -> Tensor:
    """The smallest of the rows of each segment; 0 where there are none. See scatter_min.

    >>> segment_min([1, 2, 3], [0, 0, 1]).tolist()
    [1, 3]
    """
    return scatter_min(*_rows("segment_min", data, segment_ids), num_segments)


@op(accepts=NUMERIC, lift="int", standard=False)
def segment_prod(
    data: TensorLike, segment_ids: TensorLike, num_segments: int | None = None
) -> Tensor:
    """The product of the rows of each segment; 1 where there are none. See scatter_mul.

    >>> segment_prod([2, 3, 4], [0, 0, 1]).tolist()
    [6, 4]
    """
    return scatter_mul(*_rows("segment_prod", data, segment_ids), num_segments)


def _rows(name: str, data: TensorLike, segment_ids: TensorLike) -> tuple[Tensor, Tensor]:
    """Rows and the segment of each: here none may be left out."""
    home = dispatch.home_of(name, (data, segment_ids))
    x = dispatch.lifted(name, convert.to_tensor(data, home))
    ids = convert.to_tensor(segment_ids, home)
    if not ids.size:
        ids = convert.cast(ids, dtypes.int64)
    if ids.ndim != 1 or not x.ndim or ids.shape[0] != x.shape[0]:
        raise ShapeError(
            f"ops.{name} got segment_ids of shape {ids.shape} for data of shape {x.shape}; "
            f"give one for each row"
        )
    return x, ids
