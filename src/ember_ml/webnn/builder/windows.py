"""What convolution and pooling have in common: layouts, and windows that move over an image."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Final

from ember_ml.graph.core import Value
from ember_ml.webnn.builder.arithmetic import shape_of, unwrapped
from ember_ml.webnn.builder.base import Call
from ember_ml.webnn.descriptors import MAX_BYTES, byte_length
from ember_ml.webnn.operand import MLOperand

__all__ = [
    "LAYOUTS",
    "check_steps",
    "dimension",
    "from_nchw",
    "image_sizes",
    "onnx_pads",
    "padded_sizes",
    "paddings",
    "permuted",
    "positive_pair",
    "to_nchw",
    "window_places",
]

LAYOUTS: Final = ("nchw", "nhwc")


def permuted(call: Call, x: MLOperand | Value, order: Sequence[int]) -> Value:
    """The axes in another order; the value itself where it is the same."""
    value = unwrapped(x)
    if list(order) == list(range(len(order))):
        return value
    sizes = shape_of(value)
    shape = [sizes[axis] for axis in order]
    return call.node("Transpose", [value], value.dtype, shape, perm=list(order))


def to_nchw(call: Call, x: MLOperand, layout: str) -> Value:
    """An image in ONNX's layout."""
    return permuted(call, x, [0, 1, 2, 3] if layout == "nchw" else [0, 3, 1, 2])


def from_nchw(call: Call, x: Value, layout: str) -> Value:
    """An image of ONNX's layout in the one that was asked for."""
    return permuted(call, x, [0, 1, 2, 3] if layout == "nchw" else [0, 2, 3, 1])


def image_sizes(x: MLOperand, layout: str) -> tuple[int, int, int, int]:
    """Batches, channels, height, width."""
    if layout == "nchw":
        batches, channels, height, width = x.shape
    else:
        batches, height, width, channels = x.shape
    return batches, channels, height, width


def positive_pair(call: Call, name: str, default: Sequence[int]) -> tuple[int, int]:
    """An option of two sizes from 1 on: for the height and for the width."""
    given = tuple(default) if call[name] is None else call.sizes(name)
    if len(given) != 2:
        raise call.fault(f"{name} has 2 entries, for height and width; {list(given)} came")
    if 0 in given:
        raise call.fault(f"{name} takes integers from 1 on; {list(given)} came")
    return given[0], given[1]


def paddings(call: Call) -> tuple[int, int, int, int]:
    """The option `padding`: the top, the bottom, the left and the right."""
    given = (0, 0, 0, 0) if call["padding"] is None else call.sizes("padding")
    if len(given) != 4:
        raise call.fault(
            f"padding has 4 entries, for top, bottom, left and right; {list(given)} came"
        )
    return given


def onnx_pads(padding: Sequence[int]) -> list[int]:
    """ONNX gives the beginnings of all axes first."""
    top, bottom, left, right = padding
    return [top, left, bottom, right]


def window_places(
    size: int, window: int, padding: tuple[int, int], stride: int, dilation: int
) -> Fraction:
    """How many places a window has along an axis; the last may be part of one."""
    extent = (window - 1) * dilation + 1
    return Fraction(size - extent + sum(padding), stride) + 1


def check_steps(
    call: Call, sizes: Sequence[int], steps: Sequence[int], spread: Sequence[int], of: str
) -> None:
    """Raise where a stride or a dilation is longer than the image, as the platform's tests ask."""
    for name, given in (("strides", steps), ("dilations", spread)):
        if any(step > size for step, size in zip(given, sizes, strict=True)):
            raise call.fault(f"{name} {list(given)} go beyond {of} of {list(sizes)}")


def padded_sizes(
    call: Call, x: MLOperand, height: int, width: int, padding: Sequence[int]
) -> list[int]:
    """The height and the width with the padding; an image too large to exist is refused."""
    sizes = [height + sum(padding[:2]), width + sum(padding[2:])]
    elements = prod(x.shape) // (height * width) * prod(sizes)
    if byte_length(x.data_type, (elements,)) > MAX_BYTES:
        raise call.fault(f"the padded input would be {sizes} large and take over {MAX_BYTES} bytes")
    return sizes


def dimension(call: Call, sizes: Sequence[int]) -> None:
    """Raise where the height or the width of a result is not a size."""
    if min(sizes) < 1:
        raise call.fault(
            f"the result would be {sizes[0]} high and {sizes[1]} wide; "
            "the window does not fit into the padded input"
        )
