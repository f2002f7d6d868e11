"""Special functions where torch's own lose digits."""

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


OVERRIDES: Final[dict[str, Kernel]] = {"digamma": digamma}
