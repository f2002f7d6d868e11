"""Parts of tensors, and tensors of parts: slices, joining, padding and blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml import ops
from ember_ml.errors import DomainError, ShapeError
from ember_ml.graph.executors.operators.registry import Host, operator
from ember_ml.graph.executors.operators.shaping import axes_of
from ember_ml.tensor.core import Tensor

__all__ = ["padded"]


@operator("Concat", 11, 13)
def concat(*inputs: Tensor, axis: int) -> Tensor:
    return inputs[0] if len(inputs) == 1 else ops.concat(inputs, axis=axis)


@operator("Split", 11)
def split_by_attribute(
    x: Tensor, *, axis: int = 0, split: Any = None, outputs: int
) -> tuple[Tensor, ...]:
    sizes = None if split is None else np.asarray(split)
    return split_equally(x, sizes, axis=axis, outputs=outputs)


@operator("Split", 13)
def split_equally(
    x: Tensor, split: Host | None = None, *, axis: int = 0, outputs: int
) -> tuple[Tensor, ...]:
    if split is None and x.shape[axis] % outputs:
        raise ShapeError(f"Split of {x.shape[axis]} elements on axis {axis} into {outputs} equals")
    return split_evenly(x, split, axis=axis, outputs=outputs)


@operator("Split", 18)
def split_evenly(
    x: Tensor,
    split: Host | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: int,
) -> tuple[Tensor, ...]:
    """Parts of given sizes, or equal ones of which the last may be smaller."""
    length = x.shape[axis]
    if split is None:
        part = -(-length // (num_outputs or outputs))
        sizes = [max(min(part, length - i * part), 0) for i in range(outputs)]
    else:
        sizes = split.tolist()
    if sum(sizes) != length or len(sizes) != outputs:
        raise ShapeError(f"Split of {length} elements on axis {axis} into {sizes}")
    keys = [slice(None)] * x.ndim
    made = []
    start = 0
    for size in sizes:
        keys[axis] = slice(start, start + size)
        made.append(x[tuple(keys)])
        start += size
    return tuple(made)


@operator("Slice", 11, 13)
def slice_(
    x: Tensor, starts: Host, ends: Host, axes: Host | None = None, steps: Host | None = None
) -> Tensor:
    """A slice on some axes; starts and ends beyond the axis are moved to its ends."""
    over = range(x.ndim) if axes is None else axes_of(axes.tolist(), x.ndim)
    strides = [1] * len(starts) if steps is None else steps.tolist()
    keys = [slice(None)] * x.ndim
    back = []
    for axis, start, end, step in zip(over, starts.tolist(), ends.tolist(), strides, strict=False):
        if not step:
            raise DomainError("Slice got a step of 0")
        places = range(
            *slice(*_bounds(start, end, step, x.shape[axis]), step).indices(x.shape[axis])
        )
        if step < 0:  # engines without negative steps take the same places forwards
            back.append(axis)
            places = places[::-1]
        keys[axis] = slice(places.start, max(places.stop, places.start), places.step) \
            if len(places) else slice(0, 0)  # fmt: skip
    made = x[tuple(keys)]
    return ops.flip(made, axis=tuple(back)) if back else made


def _bounds(start: int, end: int, step: int, length: int) -> tuple[int, int | None]:
    """ONNX's bounds as Python's: an end below the first element is none where steps go back."""
    if step < 0 and end < -length:
        return start, None
    return start, end


@operator("ReverseSequence", 10, 28)
def reverse_sequence(
    x: Tensor, lengths: Host, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    """The first elements of each sequence backwards, as many as its length says."""
    steps, batch = x.shape[time_axis], x.shape[batch_axis]
    time = np.arange(steps)[:, None]
    places = np.where(time < lengths[None, :], lengths[None, :] - 1 - time, time)
    if time_axis == 1:
        places = places.T
    sizes = [1] * x.ndim
    sizes[time_axis], sizes[batch_axis] = steps, batch
    spread = np.broadcast_to(places.reshape(sizes), x.shape)
    return ops.take_along_axis(x, beside(x, np.ascontiguousarray(spread)), axis=time_axis)


def beside(x: Tensor, array: Any) -> Tensor:
    """An array as a tensor of the backend and device of `x`."""
    return ops.from_numpy(np.asarray(array), backend=x.backend, device=x.device)


# --- Padding ------------------------------------------------------------------------------------


@operator("Pad", 11, 13)
def pad(
    x: Tensor, pads: Host, constant_value: Host | None = None, *, mode: str = "constant"
) -> Tensor:
    return pad_axes(x, pads, constant_value, mode=mode)


@operator("Pad", 18, 19, 21, 23, 24, 25)
def pad_axes(
    x: Tensor,
    pads: Host,
    constant_value: Host | None = None,
    axes: Host | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    """Elements before and after; negative numbers of them are taken away."""
    over = range(x.ndim) if axes is None else axes_of(axes.tolist(), x.ndim)
    pairs = [(0, 0)] * x.ndim
    half = len(pads) // 2
    for i, axis in enumerate(over):
        pairs[axis] = (int(pads[i]), int(pads[half + i]))
    value = (
        None if constant_value is None or not constant_value.size else constant_value.reshape(-1)[0]
    )
    return padded(x, pairs, mode, 0 if value is None else value.item())


def padded(
    x: Tensor, pairs: list[tuple[int, int]], mode: str = "constant", value: Any = 0
) -> Tensor:
    """A tensor with elements around it, or fewer where a number is negative."""
    if any(before < 0 or after < 0 for before, after in pairs):
        x = x[tuple(
            slice(max(-before, 0), n - max(-after, 0))
            for (before, after), n in zip(pairs, x.shape, strict=True)
        )]  # fmt: skip
        pairs = [(max(before, 0), max(after, 0)) for before, after in pairs]
    if not any(before or after for before, after in pairs):
        return x
    if mode == "constant":
        return ops.pad(x, pairs, constant_values=value)
    return ops.pad(x, pairs, mode=mode)


@operator("CenterCropPad", 18)
def center_crop_pad(x: Tensor, shape: Host, *, axes: Any = None) -> Tensor:
    """The middle of a tensor, or the tensor in the middle of zeros."""
    over = range(x.ndim) if axes is None else axes_of(axes, x.ndim)
    pairs = [(0, 0)] * x.ndim
    for axis, wanted in zip(over, shape.tolist(), strict=True):
        missing = wanted - x.shape[axis]
        before = missing // 2 if missing >= 0 else -(-missing // 2)
        pairs[axis] = (before, missing - before)
    return padded(x, pairs)


# --- Blocks -------------------------------------------------------------------------------------


@operator("DepthToSpace", 11, 13, 28)
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    samples, channels, height, width = x.shape
    block = blocksize
    if mode == "DCR":
        parts = ops.reshape(x, (samples, block, block, channels // block**2, height, width))
        parts = ops.permute_dims(parts, (0, 3, 4, 1, 5, 2))
    else:
        parts = ops.reshape(x, (samples, channels // block**2, block, block, height, width))
        parts = ops.permute_dims(parts, (0, 1, 4, 2, 5, 3))
    return ops.reshape(parts, (samples, channels // block**2, height * block, width * block))


@operator("SpaceToDepth", 1, 13)
def space_to_depth(x: Tensor, *, blocksize: int) -> Tensor:
    return space_to_depth_by_mode(x, blocksize=blocksize)


@operator("SpaceToDepth", 28)
def space_to_depth_by_mode(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    samples, channels, height, width = x.shape
    block = blocksize
    parts = ops.reshape(x, (samples, channels, height // block, block, width // block, block))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    parts = ops.permute_dims(parts, order)
    return ops.reshape(parts, (samples, channels * block**2, height // block, width // block))
