"""JAX's own generators, and Threefry as one program."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.portable.random import threefry

__all__ = ["OVERRIDES"]


def _key(seed: int) -> Any:
    return jax.random.wrap_key_data(jnp.array([seed >> 32, seed & 0xFFFFFFFF], jnp.uint32))


def random_native_uniform(
    seed: int, shape: tuple[int, ...], dtype: Any, device: str
) -> NativeArray:
    return jax.random.uniform(_key(seed), shape, dtype)


def random_native_normal(seed: int, shape: tuple[int, ...], dtype: Any, device: str) -> NativeArray:
    return jax.random.normal(_key(seed), shape, dtype)


def random_native_bits(seed: int, shape: tuple[int, ...], dtype: Any, device: str) -> NativeArray:
    """Integers of 31 bits."""
    return jax.random.randint(_key(seed), shape, 0, 1 << 31, dtype)


@partial(jax.jit, static_argnums=(1, 2))
def random_words(key: NativeArray, count: int, stream: int) -> NativeArray:
    # One program: eagerly, each of its hundred steps would be dispatched by itself.
    numbers = jax.lax.iota(jnp.int32, (count + 1) // 2)
    return jnp.concatenate(threefry(key, numbers, stream))[:count]


@partial(jax.jit, static_argnums=2)
def random_blocks(key: NativeArray, first: NativeArray, stream: int) -> NativeArray:
    return jnp.stack(threefry(key, first, stream), 1)


OVERRIDES: Final[dict[str, Kernel]] = {
    "random_native_uniform": random_native_uniform,
    "random_native_normal": random_native_normal,
    "random_native_bits": random_native_bits,
    "random_words": random_words,
    "random_blocks": random_blocks,
}
