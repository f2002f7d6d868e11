"""Signals in torch: frames are its own strided views."""

from __future__ import annotations

from typing import Any, Final

import torch

from ember_ml.backend.contract import Kernel

__all__ = ["OVERRIDES"]

Tensor = torch.Tensor


def frame(x: Tensor, length: int, hop: int) -> Tensor:
    return x.unfold(-1, length, hop).clone(memory_format=torch.contiguous_format)


def overlap_add(x: Tensor, hop: int) -> Tensor:
    shape, (count, length) = x.shape[:-2], x.shape[-2:]
    rounds = -(-length // hop)
    total = x.new_zeros((*shape, count + rounds - 1, hop))
    for part in range(rounds):
        piece = x[..., part * hop : (part + 1) * hop]
        total[..., part : part + count, : piece.shape[-1]] += piece
    flat = total.reshape(*shape, (count + rounds - 1) * hop)
    return flat[..., : (count - 1) * hop + length]


def stft(x: Tensor, window: Tensor, hop: int, points: int, onesided: bool) -> Any:
    # What torch.stft does, without its order of axes; frames are not copied before the product.
    pieces = x.unfold(-1, len(window), hop) * window
    transform: Kernel = torch.fft.rfft if onesided else torch.fft.fft
    if pieces.numel():
        return transform(pieces, points)
    bins = points // 2 + 1 if onesided else points  # MKL takes no tensors without elements
    return x.new_zeros((*pieces.shape[:-1], bins), dtype=x.dtype.to_complex())


OVERRIDES: Final[dict[str, Kernel]] = {
    "frame": frame,
    "overlap_add": overlap_add,
    "stft": stft,
}
