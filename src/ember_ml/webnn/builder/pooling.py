"""Pooling over images."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, prod
from typing import Any, Final, NamedTuple

import numpy as np

from ember_ml.graph.core import Value
from ember_ml.graph.types import numpy_dtype
from ember_ml.webnn.builder.arithmetic import constant_like, greater, shape_of, where, wide
from ember_ml.webnn.builder.base import BuilderBase, Call, Options
from ember_ml.webnn.builder.windows import (
    LAYOUTS,
    check_steps,
    dimension,
    from_nchw,
    image_sizes,
    onnx_pads,
    padded_sizes,
    paddings,
    positive_pair,
    to_nchw,
    window_places,
)
from ember_ml.webnn.operand import MLOperand

__all__ = ["Pooling"]

_LARGEST_WINDOW: Final = 2**31 - 1


class Pooling(BuilderBase):
    """average_pool2d, l2_pool2d, max_pool2d."""

    def average_pool2d(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        window_dimensions: Sequence[int] | None = None,
        padding: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        layout: str = "nchw",
        output_shape_rounding: str = "floor",
        output_sizes: Sequence[int] | None = None,
        label: str = "",
    ) -> MLOperand:
        """The mean within a window that moves over images; padding does not count.

        (n, c, h, w) -> (n, c, h', w'). Without `window_dimensions` the window is the whole image.
        """
        call = self._call(
            "average_pool2d",
            options,
            window_dimensions=window_dimensions,
            padding=padding,
            strides=strides,
            dilations=dilations,
            layout=layout,
            output_shape_rounding=output_shape_rounding,
            output_sizes=output_sizes,
            label=label,
        )
        return _pool(call, input)

    def l2_pool2d(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        window_dimensions: Sequence[int] | None = None,
        padding: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        layout: str = "nchw",
        output_shape_rounding: str = "floor",
        output_sizes: Sequence[int] | None = None,
        label: str = "",
    ) -> MLOperand:
        """The root of the sum of squares within a window that moves over images.

        (n, c, h, w) -> (n, c, h', w'). Without `window_dimensions` the window is the whole image.
        """
        call = self._call(
            "l2_pool2d",
            options,
            window_dimensions=window_dimensions,
            padding=padding,
            strides=strides,
            dilations=dilations,
            layout=layout,
            output_shape_rounding=output_shape_rounding,
            output_sizes=output_sizes,
            label=label,
        )
        return _pool(call, input)

    def max_pool2d(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        window_dimensions: Sequence[int] | None = None,
        padding: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        layout: str = "nchw",
        output_shape_rounding: str = "floor",
        output_sizes: Sequence[int] | None = None,
        label: str = "",
    ) -> MLOperand:
        """The greatest within a window that moves over images; padding does not count.

        (n, c, h, w) -> (n, c, h', w'). Without `window_dimensions` the window is the whole image.
        """
        call = self._call(
            "max_pool2d",
            options,
            window_dimensions=window_dimensions,
            padding=padding,
            strides=strides,
            dilations=dilations,
            layout=layout,
            output_shape_rounding=output_shape_rounding,
            output_sizes=output_sizes,
            label=label,
        )
        return _pool(call, input)


class _Window(NamedTuple):
    """What moves over an image of this height and width, and how many places it has."""

    image: tuple[int, int]
    sizes: tuple[int, int]
    # Top, bottom, left, right: with what the last places need, or may need.
    padding: tuple[int, int, int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    places: tuple[int, int]

    def attributes(self) -> dict[str, list[int]]:
        """As ONNX's operators take them."""
        made = {"kernel_shape": list(self.sizes), "strides": list(self.strides)}
        if any(self.padding):
            made["pads"] = onnx_pads(self.padding)
        if self.dilations != (1, 1):
            made["dilations"] = list(self.dilations)
        return made

    @property
    def is_pooled(self) -> bool:
        """Whether ONNX Runtime pools by it: its padding is smaller than the window.

        Padding by a node before does not help: ONNX Runtime puts the two together again.
        """
        top, bottom, left, right = self.padding
        return max(top, bottom) < self.sizes[0] and max(left, right) < self.sizes[1]

    def counts(self) -> np.ndarray[Any, Any]:
        """How many elements of the image itself a window has, at each place."""
        found: np.ndarray[Any, Any] = self._counts(0)[:, None] * self._counts(1)
        return found

    def _counts(self, axis: int) -> np.ndarray[Any, Any]:
        size, dilation = self.sizes[axis], self.dilations[axis]
        starts = np.arange(self.places[axis]) * self.strides[axis] - self.padding[2 * axis]
        # Element k of a window lies at start + k * dilation.
        first, end = -(starts // dilation), -((starts - self.image[axis]) // dilation)
        found: np.ndarray[Any, Any] = np.clip(end, 0, size) - np.clip(first, 0, size)
        return found


def _pool(call: Call, input: MLOperand) -> MLOperand:
    x = call.operand("input", input)
    layout = call.choice("layout", LAYOUTS)
    batches, channels, height, width = image_sizes(x, layout)
    window = _window(call, x, height, width)
    image = to_nchw(call, x, layout)
    made = _POOLS[call.op](call, image, window, [batches, channels, *window.places])
    shape = [batches, channels, *window.places]
    if layout == "nhwc":
        shape = [batches, *window.places, channels]
    return call.result(from_nchw(call, made, layout), x.data_type, shape)


def _window(call: Call, x: MLOperand, height: int, width: int) -> _Window:
    """The window that options describe, as the specification says."""
    sizes = positive_pair(call, "window_dimensions", (height, width))
    if prod(sizes) > _LARGEST_WINDOW:
        raise call.fault(f"a window of {list(sizes)} has too many elements")
    pads = paddings(call)
    steps = positive_pair(call, "strides", (1, 1))
    spread = positive_pair(call, "dilations", (1, 1))
    rounding = call.choice("output_shape_rounding", ("floor", "ceil"))
    padded = padded_sizes(call, x, height, width, pads)
    check_steps(call, padded, steps, spread, "a padded input")
    exact = [
        window_places(height, sizes[0], pads[:2], steps[0], spread[0]),
        window_places(width, sizes[1], pads[2:], steps[1], spread[1]),
    ]
    low, high = [floor(one) for one in exact], [ceil(one) for one in exact]
    places = low if rounding == "floor" else high
    if call["output_sizes"] is not None:
        places = list(call.sizes("output_sizes"))
        if len(places) != 2 or places not in (low, high):
            raise call.fault(f"output_sizes is {low} or {high}; {places} came")
    dimension(call, places)
    # The last places of a window may lie partly beyond the padding: that is more padding, which
    # ONNX's own rounding up does not give to a place that begins there.
    ends = [
        max(0, (count - 1) * step + (size - 1) * dilation + 1 - extent)
        for count, step, size, dilation, extent in zip(
            places, steps, sizes, spread, padded, strict=True
        )
    ]
    top, bottom, left, right = pads
    return _Window(
        (height, width),
        sizes,
        (top, bottom + ends[0], left, right + ends[1]),
        steps,
        spread,
        (places[0], places[1]),
    )


def _average(call: Call, image: Value, window: _Window, shape: list[int]) -> Value:
    counts = window.counts()
    # In quantised graphs ONNX Runtime makes a node of its own, which knows no dilations.
    if window.is_pooled and window.dilations == (1, 1) and counts.all():
        return call.node(
            "AveragePool", [image], image.dtype, shape, count_include_pad=0, **window.attributes()
        )
    # The mean of no element at all is 0, as the greatest is in the web platform's tests.
    share = np.where(counts, 1 / np.maximum(counts, 1), 0)
    sums = _sums(call, wide(call, image), window, shape)
    return call.cast(call.node("Mul", [sums, call.constant(share, sums.dtype)]), image.dtype)


def _l2(call: Call, image: Value, window: _Window, shape: list[int]) -> Value:
    # The squares of float16 soon overflow.
    source = wide(call, image)
    if window.is_pooled:
        made = call.node("LpPool", [source], source.dtype, shape, p=2, **window.attributes())
    else:
        squares = call.node("Mul", [source, source])
        made = call.node("Sqrt", [_sums(call, squares, window, shape)])
    return call.cast(made, image.dtype)


def _sums(call: Call, image: Value, window: _Window, shape: list[int]) -> Value:
    """The sum under a window: a convolution with ones, which takes any padding."""
    channels = shape_of(image)[1]
    ones = call.constant(np.ones((channels, 1, *window.sizes)), image.dtype)
    return call.node(
        "Conv", [image, ones], image.dtype, shape, group=channels, **window.attributes()
    )


def _max(call: Call, image: Value, window: _Window, shape: list[int]) -> Value:
    if window.is_pooled and image.dtype not in ("int32", "uint32", "int64", "uint64"):
        made = call.node("MaxPool", [image], image.dtype, shape, **window.attributes())
    else:
        made = _max_of_slices(call, image, window)
    return _zero_where_empty(call, made, window)


def _zero_where_empty(call: Call, made: Value, window: _Window) -> Value:
    """The greatest of no element at all is 0, as in the web platform's tests."""
    counts = window.counts()
    # The least of unsigned integers, with which images are padded, is 0.
    if counts.all() or made.dtype.startswith("u"):
        return made
    return where(call, call.constant(counts > 0, "bool"), made, constant_like(call, made, 0))


def _max_of_slices(call: Call, image: Value, window: _Window) -> Value:
    """The greatest along one axis and then along the other, of a slice for each of its places.

    ONNX's MaxPool takes no integers of 32 and 64 bits.
    """
    made = _padded(call, image, window)
    for axis in (0, 1):
        step, count = window.strides[axis], window.places[axis]
        sizes = [*shape_of(made)]
        sizes[2 + axis] = count
        found: Value | None = None
        for place in range(window.sizes[axis]):
            start = place * window.dilations[axis]
            bounds = (start, start + (count - 1) * step + 1, 2 + axis, step)
            inputs = [made, *(call.int64s([number]) for number in bounds)]
            part = call.node("Slice", inputs, made.dtype, sizes)
            found = part if found is None else greater(call, found, part)
        assert found is not None
        made = found
    return made


def _padded(call: Call, image: Value, window: _Window) -> Value:
    """An image with its padding, which is never the greatest."""
    batches, channels = shape_of(image)[:2]
    top, bottom, left, right = window.padding
    height, width = window.image[0] + top + bottom, window.image[1] + left + right
    if not any(window.padding):
        return image
    dtype = numpy_dtype(image.dtype)
    least = -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)
    pads = call.int64s([0, 0, top, left, 0, 0, bottom, right])
    return call.node(
        "Pad",
        [image, pads, constant_like(call, image, least)],
        image.dtype,
        [batches, channels, height, width],
        mode="constant",
    )


_POOLS: Final = {"average_pool2d": _average, "l2_pool2d": _l2, "max_pool2d": _max}
