"""Pooling: windows summarised by their largest value, their mean or their norm."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.graph.executors.operators.convolution import Pairs, extents_of, pads_of
from ember_ml.graph.executors.operators.registry import Host, operator
from ember_ml.graph.executors.operators.slicing import beside, padded
from ember_ml.tensor.core import Tensor

__all__: list[str] = []

_MAX = {1: ops.max_pool1d, 2: ops.max_pool2d, 3: ops.max_pool3d}
_MEAN = {1: ops.avg_pool1d, 2: ops.avg_pool2d, 3: ops.avg_pool3d}


class Windows:
    """Where the windows of a pooling lie, for each spatial axis."""

    def __init__(
        self,
        x: Tensor,
        kernel: Any,
        auto_pad: str,
        ceil_mode: int,
        dilations: Any,
        pads: Any,
        strides: Any,
    ) -> None:
        self.sides = x.shape[2:]
        count = len(self.sides)
        self.kernel: tuple[int, ...] = tuple(kernel)
        self.strides: tuple[int, ...] = tuple(strides or [1] * count)
        self.gaps: tuple[int, ...] = tuple(dilations or [1] * count)
        self.extents = extents_of(self.kernel, self.gaps)
        self.pads = pads_of(auto_pad, pads, self.sides, self.extents, self.strides)
        self.sizes = tuple(self._size(i, auto_pad, ceil_mode) for i in range(count))

    def _size(self, axis: int, auto_pad: str, ceil_mode: int) -> int:
        side, step = self.sides[axis], self.strides[axis]
        if auto_pad.startswith("SAME"):
            return -(-side // step)
        room = side + sum(self.pads[axis]) - self.extents[axis]
        if not ceil_mode:
            return room // step + 1
        size = -(-room // step) + 1
        # A window that would begin in the padding behind is none.
        return size - 1 if (size - 1) * step >= side + self.pads[axis][0] else size

    def fitted(self, x: Tensor, value: Any) -> Tensor:
        """The input with so much around it that the windows fit exactly."""
        pairs: Pairs = [(0, 0), (0, 0)]
        for i, side in enumerate(self.sides):
            low = self.pads[i][0]
            need = (self.sizes[i] - 1) * self.strides[i] + self.extents[i]
            pairs.append((low, need - low - side))
        return padded(x, pairs, value=value)

    def shifts(self, x: Tensor) -> list[Tensor]:
        """For each place in a window, its value in all windows."""
        found = []
        for offsets in product(*map(range, self.kernel)):
            keys = [slice(None), slice(None)]
            for i, offset in enumerate(offsets):
                start = offset * self.gaps[i]
                stop = start + (self.sizes[i] - 1) * self.strides[i] + 1
                keys.append(slice(start, stop, self.strides[i]))
            found.append(x[tuple(keys)])
        return found

    def positions(self, axis: int) -> Any:
        """Of each place in each window, where it is along an axis of the input: [k, windows]."""
        places = np.arange(self.kernel[axis])[:, None] * self.gaps[axis]
        return places + np.arange(self.sizes[axis]) * self.strides[axis] - self.pads[axis][0]

    def counts(self, include_pad: int) -> Any:
        """How many elements each window has: those of the input, or of its padding as well."""
        made: Any = np.ones((), np.int64)
        for i, side in enumerate(self.sides):
            places = self.positions(i)
            low, high = self.pads[i] if include_pad else (0, 0)
            count = ((places >= -low) & (places < side + high)).sum(axis=0)
            made = made[..., None] * count
        return made

    @property
    def plain(self) -> bool:
        """Whether an engine's own pooling does it."""
        return len(self.sides) in _MAX and all(gap == 1 for gap in self.gaps)


