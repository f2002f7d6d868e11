"""Convolution over images."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Final

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
    permuted,
    positive_pair,
    to_nchw,
    window_places,
)
from ember_ml.webnn.operand import MLOperand

__all__ = ["Convolution"]

# ONNX's layout is the first of each.
_CONV_FILTERS: Final = ("oihw", "hwio", "ohwi", "ihwo")
_TRANSPOSE_FILTERS: Final = ("iohw", "hwoi", "ohwi")


class Convolution(BuilderBase):
    """conv2d and conv_transpose2d."""

    def conv2d(
        self,
        input: MLOperand,
        filter: MLOperand,
        options: Options = None,
        *,
        padding: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        groups: int = 1,
        input_layout: str = "nchw",
        filter_layout: str = "oihw",
        bias: MLOperand | None = None,
        label: str = "",
    ) -> MLOperand:
        """Convolve images with filters.

        (n, c, h, w) and (o, c / groups, kh, kw) -> (n, o, h', w'), in the layouts asked for.
        `padding` is (top, bottom, left, right).
        """
        call = self._call(
            "conv2d",
            options,
            padding=padding,
            strides=strides,
            dilations=dilations,
            groups=groups,
            input_layout=input_layout,
            filter_layout=filter_layout,
            bias=bias,
            label=label,
        )
        x, weight = _operands(call, input, filter)
        pads = paddings(call)
        steps = positive_pair(call, "strides", (1, 1))
        spread = positive_pair(call, "dilations", (1, 1))
        parts = _groups(call)
        layout = call.choice("input_layout", LAYOUTS)
        order = call.choice("filter_layout", _CONV_FILTERS)
        batches, channels, height, width = image_sizes(x, layout)
        made, taken, filter_height, filter_width = (weight.shape[order.index(c)] for c in "oihw")
        if channels % parts or channels // parts != taken:
            raise call.fault(
                f"the input has {channels} channels in {parts} groups, "
                f"and the filter takes {taken} of each group"
            )
        if made % parts:
            raise call.fault(f"{made} output channels do not divide into {parts} groups")
        added = _bias(call, x, made)
        padded = padded_sizes(call, x, height, width, pads)
        check_steps(call, padded, steps, spread, "a padded input")
        sizes = [
            floor(window_places(height, filter_height, pads[:2], steps[0], spread[0])),
            floor(window_places(width, filter_width, pads[2:], steps[1], spread[1])),
        ]
        dimension(call, sizes)
        value = call.node(
            "Conv",
            [
                to_nchw(call, x, layout),
                permuted(call, weight, [order.index(c) for c in "oihw"]),
                added,
            ],
            x.data_type,
            [batches, made, *sizes],
            kernel_shape=[filter_height, filter_width],
            pads=onnx_pads(pads),
            strides=list(steps),
            dilations=list(spread),
            group=parts,
        )
        value = from_nchw(call, value, layout)
        return call.result(value, x.data_type, _shape(batches, made, sizes, layout))

    def conv_transpose2d(
        self,
        input: MLOperand,
        filter: MLOperand,
        options: Options = None,
        *,
        padding: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        output_padding: Sequence[int] | None = None,
        output_sizes: Sequence[int] | None = None,
        groups: int = 1,
        input_layout: str = "nchw",
        filter_layout: str = "iohw",
        bias: MLOperand | None = None,
        label: str = "",
    ) -> MLOperand:
        """Spread each pixel over its surroundings by filters: the transpose of a convolution.

        (n, c, h, w) and (c, o / groups, kh, kw) -> (n, o, h', w'), in the layouts asked for.
        `output_sizes` says which of the possible sizes is meant, and `output_padding` is ignored.
        """
        call = self._call(
            "conv_transpose2d",
            options,
            padding=padding,
            strides=strides,
            dilations=dilations,
            output_padding=output_padding,
            output_sizes=output_sizes,
            groups=groups,
            input_layout=input_layout,
            filter_layout=filter_layout,
            bias=bias,
            label=label,
        )
        x, weight = _operands(call, input, filter)
        pads = paddings(call)
        steps = positive_pair(call, "strides", (1, 1))
        spread = positive_pair(call, "dilations", (1, 1))
        parts = _groups(call)
        layout = call.choice("input_layout", LAYOUTS)
        order = call.choice("filter_layout", _TRANSPOSE_FILTERS)
        batches, channels, height, width = image_sizes(x, layout)
        taken, each, filter_height, filter_width = (weight.shape[order.index(c)] for c in "iohw")
        if channels != taken:
            raise call.fault(f"the input has {channels} channels, and the filter takes {taken}")
        made = each * parts
        added = _bias(call, x, made)
        least = [
            (height - 1) * steps[0] + (filter_height - 1) * spread[0] + 1 - sum(pads[:2]),
            (width - 1) * steps[1] + (filter_width - 1) * spread[1] + 1 - sum(pads[2:]),
        ]
        more = _output_padding(call, least, steps)
        sizes = [size + extra for size, extra in zip(least, more, strict=True)]
        dimension(call, sizes)
        check_steps(call, sizes, steps, spread, "an output")
        value = call.node(
            "ConvTranspose",
            [
                to_nchw(call, x, layout),
                permuted(call, weight, [order.index(c) for c in "iohw"]),
                added,
            ],
            x.data_type,
            [batches, made, *sizes],
            kernel_shape=[filter_height, filter_width],
            pads=onnx_pads(pads),
            strides=list(steps),
            dilations=list(spread),
            output_padding=more,
            group=parts,
        )
        value = from_nchw(call, value, layout)
        return call.result(value, x.data_type, _shape(batches, made, sizes, layout))


def _operands(call: Call, input: MLOperand, filter: MLOperand) -> tuple[MLOperand, MLOperand]:
    x = call.operand("input", input)
    weight = call.operand("filter", filter)
    call.same_type("filter", weight, x)
    return x, weight


def _groups(call: Call) -> int:
    parts = call.unsigned("groups")
    if parts == 0:
        raise call.fault("groups takes integers from 1 on, not 0")
    return parts


def _bias(call: Call, x: MLOperand, channels: int) -> MLOperand | None:
    bias = call.optional("bias")
    if bias is not None:
        call.same_type("bias", bias, x)
        if bias.shape != (channels,):
            raise call.fault(
                f"bias has the shape {list(bias.shape)}; there are {channels} output channels"
            )
    return bias


def _output_padding(call: Call, least: list[int], steps: tuple[int, int]) -> list[int]:
    """How much larger than the least possible the result is."""
    padding = (0, 0) if call["output_padding"] is None else call.sizes("output_padding")
    if len(padding) != 2:
        raise call.fault(f"output_padding has 2 entries; {list(padding)} came")
    if call["output_sizes"] is not None:
        sizes = call.sizes("output_sizes")
        if len(sizes) != 2:
            raise call.fault(f"output_sizes has 2 entries; {list(sizes)} came")
        padding = tuple(size - low for size, low in zip(sizes, least, strict=True))
        given = f"output_sizes {list(sizes)}"
    else:
        given = f"output_padding {list(padding)}"
    if any(not 0 <= extra < step for extra, step in zip(padding, steps, strict=True)):
        high = [low + step - 1 for low, step in zip(least, steps, strict=True)]
        raise call.fault(f"{given} does not fit; the result has a size from {least} to {high}")
    return list(padding)


def _shape(batches: int, channels: int, sizes: list[int], layout: str) -> list[int]:
    return [batches, channels, *sizes] if layout == "nchw" else [batches, *sizes, channels]
