"""Convolutions and their transposes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ember_ml.errors import DomainError, EmberError
from ember_ml.nn.initializers import Initializer, UniformFan, fans, get
from ember_ml.nn.modules.arranging import PAD_MODES
from ember_ml.nn.modules.inputs import Sized, pairs, refused, sides, told
from ember_ml.nn.parameter import Parameter
from ember_ml.ops import convolution
from ember_ml.ops.layouts import same_padding
from ember_ml.ops.padding import pad
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
]

# An integer for all spatial axes, or one for each.
Sides = int | tuple[int, ...] | list[int]
# The same, or (before, after) for each, or "valid" or "same".
Padding = int | str | tuple[Any, ...] | list[Any]


class _Convolution(Sized):
    """What convolutions and their transposes have in common."""

    _axes: ClassVar[int]
    _op: ClassVar[Callable[..., Tensor]]
    _transposed: ClassVar[bool] = False
    weight: Tensor | None
    bias: Tensor | None

    def _set(
        self,
        in_channels: int | None,
        out_channels: int,
        kernel_size: Sides,
        groups: int,
        bias: bool,
        data_format: str,
        inits: tuple[str | Initializer | None, str | Initializer | None],
    ) -> None:
        name = type(self).__name__
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = sides(self, kernel_size, self._axes, "kernel_size")
        self.groups = groups
        self.use_bias = bias
        self.data_format = data_format
        self._last = data_format == "channels_last"
        self._inits = (get(inits[0]), get(inits[1]))
        if data_format not in ("channels_first", "channels_last"):
            raise DomainError(
                f"{name} takes data_format='channels_first' or 'channels_last', not {data_format!r}"
            )
        if groups < 1 or out_channels % groups:
            raise DomainError(
                f"{name} got groups={groups} and out_channels={out_channels}; the groups must "
                f"divide the channels"
            )
        self.weight = self.bias = None
        self.is_lazy = in_channels is None
        if in_channels is not None:
            self._create(in_channels)

    def _create(self, size: int) -> None:
        if size % self.groups:
            raise DomainError(
                f"{type(self).__name__} got in_channels={size} and groups={self.groups}; the "
                f"groups must divide the channels"
            )
        self.in_channels = size
        pair = (self.out_channels, size // self.groups)
        if self._transposed:
            pair = (size, self.out_channels // self.groups)
        shape = (*pair, *self.kernel_size)
        weight_init, bias_init = self._inits
        self.weight = Parameter((weight_init or UniformFan())(shape))
        if self.use_bias:
            begin = bias_init or UniformFan(fans(shape)[0])
            self.bias = Parameter(begin((self.out_channels,)))
        self.is_lazy = False

    def size_from(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Take the size of a weight that is to be loaded."""
        shape = shapes.get("weight", ())
        if len(shape) == self._axes + 2:
            self._create(shape[0] if self._transposed else shape[1] * self.groups)

    def _first(self, x: TensorLike) -> Tensor:
        """Take the channels of a first input, which may be one sample."""
        if convert.to_tensor(x).ndim not in (self._axes + 1, self._axes + 2):
            raise refused(self, x, self._wants())
        return self._size(x, -1 if self._last else -1 - self._axes)

    def _told(self, x: TensorLike, error: EmberError) -> EmberError:
        shape = convert.to_tensor(x).shape
        place = -1 if self._last else -1 - self._axes
        fits = len(shape) in (self._axes + 1, self._axes + 2)
        if not fits or shape[place] != self.in_channels:
            return refused(self, x, self._wants())
        return told(self, x, error)

    def _wants(self) -> str:
        channels = "channels" if self.in_channels is None else f"{self.in_channels} channels"
        spatial = "1 spatial axis" if self._axes == 1 else f"{self._axes} spatial axes"
        parts = (spatial, channels) if self._last else (channels, spatial)
        return f"it takes samples, {parts[0]}, {parts[1]}"


