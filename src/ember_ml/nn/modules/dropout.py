"""Dropout: in training, values are zeroed by chance; in use, they pass as they are."""

from __future__ import annotations

from typing import ClassVar

from ember_ml.errors import DomainError, DTypeError, EmberError
from ember_ml.nn.module import Module
from ember_ml.nn.modules.inputs import refused, told
from ember_ml.ops.dropping import alpha_dropout, dropout
from ember_ml.ops.random.generator import Generator
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["AlphaDropout", "DropPath", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d"]


class _Dropping(Module):
    # Draws come from the stream of `ops.random`, or from a generator that is set here.
    generator: Generator | None = None

    def __init__(self, p: float = 0.5) -> None:
        if isinstance(p, bool) or not isinstance(p, int | float):
            raise DTypeError(f"{type(self).__name__} takes a number as p, not {type(p).__name__}")
        if not 0 <= p <= 1:
            raise DomainError(f"{type(self).__name__} got p={p}; a probability is from 0 to 1")
        self.p = p


class Dropout(_Dropping):
    """Zero with probability `p`, else `x / (1 - p)`, in training; x itself in use.

    Which ones is drawn from the stream of `ops.random`, the same on every backend for a seed.

    >>> from ember_ml import nn
    >>> layer = nn.Dropout(0.5)
    >>> sorted(set(layer(ops.ones(100)).tolist()))
    [0.0, 2.0]
    >>> layer.eval()(ops.ones(2)).tolist()
    [1.0, 1.0]
    """

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return dropout(x, self.p, training=self.training, generator=self.generator)
        except EmberError as error:
            raise told(self, x, error) from error


class AlphaDropout(_Dropping):
    """Dropout for networks of SELU: mean and variance stay as they are.

    >>> from ember_ml import nn
    >>> nn.AlphaDropout(0.2).eval()(ops.ones(2)).tolist()
    [1.0, 1.0]
    """

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return alpha_dropout(x, self.p, training=self.training, generator=self.generator)
        except EmberError as error:
            raise told(self, x, error) from error


class _Channels(_Dropping):
    """Whole channels are dropped; the input may be one sample, without an axis of samples."""

    _axes: ClassVar[int]

    def __init__(self, p: float = 0.5, *, data_format: str = "channels_first") -> None:
        super().__init__(p)
        if data_format not in ("channels_first", "channels_last"):
            raise DomainError(
                f"{type(self).__name__} takes data_format='channels_first' or 'channels_last', "
                f"not {data_format!r}"
            )
        self.data_format = data_format

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        tensor = convert.to_tensor(x)
        spatial = self._axes
        if tensor.ndim not in (spatial + 1, spatial + 2):
            raise refused(self, tensor, f"it takes samples, channels, {spatial} spatial axes")
        channels = -1 if self.data_format == "channels_last" else -1 - spatial
        axis = (channels,) if tensor.ndim == spatial + 1 else (0, channels)
        try:
            return dropout(
                tensor, self.p, training=self.training, axis=axis, generator=self.generator
            )
        except EmberError as error:
            raise told(self, x, error) from error


class Dropout1d(_Channels):
    """Dropout of whole channels of `(samples, channels, length)`.

    >>> from ember_ml import nn
    >>> y = nn.Dropout1d()(ops.ones((2, 3, 4)))
    >>> bool(ops.all(y == y[..., :1]))
    True
    """

    _axes = 1


class Dropout2d(_Channels):
    """Dropout of whole channels of `(samples, channels, height, width)`.

    >>> from ember_ml import nn
    >>> nn.Dropout2d(1.0)(ops.ones((1, 2, 1, 1))).tolist()
    [[[[0.0]], [[0.0]]]]
    """

    _axes = 2


class Dropout3d(_Channels):
    """Dropout of whole channels of `(samples, channels, depth, height, width)`.

    >>> from ember_ml import nn
    >>> nn.Dropout3d(0.0)(ops.ones((1, 1, 1, 1, 2))).tolist()
    [[[[[1.0, 1.0]]]]]
    """

    _axes = 3


class DropPath(_Dropping):
    """Dropout of whole samples: that of the branch of a residual (stochastic depth).

    >>> from ember_ml import nn
    >>> y = nn.DropPath(0.5)(ops.ones((4, 3)))
    >>> bool(ops.all(y == y[:, :1]))
    True
    """

    def __init__(self, p: float = 0.0) -> None:
        super().__init__(p)

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return dropout(x, self.p, training=self.training, axis=0, generator=self.generator)
        except EmberError as error:
            raise told(self, x, error) from error
