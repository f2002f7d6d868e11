"""Embeddings: integers, or places in a sequence, as vectors."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.errors import DomainError, EmberError, OutOfBoundsError
from ember_ml.nn.initializers import Initializer, Normal, get
from ember_ml.nn.module import Module
from ember_ml.nn.modules.inputs import refused, told
from ember_ml.nn.parameter import Parameter
from ember_ml.ops.fitting import beside, counted
from ember_ml.ops.lookup import embedding
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["Embedding", "PositionalEmbedding", "SinusoidalEmbedding"]


class Embedding(Module):
    """Row `indices[...]` of a table that is trained.

    Shapes: indices `(...)` of integers, weight `(num_embeddings, embedding_dim)`, result
    `(..., embedding_dim)`. Rows begin normal, with deviation one; that of `padding_idx` begins
    with zeros and gets no gradient.

    >>> from ember_ml import nn
    >>> layer = nn.Embedding(10, 3, padding_idx=0)
    >>> layer([[1, 2], [3, 0]]).shape, layer([0]).tolist()
    ((2, 2, 3), [[0.0, 0.0, 0.0]])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        weight_init: str | Initializer | None = None,
    ) -> None:
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise OutOfBoundsError(
                f"Embedding got padding_idx={padding_idx} for {num_embeddings} rows"
            )
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        weight = (get(weight_init) or Normal())((num_embeddings, embedding_dim))
        if padding_idx is not None:
            weight[padding_idx] = 0.0
        self.weight = Parameter(weight)

    def forward(self, indices: TensorLike) -> Tensor:
        """See the class."""
        try:
            return embedding(indices, self.weight, self.padding_idx)
        except EmberError as error:
            raise told(self, indices, error) from error

    def as_linear(self, x: TensorLike) -> Tensor:
        """`x Wᵀ`: scores of every row, for models whose output shares the table of their input.

        >>> from ember_ml import nn
        >>> nn.Embedding(10, 3).as_linear(ops.ones((2, 3))).shape
        (2, 10)
        """
        try:
            return ops.linear(x, self.weight)
        except EmberError as error:
            raise told(self, x, error) from error


class PositionalEmbedding(Module):
    """`x + W[position]`: a vector that is trained for each place in a sequence.

    Shapes: x `(..., length, embedding_dim)`, weight `(max_length, embedding_dim)`. Places are
    counted from `offset`, or given as integers that fit `(..., length)`. Weights begin normal,
    with deviation 0.02.

    >>> from ember_ml import nn
    >>> nn.PositionalEmbedding(16, 4)(ops.ones((2, 5, 4)), offset=3).shape
    (2, 5, 4)
    """

    def __init__(
        self,
        max_length: int,
        embedding_dim: int,
        *,
        weight_init: str | Initializer | None = None,
    ) -> None:
        self.max_length = max_length
        self.embedding_dim = embedding_dim
        self.weight = Parameter((get(weight_init) or Normal(std=0.02))((max_length, embedding_dim)))

    def forward(
        self, x: TensorLike, positions: TensorLike | None = None, *, offset: int = 0
    ) -> Tensor:
        """See the class."""
        tensor = _sequence(self, x, self.embedding_dim, self.weight)
        if positions is not None:
            return tensor + embedding(positions, self.weight)
        end = offset + tensor.shape[-2]
        if offset < 0 or end > self.max_length:
            raise refused(
                self, x, f"with offset={offset} it needs {end} places, and has {self.max_length}"
            )
        return tensor + self.weight[offset:end]


class SinusoidalEmbedding(Module):
    """`x + P[position]`, where P is made of waves of rising lengths, and nothing is trained.

    `P[t, 2i] = sin(t / max_period^(2i/d))` and `P[t, 2i+1] = cos(t / max_period^(2i/d))`, with
    d = `embedding_dim`; without `interleaved`, all sines come before all cosines. Shapes: x
    `(..., length, embedding_dim)`; places are counted from `offset`, or given as numbers that fit
    `(..., length)`.

    >>> from ember_ml import nn
    >>> nn.SinusoidalEmbedding(4)(ops.zeros((1, 2, 4)))[0, 0].tolist()
    [0.0, 1.0, 0.0, 1.0]
    """

    def __init__(
        self, embedding_dim: int, max_period: float = 10000.0, *, interleaved: bool = True
    ) -> None:
        if embedding_dim < 2 or embedding_dim % 2:
            raise DomainError(
                f"SinusoidalEmbedding got embedding_dim={embedding_dim}; it must be even"
            )
        if not max_period > 0:
            raise DomainError(
                f"SinusoidalEmbedding got max_period={max_period}; it must be above zero"
            )
        self.embedding_dim = embedding_dim
        self.max_period = max_period
        self.interleaved = interleaved

    def forward(
        self, x: TensorLike, positions: TensorLike | None = None, *, offset: int = 0
    ) -> Tensor:
        """See the class."""
        tensor = _sequence(self, x, self.embedding_dim, None)
        if positions is not None:
            waves = self.encode(convert.to_tensor(positions, tensor._spec.backend))
            return tensor + convert.cast(waves, tensor.dtype)
        if type(tensor.shape[-2]) is not int:  # it varies, in a function that is exported
            places = convert.cast(counted(tensor, tensor.shape[-2]), dtypes.float64) + offset
            return tensor + convert.cast(self.encode(places), tensor.dtype)
        table = _table(
            offset, tensor.shape[-2], self.embedding_dim, self.max_period, self.interleaved
        )
        return tensor + beside(tensor, table.astype(tensor.dtype.numpy))

    def encode(self, positions: TensorLike) -> Tensor:
        """The waves at some positions, which need not be integers: `(...)` as `(..., d)`.

        >>> from ember_ml import nn
        >>> nn.SinusoidalEmbedding(4).encode([0.0, 0.5]).shape
        (2, 4)
        """
        places = convert.to_tensor(positions)
        if not places.dtype.is_floating:
            places = convert.cast(places, dtypes.default_float)
        elif places.dtype.itemsize < 4:  # a 16-bit float has too few digits for an angle
            places = convert.cast(places, dtypes.float32)
        rates = _rates(self.embedding_dim, self.max_period).astype(places.dtype.numpy)
        angles = ops.expand_dims(places, -1) * beside(places, rates)
        parts = (ops.sin(angles), ops.cos(angles))
        if not self.interleaved:
            return ops.concat(parts, axis=-1)
        return ops.stack(parts, axis=-1).reshape((*places.shape, self.embedding_dim))


def _sequence(layer: Module, x: TensorLike, dim: int, weight: Tensor | None) -> Tensor:
    tensor = convert.to_tensor(x, None if weight is None else weight._spec.backend)
    if tensor.ndim < 2 or tensor.shape[-1] != dim:
        raise refused(layer, tensor, f"it takes (..., length, {dim})")
    return tensor


def _rates(dim: int, max_period: float) -> np.ndarray[Any, Any]:
    return np.exp(-math.log(max_period) * np.arange(0, dim, 2) / dim)


@lru_cache(maxsize=32)
def _table(
    offset: int, length: int, dim: int, max_period: float, interleaved: bool
) -> np.ndarray[Any, Any]:
    """The waves at whole places, in float64: every backend gets the same numbers."""
    angles = np.arange(offset, offset + length)[:, None] * _rates(dim, max_period)
    parts = (np.sin(angles), np.cos(angles))
    if not interleaved:
        return np.concatenate(parts, axis=-1)
    return np.stack(parts, axis=-1).reshape(length, dim)
