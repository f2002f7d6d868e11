"""Gradients in torch's own graph, by torch.autograd.grad: torch.func costs twice on small nets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import graph

from ember_ml.backend.gradients import Gradients, Natives

if TYPE_CHECKING:
    from ember_ml.backend.contract import NativeArray
    from ember_ml.backend.gradients import Function

__all__ = ["TorchGradients"]


class TorchGradients(Gradients):
    """torch records by itself; here it is asked."""

    def alias(self, native: NativeArray) -> NativeArray:
        if native.requires_grad:
            return native.view_as(native)  # within another derivative: connected, and apart
        return native.detach().requires_grad_()

    def pull_back(
        self, results: Natives, gradients: Natives, inputs: Natives, create: bool
    ) -> list[Any]:
        return list(
            torch.autograd.grad(results, inputs, gradients, create_graph=create, allow_unused=True)
        )

    def checkpoint(self, function: Function, natives: Natives, offload: bool) -> list[Any]:
        from torch._C._functorch import is_functorch_wrapped_tensor
        from torch.utils import checkpoint as checkpoints

        if any(is_functorch_wrapped_tensor(native) for native in natives):
            return function(natives)  # in a batch of torch's, which nothing outlives

        def run(*given: Any) -> tuple[Any, ...]:
            return tuple(function(given))

        # What is given goes through the hooks of `keeping`, so that there is nothing to offload.
        # Early stopping is an exception in the midst of an op, which ops would explain to users.
        with checkpoints.set_checkpoint_early_stop(False):
            return list(checkpoints.checkpoint(run, *natives, use_reentrant=False))

    def keeping(
        self, pack: Callable[[NativeArray], Any], unpack: Callable[[Any], NativeArray]
    ) -> AbstractContextManager[Any]:
        return graph.saved_tensors_hooks(pack, unpack)
