"""Images: resizing, and sampling at given points."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.errors import ShapeError, UnsupportedOpError
from ember_ml.graph.executors.operators.registry import Host, operator
from ember_ml.graph.executors.operators.shaping import axes_of
from ember_ml.graph.executors.operators.slicing import beside
from ember_ml.tensor.core import Tensor

__all__ = ["sampled"]

Array = np.ndarray[Any, Any]
# How near to a half counts as one, as in ONNX Runtime: 7.4999995 is what float32 makes of 7.5.
_A_HALF = 1e-6

# --- Resizing -----------------------------------------------------------------------------------


@operator("Upsample", 9, 10)
def upsample(x: Tensor, scales: Host, *, mode: str = "nearest") -> Tensor:
    return _resized(
        x, None, scales, None, None, coordinates="asymmetric", mode=mode, nearest="floor"
    )


@operator("Resize", 11, 13)
def resize(
    x: Tensor,
    roi: Host | None = None,
    scales: Host | None = None,
    sizes: Host | None = None,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    return _resized(
        x, roi, scales, sizes, None, coordinates=coordinate_transformation_mode, mode=mode,
        nearest=nearest_mode, a=cubic_coeff_a, exclude=exclude_outside, beyond=extrapolation_value,
    )  # fmt: skip


@operator("Resize", 18, 19)
def resize_axes(
    x: Tensor,
    roi: Host | None = None,
    scales: Host | None = None,
    sizes: Host | None = None,
    *,
    antialias: int = 0,
    axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    return _resized(
        x, roi, scales, sizes, axes, coordinates=coordinate_transformation_mode, mode=mode,
        nearest=nearest_mode, a=cubic_coeff_a, exclude=exclude_outside, beyond=extrapolation_value,
        policy=keep_aspect_ratio_policy, antialias=antialias,
    )  # fmt: skip


def _resized(
    x: Tensor,
    roi: Array | None,
    scales: Array | None,
    sizes: Array | None,
    axes: Any,
    *,
    coordinates: str,
    mode: str,
    nearest: str,
    a: float = -0.75,
    exclude: int = 0,
    beyond: float = 0.0,
    policy: str = "stretch",
    antialias: int = 0,
) -> Tensor:
    """Axis by axis: nearest elements are taken, others are weighted sums of their neighbours."""
    over = list(range(x.ndim)) if axes is None else list(axes_of(axes, x.ndim))
    if sizes is not None and sizes.size:
        lengths = [int(n) for n in sizes]
        factors = [n / x.shape[axis] for n, axis in zip(lengths, over, strict=True)]
        if policy != "stretch":
            factor = (min if policy == "not_larger" else max)(factors)
            factors = [factor] * len(over)
            lengths = [int(np.floor(factor * x.shape[axis] + 0.5)) for axis in over]
    elif scales is not None and scales.size:
        factors = [float(n) for n in scales]
        # Scales are float32: 0.7 times 10 is 7 there, and less than that in wider arithmetic.
        lengths = [
            int(np.floor(np.float32(x.shape[axis]) * np.float32(n)))
            for n, axis in zip(factors, over, strict=True)
        ]
    else:
        raise UnsupportedOpError("Resize needs `scales` or `sizes`")
    if min(lengths, default=0) < 0:
        raise ShapeError(f"Resize of shape {x.shape} would give lengths of {lengths}")
    crops = coordinates == "tf_crop_and_resize"
    outside: list[tuple[int, Array]] = []
    for i, axis in enumerate(over):
        part = (0.0, 1.0)
        if crops and roi is not None:
            part = (float(roi[i]), float(roi[len(over) + i]))
        if lengths[i] == x.shape[axis] and factors[i] == 1.0 and not crops:
            continue
        # Elements are chosen in float32, as files expect: 3 / 0.6 is the fifth, not 4.9999999.
        wide = np.float32 if mode == "nearest" else np.float64
        places = _places(coordinates, x.shape[axis], lengths[i], factors[i], part, wide)
        if crops:
            gone = (places < 0) | (places > x.shape[axis] - 1)
            if gone.any():
                outside.append((axis, gone))
        if mode == "nearest":
            x = ops.take(x, beside(x, _nearest(nearest, places, x.shape[axis])), axis=axis)
        else:
            shrink = min(factors[i], 1.0) if antialias else 1.0
            x = _weighted(x, axis, places, mode, a, exclude, shrink)
    for axis, gone in outside:
        mask = gone.reshape([-1 if j == axis else 1 for j in range(x.ndim)])
        x = ops.where(beside(x, mask), beyond, x)
    return x


def _places(
    coordinates: str, length: int, size: int, factor: float, part: tuple[float, float], wide: Any
) -> Array:
    """Where each new element lies among the old ones."""
    x: Array = np.arange(size, dtype=wide)
    scale = float(wide(factor))  # a plain number leaves the dtype of the array as it is
    if coordinates == "asymmetric":
        return x / scale
    if coordinates == "align_corners":
        return x * (length - 1) / (size - 1) if size > 1 else x
    if coordinates == "tf_crop_and_resize":
        start, end = part
        if size > 1:
            return start * (length - 1) + x * (end - start) * (length - 1) / (size - 1)
        return np.full(size, 0.5 * (start + end) * (length - 1))
    if coordinates == "pytorch_half_pixel" and size == 1:
        return np.zeros(size)
    if coordinates == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    half = (x + 0.5) / scale - 0.5
    if coordinates == "half_pixel_symmetric":
        # What the rounding of the size took away is taken from both ends.
        return length / 2 * (1 - size / (scale * length)) + half
    if coordinates in ("half_pixel", "pytorch_half_pixel"):
        return half
    raise UnsupportedOpError(f"Resize has no coordinate_transformation_mode '{coordinates}'")


def _nearest(rule: str, places: Array, length: int) -> Array:
    places = places.astype(np.float64)
    if rule.startswith("round"):  # what is a half but for rounding is one
        halves = np.round(2 * places) / 2
        places = np.where(np.abs(places - halves) < _A_HALF, halves, places)
    if rule == "round_prefer_floor":
        found = np.ceil(places - 0.5)
    elif rule == "round_prefer_ceil":
        found = np.floor(places + 0.5)
    else:
        found = np.floor(places) if rule == "floor" else np.ceil(places)
    return np.clip(found, 0, length - 1).astype(np.int64)


def _weighted(
    x: Tensor, axis: int, places: Array, mode: str, a: float, exclude: int, shrink: float
) -> Tensor:
    """Each new element as a weighted sum of the old ones around it."""
    length = x.shape[axis]
    reach = 1 if mode == "linear" else 2
    first = int(np.floor(-reach / shrink)) + 1
    base = np.ceil(places) - 1
    offsets = np.arange(first, 2 - first)
    away = (offsets - (places - base)[:, None]) * shrink
    weights = np.clip(1 - np.abs(away), 0, 1) if mode == "linear" else cubic(away, a)
    indices = (base[:, None] + offsets).astype(np.int64)
    if exclude:
        weights = np.where((indices < 0) | (indices >= length), 0, weights)
    if exclude or shrink != 1.0:
        weights = weights / weights.sum(axis=1, keepdims=True)
    indices = np.clip(indices, 0, length - 1)
    dtype = x.dtype if x.dtype.is_floating else dtypes.float32
    values = ops.astype(x, dtype, copy=False)
    shape = [1] * x.ndim
    shape[axis] = -1
    made = None
    for column in range(len(offsets)):
        if not weights[:, column].any():
            continue
        weight = beside(x, weights[:, column].astype(dtype.numpy).reshape(shape))
        taken = ops.take(values, beside(x, np.ascontiguousarray(indices[:, column])), axis=axis)
        term = ops.multiply(taken, weight)
        made = term if made is None else ops.add(made, term)
    assert made is not None  # the weights of an element add up to 1
    return made if dtype is x.dtype else ops.astype(ops.round(made), x.dtype)


def cubic(x: Any, a: float) -> Any:
    """The weights of cubic interpolation (Keys) at distances."""
    near = np.abs(x)
    inner = ((a + 2) * near - (a + 3)) * near * near + 1
    outer = ((a * near - 5 * a) * near + 8 * a) * near - 4 * a
    return np.where(near <= 1, inner, np.where(near < 2, outer, 0))


# --- Sampling -----------------------------------------------------------------------------------


@operator("AffineGrid", 20)
def affine_grid(theta: Tensor, size: Host, *, align_corners: int = 0) -> Tensor:
    """The points of a grid over an image, moved by affine maps."""
    sides = size.tolist()[2:]
    axes = []
    for n in sides:
        steps = np.arange(n, dtype=np.float64)
        axes.append(steps * 2 / max(n - 1, 1) - 1 if align_corners else (2 * steps + 1) / n - 1)
    grid = np.meshgrid(*axes, indexing="ij")
    points = np.stack([*grid[::-1], np.ones(sides)], axis=-1).reshape(-1, len(sides) + 1)
    base = beside(theta, points.astype(theta.dtype.numpy))
    made = ops.matmul(base, ops.matrix_transpose(theta))
    return ops.reshape(made, (theta.shape[0], *sides, len(sides)))


@operator("GridSample", 16)
def grid_sample_flat(
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> Tensor:
    names = {"bilinear": "linear", "bicubic": "cubic"}
    return grid_sample(
        x, grid, align_corners=align_corners, mode=names.get(mode, mode), padding_mode=padding_mode
    )


@operator("GridSample", 20, 22)
def grid_sample(
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    """Values at points between -1 and 1; the last axis of points counts from the last axis of x."""
    sides = x.shape[2:]
    points = []
    for i, n in enumerate(sides):
        place = grid[..., len(sides) - 1 - i]
        if align_corners:
            points.append(ops.multiply(ops.add(place, 1), (n - 1) / 2))
        else:
            points.append(ops.subtract(ops.multiply(ops.add(place, 1), n / 2), 0.5))
        if padding_mode == "border" and mode != "cubic":
            points[i] = ops.clip(points[i], 0, n - 1)
        elif padding_mode == "reflection" and mode != "cubic":
            points[i] = _reflected(points[i], n, align_corners)
    return sampled(x, points, mode, padding_mode, align_corners)


def _reflected(place: Tensor, n: int, align_corners: int) -> Tensor:
    """Places beyond the ends thrown back, as often as need be."""
    low, high = (0.0, n - 1.0) if align_corners else (-0.5, n - 0.5)
    span = high - low
    if not span:
        return ops.zeros_like(place)
    away = ops.remainder(ops.subtract(place, low), 2 * span)
    folded = ops.where(ops.greater(away, span), ops.subtract(2 * span, away), away)
    return ops.clip(ops.add(folded, low), 0, n - 1) if not align_corners else ops.add(folded, low)


def sampled(
    x: Tensor,
    points: list[Tensor],
    mode: str,
    padding_mode: str = "zeros",
    align_corners: int = 0,
) -> Tensor:
    """Values of x [samples, channels, ...] at points, an array [samples, ...] for each axis."""
    sides = x.shape[2:]
    taps = []
    for place, n in zip(points, sides, strict=True):
        taps.append(_taps(place, n, mode, padding_mode, align_corners))
    flat = ops.reshape(x, (*x.shape[:2], -1))
    where = points[0].shape[1:]
    count = int(np.prod(where))
    made = None
    for chosen in product(*taps):
        number = None
        weight = None
        for (index, share), n in zip(chosen, sides, strict=True):
            number = index if number is None else ops.add(ops.multiply(number, n), index)
            weight = share if weight is None or share is None else ops.multiply(weight, share)
        assert number is not None  # there is at least one axis
        keys = ops.broadcast_to(ops.reshape(number, (x.shape[0], 1, count)),
                                (*x.shape[:2], count))  # fmt: skip
        term = ops.take_along_axis(flat, keys, axis=2)
        if weight is not None:
            shares = ops.reshape(weight, (x.shape[0], 1, count))
            term = ops.multiply(term, ops.astype(shares, x.dtype, copy=False))
        made = term if made is None else ops.add(made, term)
    assert made is not None
    return ops.reshape(made, (*x.shape[:2], *where))


def _taps(
    place: Tensor, n: int, mode: str, padding_mode: str, align_corners: int
) -> list[tuple[Tensor, Tensor | None]]:
    """The elements along an axis that a place is made of: (index, weight) each."""
    if mode == "nearest":
        return [_tap(ops.round(place), None, n, padding_mode, align_corners)]
    base = ops.floor(place)
    rest = ops.subtract(place, base)
    if mode == "linear":
        pairs = [(base, ops.subtract(1, rest)), (ops.add(base, 1), rest)]
    else:
        pairs = [(ops.add(base, k), _cubic_weight(ops.abs(ops.subtract(rest, k)), k in (0, 1)))
                 for k in (-1, 0, 1, 2)]  # fmt: skip
    return [_tap(index, weight, n, padding_mode, align_corners) for index, weight in pairs]


def _cubic_weight(near: Tensor, inner: bool, a: float = -0.75) -> Tensor:
    if inner:
        slope = ops.subtract(ops.multiply(near, a + 2), a + 3)
        return ops.add(ops.multiply(ops.multiply(slope, near), near), 1)
    slope = ops.subtract(ops.multiply(near, a), 5 * a)
    return ops.subtract(ops.multiply(ops.add(ops.multiply(slope, near), 8 * a), near), 4 * a)


def _tap(
    index: Tensor, weight: Tensor | None, n: int, padding_mode: str, align_corners: int
) -> tuple[Tensor, Tensor | None]:
    if padding_mode == "zeros":
        inside = ops.logical_and(ops.greater_equal(index, 0), ops.less_equal(index, n - 1))
        share = ops.astype(inside, index.dtype)
        weight = share if weight is None else ops.multiply(weight, share)
    elif padding_mode == "reflection":
        index = _reflected(index, n, align_corners)
    return ops.astype(ops.clip(ops.round(index), 0, n - 1), dtypes.int64), weight
