"""The part of a transformer's block that works on each place alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ember_ml import nn, ops
from ember_ml.errors import DomainError
from ember_ml.ops.activations import get_activation
from ember_ml.tensor.core import Tensor

__all__ = ["FeedForward", "activation_of"]

_GATED: Final = {"swiglu": "silu", "geglu": "gelu", "glu": "sigmoid"}


def _gelu_tanh(x: Any) -> Tensor:
    return ops.gelu(x, approximate="tanh")


def activation_of(name: str) -> Callable[..., Any]:
    """The function of a name: those of ops, and "gelu_tanh", the gelu of GPT-2."""
    return _gelu_tanh if name == "gelu_tanh" else get_activation(name)


class FeedForward(nn.Module):
    """`down(f(up(x)))`, or with a gate `down(f(gate(x)) · up(x))`.

    `activation` is the f; "swiglu" and "geglu" are gated with silu and gelu.
    """

    def __init__(self, size: int, inner: int, activation: str = "gelu", bias: bool = True) -> None:
        gated = activation in _GATED
        self.gate = nn.Linear(size, inner, bias) if gated else None
        self.up = nn.Linear(size, inner, bias)
        self.down = nn.Linear(inner, size, bias)
        try:
            self._activation = activation_of(_GATED.get(activation, activation))
        except ValueError as error:
            raise DomainError(f"FeedForward got activation={activation!r}: {error}") from None

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        if self.gate is None:
            y = self._activation(self.up(x))
        else:
            y = self._activation(self.gate(x)) * self.up(x)
        out: Tensor = self.down(y)
        return out
