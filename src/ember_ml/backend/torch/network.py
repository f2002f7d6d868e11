"""The parts of networks that torch has in one piece."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from ember_ml.backend.contract import Kernel
from ember_ml.backend.torch import activations, windows
from ember_ml.backend.torch.tracing import is_traced

__all__ = ["OVERRIDES"]

Tensor = torch.Tensor
Optional = torch.Tensor | None


# --- Attention --------------------------------------------------------------------------------


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional,
    causal: bool,
    scale: float,
    groups: int,
) -> Tensor:
    if causal and mask is not None:  # torch takes one of them
        seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device)
        seen = seen.tril()
        mask = mask & seen if mask.dtype is torch.bool else mask.masked_fill(~seen, -torch.inf)
        causal = False
    tensors = (query, key, value, mask)
    options = (causal, scale, groups > 1)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        if not is_traced(query) and not any(map(is_functorch_wrapped_tensor, (query, key, value))):
            made: Tensor = _Attention.apply(*tensors, *options)  # type: ignore[no-untyped-call]  # torch's
            return made
    return _attention(*tensors, *options)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional,
    causal: bool,
    scale: float,
    shared: bool,
) -> Tensor:
    return functional.scaled_dot_product_attention(
        query, key, value, mask, is_causal=causal, scale=scale, enable_gqa=shared
    )


class _Attention(torch.autograd.Function):
    """Attention by torch's fused kernels, whose gradients cannot be differentiated again.

    Where they are to be, they are computed by the kernel that is made of single steps.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        tensors, ctx.options = args[:4], args[4:]
        ctx.needed = [place for place in range(4) if ctx.needs_input_grad[place]]
        ctx.save_for_backward(*tensors)
        aliases: list[Any] = [None if x is None else x.detach() for x in tensors]
        for place in ctx.needed:
            aliases[place].requires_grad_()
        ctx.inputs = [aliases[place] for place in ctx.needed]
        with torch.enable_grad():
            ctx.out = _attention(*aliases, *ctx.options)
        out: Tensor = ctx.out.detach()
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        tensors = ctx.saved_tensors  # also tells where one was written to
        if torch.is_grad_enabled():
            with sdpa_kernel(SDPBackend.MATH):
                out = _attention(*tensors, *ctx.options)
            inputs = [tensors[place] for place in ctx.needed]
            found = torch.autograd.grad(out, inputs, gradients, create_graph=True)
        else:
            found = torch.autograd.grad(ctx.out, ctx.inputs, gradients, retain_graph=True)
        parts = dict(zip(ctx.needed, found, strict=True))
        return tuple(parts.get(place) for place in range(7))


# --- Normalization ----------------------------------------------------------------------------


def layer_norm(x: Tensor, weight: Optional, bias: Optional, ndim: int, eps: float) -> Tensor:
    return functional.layer_norm(x, x.shape[-ndim:], weight, bias, eps)


def rms_norm(x: Tensor, weight: Optional, ndim: int, eps: float) -> Tensor:
    return functional.rms_norm(x, x.shape[-ndim:], weight, eps)


def group_norm(x: Tensor, weight: Optional, bias: Optional, groups: int, eps: float) -> Tensor:
    # functional.group_norm refuses groups of one value.
    return torch.group_norm(x, groups, weight, bias, eps)


def batch_norm(
    x: Tensor, mean: Tensor, variance: Tensor, weight: Optional, bias: Optional, eps: float
) -> Tensor:
    if mean.requires_grad or variance.requires_grad:  # which torch's own function refuses
        shape = (-1, *(1,) * (x.ndim - 2))
        scale = (variance + eps).rsqrt()
        scale = scale if weight is None else scale * weight
        out = (x - mean.reshape(shape)) * scale.reshape(shape)
        return out if bias is None else out + bias.reshape(shape)
    return functional.batch_norm(x, mean, variance, weight, bias, eps=eps)


def batch_norm_training(
    x: Tensor,
    mean: Optional,
    variance: Optional,
    weight: Optional,
    bias: Optional,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    if mean is None or variance is None:
        mean, variance, momentum = x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1]), 1.0
    mean, variance = mean.detach().clone(), variance.detach().clone()  # torch writes to them
    if is_functorch_wrapped_tensor(mean) != is_functorch_wrapped_tensor(variance):
        # In a batch, torch does not write to the one that has none.
        mean, variance = _in_batch_of(variance, mean), _in_batch_of(mean, variance)
    out = functional.batch_norm(x, mean, variance, weight, bias, True, momentum, eps)
    return out, mean, variance


def _in_batch_of(other: Tensor, x: Tensor) -> Tensor:
    return torch.where(torch.ones_like(other, dtype=torch.bool), x, x)


def normalize(x: Tensor, axis: tuple[int, ...], order: float, eps: float) -> Any:
    wide = torch.float32 if x.element_size() == 2 else x.dtype
    length = torch.linalg.vector_norm(x, order, axis, keepdim=True, dtype=wide)
    return (x / length.clamp_min(eps)).to(x.dtype)


OVERRIDES: Final[dict[str, Kernel]] = {
    **activations.KERNELS,
    **windows.KERNELS,
    **{
        kernel.__name__: kernel
        for kernel in (
            scaled_dot_product_attention,
            layer_norm,
            rms_norm,
            group_norm,
            batch_norm,
            batch_norm_training,
            normalize,
        )
    },
}
