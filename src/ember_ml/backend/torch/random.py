"""Torch's own generators, and numbers for Threefry."""

from __future__ import annotations

from typing import Any, Final

import torch

from ember_ml.backend.contract import Kernel

__all__ = ["OVERRIDES"]

Tensor = torch.Tensor


def _seeded(seed: int, device: str) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def random_native_uniform(seed: int, shape: tuple[int, ...], dtype: Any, device: str) -> Tensor:
    return torch.rand(shape, generator=_seeded(seed, device), dtype=dtype, device=device)


def random_native_normal(seed: int, shape: tuple[int, ...], dtype: Any, device: str) -> Tensor:
    return torch.randn(shape, generator=_seeded(seed, device), dtype=dtype, device=device)


def random_native_bits(seed: int, shape: tuple[int, ...], dtype: Any, device: str) -> Tensor:
    """Integers of 31 bits."""
    made = _seeded(seed, device)
    return torch.randint(0, 1 << 31, shape, generator=made, dtype=dtype, device=device)


def random_numbers(key: Tensor, count: int) -> Tensor:
    return torch.arange(count, dtype=torch.int32, device=key.device)


OVERRIDES: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel
    for kernel in (random_native_uniform, random_native_normal, random_native_bits, random_numbers)
}
