"""Gradients in torch's own graph, by torch.autograd.grad: torch.func costs twice on small nets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ember_ml.backend.gradients import FREED, Gradients, Natives
from ember_ml.errors import EmberError, GradientError

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
        try:
            found = torch.autograd.grad(
                results, inputs, gradients, create_graph=create, allow_unused=True
            )
        except RuntimeError as error:
            raise self.explained(error) or error from error
        return list(found) if create else _apart(found)

    def backward(
        self,
        result: NativeArray,
        gradient: NativeArray,
        inputs: Natives | None,
        retain: bool,
        create: bool,
    ) -> None:
        try:
            result.backward(gradient, retain_graph=retain, create_graph=create, inputs=inputs)
        except RuntimeError as error:
            raise self.explained(error) or error from error

    def explained(self, error: Exception) -> Exception | None:
        text = str(error)
        if not isinstance(error, RuntimeError) or isinstance(error, EmberError):
            return None
        if "a second time" in text:
            return GradientError(FREED)
        if "modified by an inplace operation" in text:
            return GradientError(
                "a tensor that a gradient needs was written to after it was used; "
                f"write to a .copy() instead ({text.partition('Hint')[0].strip()})"
            )
        if "in-place" in text or "inplace" in text or "leaf" in text:
            return GradientError(
                f"this write would lose gradients; write to a .copy() instead ({text})"
            )
        return None


def _apart(found: Natives) -> list[Any]:
    """Gradients each in memory of its own: torch gives what is equal, or broadcast, only once."""
    out: list[Any] = []
    for g in found:
        if g is not None and (0 in g.stride() or any(g is other for other in out)):
            g = g.clone(memory_format=torch.contiguous_format)
        out.append(g)
    return out
