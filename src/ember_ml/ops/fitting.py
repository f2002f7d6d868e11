"""Values in the dtype of a tensor, and indices that the host has made, for ops that update."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml import dtypes
from ember_ml.errors import DTypeError
from ember_ml.ops import dispatch
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill
from ember_ml.typing import TensorLike

__all__ = ["beside", "counted", "fitting", "take_static"]


def beside(x: Tensor, array: np.ndarray[Any, Any]) -> Tensor:
    """Values that the host has made as a tensor of the backend and the device of `x`."""
    spec = x._spec.with_dtype(dtypes.to_dtype(array.dtype))
    return fill(spec.backend.from_numpy(np.ascontiguousarray(array), spec), spec)


def counted(x: Tensor, count: int) -> Tensor:
    """0 to `count` - 1 as int64 beside `x`; the count may be a size that varies: see em.export."""
    if type(count) is int:
        return beside(x, np.arange(count))
    spec = x._spec.with_dtype(dtypes.int64)
    return fill(spec.backend.counted(count, spec), spec)


def take_static(x: Tensor, indices: np.ndarray[Any, Any], axis: int) -> Tensor:
    """Elements at indices that the host has made, so that none needs to be checked."""
    return dispatch.call("take", x, beside(x, indices.astype(np.int64)).native, axis)


def fitting(name: str, x: Tensor, value: TensorLike) -> Tensor:
    """A value as a tensor in the dtype of `x`; DTypeError where that would lose precision."""
    spec = x._spec
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | float | complex):
        if dtypes.scalar_dtype(value, spec.dtype, name) is not spec.dtype:
            raise DTypeError(f"ops.{name} got {value!r}, which does not fit a {spec.dtype} tensor")
        return convert.asarray(value, spec.dtype, spec.device, None, spec.backend)
    tensor = convert.to_tensor(value, dispatch.home_of(name, (x, value)))
    if tensor.dtype is not spec.dtype and (not tensor.size and isinstance(value, list | tuple)):
        return convert.cast(tensor, spec.dtype)
    dispatch.same_device(name, x.device, tensor.device)
    if dtypes.promote(spec.dtype, tensor.dtype, name) is not spec.dtype:
        raise DTypeError(
            f"ops.{name} would cast {tensor.dtype} to the {spec.dtype} of the tensor and lose "
            f"precision; cast the values with .astype('{spec.dtype}')"
        )
    return convert.cast(tensor, spec.dtype)
