"""Signals in JAX: one compiled program for each shape, with slices in place of index arrays."""

from __future__ import annotations

import math
from functools import partial
from typing import Final

import jax
import jax.numpy as jnp

from ember_ml.backend.contract import Kernel, NativeArray

__all__ = ["OVERRIDES"]

# Up to so many slices, frames are put together of slices; beyond, elements are picked one by one.
_SLICES: Final = 64


@partial(jax.jit, static_argnums=(1, 2), inline=True)
def frame(x: NativeArray, length: int, hop: int) -> NativeArray:
    shape, size = x.shape[:-1], x.shape[-1]
    count = 1 + (size - length) // hop
    step = math.gcd(length, hop)
    parts, stride = length // step, hop // step
    if parts > _SLICES:
        return x[..., hop * jnp.arange(count)[:, None] + jnp.arange(length)]
    # In blocks of the common divisor, frames begin and end where blocks do.
    blocks = size // step
    cut = x[..., : blocks * step].reshape(*shape, blocks, step)
    reach = (count - 1) * stride + 1
    pieces = [cut[..., part : part + reach : stride, :] for part in range(parts)]
    return jnp.stack(pieces, -2).reshape(*shape, count, length)


@partial(jax.jit, static_argnums=(1,), inline=True)
def overlap_add(x: NativeArray, hop: int) -> NativeArray:
    shape, (count, length) = x.shape[:-2], x.shape[-2:]
    size = (count - 1) * hop + length
    rounds = -(-length // hop)
    if rounds > _SLICES:
        places = hop * jnp.arange(count)[:, None] + jnp.arange(length)
        return jnp.zeros((*shape, size), x.dtype).at[..., places].add(x)
    total = jnp.zeros((*shape, count + rounds - 1, hop), x.dtype)
    around = [(0, 0)] * len(shape)
    for part in range(rounds):
        piece = x[..., part * hop : (part + 1) * hop]
        rest = hop - piece.shape[-1]
        total = total + jnp.pad(piece, [*around, (part, rounds - 1 - part), (0, rest)])
    return total.reshape(*shape, (count + rounds - 1) * hop)[..., :size]


@partial(jax.jit, static_argnums=(2, 3, 4), inline=True)
def stft(x: NativeArray, window: NativeArray, hop: int, points: int, onesided: bool) -> NativeArray:
    pieces = frame(x, window.shape[0], hop) * window
    return (jnp.fft.rfft if onesided else jnp.fft.fft)(pieces, points)


OVERRIDES: Final[dict[str, Kernel]] = {
    "frame": frame,
    "overlap_add": overlap_add,
    "stft": stft,
}
