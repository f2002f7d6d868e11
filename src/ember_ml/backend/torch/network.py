"""The parts of networks that torch has in one piece."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from ember_ml.backend.contract import Kernel
from ember_ml.backend.gradients import NESTING
from ember_ml.backend.torch import activations, recurrent, windows
from ember_ml.errors import GradientError

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
    if mask is not None and mask.ndim < 2:  # torch looks at its last two axes
        mask = mask.reshape(1, -1)
    if causal and mask is not None:  # torch takes one of them
        seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device)
        seen = seen.tril()
        mask = mask & seen if mask.dtype is torch.bool else mask.masked_fill(~seen, -torch.inf)
        causal = False
    if NESTING.get()[0] > 1:  # within a derivative of a derivative
        with sdpa_kernel(SDPBackend.MATH):
            return functional.scaled_dot_product_attention(
                query, key, value, mask, is_causal=causal, scale=scale, enable_gqa=groups > 1
            )
    out = functional.scaled_dot_product_attention(
        query, key, value, mask, is_causal=causal, scale=scale, enable_gqa=groups > 1
    )
    node = out.grad_fn
    # The kernel that is made of single steps ends in a product of matrices or a view.
    if node is not None and "DotProduct" in type(node).__name__:
        node.register_prehook(_once)
    return out


def split_heads(x: Tensor, heads: int) -> Tensor:
    if x.ndim != 3:
        sides = x.shape
        return x.reshape(*sides[:-1], heads, sides[-1] // heads).transpose(-3, -2)
    rows, length, size = x.shape  # as layers have them, without slices of a shape
    if length == 1:  # nothing changes its place
        return x.reshape(rows, heads, 1, size // heads)
    return x.reshape(rows, length, heads, size // heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    if x.ndim != 4:
        return x.transpose(-3, -2).flatten(-2)
    rows, heads, length, size = x.shape
    if length != 1:
        x = x.transpose(1, 2)
    return x.reshape(rows, length, heads * size)


def _once(_: Any) -> None:
    """Say in our terms what torch would say of itself when the second derivative is taken."""
    if torch.is_grad_enabled():
        raise GradientError(
            "ops.scaled_dot_product_attention has no second derivative in torch's fused kernels; "
            "run it within torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)"
        )


# --- Normalization ----------------------------------------------------------------------------


def layer_norm(x: Tensor, weight: Optional, bias: Optional, ndim: int, eps: float) -> Tensor:
    return torch.layer_norm(x, x.shape[-ndim:], weight, bias, eps)


def rms_norm(x: Tensor, weight: Optional, ndim: int, eps: float) -> Tensor:
    return torch.rms_norm(x, x.shape[-ndim:], weight, eps)


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
    "linear": functional.linear,
    **activations.KERNELS,
    **windows.KERNELS,
    **recurrent.KERNELS,
    **{
        kernel.__name__: kernel
        for kernel in (
            scaled_dot_product_attention,
            split_heads,
            merge_heads,
            layer_norm,
            rms_norm,
            group_norm,
            batch_norm,
            batch_norm_training,
            normalize,
        )
    },
}
