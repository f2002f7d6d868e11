"""MLX's own generators, and numbers for Threefry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import mlx.core as mx

from ember_ml.backend.contract import Kernel
from ember_ml.errors import GradientError

__all__ = ["OVERRIDES"]

Array = Any  # mx.array; its operators are untyped


def random_native_uniform(seed: int, shape: tuple[int, ...], dtype: Any, device: str) -> Array:
    key = mx.random.key(seed)
    if dtype == mx.float64:
        return _double(key, shape)
    return mx.random.uniform(shape=shape, dtype=dtype, key=key)


def random_native_normal(seed: int, shape: tuple[int, ...], dtype: Any, device: str) -> Array:
    key = mx.random.key(seed)
    if dtype == mx.float64:  # MLX makes float32 of its normals; this is Box and Muller's way
        first, second = mx.random.split(key, 2)
        radius = mx.sqrt(-2 * mx.log(1 - _double(first, shape)))
        return radius * mx.cos(_double(second, shape) * mx.array(6.283185307179586, mx.float64))
    return mx.random.normal(shape=shape, dtype=dtype, key=key)


def random_native_bits(seed: int, shape: tuple[int, ...], dtype: Any, device: str) -> Array:
    """Integers of 31 bits."""
    return _bits(mx.random.key(seed), shape).astype(dtype)


def _bits(key: Array, shape: tuple[int, ...]) -> Array:
    # MLX makes integers of float32 numbers: they are not to have more than 16 bits at a time.
    halves = mx.random.randint(0, 1 << 16, (2, *shape), key=key)
    return ((halves[0] & 0x7FFF) << 16) | halves[1]


def _double(key: Array, shape: tuple[int, ...]) -> Array:
    """Uniform numbers of 53 bits, of which MLX has none."""
    bits = _bits(key, (2, *shape))
    high, low = (bits[0] >> 4).astype(mx.float64), (bits[1] >> 5).astype(mx.float64)
    return (high * 67108864 + low) * mx.array(2.0**-53, mx.float64)


def random_numbers(key: Array, count: int) -> Array:
    return mx.arange(count, dtype=mx.int32)


def random_constant(reason: Callable[[], str], drawn: Array, *parameters: Array) -> Array:
    """What was drawn; a gradient that comes to it raises an error, where MLX would give zeros."""

    def refuse(*args: Any) -> Any:
        raise GradientError(reason())

    kernel = mx.custom_function(lambda drawn, *parameters: drawn)
    kernel.vjp(refuse)
    kernel.jvp(refuse)
    return kernel(drawn, *parameters)


OVERRIDES: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel
    for kernel in (
        random_native_uniform,
        random_native_normal,
        random_native_bits,
        random_numbers,
        random_constant,
    )
}
