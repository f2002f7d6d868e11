"""Convolutions of one to three spatial axes, their transposes, and the windows they look through.

Channels come first, as in PyTorch: (samples, channels, ...), or (channels, ...) for one sample;
`data_format="channels_last"` moves them to the end. Weights lie alike in either case.
"""

from __future__ import annotations

import math
from typing import Any

from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import dispatch
from ember_ml.ops.axes import integer_of
from ember_ml.ops.explain import describe
from ember_ml.ops.layouts import is_last, pairs_of, same_padding, sides_of
from ember_ml.ops.manipulation import expand_dims, squeeze
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor
from ember_ml.typing import TensorLike

__all__: list[str] = [
    "conv",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "fold",
    "unfold",
]

_TENSORS = frozenset((Tensor, GradTensor))
# An integer for all spatial axes, or one for each.
Sides = int | tuple[int, ...] | list[int]
# The same, or (before, after) for each, or "valid" or "same".
Padding = int | str | tuple[Any, ...] | list[Any]


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def conv(
    x: TensorLike,
    weight: TensorLike,
    /,
    bias: TensorLike | None = None,
    stride: Sides = 1,
    padding: Padding = 0,
    dilation: Sides = 1,
    groups: int = 1,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """Sliding products of `x` with the windows of `weight`, over as many axes as `weight` has.

    `x` is (samples, channels, ...) or (channels, ...), `weight` is (results, channels / groups,
    ...), `bias` has one value for each result. `padding` is "valid", "same" (which gives
    ceil(length / stride) results), a number, or for each axis a number or (before, after).

    >>> conv([[[1.0, 2.0, 3.0]]], [[[1.0, 10.0]]]).tolist()
    [[[21.0, 32.0]]]
    """
    axes = _axes_of("conv", weight, (x, weight, bias))
    return _conv("conv", axes, x, weight, bias, stride, padding, dilation, groups, data_format)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def conv1d(
    x: TensorLike,
    weight: TensorLike,
    /,
    bias: TensorLike | None = None,
    stride: Sides = 1,
    padding: Padding = 0,
    dilation: Sides = 1,
    groups: int = 1,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """Convolution over one axis: see `conv`.

    >>> conv1d([[[1.0, 2.0, 3.0]]], [[[1.0, 1.0]]], padding="same").tolist()
    [[[3.0, 5.0, 3.0]]]
    """
    return _conv("conv1d", 1, x, weight, bias, stride, padding, dilation, groups, data_format)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def conv2d(
    x: TensorLike,
    weight: TensorLike,
    /,
    bias: TensorLike | None = None,
    stride: Sides = 1,
    padding: Padding = 0,
    dilation: Sides = 1,
    groups: int = 1,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """Convolution over two axes: see `conv`.

    >>> conv2d(ops.ones((1, 2, 5, 5)), ops.ones((4, 2, 3, 3)), stride=2).shape
    (1, 4, 2, 2)
    """
    return _conv("conv2d", 2, x, weight, bias, stride, padding, dilation, groups, data_format)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def conv3d(
    x: TensorLike,
    weight: TensorLike,
    /,
    bias: TensorLike | None = None,
    stride: Sides = 1,
    padding: Padding = 0,
    dilation: Sides = 1,
    groups: int = 1,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """Convolution over three axes: see `conv`.

    >>> conv3d(ops.ones((1, 2, 5, 5, 5)), ops.ones((4, 2, 3, 3, 3))).shape
    (1, 4, 3, 3, 3)
    """
    return _conv("conv3d", 3, x, weight, bias, stride, padding, dilation, groups, data_format)


def _conv(
    name: str,
    axes: int,
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None,
    stride: Sides,
    padding: Padding,
    dilation: Sides,
    groups: int,
    data_format: str,
) -> Tensor:
    last = is_last(name, data_format)
    steps = sides_of(name, stride, axes, "stride")
    gaps = sides_of(name, dilation, axes, "dilation")
    tensor, window, count, alone = _operands(name, axes, x, weight, bias, groups, last, False)
    spatial = _spatial(tensor.shape, last)
    extent = _extent(window.shape[2:], gaps)
    pairs = _padding(name, padding, spatial, extent, steps)
    for side, (low, high), size in zip(spatial, pairs, extent, strict=True):
        if side + low + high < size:
            raise ShapeError(
                f"ops.{name} got {describe((tensor, window))}; a window of {size} does not fit "
                f"into {side + low + high}, padding included"
            )
    inputs = (tensor, window, bias)
    out = dispatch.together(name, inputs, steps, pairs, gaps, count, last, kernel="conv")
    return squeeze(out, 0) if alone else out


def fitted(
    axes: int,
    x: Any,
    inputs: tuple[Tensor, Tensor | None],
    options: tuple[Any, ...],
    extent: tuple[int, ...],
) -> Tensor | None:
    """The same by a layer, whose weight, bias and options fit each other.

    `options` are strides, padding in pairs, gaps, groups and whether channels come last, `extent`
    is that of a window with its gaps. None where x does not fit, or is no tensor yet.
    """
    if type(x) not in _TENSORS or x.ndim != axes + 2:
        return None
    shape, pairs, groups, last = x.shape, options[1], options[3], options[4]
    if shape[-1 if last else 1] != inputs[0].shape[1] * groups:
        return None
    for side, (low, high), size in zip(_spatial(shape, last), pairs, extent, strict=True):
        if side + low + high < size:
            return None
    return dispatch.together(f"conv{axes}d", (x, *inputs), *options, kernel="conv")


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def conv_transpose(
    x: TensorLike,
    weight: TensorLike,
    /,
    bias: TensorLike | None = None,
    stride: Sides = 1,
    padding: Padding = 0,
    output_padding: Sides = 0,
    groups: int = 1,
    dilation: Sides = 1,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """The transpose of `conv` as a linear map, over as many axes as `weight` has.

    `weight` is (channels, results / groups, ...). `padding` is cut off; "same" gives
    length * stride results. `output_padding` lengthens the end, as in PyTorch.

    >>> conv_transpose([[[1.0, 2.0]]], [[[1.0, 10.0]]]).tolist()
    [[[1.0, 12.0, 20.0]]]
    """
    name = "conv_transpose"
    axes = _axes_of(name, weight, (x, weight, bias))
    return _transpose(name, axes, x, weight, bias, stride, padding, output_padding, groups,
                      dilation, data_format)  # fmt: skip


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def conv_transpose1d(
    x: TensorLike,
    weight: TensorLike,
    /,
    bias: TensorLike | None = None,
    stride: Sides = 1,
    padding: Padding = 0,
    output_padding: Sides = 0,
    groups: int = 1,
    dilation: Sides = 1,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """The transpose of `conv1d`: see `conv_transpose`.

    >>> conv_transpose1d([[[1.0, 2.0]]], [[[1.0, 10.0]]], stride=2).tolist()
    [[[1.0, 10.0, 2.0, 20.0]]]
    """
    return _transpose("conv_transpose1d", 1, x, weight, bias, stride, padding, output_padding,
                      groups, dilation, data_format)  # fmt: skip


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def conv_transpose2d(
    x: TensorLike,
    weight: TensorLike,
    /,
    bias: TensorLike | None = None,
    stride: Sides = 1,
    padding: Padding = 0,
    output_padding: Sides = 0,
    groups: int = 1,
    dilation: Sides = 1,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """The transpose of `conv2d`: see `conv_transpose`.

    >>> conv_transpose2d(ops.ones((1, 2, 3, 3)), ops.ones((2, 4, 3, 3)), stride=2).shape
    (1, 4, 7, 7)
    """
    return _transpose("conv_transpose2d", 2, x, weight, bias, stride, padding, output_padding,
                      groups, dilation, data_format)  # fmt: skip


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def conv_transpose3d(
    x: TensorLike,
    weight: TensorLike,
    /,
    bias: TensorLike | None = None,
    stride: Sides = 1,
    padding: Padding = 0,
    output_padding: Sides = 0,
    groups: int = 1,
    dilation: Sides = 1,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """The transpose of `conv3d`: see `conv_transpose`.

    >>> conv_transpose3d(ops.ones((1, 2, 3, 3, 3)), ops.ones((2, 4, 3, 3, 3))).shape
    (1, 4, 5, 5, 5)
    """
    return _transpose("conv_transpose3d", 3, x, weight, bias, stride, padding, output_padding,
                      groups, dilation, data_format)  # fmt: skip


def _transpose(
    name: str,
    axes: int,
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None,
    stride: Sides,
    padding: Padding,
    output_padding: Sides,
    groups: int,
    dilation: Sides,
    data_format: str,
) -> Tensor:
    last = is_last(name, data_format)
    steps = sides_of(name, stride, axes, "stride")
    gaps = sides_of(name, dilation, axes, "dilation")
    more = sides_of(name, output_padding, axes, "output_padding", 0)
    if any(m >= max(s, g) for m, s, g in zip(more, steps, gaps, strict=True)):
        raise DomainError(
            f"ops.{name} got output_padding={output_padding}; it must be smaller than the stride "
            f"{steps} or the dilation {gaps}"
        )
    tensor, window, count, alone = _operands(name, axes, x, weight, bias, groups, last, True)
    extent = _extent(window.shape[2:], gaps)
    if padding == "same":
        totals = [max(size - step, 0) for size, step in zip(extent, steps, strict=True)]
        pairs = tuple((total // 2, total - total // 2) for total in totals)
        more = tuple(max(step - size, 0) for size, step in zip(extent, steps, strict=True))
    else:
        pairs = pairs_of(name, 0 if padding == "valid" else padding, axes)
    for side, step, size, (low, high), extra in zip(
        _spatial(tensor.shape, last), steps, extent, pairs, more, strict=True
    ):
        if (side - 1) * step + size - low - high + extra < 1:
            raise ShapeError(
                f"ops.{name} got {describe((tensor, window))} and padding {padding}, "
                f"which leaves nothing"
            )
    return _alone(
        dispatch.together(
            name,
            (tensor, window, bias),
            steps,
            pairs,
            more,
            gaps,
            count,
            last,
            kernel="conv_transpose",
        ),
        alone,
    )


def _alone(x: Tensor, alone: bool) -> Tensor:
    return squeeze(x, 0) if alone else x


def _axes_of(name: str, weight: TensorLike, inputs: tuple[Any, ...]) -> int:
    home = dispatch.home_of(name, tuple(value for value in inputs if value is not None))
    shape = convert.to_tensor(weight, home).shape
    if not 3 <= len(shape) <= 5:
        raise ShapeError(
            f"ops.{name} got weights of shape {shape}; it takes (results, channels, ...) with one "
            f"to three spatial axes"
        )
    return len(shape) - 2


def _operands(
    name: str,
    axes: int,
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None,
    groups: int,
    last: bool,
    transposed: bool,
) -> tuple[Tensor, Tensor, int, bool]:
    """The batch, the weights, the number of groups, and whether the batch is of one sample."""
    given = (x, weight) if bias is None else (x, weight, bias)
    home = dispatch.home_of(name, given)
    tensor, window = convert.to_tensor(x, home), convert.to_tensor(weight, home)
    facts = describe((tensor, window))
    if window.ndim != axes + 2 or tensor.ndim not in (axes + 1, axes + 2):
        raise ShapeError(
            f"ops.{name} got {facts}; it takes {axes} spatial axes after samples and channels, "
            f"and weights of as many"
        )
    if not all(window.shape[2:]):
        raise ShapeError(f"ops.{name} got {facts}; a window must not be empty")
    alone = tensor.ndim == axes + 1
    if alone:
        tensor = expand_dims(tensor, 0)
    count = integer_of(name, groups, "groups")
    channels = tensor.shape[-1 if last else 1]
    outer, inner = window.shape[:2]
    if (
        count < 1
        or outer % count
        or (channels != outer if transposed else channels != inner * count)
    ):
        wanted = outer if transposed else inner * count
        raise ShapeError(
            f"ops.{name} got {facts} and groups={count}; with these weights it takes {wanted} "
            f"channels, and groups must divide {outer}"
        )
    results = inner * count if transposed else outer
    if bias is not None and convert.to_tensor(bias, home).shape != (results,):
        raise ShapeError(
            f"ops.{name} got a bias of shape {convert.to_tensor(bias, home).shape}; "
            f"it must be ({results},)"
        )
    return tensor, window, count, alone


def _spatial(shape: tuple[int, ...], last: bool) -> tuple[int, ...]:
    return shape[1:-1] if last else shape[2:]


def _extent(kernel: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[int, ...]:
    return tuple((size - 1) * gap + 1 for size, gap in zip(kernel, dilation, strict=True))


def _padding(
    name: str,
    padding: Padding,
    spatial: tuple[int, ...],
    extent: tuple[int, ...],
    stride: tuple[int, ...],
) -> tuple[tuple[int, int], ...]:
    if padding == "same":
        return same_padding(spatial, extent, stride)
    return pairs_of(name, 0 if padding == "valid" else padding, len(spatial))


# --- Windows ----------------------------------------------------------------------------------


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def unfold(
    x: TensorLike,
    /,
    kernel_size: Sides,
    dilation: Sides = 1,
    padding: Padding = 0,
    stride: Sides = 1,
) -> Tensor:
    """The windows of a convolution as columns: (samples, channels * window, windows).

    >>> unfold([[[1.0, 2.0, 3.0]]], (2,)).tolist()
    [[[1.0, 2.0], [2.0, 3.0]]]
    """
    tensor = convert.to_tensor(x)
    axes = tensor.ndim - 2
    if axes < 1:
        raise ShapeError(f"ops.unfold takes (samples, channels, ...), not shape {tensor.shape}")
    kernel = sides_of("unfold", kernel_size, axes, "kernel_size")
    gaps = sides_of("unfold", dilation, axes, "dilation")
    steps = sides_of("unfold", stride, axes, "stride")
    extent = _extent(kernel, gaps)
    pairs = _padding("unfold", padding, tensor.shape[2:], extent, steps)
    _counts("unfold", tensor.shape[2:], extent, steps, pairs)
    return dispatch.call("unfold", tensor, kernel, steps, pairs, gaps)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def fold(
    x: TensorLike,
    /,
    output_size: Sides,
    kernel_size: Sides,
    dilation: Sides = 1,
    padding: Padding = 0,
    stride: Sides = 1,
) -> Tensor:
    """Columns added up where their windows lie: the transpose of `unfold`.

    >>> fold([[[1.0, 2.0], [2.0, 3.0]]], (3,), (2,)).tolist()
    [[[1.0, 4.0, 3.0]]]
    """
    tensor = convert.to_tensor(x)
    axes = len(output_size) if isinstance(output_size, tuple | list) else 2
    size = sides_of("fold", output_size, axes, "output_size")
    kernel = sides_of("fold", kernel_size, axes, "kernel_size")
    gaps = sides_of("fold", dilation, axes, "dilation")
    steps = sides_of("fold", stride, axes, "stride")
    extent = _extent(kernel, gaps)
    pairs = _padding("fold", padding, size, extent, steps)
    windows = math.prod(_counts("fold", size, extent, steps, pairs))
    area = math.prod(kernel)
    if tensor.ndim != 3 or tensor.shape[1] % area or tensor.shape[2] != windows:
        raise ShapeError(
            f"ops.fold got shape {tensor.shape}; for output_size {size} it takes "
            f"(samples, channels * {area}, {windows})"
        )
    return dispatch.call("fold", tensor, size, kernel, steps, pairs, gaps)


def _counts(
    name: str,
    spatial: tuple[int, ...],
    extent: tuple[int, ...],
    stride: tuple[int, ...],
    pairs: tuple[tuple[int, int], ...],
) -> tuple[int, ...]:
    """How many windows there are along each axis."""
    counts = tuple(
        (side + low + high - size) // step + 1
        for side, size, step, (low, high) in zip(spatial, extent, stride, pairs, strict=True)
    )
    if any(count < 1 for count in counts):
        raise ShapeError(f"ops.{name} got windows of {extent}, which do not fit into {spatial}")
    return counts
