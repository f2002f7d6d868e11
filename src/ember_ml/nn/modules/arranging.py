"""Layers that arrange values and train nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ember_ml.errors import DomainError, DTypeError, EmberError
from ember_ml.nn.module import Module
from ember_ml.nn.modules.inputs import refused, told
from ember_ml.ops import arranging, resizing
from ember_ml.ops.padding import pad
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = [
    "Flatten",
    "Lambda",
    "Pad",
    "PixelShuffle",
    "PixelUnshuffle",
    "Resize",
    "Unflatten",
]

# PyTorch's names of some modes of ops.pad.
PAD_MODES: Final = {"zeros": "constant", "replicate": "edge", "circular": "wrap"}


class Flatten(Module):
    """The axes from one to another as one: all but the first, unless said otherwise.

    >>> from ember_ml import nn
    >>> nn.Flatten()(ops.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __init__(self, start_axis: int = 1, end_axis: int = -1) -> None:
        self.start_axis = start_axis
        self.end_axis = end_axis

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return arranging.flatten(x, self.start_axis, self.end_axis)
        except EmberError as error:
            raise told(self, x, error) from error


class Unflatten(Module):
    """One axis as several of the given lengths, one of which may be -1.

    >>> from ember_ml import nn
    >>> nn.Unflatten(1, (3, -1))(ops.ones((2, 12))).shape
    (2, 3, 4)
    """

    def __init__(self, axis: int, shape: Sequence[int]) -> None:
        self.axis = axis
        self.shape = tuple(shape)

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return arranging.unflatten(x, self.axis, self.shape)
        except EmberError as error:
            raise told(self, x, error) from error


class Lambda(Module):
    """A function as a layer; files can hold functions of `ember_ml.ops`, and no others.

    >>> from ember_ml import nn
    >>> nn.Sequential(nn.Lambda(ops.square), nn.Lambda(lambda x: x + 1))(ops.ones(1) * 3).tolist()
    [10.0]
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise DTypeError(f"Lambda takes a function, not {type(function).__name__}")
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """See the class."""
        return self.function(*args, **kwargs)


class Pad(Module):
    """Values around the spatial axes, those behind samples and channels.

    `padding` is a number for all spatial axes, a pair (before, behind) for all, or a list of a
    pair for each. Modes are those of `ops.pad` and PyTorch's "zeros", "replicate" and "circular";
    `value` is that of mode "constant".

    >>> from ember_ml import nn
    >>> nn.Pad(1)(ops.ones((1, 3, 4, 4))).shape
    (1, 3, 6, 6)
    >>> nn.Pad((0, 2), "reflect")([[[1.0, 2.0, 3.0]]]).tolist()
    [[[1.0, 2.0, 3.0, 2.0, 1.0]]]
    """

    def __init__(
        self,
        padding: int | Sequence[int] | Sequence[Sequence[int]],
        mode: str = "constant",
        value: float = 0.0,
        *,
        data_format: str = "channels_first",
    ) -> None:
        if data_format not in ("channels_first", "channels_last"):
            raise DomainError(
                f"Pad takes data_format='channels_first' or 'channels_last', not {data_format!r}"
            )
        self.padding = padding
        self.mode = mode
        self.value = value
        self.data_format = data_format

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        tensor = convert.to_tensor(x)
        count = tensor.ndim - 2
        if count < 1:
            raise refused(self, tensor, "it takes samples, channels and a spatial axis or more")
        widths = self._widths(tensor, count)
        around = ((0, 0), *widths, (0, 0)) if self._last else ((0, 0), (0, 0), *widths)
        try:
            return pad(
                tensor,
                around,
                PAD_MODES.get(self.mode, self.mode),
                constant_values=self.value,
            )
        except EmberError as error:
            raise told(self, tensor, error) from error

    @property
    def _last(self) -> bool:
        return self.data_format == "channels_last"

    def _widths(self, x: Tensor, count: int) -> tuple[tuple[int, int], ...]:
        given: Any = self.padding
        if isinstance(given, int):
            return ((given, given),) * count
        if len(given) == 2 and all(isinstance(one, int) for one in given):
            return ((given[0], given[1]),) * count
        if len(given) != count or not all(
            isinstance(one, Sequence) and len(one) == 2 for one in given
        ):
            raise refused(self, x, f"its padding must be a pair for each of {count} spatial axes")
        return tuple((one[0], one[1]) for one in given)


class PixelShuffle(Module):
    """`(samples, channels · factor², h, w)` as `(samples, channels, h · factor, w · factor)`.

    >>> from ember_ml import nn
    >>> nn.PixelShuffle(2)(ops.ones((1, 8, 3, 3))).shape
    (1, 2, 6, 6)
    """

    def __init__(self, factor: int, *, data_format: str = "channels_first") -> None:
        self.factor = factor
        self.data_format = data_format

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return resizing.pixel_shuffle(x, self.factor, data_format=self.data_format)
        except EmberError as error:
            raise told(self, x, error) from error


class PixelUnshuffle(Module):
    """The reverse of PixelShuffle.

    >>> from ember_ml import nn
    >>> nn.PixelUnshuffle(2)(ops.ones((1, 2, 6, 6))).shape
    (1, 8, 3, 3)
    """

    def __init__(self, factor: int, *, data_format: str = "channels_first") -> None:
        self.factor = factor
        self.data_format = data_format

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return resizing.pixel_unshuffle(x, self.factor, data_format=self.data_format)
        except EmberError as error:
            raise told(self, x, error) from error


class Resize(Module):
    """Images and signals with spatial axes of another `size`, or `scale` times as long.

    Methods are "nearest", "linear" (also "bilinear", "trilinear") and "bicubic": see `ops.resize`.

    >>> from ember_ml import nn
    >>> nn.Resize(scale=2, method="bilinear")(ops.ones((1, 3, 4, 4))).shape
    (1, 3, 8, 8)
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale: float | Sequence[float] | None = None,
        method: str = "nearest",
        align_corners: bool = False,
        *,
        data_format: str = "channels_first",
    ) -> None:
        if (size is None) == (scale is None):
            raise DomainError("Resize takes either size or scale")
        self.size: Any = size
        self.scale: Any = scale
        self.method = method
        self.align_corners = align_corners
        self.data_format = data_format

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            return resizing.resize(
                x,
                self.size,
                self.scale,
                self.method,
                self.align_corners,
                data_format=self.data_format,
            )
        except EmberError as error:
            raise told(self, x, error) from error
