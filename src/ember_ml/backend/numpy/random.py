"""NumPy's own generator."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ember_ml.backend.contract import Kernel, NativeArray

__all__ = ["OVERRIDES"]


def random_native_uniform(
    seed: int, shape: tuple[int, ...], dtype: Any, device: str
) -> NativeArray:
    return np.random.default_rng(seed).random(shape, dtype)


def random_native_normal(seed: int, shape: tuple[int, ...], dtype: Any, device: str) -> NativeArray:
    return np.random.default_rng(seed).standard_normal(shape, dtype)


def random_native_bits(seed: int, shape: tuple[int, ...], dtype: Any, device: str) -> NativeArray:
    """Integers of 31 bits."""
    return np.random.default_rng(seed).integers(0, 1 << 31, shape, dtype)


OVERRIDES: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel
    for kernel in (random_native_uniform, random_native_normal, random_native_bits)
}
