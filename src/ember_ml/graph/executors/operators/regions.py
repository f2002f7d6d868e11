"""Regions of images: boxes that are kept, pooled or sampled."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml import ops
from ember_ml.graph.executors.operators.imaging import sampled
from ember_ml.graph.executors.operators.registry import Host, operator
from ember_ml.graph.executors.operators.shaping import hosted
from ember_ml.graph.executors.operators.slicing import beside
from ember_ml.tensor.core import Tensor

__all__: list[str] = []

Array = np.ndarray[Any, Any]


@operator("NonMaxSuppression", 11)
def non_max_suppression(
    boxes: Host,
    scores: Host,
    max_output_boxes_per_class: Host | None = None,
    iou_threshold: Host | None = None,
    score_threshold: Host | None = None,
    *,
    center_point_box: int = 0,
) -> Tensor:
    """The best boxes, without those that overlap a better one; on the host, as it is a loop."""
    most = (
        0 if max_output_boxes_per_class is None else int(max_output_boxes_per_class.reshape(-1)[0])
    )
    overlap = 0.0 if iou_threshold is None else float(iou_threshold.reshape(-1)[0])
    least = None if score_threshold is None else float(score_threshold.reshape(-1)[0])
    found: list[tuple[int, int, int]] = []
    for batch in range(scores.shape[0]):
        corners = _corners(boxes[batch], center_point_box)
        for group in range(scores.shape[1]):
            own = scores[batch, group]
            order = np.argsort(-own, kind="stable")
            if least is not None:
                order = order[own[order] > least]
            kept = _kept(corners, order, most, overlap)
            found += [(batch, group, int(i)) for i in kept]
    return hosted(np.array(found, np.int64).reshape(-1, 3))


def _corners(boxes: Array, center_point_box: int) -> Array:
    """Boxes as (low, low, high, high)."""
    wide = boxes.astype(np.float64)
    if center_point_box:
        middle, half = wide[:, :2], wide[:, 2:] / 2
        return np.concatenate([middle - half, middle + half], axis=1)
    low, high = np.minimum(wide[:, :2], wide[:, 2:]), np.maximum(wide[:, :2], wide[:, 2:])
    return np.concatenate([low, high], axis=1)


def _kept(corners: Array, order: Array, most: int, overlap: float) -> list[int]:
    kept: list[int] = []
    while len(order) and len(kept) < most:
        best, order = order[0], order[1:]
        kept.append(int(best))
        low = np.maximum(corners[best, :2], corners[order, :2])
        high = np.minimum(corners[best, 2:], corners[order, 2:])
        common = np.clip(high - low, 0, None).prod(axis=1)
        areas = (corners[:, 2:] - corners[:, :2]).prod(axis=1)
        union = areas[best] + areas[order] - common
        share = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
        order = order[share <= overlap]
    return kept


@operator("RoiAlign", 10)
def roi_align_of_old(
    x: Tensor,
    rois: Host,
    batch_indices: Host,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    return _roi_align(x, rois, batch_indices, mode, (output_height, output_width), sampling_ratio,
                      spatial_scale, 0.0)  # fmt: skip


@operator("RoiAlign", 16, 22)
def roi_align(
    x: Tensor,
    rois: Host,
    batch_indices: Host,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    shift = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    return _roi_align(x, rois, batch_indices, mode, (output_height, output_width), sampling_ratio,
                      spatial_scale, shift)  # fmt: skip


def _roi_align(
    x: Tensor,
    rois: Array,
    batches: Array,
    mode: str,
    size: tuple[int, int],
    sampling_ratio: int,
    spatial_scale: float,
    shift: float,
) -> Tensor:
    """Each region sampled between pixels, and its samples pooled to a size.

    How many samples there are may depend on the region, so the regions are read now.
    """
    made: list[Tensor] = []
    for roi, batch in zip(rois.astype(np.float64), batches.tolist(), strict=True):
        begin = roi[[1, 0]] * spatial_scale - shift
        span = roi[[3, 2]] * spatial_scale - shift - begin
        if not shift:
            span = np.maximum(span, 1.0)
        bins = span / np.array(size)
        counts = [sampling_ratio if sampling_ratio > 0 else max(int(np.ceil(b)), 0) for b in bins]
        axes = [_axis(begin[i], bins[i], size[i], counts[i], x.shape[2 + i]) for i in (0, 1)]
        made.append(_pooled(x[batch : batch + 1], axes, counts, size, mode))
    if not made:
        return hosted(np.zeros((0, x.shape[1], *size), x.dtype.numpy))
    return ops.concat(made, axis=0)


def _axis(begin: float, step: float, size: int, count: int, side: int) -> tuple[Array, ...]:
    """Along an axis: the pixels below and above each sample, and how near the upper one is."""
    inner = (np.arange(count) + 0.5) / max(count, 1)
    places = (begin + (np.arange(size)[:, None] + inner) * step).reshape(-1)
    gone = (places < -1) | (places > side)
    places = np.clip(places, 0, side - 1)
    low = np.floor(places).astype(np.int64)
    return low, np.minimum(low + 1, side - 1), places - low, ~gone


def _pooled(
    x: Tensor, axes: list[tuple[Array, ...]], counts: list[int], size: tuple[int, int], mode: str
) -> Tensor:
    rows, columns = axes
    alive = (rows[3][:, None] & columns[3]).astype(x.dtype.numpy)
    terms = []
    for row in (0, 1):
        for column in (0, 1):
            near = (rows[2] if row else 1 - rows[2])[:, None]
            share = near * (columns[2] if column else 1 - columns[2]) * alive
            part = ops.take(x, beside(x, rows[row]), axis=2)
            part = ops.take(part, beside(x, columns[column]), axis=3)
            terms.append(ops.multiply(part, beside(x, share.astype(x.dtype.numpy))))
    shape = (1, x.shape[1], size[0], counts[0], size[1], counts[1])
    if mode == "max":  # the largest of the four weighted pixels, as ONNX defines it
        best = terms[0]
        for term in terms[1:]:
            best = ops.maximum(best, term)
        return ops.max(ops.reshape(best, shape), axis=(3, 5))
    total = ops.add(ops.add(terms[0], terms[1]), ops.add(terms[2], terms[3]))
    return ops.mean(ops.reshape(total, shape), axis=(3, 5))


@operator("MaxRoiPool", 1, 22)
def max_roi_pool(x: Tensor, rois: Host, *, pooled_shape: Any, spatial_scale: float = 1.0) -> Tensor:
    """The largest value of each part of each region; a part without pixels is zero."""
    height, width = pooled_shape
    made = []
    for batch, left, top, right, bottom in rois.tolist():
        first = [int(np.floor(v * spatial_scale + 0.5)) for v in (top, left)]
        last = [int(np.floor(v * spatial_scale + 0.5)) for v in (bottom, right)]
        parts = []
        for i, count in enumerate((height, width)):
            step = max(last[i] - first[i] + 1, 1) / count
            side = x.shape[2 + i]
            parts.append([
                (min(max(int(np.floor(p * step)) + first[i], 0), side),
                 min(max(int(np.ceil((p + 1) * step)) + first[i], 0), side))
                for p in range(count)
            ])  # fmt: skip
        image = x[int(batch)]
        zero = ops.multiply(image[:, 0, 0], 0)
        values = [
            ops.max(image[:, a:b, c:d], axis=(1, 2)) if b > a and d > c else zero
            for a, b in parts[0]
            for c, d in parts[1]
        ]
        made.append(ops.reshape(ops.stack(values, axis=1), (x.shape[1], height, width)))
    if not made:
        return hosted(np.zeros((0, x.shape[1], height, width), x.dtype.numpy))
    return ops.stack(made, axis=0)


@operator("DeformConv", 19, 22)
def deform_conv(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    offset_group: int = 1,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    """A convolution whose windows take their pixels at places moved by offsets."""
    count = x.ndim - 2
    kernel = w.shape[2:]
    steps, gaps = strides or [1] * count, dilations or [1] * count
    low = (pads or [0] * (2 * count))[:count]
    sizes = offset.shape[2:]
    taps = int(np.prod(kernel))
    moved = ops.reshape(offset, (x.shape[0], offset_group, taps, count, *sizes))
    each = x.shape[1] // offset_group
    windows = []
    for number in range(offset_group):
        points = []
        for axis in range(count):
            places = np.arange(kernel[axis]) * gaps[axis] - low[axis]
            shape = [1] * (2 * count)
            shape[axis] = -1
            grid = np.broadcast_to(places.reshape(shape[:count]), kernel).reshape(-1)
            base = np.arange(sizes[axis]) * steps[axis]
            line = base.reshape([-1 if i == axis else 1 for i in range(count)])
            start = grid.reshape(-1, *[1] * count) + line
            points.append(
                ops.add(moved[:, number, :, axis], beside(x, start.astype(x.dtype.numpy)))
            )
        part = x[:, number * each : (number + 1) * each]
        taken = sampled(part, points, "linear")
        if mask is not None:
            own = ops.reshape(mask, (x.shape[0], offset_group, taps, *sizes))
            taken = ops.multiply(taken, ops.expand_dims(own[:, number], 1))
        windows.append(taken)
    columns = ops.concat(windows, axis=1) if len(windows) > 1 else windows[0]
    columns = ops.reshape(columns, (x.shape[0], group, -1, int(np.prod(sizes))))
    weights = ops.reshape(w, (group, w.shape[0] // group, -1))
    made = ops.reshape(ops.matmul(weights, columns), (x.shape[0], w.shape[0], *sizes))
    return made if b is None else ops.add(made, ops.reshape(b, (-1, *[1] * count)))
