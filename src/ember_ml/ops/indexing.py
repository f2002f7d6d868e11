"""Functions that pick elements by index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ember_ml import dtypes
from ember_ml.errors import DTypeError, ShapeError
from ember_ml.ops import dispatch, manipulation
from ember_ml.ops.axes import axis_of, broadcast
from ember_ml.ops.registry import op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.tensor.indexing import check_bounds
from ember_ml.typing import TensorLike

if TYPE_CHECKING:
    from ember_ml.markers import D, V
    from ember_ml.tensor.typed import Like

__all__ = ["take", "take_along_axis"]


def _indices(name: str, x: Tensor, indices: TensorLike, axis: int) -> Tensor:
    """Indices as an int64 tensor beside `x`, none of them beyond the axis."""
    home = dispatch.home_of(name, (x, indices))
    tensor = convert.to_tensor(indices, home)
    if not tensor.size and isinstance(indices, list | tuple):
        tensor = convert.cast(tensor, dtypes.int64)
    if not tensor.dtype.is_integer:
        raise DTypeError(f"ops.{name} takes integer indices, not {tensor.dtype}")
    noticed = home.checks_indices and x.size  # NumPy takes any index into nothing
    if tensor.size and not noticed and home.checks_values(tensor.native):
        check_bounds(tensor.numpy(), x.shape[axis], axis, x.shape, name)
    return convert.cast(tensor, dtypes.int64)


@op()
def take(x: Like[D, V], indices: TensorLike, /, *, axis: int | None = None) -> Tensor[D, V]:
    """Elements at some indices along an axis; negative ones count from the end.

    >>> take([10, 20, 30], [2, 0, -1]).tolist()
    [30, 10, 30]
    """
    tensor = convert.to_tensor(x)
    if axis is None:
        if tensor.ndim != 1:
            raise ShapeError(f"ops.take of shape {tensor.shape} takes an axis")
        axis = 0
    place = axis_of("take", axis, tensor.ndim)
    chosen = _indices("take", tensor, indices, place)
    return dispatch.call("take", tensor, chosen.native, place)


@op()
def take_along_axis(x: Like[D, V], indices: TensorLike, /, *, axis: int = -1) -> Tensor[D, V]:
    """Elements at indices of their own for each place along the other axes.

    >>> take_along_axis([[10, 20], [30, 40]], [[1], [0]], axis=1).tolist()
    [[20], [30]]
    """
    tensor = convert.to_tensor(x)
    place = axis_of("take_along_axis", axis, tensor.ndim)
    chosen: Any = _indices("take_along_axis", tensor, indices, place)
    if chosen.ndim != tensor.ndim:
        raise ShapeError(
            f"ops.take_along_axis got indices of shape {chosen.shape} for {tensor.shape}; "
            f"they must have as many axes"
        )
    outer = [(*t.shape[:place], 1, *t.shape[place + 1 :]) for t in (tensor, chosen)]
    shape = list(broadcast("take_along_axis", outer))
    shape[place] = tensor.shape[place]
    tensor = manipulation.broadcast_to(tensor, tuple(shape))
    shape[place] = chosen.shape[place]
    chosen = manipulation.broadcast_to(chosen, tuple(shape))
    return dispatch.call("take_along_axis", tensor, chosen.native, place)
