"""CNN: convolutions with pooling between them, and a linear head."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ember_ml import nn, ops
from ember_ml.errors import DomainError
from ember_ml.models.base import ConfigModel
from ember_ml.ops.activations import get_activation
from ember_ml.registry import Config, register
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["CNN", "CNNConfig"]


@register("models/cnn")
@dataclass(frozen=True, kw_only=True)
class CNNConfig(Config):
    """A convolutional network for images: channels, pooling, classes."""

    in_channels: int = 1
    # One convolution for each; the size halves after it.
    channels: tuple[int, ...] = (16, 32)
    out_features: int = 10
    # An odd number, so that a convolution keeps the size.
    kernel_size: int = 3
    activation: str = "relu"
    # "max" or "avg".
    pooling: str = "max"
    norm: bool = True
    # The head reads the mean of this many by as many parts of the image.
    grid: int = 1
    dropout: float = 0.0

    def build(self) -> CNN:
        """The model, on the current backend."""
        return CNN(self)


class CNN(ConfigModel[CNNConfig]):
    """Convolution, norm, activation and pooling, some times over; then a linear layer.

    Shapes: x `(batch, in_channels, height, width)`, the result `(batch, out_features)`.

    >>> from ember_ml.models import CNN
    >>> CNN(in_channels=1, channels=(4, 8), out_features=3)(ops.ones((2, 1, 8, 8))).shape
    (2, 3)
    """

    config_class = CNNConfig

    def __init__(self, config: CNNConfig | None = None, /, **options: Any) -> None:
        super().__init__(config, **options)
        c = self.config
        if c.pooling not in ("max", "avg"):
            raise DomainError(f"CNN got pooling={c.pooling!r}; it is 'max' or 'avg'")
        if c.kernel_size % 2 == 0:
            raise DomainError(f"CNN got kernel_size={c.kernel_size}; it is an odd number")
        if not c.channels:
            raise DomainError("CNN got no channels; it has one convolution or more")
        self.convolutions = [
            nn.Conv2d(a, b, c.kernel_size, padding=c.kernel_size // 2, bias=not c.norm)
            for a, b in pairwise((c.in_channels, *c.channels))
        ]
        self.norms = [nn.BatchNorm2d(size) for size in c.channels] if c.norm else []
        self.pool = nn.MaxPool2d(2) if c.pooling == "max" else nn.AvgPool2d(2)
        self.gather = nn.AdaptiveAvgPool2d(c.grid)
        self.dropout = nn.Dropout(c.dropout) if c.dropout else None
        self._features = c.channels[-1] * c.grid**2
        self.head = nn.Linear(self._features, c.out_features)
        self._activation = get_activation(c.activation)

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        for place, convolution in enumerate(self.convolutions):
            y = convolution(x)
            if self.norms:
                y = self.norms[place](y)
            x = self.pool(self._activation(y))
        y = self.gather(x)
        # Not -1, which a batch of none does not tell.
        y = ops.reshape(y, (y.shape[0], self._features))
        if self.dropout is not None:
            y = self.dropout(y)
        found: Tensor = self.head(y)
        return found
