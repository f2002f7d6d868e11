"""Scatter on MLX, which writes where an index says, be it beyond the array."""

from __future__ import annotations

import math
from typing import Any, Final

import mlx.core as mx
import numpy as np

from ember_ml.backend.contract import Kernel
from ember_ml.backend.mlx.elementwise import values_known
from ember_ml.backend.portable.scattering import flat_parts, require_range

__all__ = ["OVERRIDES"]

Array = Any  # mx.array; its operators are untyped

_HALVES: Final = (mx.float16, mx.bfloat16)
_FLOATS: Final = (*_HALVES, mx.float32, mx.float64)


def _places(
    name: str, values: Array, indices: Array, axis: int, size: int
) -> tuple[Array, Array, tuple[int, ...]]:
    """Values with their scattered axis in front, where they go, and the shape of the result."""
    if not values_known(indices) or require_range(name, np.asarray(indices), size):
        indices = mx.where(indices < 0, indices + size, indices)
    indices = mx.stop_gradient(indices)  # MLX has no gradient by indices, and asks for it
    if indices.ndim == 1:
        front = mx.moveaxis(values, axis, 0)
        return front, indices, (size, *front.shape[1:])
    stride, offsets = flat_parts(values.shape, axis, size)
    flat = indices * stride + mx.array(offsets)
    lines = math.prod(side for place, side in enumerate(values.shape) if place != axis)
    return values.reshape(-1), flat.reshape(-1), (lines * size,)


def _back(out: Array, like: Array, indices: Array, axis: int, size: int) -> Array:
    if indices.ndim == 1:
        return mx.moveaxis(out, 0, axis)
    return out.reshape((*like.shape[:axis], size, *like.shape[axis + 1 :]))


def _sum(front: Array, places: Array, shape: tuple[int, ...]) -> Array:
    out = mx.zeros(shape, dtype=front.dtype)
    return out.at[places].add(front) if front.size else out  # MLX refuses to add nothing


@mx.custom_function
def _product(front: Array, places: Array, target: Array) -> Array:
    return target.at[places].multiply(front)


@_product.vjp
def _product_vjp(primals: Any, cotangent: Array, output: Array) -> tuple[Array, ...]:
    """The product of the other values, which zeros forbid to get by division."""
    front, places, target = primals
    zero = front == 0
    filled = mx.where(zero, mx.array(1, dtype=front.dtype), front)
    rest = target.at[places].multiply(filled)
    ones = zero.astype(front.dtype)
    left = _sum(ones, places, target.shape)[places] - ones
    nothing = mx.zeros_like(front)
    others = mx.where(left == 0, rest[places] / filled, nothing)
    if others.dtype == mx.complex64:
        others = mx.conjugate(others)
    return cotangent[places] * others, mx.zeros_like(places), mx.zeros_like(target)


def _extreme_of(method: str) -> Kernel:
    @mx.custom_function
    def run(front: Array, places: Array, target: Array) -> Array:
        # Item assignment gives the object another array, so it is made to one of our own.
        start = mx.reshape(target, target.shape)
        start[places] = front  # any value of a place is a good first one
        out = getattr(start.at[places], method)(front)
        if front.dtype in _FLOATS:
            # MLX compares, and every comparison with NaN is false.
            lost = _sum(mx.isnan(front).astype(mx.int32), places, target.shape) > 0
            out = mx.where(lost, mx.array(float("nan"), dtype=out.dtype), out)
        return out

    @run.vjp
    def vjp(primals: Any, cotangent: Array, output: Array) -> tuple[Array, ...]:
        """Equal values share the gradient of their place."""
        front, places, target = primals
        chosen = (front == output[places]).astype(front.dtype)
        count = mx.maximum(_sum(chosen, places, target.shape), mx.array(1, dtype=front.dtype))
        return (
            chosen * (cotangent / count)[places],
            mx.zeros_like(places),
            mx.zeros_like(target),
        )

    return run


def _multiply(front: Array, places: Array, target: Array) -> Array:
    return _product(front, places, target)


def _scatter(name: str, run: Kernel | None, start: int, *, exact: bool = False) -> Kernel:
    def kernel(values: Array, indices: Array, axis: int, size: int) -> Array:
        dtype = values.dtype
        wide = values
        if dtype == mx.bool_:
            wide = values.astype(mx.uint8)
        elif dtype in _HALVES and not exact:
            wide = values.astype(mx.float32)
        front, places, shape = _places(name, wide, indices, axis, size)
        if not front.size or not size:
            out = mx.full(shape, start, dtype=wide.dtype)
        elif run is None:
            out = _sum(front, places, shape)
        else:
            out = run(front, places, mx.full(shape, start, dtype=wide.dtype))
        return _back(out, values, indices, axis, size).astype(dtype)

    return kernel


OVERRIDES: Final[dict[str, Kernel]] = {
    "scatter_add": _scatter("scatter_add", None, 0),
    "scatter_mul": _scatter("scatter_mul", _multiply, 1),
    "scatter_max": _scatter("scatter_max", _extreme_of("maximum"), 0, exact=True),
    "scatter_min": _scatter("scatter_min", _extreme_of("minimum"), 0, exact=True),
}
