"""Convolutions, their transposes, and the joining of their windows."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.graph.executors.operators.registry import Host, operator
from ember_ml.graph.executors.operators.slicing import beside, padded
from ember_ml.tensor.core import Tensor

__all__ = ["Pairs", "convolved", "pads_of"]

Pairs = list[tuple[int, int]]


def pads_of(
    auto_pad: str,
    pads: Any,
    sides: tuple[int, ...],
    extents: list[int],
    strides: Any,
) -> Pairs:
    """Padding as (before, after) for each spatial axis. `extents` are windows with their gaps."""
    count = len(sides)
    if auto_pad == "NOTSET":
        given = pads or [0] * (2 * count)
        return [(int(given[i]), int(given[i + count])) for i in range(count)]
    if auto_pad == "VALID":
        return [(0, 0)] * count
    found = []
    for side, extent, stride in zip(sides, extents, strides, strict=True):
        total = max((-(-side // stride) - 1) * stride + extent - side, 0)
        less = total // 2
        found.append((less, total - less) if auto_pad == "SAME_UPPER" else (total - less, less))
    return found


def extents_of(kernel: Any, dilations: Any) -> list[int]:
    """How far windows reach."""
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]


@operator("Conv", 11, 22)
def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    return convolved(x, w, b, auto_pad, dilations, group, pads, strides)


def convolved(
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    auto_pad: str,
    dilations: Any,
    group: int,
    pads: Any,
    strides: Any,
) -> Tensor:
    """A convolution over as many axes as there are; ops.conv has one to three."""
    sides = x.shape[2:]
    count = len(sides)
    steps = tuple(strides or [1] * count)
    gaps = tuple(dilations or [1] * count)
    pairs = pads_of(auto_pad, pads, sides, extents_of(w.shape[2:], gaps), steps)
    if any(low < 0 or high < 0 for low, high in pairs):
        x = padded(x, [(0, 0), (0, 0), *pairs])
        pairs = [(0, 0)] * count
    return ops.conv(x, w, b, steps, tuple(pairs), gaps, group)


@operator("ConvTranspose", 11, 22)
def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    output_padding: Any = None,
    output_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    """The whole transpose, of which the padding is then taken away."""
    sides = x.shape[2:]
    count = len(sides)
    steps = tuple(strides or [1] * count)
    gaps = tuple(dilations or [1] * count)
    more = list(output_padding or [0] * count)
    extents = extents_of(w.shape[2:], gaps)
    wanted = output_shape and list(output_shape)[-count:]
    if wanted is None and auto_pad.startswith("SAME"):
        wanted = [side * step for side, step in zip(sides, steps, strict=True)]
    if wanted is None:
        pairs = pads_of("VALID" if auto_pad == "VALID" else "NOTSET", pads, sides, extents, steps)
    else:
        pairs = []
        for i in range(count):
            total = steps[i] * (sides[i] - 1) + more[i] + extents[i] - wanted[i]
            half = total // 2
            pairs.append((half, total - half) if auto_pad == "SAME_UPPER" else (total - half, half))
    made = ops.conv_transpose(x, w, None, steps, 0, 0, group, gaps)
    crop = [(-low, extra - high) for (low, high), extra in zip(pairs, more, strict=True)]
    made = padded(made, [(0, 0), (0, 0), *crop])
    return made if b is None else ops.add(made, ops.reshape(b, (-1, *[1] * count)))


@operator("ConvInteger", 10)
def conv_integer(
    x: Tensor,
    w: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    made = integer_convolved(x, w, x_zero, w_zero, auto_pad, dilations, group, pads, strides)
    return ops.astype(made, dtypes.int32)


def integer_convolved(
    x: Tensor,
    w: Tensor,
    x_zero: Tensor | None,
    w_zero: Tensor | None,
    auto_pad: str,
    dilations: Any,
    group: int,
    pads: Any,
    strides: Any,
) -> Tensor:
    """A convolution of 8-bit integers without their zero points, exact in float64."""
    wide, weights = ops.astype(x, dtypes.float64), ops.astype(w, dtypes.float64)
    if x_zero is not None:
        wide = ops.subtract(wide, ops.astype(ops.reshape(x_zero, ()), dtypes.float64))
    if w_zero is not None:
        zero = ops.astype(w_zero, dtypes.float64)
        shape = () if w_zero.size == 1 else (-1, *[1] * (w.ndim - 1))
        weights = ops.subtract(weights, ops.reshape(zero, shape))
    return convolved(wide, weights, None, auto_pad, dilations, group, pads, strides)


@operator("Col2Im", 18)
def col2im(
    x: Tensor,
    image_shape: Host,
    block_shape: Host,
    *,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    """Windows put back where they came from; where they overlap, they are added."""
    image, block = image_shape.tolist(), block_shape.tolist()
    count = len(image)
    steps, gaps = strides or [1] * count, dilations or [1] * count
    pairs = pads_of("NOTSET", pads, tuple(image), [], [])
    full = [n + low + high for n, (low, high) in zip(image, pairs, strict=True)]
    extents = extents_of(block, gaps)
    starts = [
        range(0, n - extent + 1, step) for n, extent, step in zip(full, extents, steps, strict=True)
    ]
    inside = [range(0, k * gap, gap) for k, gap in zip(block, gaps, strict=True)]
    begin = np.array([np.ravel_multi_index(p, full) for p in product(*starts)])
    offset = np.array([np.ravel_multi_index(p, full) for p in product(*inside)])
    places = (offset[:, None] + begin[None, :]).reshape(-1)
    channels = x.shape[1] // len(offset)
    values = ops.reshape(x, (x.shape[0], channels, len(places)))
    made = ops.scatter_add(values, beside(x, places), int(np.prod(full)), 2)
    made = ops.reshape(made, (x.shape[0], channels, *full))
    return padded(made, [(0, 0), (0, 0), *[(-low, -high) for low, high in pairs]])
