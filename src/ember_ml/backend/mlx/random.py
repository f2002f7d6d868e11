"""MLX's own generators, and numbers for Threefry."""

from __future__ import annotations

from typing import Any, Final

import mlx.core as mx

from ember_ml.backend.contract import Kernel

__all__ = ["OVERRIDES"]

Array = Any  # mx.array; its operators are untyped


def random_native_uniform(seed: int, shape: tuple[int, ...], dtype: Any, device: str) -> Array:
    if dtype == mx.float64:
        return _double(seed, shape)
    return mx.random.uniform(shape=shape, dtype=dtype, key=mx.random.key(seed))


def random_native_normal(seed: int, shape: tuple[int, ...], dtype: Any, device: str) -> Array:
    if dtype == mx.float64:  # MLX makes float32 of its normals; this is Box and Muller's way
        keys = mx.random.split(mx.random.key(seed), 2)
        radius = mx.sqrt(-2 * mx.log(1 - _double(keys[0], shape)))
        return radius * mx.cos(_double(keys[1], shape) * mx.array(6.283185307179586, mx.float64))
    return mx.random.normal(shape=shape, dtype=dtype, key=mx.random.key(seed))


def random_native_bits(seed: int, shape: tuple[int, ...], dtype: Any, device: str) -> Array:
    """Integers of 31 bits."""
    bits = mx.random.bits(shape, width=4, key=mx.random.key(seed))
    return (bits >> 1).astype(dtype)


def _double(seed: Any, shape: tuple[int, ...]) -> Array:
    """Uniform numbers of 53 bits, which MLX has none of."""
    key = mx.random.key(seed) if isinstance(seed, int) else seed
    bits = mx.random.bits((2, *shape), width=4, key=key)
    high, low = (bits[0] >> 5).astype(mx.float64), (bits[1] >> 6).astype(mx.float64)
    return (high * 67108864 + low) * mx.array(2.0**-53, mx.float64)


def random_numbers(key: Array, count: int) -> Array:
    return mx.arange(count, dtype=mx.int32)


OVERRIDES: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel
    for kernel in (random_native_uniform, random_native_normal, random_native_bits, random_numbers)
}
