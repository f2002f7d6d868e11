"""What layers over sequences share: padding, and states that begin as zeros."""

from __future__ import annotations

import numpy as np

from ember_ml import ops
from ember_ml.backend.selection import use_backend
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["steps_that_count", "zeros_beside"]


def zeros_beside(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Zeros of the backend, device and dtype of a tensor."""
    with use_backend(x.backend):
        return ops.zeros(shape, dtype=x.dtype, device=x.device)


def steps_that_count(
    who: str,
    x: Tensor,
    lengths: TensorLike | None,
    mask: TensorLike | None,
    batch_first: bool,
) -> Tensor | None:
    """Which steps count, in the layout of x without its features; None for all."""
    if lengths is None and mask is None:
        return None
    if lengths is not None and mask is not None:
        raise DomainError(f"{who} got lengths and a mask; give one of them")
    home = x._spec.backend
    if mask is not None:
        given = convert.to_tensor(mask, home)
        if given.shape != x.shape[:-1]:
            raise ShapeError(
                f"{who} got a mask of shape {given.shape} for an input of shape "
                f"{x.shape}; it must be {x.shape[:-1]}"
            )
        if given.dtype != "bool":
            raise DTypeError(
                f"{who} got a mask of {given.dtype}; it is of bool, True where a step counts"
            )
        return given
    given = convert.to_tensor(lengths, home)
    axis = 0 if x.ndim == 2 or not batch_first else 1
    batch = x.shape[:-1][:axis] + x.shape[:-1][axis + 1 :]
    if given.shape != batch:
        raise ShapeError(
            f"{who} got lengths of shape {given.shape} for an input of shape "
            f"{x.shape}; it must be {batch}, one for each sequence"
        )
    if not given.dtype.is_integer:
        raise DTypeError(f"{who} got lengths of {given.dtype}; they are integers")
    steps = x.shape[axis]
    if home.checks_values(given.native):
        values = np.asarray(given.numpy())
        if values.size and (values.min() < 0 or values.max() > steps):
            raise DomainError(
                f"{who} got lengths from {values.min()} to {values.max()} for "
                f"{steps} steps; they must be 0 to {steps}"
            )
    with use_backend(x.backend):
        places = ops.arange(steps, dtype=given.dtype, device=x.device)
    if x.ndim == 3 and axis == 0:
        return ops.less(ops.expand_dims(places, axis=1), given)
    return ops.less(places, given if x.ndim == 2 else ops.expand_dims(given, axis=1))
