"""Autoencoder: an input through a narrow code and back, dense or by convolutions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ember_ml import nn, ops
from ember_ml.errors import DomainError, ShapeError
from ember_ml.models.base import ConfigModel
from ember_ml.ops.activations import get_activation
from ember_ml.registry import Config, register
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["Autoencoder", "AutoencoderConfig"]


@register("models/autoencoder")
@dataclass(frozen=True, kw_only=True)
class AutoencoderConfig(Config):
    """A code for inputs, and inputs of a code: dense, or convolutional for images."""

    # (features,) for a dense one, (channels, height, width) for a convolutional one.
    input_shape: tuple[int, ...] = (64,)
    # Widths of the layers, or channels of the convolutions, between input and code.
    hidden: tuple[int, ...] = (128,)
    code_size: int = 16
    # "dense" or "conv".
    kind: str = "dense"
    activation: str = "relu"
    # Of the result, such as "sigmoid" for values between 0 and 1; None for none.
    output_activation: str | None = None

    def build(self) -> Autoencoder:
        """The model, on the current backend."""
        return Autoencoder(self)


class _Chain(nn.Module):
    """Layers with an activation between them."""

    def __init__(self, layers: list[nn.Module], activation: str) -> None:
        self.layers = layers
        self._activation: Callable[..., Any] = get_activation(activation)

    def forward(self, x: Any) -> Any:
        for place, layer in enumerate(self.layers):
            x = layer(x if not place else self._activation(x))
        return x


class Autoencoder(ConfigModel[AutoencoderConfig]):
    """`decode(encode(x))`, trained to give x back.

    Shapes: x `(batch, *input_shape)`, the code `(batch, code_size)`, the result as x. Each
    convolution halves height and width, which are to be divisible that often.

    >>> from ember_ml.models import Autoencoder
    >>> model = Autoencoder(kind="conv", input_shape=(1, 8, 8), hidden=(4, 8), code_size=3)
    >>> model.encode(ops.ones((2, 1, 8, 8))).shape, model(ops.ones((2, 1, 8, 8))).shape
    ((2, 3), (2, 1, 8, 8))
    """

    config_class = AutoencoderConfig

    def __init__(self, config: AutoencoderConfig | None = None, /, **options: Any) -> None:
        super().__init__(config, **options)
        c = self.config
        if c.kind == "dense":
            self._dense(c)
        elif c.kind == "conv":
            self._convolutional(c)
        else:
            raise DomainError(f"Autoencoder got kind={c.kind!r}; it is 'dense' or 'conv'")
        self._output = None
        if c.output_activation is not None:
            self._output = get_activation(c.output_activation)

    def _dense(self, c: AutoencoderConfig) -> None:
        if len(c.input_shape) != 1:
            raise DomainError(
                f"Autoencoder(kind='dense') got input_shape={c.input_shape}; it is (features,)"
            )
        sizes = (c.input_shape[0], *c.hidden, c.code_size)
        self._grid: tuple[int, ...] = ()
        self.encoder = _Chain([nn.Linear(a, b) for a, b in pairwise(sizes)], c.activation)
        self.decoder = _Chain([nn.Linear(a, b) for a, b in pairwise(sizes[::-1])], c.activation)

    def _convolutional(self, c: AutoencoderConfig) -> None:
        parts = 2 ** len(c.hidden)
        sides = c.input_shape[1:]
        if len(c.input_shape) != 3 or not c.hidden or any(side % parts for side in sides):
            raise DomainError(
                f"Autoencoder(kind='conv') got input_shape={c.input_shape} and hidden={c.hidden}; "
                f"it takes (channels, height, width), sides divisible by {parts}, and one "
                f"convolution or more"
            )
        sizes = (c.input_shape[0], *c.hidden)
        self._grid = (c.hidden[-1], sides[0] // parts, sides[1] // parts)
        flat = self._grid[0] * self._grid[1] * self._grid[2]
        down: list[nn.Module] = [
            nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in pairwise(sizes)
        ]
        up: list[nn.Module] = [
            nn.ConvTranspose2d(a, b, 4, stride=2, padding=1) for a, b in pairwise(sizes[::-1])
        ]
        self.encoder = _Chain(down, c.activation)
        self.to_code = nn.Linear(flat, c.code_size)
        self.from_code = nn.Linear(c.code_size, flat)
        self.decoder = _Chain(up, c.activation)
        self._between = get_activation(c.activation)

    def encode(self, x: TensorLike) -> Tensor:
        """The code of inputs."""
        home = next(self.parameters())._spec.backend
        given = convert.to_tensor(x, home)
        if given.shape[1:] != self.config.input_shape:
            raise ShapeError(
                f"Autoencoder(input_shape={self.config.input_shape}) got shape {given.shape}; "
                f"it takes (batch, *input_shape)"
            )
        y: Tensor = self.encoder(given)
        if not self._grid:
            return y
        flat = ops.reshape(self._between(y), (y.shape[0], self.from_code.out_features))
        code: Tensor = self.to_code(flat)
        return code

    def decode(self, code: TensorLike) -> Tensor:
        """Inputs of a code."""
        y: Any = code
        if self._grid:
            flat = self._between(self.from_code(code))
            y = ops.reshape(flat, (flat.shape[0], *self._grid))
        y = self.decoder(y)
        found: Tensor = y if self._output is None else self._output(y)
        return found

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        return self.decode(self.encode(x))
