"""A model on another engine: its tensors stay the same objects and hold other arrays."""

from __future__ import annotations

from collections.abc import Sequence

from ember_ml import dtypes
from ember_ml.autodiff import imperative
from ember_ml.dtypes import DType, DTypeLike
from ember_ml.errors import DTypeError, EmberError, GradientError
from ember_ml.tensor.core import GradTensor, Tensor

__all__ = ["become", "move"]


def move(
    named: Sequence[tuple[str, Tensor]],
    target: DTypeLike,
    backend: str | None,
    device: str | None,
    dtype: DTypeLike,
) -> None:
    """Move all tensors, or none where one of them cannot be."""
    if target is not None:
        try:
            dtype = dtypes.to_dtype(target)
        except DTypeError:
            if not isinstance(target, str):
                raise
            device = target
    wanted = None if dtype is None else dtypes.to_dtype(dtype)
    if wanted is not None and not wanted.is_inexact:
        raise DTypeError(f"Module.to takes a floating dtype, not {wanted}")
    moved = []
    for name, x in named:
        if type(x) is GradTensor and not x.is_leaf:
            raise GradientError(
                f"Module.to: '{name}' is the result of an op that is recorded; "
                f"set its .detach() in its place first"
            )
        try:
            grad = x.grad
            values = _moved(x.detach(), backend, device, wanted)
            moved.append((x, values, None if grad is None else _like(grad, values)))
        except EmberError as error:
            raise type(error)(f"Module.to: '{name}': {error}") from error
    for x, values, grad in moved:
        become(x, values)
        if grad is not None:
            x.grad = grad


def _moved(x: Tensor, backend: str | None, device: str | None, dtype: DType | None) -> Tensor:
    if dtype is not None and x.dtype.is_inexact and not x.dtype.is_complex:
        if backend is None or x.dtype.itemsize > dtype.itemsize:
            # What the new backend lacks must not reach it.
            return x.astype(dtype, copy=False).to(backend=backend, device=device)
        return x.to(backend=backend, device=device, dtype=dtype)
    return x.to(backend=backend, device=device)


def _like(grad: Tensor, values: Tensor) -> Tensor:
    return grad.detach().to(backend=values.backend, device=values.device, dtype=values.dtype)


def become(x: Tensor, values: Tensor) -> None:
    """Let a tensor hold the array of another one; its role and its need of gradients stay."""
    if values._spec is x._spec and values.native is x.native:
        return
    needs = type(x) is GradTensor
    if needs:
        imperative.require(x, False)
    x.native = values.native
    x._spec = values._spec
    x._home = getattr(values, "_home", None)
    if needs:
        imperative.require(x, True)
