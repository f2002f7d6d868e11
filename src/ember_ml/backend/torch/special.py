"""Special functions where torch's own lose digits, and sums of exponentials."""

from __future__ import annotations

from typing import Final

import torch

from ember_ml.backend.contract import Kernel
from ember_ml.backend.portable.special import digamma_near_root

__all__ = ["OVERRIDES"]


def digamma(x: torch.Tensor) -> torch.Tensor:
    # torch's terms cancel around the root; there, a fit is used that has the root as a factor.
    wide = x.float() if x.dtype.itemsize == 2 else x
    near = digamma_near_root(wide.clamp(1, 2), wide.dtype is torch.float64).to(x.dtype)
    return torch.where((x > 1) & (x < 2), near, torch.digamma(x))


def logsumexp(x: torch.Tensor, axes: tuple[int, ...], keepdims: bool) -> torch.Tensor:
    if not axes:  # torch takes no axes for all
        return x.clone()
    wide = x.float() if x.dtype.itemsize == 2 else x
    return torch.logsumexp(wide, axes, keepdims).to(x.dtype)


def cumulative_logsumexp(x: torch.Tensor, axis: int) -> torch.Tensor:
    wide = x.float() if x.dtype.itemsize == 2 else x
    if not x.requires_grad:
        return torch.logcumsumexp(wide, axis).to(x.dtype)
    # Before the first number, sums are -inf, and torch's gradient NaN: values have none there.
    lowest = torch.finfo(wide.dtype).min
    out = torch.logcumsumexp(wide.clamp_min(lowest), axis)
    return out.masked_fill(out <= lowest, -torch.inf).to(x.dtype)


OVERRIDES: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel for kernel in (digamma, logsumexp, cumulative_logsumexp)
}
