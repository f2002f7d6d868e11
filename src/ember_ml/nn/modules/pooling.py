"""Pooling: windows, or parts of an axis, summarised by their largest value or their mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ember_ml.errors import EmberError
from ember_ml.nn.module import Module
from ember_ml.nn.modules.inputs import pairs, sides, told
from ember_ml.ops import pooling
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
]

Sides = int | tuple[int, ...] | list[int]
Padding = int | str | tuple[Any, ...] | list[Any]
Sizes = int | None | tuple[int | None, ...] | list[int | None]


class _Pool(Module):
    _axes: ClassVar[int]
    _op: ClassVar[Callable[..., Any]]


class _MaxPool(_Pool):
    def __init__(
        self,
        kernel_size: Sides,
        stride: Sides | None = None,
        padding: Padding = 0,
        dilation: Sides = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
        *,
        data_format: str = "channels_first",
    ) -> None:
        self.kernel_size = sides(self, kernel_size, self._axes, "kernel_size")
        self.stride = (
            self.kernel_size if stride is None else sides(self, stride, self._axes, "stride")
        )
        self.padding = pairs(self, padding, self._axes)
        self.dilation = sides(self, dilation, self._axes, "dilation")
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode
        self.data_format = data_format

    def forward(self, x: TensorLike) -> Any:
        """See the class."""
        try:
            return self._op(
                x,
                self.kernel_size,
                self.stride,
                self.padding,
                self.dilation,
                self.ceil_mode,
                return_indices=self.return_indices,
                data_format=self.data_format,
            )
        except EmberError as error:
            raise told(self, x, error) from error


class MaxPool1d(_MaxPool):
    """The largest value of each window over one axis.

    Shapes: x `(samples, channels, length)`. The stride is that of the window unless it is given;
    `padding` counts as -inf. `return_indices` gives also where the values lie.

    >>> from ember_ml import nn
    >>> nn.MaxPool1d(2)([[[1.0, 3.0, 2.0, 0.0]]]).tolist()
    [[[3.0, 2.0]]]
    """

    _axes = 1
    _op = staticmethod(pooling.max_pool1d)


class MaxPool2d(_MaxPool):
    """The largest value of each window over two axes: see MaxPool1d.

    >>> from ember_ml import nn
    >>> nn.MaxPool2d(2)(ops.ones((1, 3, 6, 6))).shape
    (1, 3, 3, 3)
    """

    _axes = 2
    _op = staticmethod(pooling.max_pool2d)


class MaxPool3d(_MaxPool):
    """The largest value of each window over three axes: see MaxPool1d.

    >>> from ember_ml import nn
    >>> nn.MaxPool3d(2)(ops.ones((1, 3, 4, 4, 4))).shape
    (1, 3, 2, 2, 2)
    """

    _axes = 3
    _op = staticmethod(pooling.max_pool3d)


class _AvgPool(_Pool):
    def __init__(
        self,
        kernel_size: Sides,
        stride: Sides | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        *,
        data_format: str = "channels_first",
    ) -> None:
        self.kernel_size = sides(self, kernel_size, self._axes, "kernel_size")
        self.stride = (
            self.kernel_size if stride is None else sides(self, stride, self._axes, "stride")
        )
        self.padding = pairs(self, padding, self._axes)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.data_format = data_format

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            out: Tensor = self._op(
                x,
                self.kernel_size,
                self.stride,
                self.padding,
                self.ceil_mode,
                self.count_include_pad,
                data_format=self.data_format,
            )
        except EmberError as error:
            raise told(self, x, error) from error
        return out


class AvgPool1d(_AvgPool):
    """The mean of each window over one axis.

    Shapes: x `(samples, channels, length)`. `padding` counts as zeros, or not at all without
    `count_include_pad`.

    >>> from ember_ml import nn
    >>> nn.AvgPool1d(2)([[[1.0, 3.0, 2.0, 0.0]]]).tolist()
    [[[2.0, 1.0]]]
    """

    _axes = 1
    _op = staticmethod(pooling.avg_pool1d)


class AvgPool2d(_AvgPool):
    """The mean of each window over two axes: see AvgPool1d.

    >>> from ember_ml import nn
    >>> nn.AvgPool2d(2)(ops.ones((1, 3, 6, 6))).shape
    (1, 3, 3, 3)
    """

    _axes = 2
    _op = staticmethod(pooling.avg_pool2d)


class AvgPool3d(_AvgPool):
    """The mean of each window over three axes: see AvgPool1d.

    >>> from ember_ml import nn
    >>> nn.AvgPool3d(2)(ops.ones((1, 3, 4, 4, 4))).shape
    (1, 3, 2, 2, 2)
    """

    _axes = 3
    _op = staticmethod(pooling.avg_pool3d)


# --- To a given size --------------------------------------------------------------------------


class _Adaptive(_Pool):
    def __init__(self, output_size: Sizes, *, data_format: str = "channels_first") -> None:
        self.output_size = output_size
        self.data_format = data_format

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            out: Tensor = self._op(x, self.output_size, data_format=self.data_format)
        except EmberError as error:
            raise told(self, x, error) from error
        return out


class AdaptiveAvgPool1d(_Adaptive):
    """The mean of each of as many parts of one axis as `output_size` says; None keeps a length.

    Part i of a length n runs from floor(i · n / size) to ceil((i + 1) · n / size).

    >>> from ember_ml import nn
    >>> nn.AdaptiveAvgPool1d(2)([[[1.0, 3.0, 2.0, 0.0]]]).tolist()
    [[[2.0, 1.0]]]
    """

    _axes = 1
    _op = staticmethod(pooling.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_Adaptive):
    """The mean of each part of two axes: see AdaptiveAvgPool1d.

    >>> from ember_ml import nn
    >>> nn.AdaptiveAvgPool2d(1)(ops.ones((1, 3, 6, 6))).shape
    (1, 3, 1, 1)
    """

    _axes = 2
    _op = staticmethod(pooling.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_Adaptive):
    """The mean of each part of three axes: see AdaptiveAvgPool1d.

    >>> from ember_ml import nn
    >>> nn.AdaptiveAvgPool3d((2, None, 1))(ops.ones((1, 3, 4, 4, 4))).shape
    (1, 3, 2, 4, 1)
    """

    _axes = 3
    _op = staticmethod(pooling.adaptive_avg_pool3d)


class AdaptiveMaxPool1d(_Adaptive):
    """The largest value of each of as many parts of one axis as `output_size` says.

    The parts are those of AdaptiveAvgPool1d.

    >>> from ember_ml import nn
    >>> nn.AdaptiveMaxPool1d(2)([[[1.0, 3.0, 2.0, 0.0]]]).tolist()
    [[[3.0, 2.0]]]
    """

    _axes = 1
    _op = staticmethod(pooling.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_Adaptive):
    """The largest value of each part of two axes: see AdaptiveMaxPool1d.

    >>> from ember_ml import nn
    >>> nn.AdaptiveMaxPool2d(4)(ops.ones((1, 3, 6, 6))).shape
    (1, 3, 4, 4)
    """

    _axes = 2
    _op = staticmethod(pooling.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_Adaptive):
    """The largest value of each part of three axes: see AdaptiveMaxPool1d.

    >>> from ember_ml import nn
    >>> nn.AdaptiveMaxPool3d(2)(ops.ones((1, 3, 4, 4, 4))).shape
    (1, 3, 2, 2, 2)
    """

    _axes = 3
    _op = staticmethod(pooling.adaptive_max_pool3d)


# --- Over everything --------------------------------------------------------------------------


class _Global(Module):
    _op: ClassVar[Callable[..., Any]]

    def __init__(self, keepdims: bool = False, *, data_format: str = "channels_first") -> None:
        self.keepdims = keepdims
        self.data_format = data_format

    def forward(self, x: TensorLike) -> Tensor:
        """See the class."""
        try:
            out: Tensor = self._op(x, keepdims=self.keepdims, data_format=self.data_format)
        except EmberError as error:
            raise told(self, x, error) from error
        return out


class GlobalAvgPool(_Global):
    """The mean of each channel of each sample over all spatial axes.

    Shapes: x `(samples, channels, ...)`, result `(samples, channels)`; with `keepdims`, spatial
    axes stay with length one.

    >>> from ember_ml import nn
    >>> nn.GlobalAvgPool()([[[1.0, 3.0], [4.0, 8.0]]]).tolist()
    [[2.0, 6.0]]
    """

    _op = staticmethod(pooling.global_avg_pool)


class GlobalMaxPool(_Global):
    """The largest value of each channel of each sample over all spatial axes.

    >>> from ember_ml import nn
    >>> nn.GlobalMaxPool()([[[1.0, 3.0], [4.0, 8.0]]]).tolist()
    [[3.0, 8.0]]
    """

    _op = staticmethod(pooling.global_max_pool)
