"""Encoder: a transformer that reads a whole text, as BERT does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ember_ml import nn, ops
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.models.base import ConfigModel
from ember_ml.models.feed_forward import FeedForward
from ember_ml.ops.fitting import counted
from ember_ml.registry import Config, register
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["Encoder", "EncoderConfig"]


@register("models/encoder")
@dataclass(frozen=True, kw_only=True)
class EncoderConfig(Config):
    """A BERT-style encoder: hidden states of every token, embeddings of texts."""

    vocab_size: int = 30522
    hidden_size: int = 384
    num_layers: int = 6
    num_heads: int = 12
    intermediate_size: int = 1536
    max_length: int = 512
    # 0: tokens have no types.
    type_vocab_size: int = 2
    activation: str = "gelu"
    norm_eps: float = 1e-12
    # Norms before each part of a block; BERT has them after.
    norm_first: bool = False
    dropout: float = 0.1
    attention_dropout: float = 0.1
    # "absolute", or "roberta": counted over tokens that are not padding, from pad_token + 1 on.
    positions: str = "absolute"
    pad_token: int = 0
    # A linear layer with tanh over the first token.
    pooler: bool = False
    # What `encode` gives: "mean" over tokens, "cls" for the first one, or "pooler".
    pooling: str = "mean"

    def build(self) -> Encoder:
        """The model, on the current backend."""
        return Encoder(self)


class _Block(nn.Module):
    def __init__(self, c: EncoderConfig) -> None:
        size = c.hidden_size
        self.attention = nn.MultiHeadAttention(size, c.num_heads, dropout=c.attention_dropout)
        self.attention_norm = nn.LayerNorm(size, eps=c.norm_eps)
        self.mlp = FeedForward(size, c.intermediate_size, c.activation)
        self.mlp_norm = nn.LayerNorm(size, eps=c.norm_eps)
        self.dropout = nn.Dropout(c.dropout)
        self.norm_first = c.norm_first

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if self.norm_first:
            x = x + self.dropout(self.attention(self.attention_norm(x), mask=mask))
            return x + self.dropout(self.mlp(self.mlp_norm(x)))  # type: ignore[no-any-return]  # __call__ gives what forward gives
        x = self.attention_norm(x + self.dropout(self.attention(x, mask=mask)))
        return self.mlp_norm(x + self.dropout(self.mlp(x)))  # type: ignore[no-any-return]  # as above


class Encoder(ConfigModel[EncoderConfig]):
    """Token, place and type embeddings, then blocks of attention and feed-forward layers.

    Shapes: tokens `(batch, length)` of integers, mask `(batch, length)`, True or 1 at tokens and
    False or 0 at padding; the result is `(batch, length, hidden_size)`.

    >>> from ember_ml.models import Encoder
    >>> model = Encoder(
    ...     vocab_size=20, hidden_size=8, num_layers=1, num_heads=2, intermediate_size=16
    ... ).eval()
    >>> model([[1, 2, 3]]).shape, model.encode([[1, 2, 0]], mask=[[1, 1, 0]]).shape
    ((1, 3, 8), (1, 8))
    """

    config_class = EncoderConfig

    def __init__(self, config: EncoderConfig | None = None, /, **options: Any) -> None:
        super().__init__(config, **options)
        c = self.config
        if c.positions not in ("absolute", "roberta"):
            raise DomainError(
                f"Encoder got positions={c.positions!r}; they are 'absolute' or 'roberta'"
            )
        _require_pooling(c, c.pooling)
        size = c.hidden_size
        self.token_embedding = nn.Embedding(c.vocab_size, size)
        self.position_embedding = nn.Embedding(c.max_length, size)
        self.type_embedding = nn.Embedding(c.type_vocab_size, size) if c.type_vocab_size else None
        self.embedding_norm = nn.LayerNorm(size, eps=c.norm_eps)
        self.dropout = nn.Dropout(c.dropout)
        self.layers = [_Block(c) for _ in range(c.num_layers)]
        self.pooler = nn.Linear(size, size) if c.pooler else None

    def forward(
        self,
        tokens: TensorLike,
        mask: TensorLike | None = None,
        token_types: TensorLike | None = None,
    ) -> Tensor:
        """Hidden states of every token: see the class."""
        table = self.token_embedding.weight
        ids = convert.to_tensor(tokens, table._spec.backend)
        if ids.ndim != 2 or not ids.dtype.is_integer:
            raise ShapeError(
                f"Encoder got tokens of shape {ids.shape} and {ids.dtype}; it takes integers of "
                f"shape (batch, length)"
            )
        if ids.shape[1] > self._longest():
            raise ShapeError(
                f"Encoder(max_length={self.config.max_length}) got {ids.shape[1]} tokens; "
                f"cut the texts to {self._longest()}"
            )
        x: Tensor = self.token_embedding(ids) + self.position_embedding(self._positions(ids))
        if self.type_embedding is not None:
            if token_types is None:
                x = x + self.type_embedding.weight[0]
            else:
                x = x + self.type_embedding(convert.to_tensor(token_types, ids._spec.backend))
        elif token_types is not None:
            raise DomainError("Encoder(type_vocab_size=0) got token_types; it has none")
        x = self.dropout(self.embedding_norm(x))
        seen = None if mask is None else ops.expand_dims(self._mask(mask, ids), axis=1)
        for layer in self.layers:
            x = layer(x, seen)
        return x

    def _longest(self) -> int:
        c = self.config
        return c.max_length - (c.pad_token + 1 if c.positions == "roberta" else 0)

    def _positions(self, ids: Tensor) -> Tensor:
        if self.config.positions == "absolute":
            return counted(ids, ids.shape[1])
        pad = self.config.pad_token
        kept = (ids != pad).astype("int64")
        return ops.cumulative_sum(kept, axis=1) * kept + pad

    def _mask(self, mask: TensorLike, ids: Tensor) -> Tensor:
        """A mask as truth values."""
        given = convert.to_tensor(mask, ids._spec.backend)
        if given.shape != ids.shape:
            raise ShapeError(
                f"Encoder got a mask of shape {given.shape} for tokens of shape {ids.shape}"
            )
        if given.dtype.is_inexact:
            raise DTypeError(
                f"Encoder got a mask of {given.dtype}; it takes bool, or integers 1 and 0"
            )
        return given if given.dtype.name == "bool" else given != 0

    def pool(
        self, hidden: Tensor, mask: TensorLike | None = None, pooling: str | None = None
    ) -> Tensor:
        """One vector for each text: `(batch, hidden_size)`.

        "mean" is over the tokens that `mask` keeps; a text of none gives zeros. "cls" is the first
        token, "pooler" its linear map with tanh.
        """
        kind = pooling or self.config.pooling
        _require_pooling(self.config, kind)
        if kind != "mean":
            first = hidden[:, 0]
            return first if kind == "cls" or self.pooler is None else ops.tanh(self.pooler(first))
        if mask is None:
            return ops.mean(hidden, axis=1)
        given = convert.to_tensor(mask, hidden._spec.backend)
        weights = ops.expand_dims(given.astype(hidden.dtype), axis=-1)
        # As sentence-transformers has it: no division by zero where a text is empty.
        return ops.sum(hidden * weights, axis=1) / ops.clip(ops.sum(weights, axis=1), 1e-9, None)

    def encode(
        self,
        tokens: TensorLike,
        mask: TensorLike | None = None,
        token_types: TensorLike | None = None,
        *,
        pooling: str | None = None,
        normalize: bool = True,
    ) -> Tensor:
        """Embeddings of texts, of length one unless `normalize=False`: `(batch, hidden_size)`."""
        pooled = self.pool(self(tokens, mask, token_types), mask, pooling)
        if not normalize:
            return pooled
        length = ops.sqrt(ops.sum(pooled * pooled, axis=-1, keepdims=True))
        return pooled / ops.clip(length, 1e-12, None)


def _require_pooling(c: EncoderConfig, pooling: str) -> None:
    if pooling not in ("mean", "cls", "pooler"):
        raise DomainError(f"Encoder got pooling={pooling!r}; it is 'mean', 'cls' or 'pooler'")
    if pooling == "pooler" and not c.pooler:
        raise DomainError("Encoder(pooler=False) has no pooler; take pooling='mean' or 'cls'")