class _Conv(_Convolution):
    """A convolution over as many axes as its class says."""

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        kernel_size: Sides,
        stride: Sides = 1,
        padding: Padding = 0,
        dilation: Sides = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        data_format: str = "channels_first",
        weight_init: str | Initializer | None = None,
        bias_init: str | Initializer | None = None,
    ) -> None:
        name = type(self).__name__
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise DomainError(
                f"{name} takes padding_mode 'zeros', 'reflect', 'replicate' or 'circular', not "
                f"{padding_mode!r}"
            )
        self.stride = sides(self, stride, self._axes, "stride")
        self.dilation = sides(self, dilation, self._axes, "dilation")
        self.padding = pairs(self, padding, self._axes)
        self.padding_mode = padding_mode
        self._set(
            in_channels,
            out_channels,
            kernel_size,
            groups,
            bias,
            data_format,
            (weight_init, bias_init),
        )

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        if self.is_lazy:
            x = self._first(x)
        try:
            padding = self.padding
            if self.padding_mode != "zeros":
                x, padding = self._padded(x), 0
            return self._op(
                x,
                self.weight,
                self.bias,
                self.stride,
                padding,
                self.dilation,
                self.groups,
                data_format=self.data_format,
            )
        except EmberError as error:
            raise self._told(x, error) from error

    def _padded(self, x: TensorLike) -> Tensor:
        tensor = convert.to_tensor(x)
        alone = tensor.ndim == self._axes + 1
        if not alone and tensor.ndim != self._axes + 2:
            raise refused(self, tensor, self._wants())
        lead = 0 if alone else 1
        first = lead if self._last else lead + 1
        spatial = tensor.shape[first : first + self._axes]
        widths: Any = self.padding
        if widths == "same":
            extent = tuple(
                (size - 1) * gap + 1
                for size, gap in zip(self.kernel_size, self.dilation, strict=True)
            )
            widths = same_padding(spatial, extent, self.stride)
        elif widths == "valid":
            return tensor
        around = {first + place: pair for place, pair in enumerate(widths)}
        return pad(tensor, around, PAD_MODES.get(self.padding_mode, self.padding_mode))


class Conv1d(_Conv):
    """Convolution over one axis: each result is the sum of a window times a weight, plus a bias.

    Shapes: x `(samples, in_channels, length)`, weight `(out_channels, in_channels / groups,
    kernel_size)`. Weight and bias begin uniform within ±1/√(in_channels / groups · kernel_size).
    `padding` is "valid", "same", a number, or for each axis a number or (before, behind); its
    values are those of `padding_mode`: zeros, reflect, replicate or circular. With
    `in_channels=None`, the first input tells it.

    >>> from ember_ml import nn
    >>> nn.Conv1d(2, 4, 3, padding="same")(ops.ones((1, 2, 8))).shape
    (1, 4, 8)
    """

    _axes = 1
    _op = staticmethod(convolution.conv1d)


class Conv2d(_Conv):
    """Convolution over two axes: see Conv1d.

    Shapes: x `(samples, in_channels, height, width)`, weight `(out_channels, in_channels / groups,
    *kernel_size)`.

    >>> from ember_ml import nn
    >>> nn.Conv2d(None, 4, 3, stride=2, padding=1)(ops.ones((1, 3, 8, 8))).shape
    (1, 4, 4, 4)
    """

    _axes = 2
    _op = staticmethod(convolution.conv2d)


class Conv3d(_Conv):
    """Convolution over three axes: see Conv1d.

    Shapes: x `(samples, in_channels, depth, height, width)`, weight `(out_channels, in_channels /
    groups, *kernel_size)`.

    >>> from ember_ml import nn
    >>> nn.Conv3d(2, 4, 3)(ops.ones((1, 2, 5, 5, 5))).shape
    (1, 4, 3, 3, 3)
    """

    _axes = 3
    _op = staticmethod(convolution.conv3d)


