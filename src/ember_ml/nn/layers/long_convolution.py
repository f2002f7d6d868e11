"""Convolution as long as the sequence, by FFT."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ember_ml import ops
from ember_ml.errors import DomainError
from ember_ml.nn.layers.base import SequenceMixingLayer
from ember_ml.nn.modules.linear import Linear
from ember_ml.nn.parameter import Parameter
from ember_ml.ops.fitting import beside
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["LongConvolution", "causal_convolution"]


def causal_convolution(x: Tensor, kernel: Tensor) -> Tensor:
    """`y_t = Σ_s kernel_s · x_(t-s)` for each channel, by FFT.

    Shapes: x `(batch, length, channels)`, kernel `(length, channels)`. Half precision is computed
    in float32: engines have no FFT of it.
    """
    length, dtype = x.shape[1], x.dtype
    if not x.size:
        return x
    if dtype.itemsize < 4:
        x, kernel = ops.astype(x, "float32"), ops.astype(kernel, "float32")
    size = 1 << max(2 * length - 1, 1).bit_length()
    spectrum = ops.fft.rfft(x, n=size, axis=1) * ops.fft.rfft(kernel, n=size, axis=0)
    return ops.astype(ops.fft.irfft(spectrum, n=size, axis=1)[:, :length], dtype)


class LongConvolution(SequenceMixingLayer):
    """`out(silu(gate(x)) · (kernel * v + skip · v))`, v = in(x), with a kernel for all lengths.

    Shapes: x and y `(batch, length, hidden_size)`. The kernel of a channel is a function of the
    distance t: a small network of sines over `t / max_length`, times `exp(-rate t)`, where the
    rates of the channels begin spread evenly between those that fall to 1/100 over `max_length`
    and over a hundredth of it. A token sees itself and earlier ones. Sequences may be longer than
    `max_length`.

    >>> from ember_ml.nn.layers import sequence_mixing
    >>> sequence_mixing.LongConvolution(8)(ops.ones((2, 16, 8))).shape
    (2, 16, 8)
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        max_length: int = 1024,
        filter_size: int = 32,
        frequencies: int = 8,
        bias: bool = True,
    ) -> None:
        if max_length < 1 or filter_size < 1 or frequencies < 1:
            raise DomainError(
                f"LongConvolution got max_length={max_length}, filter_size={filter_size} and "
                f"frequencies={frequencies}; each is 1 or more"
            )
        self.hidden_size = hidden_size
        self.max_length = max_length
        self.frequencies = frequencies
        self.in_proj = Linear(hidden_size, 2 * hidden_size, bias)
        self.filter_in = Linear(2 * frequencies + 1, filter_size)
        self.filter_out = Linear(filter_size, hidden_size, False)
        slow = math.log(100) / max_length
        self.log_rate = Parameter(
            np.linspace(math.log(slow), math.log(100 * slow), hidden_size).astype(np.float32)
        )
        self.skip = Parameter(ops.ones(hidden_size))
        self.out_proj = Linear(hidden_size, hidden_size, bias)

    def kernel(self, length: int) -> Tensor:
        """The kernel at distances from 0 to `length`, `(length, hidden_size)`."""
        rate = ops.exp(self.log_rate)
        features, distance = (
            beside(rate, table).astype(rate.dtype)
            for table in _features(length, self.max_length, self.frequencies)
        )
        wave = self.filter_out(ops.sin(self.filter_in(features)))
        return wave * ops.exp(-rate * distance)  # type: ignore[no-any-return]  # a Tensor

    def forward(self, x: TensorLike, mask: TensorLike | None = None) -> Tensor:
        """See the class."""
        x = self.masked(self.input(x), mask)
        v, gate = ops.split(self.in_proj(x), 2, axis=-1)
        if mask is not None:  # a bias makes something of nothing
            v = self.masked(v, mask)
        mixed = causal_convolution(v, self.kernel(x.shape[1])) + self.skip * v
        return self.out_proj(ops.silu(gate) * mixed)  # type: ignore[no-any-return]  # a Tensor


@lru_cache(maxsize=16)
def _features(length: int, unit: int, frequencies: int) -> tuple[Any, Any]:
    """What the network of a kernel sees of each distance, and the distances."""
    distance = np.arange(length, dtype=np.float64)[:, None]
    angles = 2 * math.pi * distance / unit * np.arange(1, frequencies + 1)
    table = np.concatenate([distance / unit, np.sin(angles), np.cos(angles)], axis=1)
    return table.astype(np.float32), distance.astype(np.float32)
