"""Pooling: windows, or parts of an axis, summarised by their largest value or their mean.

Channels come first, as in PyTorch: (samples, channels, ...), or (channels, ...) for one sample;
`data_format="channels_last"` moves them to the end.
"""

from __future__ import annotations

from typing import Any, Literal, overload

from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import dispatch
from ember_ml.ops.layouts import is_last, pairs_of, same_padding, sides_of
from ember_ml.ops.manipulation import expand_dims, moveaxis, squeeze
from ember_ml.ops.reduction import max, mean
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__: list[str] = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "global_avg_pool",
    "global_max_pool",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
]

Sides = int | tuple[int, ...] | list[int]
Padding = int | str | tuple[Any, ...] | list[Any]
Sizes = int | None | tuple[int | None, ...] | list[int | None]


# --- The largest value of each window ------------------------------------------------------


@overload
def max_pool1d(
    x: TensorLike,
    /,
    kernel_size: Sides,
    stride: Sides | None = None,
    padding: Padding = 0,
    dilation: Sides = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[False] = False,
    data_format: str = "channels_first",
) -> Tensor: ...
@overload
def max_pool1d(
    x: TensorLike,
    /,
    kernel_size: Sides,
    stride: Sides | None = None,
    padding: Padding = 0,
    dilation: Sides = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[True],
    data_format: str = "channels_first",
) -> tuple[Tensor, Tensor]: ...
@op(accepts=REAL_FLOATING, lift="float", standard=False)
def max_pool1d(
    x: TensorLike,
    /,
    kernel_size: Sides,
    stride: Sides | None = None,
    padding: Padding = 0,
    dilation: Sides = 1,
    ceil_mode: bool = False,
    *,
    return_indices: bool = False,
    data_format: str = "channels_first",
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest value of each window over one axis.

    The stride is that of the window unless it is given. `padding` counts as -inf: "valid", "same",
    a number, or for each axis a number or (before, after), at most half of a window. `ceil_mode`
    keeps a last window that is cut off. `return_indices` gives also where the values lie, counted
    through all spatial axes.

    >>> max_pool1d([[[1.0, 3.0, 2.0, 0.0]]], 2).tolist()
    [[[3.0, 2.0]]]
    """
    name = "max_pool1d"
    return _max_pool(name, 1, x, kernel_size, stride, padding, dilation, ceil_mode,
                     return_indices, data_format)  # fmt: skip


@overload
def max_pool2d(
    x: TensorLike,
    /,
    kernel_size: Sides,
    stride: Sides | None = None,
    padding: Padding = 0,
    dilation: Sides = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[False] = False,
    data_format: str = "channels_first",
) -> Tensor: ...
@overload
def max_pool2d(
    x: TensorLike,
    /,
    kernel_size: Sides,
    stride: Sides | None = None,
    padding: Padding = 0,
    dilation: Sides = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[True],
    data_format: str = "channels_first",
) -> tuple[Tensor, Tensor]: ...
@op(accepts=REAL_FLOATING, lift="float", standard=False)
def max_pool2d(
    x: TensorLike,
    /,
    kernel_size: Sides,
    stride: Sides | None = None,
    padding: Padding = 0,
    dilation: Sides = 1,
    ceil_mode: bool = False,
    *,
    return_indices: bool = False,
    data_format: str = "channels_first",
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest value of each window over two axes: see `max_pool1d`.

    >>> max_pool2d(ops.ones((1, 3, 6, 6)), 2).shape
    (1, 3, 3, 3)
    """
    name = "max_pool2d"
    return _max_pool(name, 2, x, kernel_size, stride, padding, dilation, ceil_mode,
                     return_indices, data_format)  # fmt: skip


@overload
def max_pool3d(
    x: TensorLike,
    /,
    kernel_size: Sides,
    stride: Sides | None = None,
    padding: Padding = 0,
    dilation: Sides = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[False] = False,
    data_format: str = "channels_first",
) -> Tensor: ...
@overload
def max_pool3d(
    x: TensorLike,
    /,
    kernel_size: Sides,
    stride: Sides | None = None,
    padding: Padding = 0,
    dilation: Sides = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[True],
    data_format: str = "channels_first",
) -> tuple[Tensor, Tensor]: ...
@op(accepts=REAL_FLOATING, lift="float", standard=False)
def max_pool3d(
    x: TensorLike,
    /,
    kernel_size: Sides,
    stride: Sides | None = None,
    padding: Padding = 0,
    dilation: Sides = 1,
    ceil_mode: bool = False,
    *,
    return_indices: bool = False,
    data_format: str = "channels_first",
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest value of each window over three axes: see `max_pool1d`.

    >>> max_pool3d(ops.ones((1, 3, 6, 6, 6)), 2).shape
    (1, 3, 3, 3, 3)
    """
    name = "max_pool3d"
    return _max_pool(name, 3, x, kernel_size, stride, padding, dilation, ceil_mode,
                     return_indices, data_format)  # fmt: skip


def _max_pool(
    name: str,
    axes: int,
    x: TensorLike,
    kernel_size: Sides,
    stride: Sides | None,
    padding: Padding,
    dilation: Sides,
    ceil: bool,
    indices: bool,
    data_format: str,
) -> Tensor | tuple[Tensor, Tensor]:
    tensor, alone = _batch(name, axes, x, data_format)
    kernel, steps, gaps, pairs = _windows(
        name, tensor, kernel_size, stride, padding, dilation, ceil
    )
    options = (kernel, steps, pairs, gaps, bool(ceil))
    if not indices:
        out = dispatch.together(name, (tensor,), *options, kernel="max_pool")
        return _returned(out, alone, data_format)
    values, places = dispatch.call_many("max_pool_indices", tensor, *options)
    return _returned(values, alone, data_format), _returned(places, alone, data_format)


# --- The mean of each window ------------------------------------------------------------------


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def avg_pool1d(
    x: TensorLike,
    /,
    kernel_size: Sides,
    stride: Sides | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """The mean of each window over one axis.

    As `max_pool1d`, but `padding` counts as zeros, or not at all without `count_include_pad`.

    >>> avg_pool1d([[[1.0, 3.0, 2.0, 0.0]]], 2).tolist()
    [[[2.0, 1.0]]]
    """
    return _avg_pool("avg_pool1d", 1, x, kernel_size, stride, padding, ceil_mode,
                     count_include_pad, data_format)  # fmt: skip


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def avg_pool2d(
    x: TensorLike,
    /,
    kernel_size: Sides,
    stride: Sides | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """The mean of each window over two axes: see `avg_pool1d`.

    >>> avg_pool2d(ops.ones((1, 3, 6, 6)), 2).shape
    (1, 3, 3, 3)
    """
    return _avg_pool("avg_pool2d", 2, x, kernel_size, stride, padding, ceil_mode,
                     count_include_pad, data_format)  # fmt: skip


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def avg_pool3d(
    x: TensorLike,
    /,
    kernel_size: Sides,
    stride: Sides | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """The mean of each window over three axes: see `avg_pool1d`.

    >>> avg_pool3d(ops.ones((1, 3, 6, 6, 6)), 2).shape
    (1, 3, 3, 3, 3)
    """
    return _avg_pool("avg_pool3d", 3, x, kernel_size, stride, padding, ceil_mode,
                     count_include_pad, data_format)  # fmt: skip


def _avg_pool(
    name: str,
    axes: int,
    x: TensorLike,
    kernel_size: Sides,
    stride: Sides | None,
    padding: Padding,
    ceil: bool,
    include: bool,
    data_format: str,
) -> Tensor:
    tensor, alone = _batch(name, axes, x, data_format)
    kernel, steps, _, pairs = _windows(name, tensor, kernel_size, stride, padding, 1, ceil)
    options = (kernel, steps, pairs, bool(ceil), bool(include))
    out = dispatch.together(name, (tensor,), *options, kernel="avg_pool")
    return _returned(out, alone, data_format)


def _windows(
    name: str,
    x: Tensor,
    kernel_size: Sides,
    stride: Sides | None,
    padding: Padding,
    dilation: Sides,
    ceil: bool,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Window, stride, gaps and padding for each spatial axis, once they fit."""
    spatial = x.shape[2:]
    axes = len(spatial)
    kernel = sides_of(name, kernel_size, axes, "kernel_size")
    steps = kernel if stride is None else sides_of(name, stride, axes, "stride")
    gaps = sides_of(name, dilation, axes, "dilation")
    extent = tuple((size - 1) * gap + 1 for size, gap in zip(kernel, gaps, strict=True))
    if padding == "same":
        pairs = same_padding(spatial, extent, steps)
    else:
        pairs = pairs_of(name, 0 if padding == "valid" else padding, axes)
    for side, size, step, pair in zip(spatial, extent, steps, pairs, strict=True):
        if 2 * pair[0] > size or 2 * pair[1] > size:
            raise DomainError(
                f"ops.{name} got padding={padding} for a window of {size}; "
                f"it must be at most half of the window"
            )
        room = side + sum(pair) - size + (step - 1 if ceil else 0)
        if room < 0 or not side:
            raise ShapeError(
                f"ops.{name} got shape {x.shape}; a window of {size} does not fit into "
                f"{side + sum(pair)}, padding included"
            )
    return kernel, steps, gaps, pairs


def _batch(name: str, axes: int, x: TensorLike, data_format: str) -> tuple[Tensor, bool]:
    """The input as (samples, channels, ...), and whether it was one sample."""
    last = is_last(name, data_format)
    tensor = dispatch.lifted(name, x)
    if tensor.ndim not in (axes + 1, axes + 2):
        raise ShapeError(
            f"ops.{name} got shape {tensor.shape}; it takes {axes} spatial axes after samples and "
            f"channels"
        )
    alone = tensor.ndim == axes + 1
    if alone:
        tensor = expand_dims(tensor, 0)
    return (moveaxis(tensor, -1, 1) if last else tensor), alone


def _returned(x: Tensor, alone: bool, data_format: str) -> Tensor:
    if data_format == "channels_last":
        x = moveaxis(x, 1, -1)
    return squeeze(x, 0) if alone else x


# --- To a given size --------------------------------------------------------------------------


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def adaptive_avg_pool1d(
    x: TensorLike, /, output_size: Sizes, *, data_format: str = "channels_first"
) -> Tensor:
    """The mean of each of as many parts of one axis as `output_size` says.

    Part i of a length n runs from floor(i * n / size) to ceil((i + 1) * n / size); None keeps a
    length.

    >>> adaptive_avg_pool1d([[[1.0, 3.0, 2.0, 0.0]]], 2).tolist()
    [[[2.0, 1.0]]]
    """
    return _adaptive("adaptive_avg_pool1d", 1, x, output_size, data_format)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def adaptive_avg_pool2d(
    x: TensorLike, /, output_size: Sizes, *, data_format: str = "channels_first"
) -> Tensor:
    """The mean of each part of two axes: see `adaptive_avg_pool1d`.

    >>> adaptive_avg_pool2d(ops.ones((1, 3, 6, 6)), 4).shape
    (1, 3, 4, 4)
    """
    return _adaptive("adaptive_avg_pool2d", 2, x, output_size, data_format)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def adaptive_avg_pool3d(
    x: TensorLike, /, output_size: Sizes, *, data_format: str = "channels_first"
) -> Tensor:
    """The mean of each part of three axes: see `adaptive_avg_pool1d`.

    >>> adaptive_avg_pool3d(ops.ones((1, 3, 6, 6, 6)), 4).shape
    (1, 3, 4, 4, 4)
    """
    return _adaptive("adaptive_avg_pool3d", 3, x, output_size, data_format)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def adaptive_max_pool1d(
    x: TensorLike, /, output_size: Sizes, *, data_format: str = "channels_first"
) -> Tensor:
    """The largest value of each of as many parts of one axis as `output_size` says.

    Part i of a length n runs from floor(i * n / size) to ceil((i + 1) * n / size); None keeps a
    length.

    >>> adaptive_max_pool1d([[[1.0, 3.0, 2.0, 0.0]]], 2).tolist()
    [[[3.0, 2.0]]]
    """
    return _adaptive("adaptive_max_pool1d", 1, x, output_size, data_format)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def adaptive_max_pool2d(
    x: TensorLike, /, output_size: Sizes, *, data_format: str = "channels_first"
) -> Tensor:
    """The largest value of each part of two axes: see `adaptive_max_pool1d`.

    >>> adaptive_max_pool2d(ops.ones((1, 3, 6, 6)), 4).shape
    (1, 3, 4, 4)
    """
    return _adaptive("adaptive_max_pool2d", 2, x, output_size, data_format)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def adaptive_max_pool3d(
    x: TensorLike, /, output_size: Sizes, *, data_format: str = "channels_first"
) -> Tensor:
    """The largest value of each part of three axes: see `adaptive_max_pool1d`.

    >>> adaptive_max_pool3d(ops.ones((1, 3, 6, 6, 6)), 4).shape
    (1, 3, 4, 4, 4)
    """
    return _adaptive("adaptive_max_pool3d", 3, x, output_size, data_format)


def _adaptive(name: str, axes: int, x: TensorLike, output_size: Sizes, data_format: str) -> Tensor:
    tensor, alone = _batch(name, axes, x, data_format)
    given = output_size if isinstance(output_size, tuple | list) else (output_size,) * axes
    if len(given) != axes:
        raise ShapeError(f"ops.{name} got {len(given)} sizes; it takes 1 or {axes}")
    spatial = tensor.shape[2:]
    kept = tuple(side if size is None else size for size, side in zip(given, spatial, strict=True))
    sizes = sides_of(name, kept, axes, "output_size")
    if not all(spatial):
        raise ShapeError(f"ops.{name} got shape {tensor.shape}; an empty axis has no parts")
    out = dispatch.together(name, (tensor,), sizes, kernel=name[:-2])
    return _returned(out, alone, data_format)


# --- Over everything --------------------------------------------------------------------------


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def global_avg_pool(
    x: TensorLike, /, *, keepdims: bool = False, data_format: str = "channels_first"
) -> Tensor:
    """The mean of each channel of each sample over all spatial axes.

    >>> global_avg_pool([[[1.0, 3.0], [4.0, 8.0]]]).tolist()
    [[2.0, 6.0]]
    """
    tensor, axes = _spatial("global_avg_pool", x, data_format)
    return mean(tensor, axis=axes, keepdims=keepdims)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def global_max_pool(
    x: TensorLike, /, *, keepdims: bool = False, data_format: str = "channels_first"
) -> Tensor:
    """The largest value of each channel of each sample over all spatial axes.

    >>> global_max_pool([[[1.0, 3.0], [4.0, 8.0]]]).tolist()
    [[3.0, 8.0]]
    """
    tensor, axes = _spatial("global_max_pool", x, data_format)
    return max(tensor, axis=axes, keepdims=keepdims)


def _spatial(name: str, x: TensorLike, data_format: str) -> tuple[Tensor, tuple[int, ...]]:
    last = is_last(name, data_format)
    tensor = dispatch.lifted(name, x)
    if tensor.ndim < 3:
        raise ShapeError(f"ops.{name} takes (samples, channels, ...), not shape {tensor.shape}")
    return tensor, tuple(range(1, tensor.ndim - 1) if last else range(2, tensor.ndim))
