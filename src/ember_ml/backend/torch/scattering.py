"""Scatter on torch: its own in-place functions on a new tensor, through which gradients flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from ember_ml.backend.contract import Kernel
from ember_ml.backend.portable.scattering import require_range
from ember_ml.backend.torch.tracing import readable

__all__ = ["OVERRIDES"]

Tensor = torch.Tensor
# What adds values at checked indices: (values, indices, axis, target) -> result.
Run = Callable[[Tensor, Tensor, int, Tensor], Tensor]

_HALVES: Final = (torch.float16, torch.bfloat16)


def _add(values: Tensor, indices: Tensor, axis: int, target: Tensor) -> Tensor:
    # On one axis scatter_add_ is twice as quick, on several index_add_ by far.
    if indices.ndim == 1 and values.ndim > 1:
        return target.index_add_(axis, indices, values)
    return target.scatter_add_(axis, indices, values)


def _reduced(name: str) -> Run:
    def run(values: Tensor, indices: Tensor, axis: int, target: Tensor) -> Tensor:
        if indices.ndim == 1 and values.ndim > 1:
            shape = [-1 if i == axis else 1 for i in range(values.ndim)]
            indices = indices.reshape(shape).expand(values.shape)
        # Places that get no value keep that of the target.
        return target.scatter_reduce_(axis, indices, values, name, include_self=False)

    return run


class _Product(torch.autograd.Function):
    """The product of complex values, for which torch's own gradient lacks a conjugation."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, indices: Tensor, axis: int, target: Tensor) -> Tensor:
        ctx.save_for_backward(values, indices)
        ctx.axis, ctx.size = axis, target.shape[axis]
        return _reduced("prod")(values, indices, axis, target)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        values, indices = ctx.saved_tensors
        axis = ctx.axis
        shape = (*values.shape[:axis], ctx.size, *values.shape[axis + 1 :])
        if indices.ndim == 1 and values.ndim > 1:
            line = [-1 if i == axis else 1 for i in range(values.ndim)]
            indices = indices.reshape(line).expand(values.shape)
        zero = values == 0
        filled = torch.where(zero, 1, values)
        rest = _Product.apply(filled, indices, axis, values.new_ones(shape))  # type: ignore[no-untyped-call]  # torch leaves it so
        count = zero.to(torch.int64)
        zeros = count.new_zeros(shape).scatter_add_(axis, indices, count)
        left = zeros.gather(axis, indices) - count
        others = torch.where(left == 0, rest.gather(axis, indices) / filled, 0)
        return gradients[0].gather(axis, indices) * others.conj(), None, None, None


def _product(values: Tensor, indices: Tensor, axis: int, target: Tensor) -> Tensor:
    if values.is_complex() and values.requires_grad:
        found: Tensor = _Product.apply(values, indices, axis, target)  # type: ignore[no-untyped-call]  # as above
        return found
    return _reduced("prod")(values, indices, axis, target)


def _scatter(name: str, run: Run, start: int, *, exact: bool) -> Kernel:
    def kernel(values: Tensor, indices: Tensor, axis: int, size: int, empty: int = start) -> Tensor:
        dtype = values.dtype
        if dtype is torch.bool:
            values = values.to(torch.uint8)
        elif dtype in _HALVES and not exact:
            values = values.to(torch.float32)
        shape = (*values.shape[:axis], size, *values.shape[axis + 1 :])
        if not readable(indices):
            indices = torch.where(indices < 0, indices + size, indices)
            return run(values, indices, axis, values.new_full(shape, empty)).to(dtype)
        if 0 in shape:  # torch looks at no index where there is nothing to write to
            require_range(name, indices.cpu().numpy(), size)
        try:
            # torch notices negative indices as well as those beyond, and few have either.
            return run(values, indices, axis, values.new_full(shape, empty)).to(dtype)
        except (IndexError, RuntimeError):
            if not require_range(name, indices.numpy(), size):
                raise
        indices = torch.where(indices < 0, indices + size, indices)
        return run(values, indices, axis, values.new_full(shape, empty)).to(dtype)

    return kernel


OVERRIDES: Final[dict[str, Kernel]] = {
    "scatter_add": _scatter("scatter_add", _add, 0, exact=False),
    "scatter_mul": _scatter("scatter_mul", _product, 1, exact=False),
    "scatter_max": _scatter("scatter_max", _reduced("amax"), 0, exact=True),
    "scatter_min": _scatter("scatter_min", _reduced("amin"), 0, exact=True),
}