class _ConvTranspose(_Convolution):
    """The transpose of a convolution over as many axes as its class says."""

    _transposed = True

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        kernel_size: Sides,
        stride: Sides = 1,
        padding: Padding = 0,
        output_padding: Sides = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sides = 1,
        *,
        data_format: str = "channels_first",
        weight_init: str | Initializer | None = None,
        bias_init: str | Initializer | None = None,
    ) -> None:
        self.stride = sides(self, stride, self._axes, "stride")
        self.dilation = sides(self, dilation, self._axes, "dilation")
        self.output_padding = sides(self, output_padding, self._axes, "output_padding", 0)
        self.padding = pairs(self, padding, self._axes)
        self._set(
            in_channels,
            out_channels,
            kernel_size,
            groups,
            bias,
            data_format,
            (weight_init, bias_init),
        )

    def forward(self, x: TensorLike, output_size: Sequence[int] | None = None) -> Tensor:
        """See the class; `output_size` chooses among the lengths that the stride leaves open."""
        if self.is_lazy:
            x = self._first(x)
        more = self.output_padding
        if output_size is not None:
            more = self._lengthened(convert.to_tensor(x), output_size)
        try:
            return self._op(
                x,
                self.weight,
                self.bias,
                self.stride,
                self.padding,
                more,
                self.groups,
                self.dilation,
                data_format=self.data_format,
            )
        except EmberError as error:
            raise self._told(x, error) from error

    def _lengthened(self, x: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output padding that gives an output size."""
        sizes = tuple(output_size)[-self._axes :]
        if isinstance(self.padding, str):
            raise DomainError(f"{type(self).__name__} takes output_size with padding in numbers")
        last = x.shape[-1 - self._axes : -1] if self._last else x.shape[-self._axes :]
        least = [
            (side - 1) * step + (size - 1) * gap + 1 - sum(pair)
            for side, step, size, gap, pair in zip(
                last, self.stride, self.kernel_size, self.dilation, self.padding, strict=True
            )
        ]
        most = [low + step - 1 for low, step in zip(least, self.stride, strict=True)]
        if len(sizes) != self._axes or not all(
            low <= size <= high for low, size, high in zip(least, sizes, most, strict=True)
        ):
            raise refused(
                self, x, f"its output_size must be from {least} to {most}, not {tuple(output_size)}"
            )
        return tuple(size - low for size, low in zip(sizes, least, strict=True))


class ConvTranspose1d(_ConvTranspose):
    """The transpose of Conv1d as a linear map, which lengthens what that shortens.

    Shapes: x `(samples, in_channels, length)`, weight `(in_channels, out_channels / groups,
    kernel_size)`; the result has length `(length - 1) · stride - 2 · padding + dilation ·
    (kernel_size - 1) + output_padding + 1`.

    >>> from ember_ml import nn
    >>> nn.ConvTranspose1d(2, 4, 3, stride=2)(ops.ones((1, 2, 8))).shape
    (1, 4, 17)
    """

    _axes = 1
    _op = staticmethod(convolution.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose):
    """The transpose of Conv2d: see ConvTranspose1d.

    >>> from ember_ml import nn
    >>> nn.ConvTranspose2d(None, 4, 2, stride=2)(ops.ones((1, 3, 4, 4))).shape
    (1, 4, 8, 8)
    """

    _axes = 2
    _op = staticmethod(convolution.conv_transpose2d)


class ConvTranspose3d(_ConvTranspose):
    """The transpose of Conv3d: see ConvTranspose1d.

    >>> from ember_ml import nn
    >>> nn.ConvTranspose3d(2, 4, 2, stride=2)(ops.ones((1, 2, 3, 3, 3))).shape
    (1, 4, 6, 6, 6)
    """

    _axes = 3
    _op = staticmethod(convolution.conv_transpose3d)
