"""Which tensors have values that can be looked at."""

from __future__ import annotations

import sys
from typing import Final

import torch
from torch._C._functorch import is_functorch_wrapped_tensor

from ember_ml.backend import checks

__all__ = ["is_fake", "is_outside", "is_traced", "readable"]

_FAKE: Final = torch._C._TorchDispatchModeKey.FAKE


def is_traced(x: torch.Tensor) -> bool:
    """True where a compiler or a transform of functions is looking on, and values are not there."""
    return (
        torch.compiler.is_compiling()
        or is_functorch_wrapped_tensor(x)
        # The mode in which make_fx records what is called.
        or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None
        or is_fake(x)
    )


def readable(x: torch.Tensor) -> bool:
    """True where checks that must read values run: eager, as chosen, with something to read."""
    where = checks.mode()
    chosen = where == "all" or (where == "cpu" and x.is_cpu)
    return chosen and x.numel() > 0 and not is_traced(x)


def is_fake(x: torch.Tensor) -> bool:
    """True for a tensor that has a shape and no values."""
    if type(x) is torch.Tensor:
        return False
    # Where nobody has imported the module, there are no fake tensors, and it is a large one.
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and isinstance(x, module.FakeTensor)


def is_outside(x: torch.Tensor) -> bool:
    """True for a tensor with values where tensors without values are recorded."""
    return torch._C._get_dispatch_mode(_FAKE) is not None and not is_fake(x)
