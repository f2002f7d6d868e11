"""MLP: linear layers with activations between them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ember_ml import nn
from ember_ml.errors import DomainError
from ember_ml.models.base import ConfigModel
from ember_ml.ops.activations import get_activation
from ember_ml.registry import Config, register
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["MLP", "MLPConfig"]


@register("models/mlp")
@dataclass(frozen=True, kw_only=True)
class MLPConfig(Config):
    """A multi-layer perceptron: widths, activation, dropout."""

    # None: the first input tells it.
    in_features: int | None = None
    hidden: tuple[int, ...] = (128,)
    out_features: int = 1
    activation: str = "relu"
    dropout: float = 0.0
    # "layer", "batch" or None, before each activation.
    norm: str | None = None

    def build(self) -> MLP:
        """The model, on the current backend."""
        return MLP(self)


class MLP(ConfigModel[MLPConfig]):
    """Linear layers over the last axis, with norm, activation and dropout between them.

    Shapes: x `(..., in_features)`, the result `(..., out_features)`. `norm="batch"` takes
    `(batch, in_features)`.

    >>> from ember_ml.models import MLP
    >>> MLP(in_features=64, hidden=(128, 32), out_features=10)(ops.ones((5, 64))).shape
    (5, 10)
    """

    config_class = MLPConfig

    def __init__(self, config: MLPConfig | None = None, /, **options: Any) -> None:
        super().__init__(config, **options)
        c = self.config
        if c.norm not in (None, "layer", "batch"):
            raise DomainError(f"MLP got norm={c.norm!r}; it is 'layer', 'batch' or None")
        sizes: list[Any] = [c.in_features, *c.hidden, c.out_features]
        self.layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        self.norms: list[nn.Module] = []
        if c.norm is not None:
            norm = nn.LayerNorm if c.norm == "layer" else nn.BatchNorm1d
            self.norms = [norm(size) for size in c.hidden]
        self.dropout = nn.Dropout(c.dropout) if c.dropout else None
        self._activation = get_activation(c.activation)

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        *inner, last = self.layers
        for place, layer in enumerate(inner):
            x = layer(x)
            if self.norms:
                x = self.norms[place](x)
            x = self._activation(x)
            if self.dropout is not None:
                x = self.dropout(x)
        y: Tensor = last(x)
        return y
