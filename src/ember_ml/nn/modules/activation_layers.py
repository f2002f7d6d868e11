"""Activations as modules."""

from __future__ import annotations

from ember_ml import ops
from ember_ml.nn.module import Module
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["ReLU", "Tanh"]


class ReLU(Module):
    """`max(x, 0)`."""

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        return ops.relu(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        return ops.tanh(x)
