"""Layers that mix the channels of each token."""

from __future__ import annotations

from ember_ml import ops
from ember_ml.errors import DomainError
from ember_ml.nn.layers.base import ChannelMixingLayer
from ember_ml.nn.layers.experts import MixtureOfExperts
from ember_ml.nn.modules.linear import Linear
from ember_ml.ops.activations import get_activation
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["MLP", "GatedMLP", "MixtureOfExperts"]

# What is known under a name of its own: the gate's activation.
_GATES = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu", "glu": "sigmoid"}


class MLP(ChannelMixingLayer):
    """`down(activation(up(x)))`, on each token by itself.

    Shapes: x `(..., hidden_size)`, y `(..., out_size)`, which is `hidden_size` unless it is given;
    between them are `intermediate_size` channels, four times as many unless it is given.

    >>> from ember_ml.nn.layers import channel_mixing
    >>> channel_mixing.MLP(8)(ops.ones((2, 3, 8))).shape
    (2, 3, 8)
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int | None = None,
        *,
        activation: str = "gelu",
        bias: bool = True,
        dropout: float = 0.0,
        out_size: int | None = None,
    ) -> None:
        _require_dropout("MLP", dropout)
        inner = 4 * hidden_size if intermediate_size is None else intermediate_size
        self.hidden_size = hidden_size
        self.dropout = dropout
        self.activation = activation
        self._function = get_activation(activation)
        self.up_proj = Linear(hidden_size, inner, bias)
        self.down_proj = Linear(inner, hidden_size if out_size is None else out_size, bias)

    def forward(self, x: TensorLike, mask: TensorLike | None = None) -> Tensor:
        """See the class."""
        inner = self._function(self.up_proj(self.masked(self.input(x), mask)))
        if self.dropout and self.training:
            inner = ops.dropout(inner, self.dropout)
        return self.down_proj(inner)  # type: ignore[no-any-return]  # a Tensor


class GatedMLP(ChannelMixingLayer):
    """`down(activation(gate(x)) · up(x))`: SwiGLU with silu, GeGLU with gelu.

    Shapes: x and y `(..., hidden_size)`, with `intermediate_size` channels between them, which are
    8/3 as many, up to a multiple of 8, unless it is given. `activation` is that of the gate, or
    "swiglu", "geglu", "reglu", "glu".

    >>> from ember_ml.nn.layers import channel_mixing
    >>> channel_mixing.GatedMLP(8, activation="geglu")(ops.ones((2, 3, 8))).shape
    (2, 3, 8)
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int | None = None,
        *,
        activation: str = "silu",
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        _require_dropout("GatedMLP", dropout)
        inner = intermediate_size
        if inner is None:
            inner = -(-8 * hidden_size // 24) * 8
        self.hidden_size = hidden_size
        self.dropout = dropout
        self.activation = activation
        self._function = get_activation(_GATES.get(activation, activation))
        self.gate_proj = Linear(hidden_size, inner, bias)
        self.up_proj = Linear(hidden_size, inner, bias)
        self.down_proj = Linear(inner, hidden_size, bias)

    def forward(self, x: TensorLike, mask: TensorLike | None = None) -> Tensor:
        """See the class."""
        x = self.masked(self.input(x), mask)
        inner = self._function(self.gate_proj(x)) * self.up_proj(x)
        if self.dropout and self.training:
            inner = ops.dropout(inner, self.dropout)
        return self.down_proj(inner)  # type: ignore[no-any-return]  # a Tensor


def _require_dropout(name: str, p: float) -> None:
    if not 0 <= p < 1:
        raise DomainError(f"{name} got dropout={p}; it must be in [0, 1)")
