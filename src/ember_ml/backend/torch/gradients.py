"""Gradients in torch's own graph, by torch.autograd.grad: torch.func costs twice on small nets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ember_ml.backend.gradients import Gradients, Natives

if TYPE_CHECKING:
    from ember_ml.backend.contract import NativeArray

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