@operator("MaxPool", 11, 12, 22)
def max_pool(
    x: Tensor,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    pads: Any = None,
    storage_order: int = 0,
    strides: Any = None,
    outputs: int = 1,
) -> Tensor | tuple[Tensor, Tensor]:
    windows = Windows(x, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    floating = x.dtype.is_floating
    worst = -np.inf if floating else int(np.iinfo(x.dtype.numpy).min)
    full = windows.fitted(x, worst)
    if outputs == 1:
        if floating and len(windows.sides) in _MAX:
            pool = _MAX[len(windows.sides)]
            return pool(full, windows.kernel, windows.strides, 0, windows.gaps)
        made, *others = windows.shifts(full)
        for other in others:
            made = ops.maximum(made, other)
        return made
    stacked = ops.stack(windows.shifts(full), axis=2)
    chosen = ops.argmax(stacked, axis=2, keepdims=True)
    best = ops.squeeze(ops.take_along_axis(stacked, chosen, axis=2), 2)
    table = beside(x, _numbers(windows, storage_order)[None, None])
    shape = (*x.shape[:2], *table.shape[2:])
    places = ops.squeeze(ops.take_along_axis(ops.broadcast_to(table, shape), chosen, axis=2), 2)
    planes = np.arange(int(np.prod(x.shape[:2]))) * int(np.prod(windows.sides))
    base = planes.reshape(*x.shape[:2], *[1] * len(windows.sides))
    return best, ops.add(places, beside(x, base))


def _numbers(windows: Windows, storage_order: int) -> Any:
    """The number of each place of each window in its plane: [k, windows...]."""
    sides = windows.sides
    count = len(sides)
    strides = [int(np.prod(sides[i + 1 :])) for i in range(count)]
    if storage_order:
        strides = [int(np.prod(sides[:i])) for i in range(count)]
    made: Any = np.zeros((1,) * (2 * count), np.int64)
    for i in range(count):
        shape = [1] * (2 * count)
        shape[i], shape[count + i] = windows.kernel[i], windows.sizes[i]
        made = made + windows.positions(i).reshape(shape) * strides[i]
    return made.reshape(-1, *windows.sizes)


@operator("AveragePool", 11, 19, 22)
def average_pool(
    x: Tensor,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    windows = Windows(x, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    counts = windows.counts(count_include_pad)
    whole = int(np.prod(windows.kernel))
    full = windows.fitted(x, 0)
    if windows.plain:
        made = _MEAN[len(windows.sides)](full, windows.kernel, windows.strides)
        if (counts == whole).all():
            return made
        return ops.multiply(made, beside(x, (whole / counts).astype(x.dtype.numpy)))
    return ops.divide(_sum(windows, full), beside(x, counts.astype(x.dtype.numpy)))


def _sum(windows: Windows, full: Tensor) -> Tensor:
    made, *others = windows.shifts(full)
    for other in others:
        made = ops.add(made, other)
    return made


@operator("LpPool", 11)
def lp_pool(
    x: Tensor,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    p: int = 2,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    return lp_pool_dilated(
        x, kernel_shape=kernel_shape, auto_pad=auto_pad, p=p, pads=pads, strides=strides
    )


@operator("LpPool", 18, 22)
def lp_pool_dilated(
    x: Tensor,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    p: int = 2,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    windows = Windows(x, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    powers = windows.fitted(ops.pow(ops.abs(x), float(p)), 0)
    return ops.pow(_sum(windows, powers), 1 / p)


@operator("GlobalAveragePool", 1, 22)
def global_average_pool(x: Tensor) -> Tensor:
    return ops.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True) if x.ndim > 2 else x


@operator("GlobalMaxPool", 1, 22)
def global_max_pool(x: Tensor) -> Tensor:
    return ops.max(x, axis=tuple(range(2, x.ndim)), keepdims=True) if x.ndim > 2 else x


@operator("GlobalLpPool", 2, 22)
def global_lp_pool(x: Tensor, *, p: int = 2) -> Tensor:
    powers = ops.pow(ops.abs(x), float(p))
    return ops.pow(ops.sum(powers, axis=tuple(range(2, x.ndim)), keepdims=True), 1 / p)


@operator("MaxUnpool", 11, 22)
def max_unpool(
    x: Tensor,
    places: Tensor,
    output_shape: Host | None = None,
    *,
    kernel_shape: Any,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    """Zeros, with the values where they were before MaxPool."""
    count = x.ndim - 2
    steps = strides or [1] * count
    pairs = pads_of("NOTSET", pads, x.shape[2:], [], [])
    shape = [*x.shape[:2]]
    for i in range(count):
        shape.append((x.shape[i + 2] - 1) * steps[i] - sum(pairs[i]) + kernel_shape[i])
    wanted = shape if output_shape is None else output_shape.tolist()
    flat = ops.reshape(places, (-1,))
    made = _put(x, flat, shape)
    return padded(made, [(0, w - n) for w, n in zip(wanted, shape, strict=True)])


def _put(x: Tensor, flat: Tensor, shape: list[int]) -> Tensor:
    zeros = ops.zeros_like(beside(x, np.zeros(int(np.prod(shape)), x.dtype.numpy)))
    points = ops.reshape(ops.astype(flat, dtypes.int64), (-1, 1))
    made = ops.tensor_scatter_nd_update(zeros, points, ops.reshape(x, (-1,)))
    return ops.reshape(made, tuple(shape))
