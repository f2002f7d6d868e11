"""Decoder: a transformer that writes a text, as GPT and Llama do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ember_ml import nn, ops
from ember_ml.errors import DomainError, ShapeError
from ember_ml.models import generation
from ember_ml.models.base import ConfigModel
from ember_ml.models.feed_forward import FeedForward
from ember_ml.ops.fitting import counted
from ember_ml.ops.random.generator import Generator
from ember_ml.registry import Config, register
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["Decoder", "DecoderConfig"]


@register("models/decoder")
@dataclass(frozen=True, kw_only=True)
class DecoderConfig(Config):
    """A GPT- or Llama-style decoder: the next token after each, and texts that go on."""

    vocab_size: int = 256
    hidden_size: int = 256
    num_layers: int = 4
    num_heads: int = 4
    # Fewer heads of keys and values than of queries; None: as many.
    num_kv_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int = 1024
    max_length: int = 1024
    # "rms" or "layer".
    norm: str = "rms"
    norm_eps: float = 1e-6
    # "rotary" or "learned".
    positions: str = "rotary"
    rope_base: float = 10000.0
    # "swiglu" and "geglu" are gated; "gelu", "gelu_tanh" and the other activations are not.
    activation: str = "swiglu"
    bias: bool = False
    dropout: float = 0.0
    # The table of the tokens gives the scores as well.
    tied: bool = True

    def build(self) -> Decoder:
        """The model, on the current backend."""
        return Decoder(self)


class _Block(nn.Module):
    def __init__(self, c: DecoderConfig) -> None:
        self.attention_norm = _norm(c)
        self.attention = nn.MultiHeadAttention(
            c.hidden_size,
            c.num_heads,
            num_kv_heads=c.num_kv_heads,
            head_dim=c.head_dim,
            bias=c.bias,
            dropout=c.dropout,
            causal=True,
            rotary=c.positions == "rotary",
            rope_base=c.rope_base,
        )
        self.mlp_norm = _norm(c)
        self.mlp = FeedForward(c.hidden_size, c.intermediate_size, c.activation, c.bias)
        self.dropout = nn.Dropout(c.dropout) if c.dropout else None

    def forward(
        self, x: Tensor, mask: Tensor | None, cache: nn.KVCache | None, positions: Tensor | None
    ) -> Tensor:
        y = self.attention(self.attention_norm(x), mask=mask, cache=cache, positions=positions)
        x = x + (y if self.dropout is None else self.dropout(y))
        y = self.mlp(self.mlp_norm(x))
        return x + (y if self.dropout is None else self.dropout(y))  # type: ignore[no-any-return]  # __call__ gives what forward gives


def _norm(c: DecoderConfig) -> nn.Module:
    if c.norm == "rms":
        return nn.RMSNorm(c.hidden_size, eps=c.norm_eps)
    return nn.LayerNorm(c.hidden_size, eps=c.norm_eps)


class Decoder(ConfigModel[DecoderConfig]):
    """Token embeddings, blocks of causal attention and feed-forward layers, scores of tokens.

    Shapes: tokens `(batch, length)` of integers; the result, `(batch, length, vocab_size)`, has
    the scores of what comes after each token.

    >>> from ember_ml.models import Decoder
    >>> model = Decoder(vocab_size=11, hidden_size=8, num_layers=1, num_heads=2).eval()
    >>> model([[1, 2, 3]]).shape, model.generate([[1, 2, 3]], 4).shape
    ((1, 3, 11), (1, 7))
    """

    config_class = DecoderConfig

    def __init__(self, config: DecoderConfig | None = None, /, **options: Any) -> None:
        super().__init__(config, **options)
        c = self.config
        for name, value, known in (
            ("norm", c.norm, ("rms", "layer")),
            ("positions", c.positions, ("rotary", "learned")),
        ):
            if value not in known:
                raise DomainError(
                    f"Decoder got {name}={value!r}; it is {known[0]!r} or {known[1]!r}"
                )
        self.token_embedding = nn.Embedding(
            c.vocab_size, c.hidden_size, weight_init=nn.initializers.Normal(std=0.02)
        )
        self.position_embedding = None
        if c.positions == "learned":
            self.position_embedding = nn.Embedding(
                c.max_length, c.hidden_size, weight_init=nn.initializers.Normal(std=0.02)
            )
        self.dropout = nn.Dropout(c.dropout) if c.dropout else None
        self.layers = [_Block(c) for _ in range(c.num_layers)]
        self.norm = _norm(c)
        self.head = None if c.tied else nn.Linear(c.hidden_size, c.vocab_size, bias=False)

    def forward(
        self,
        tokens: TensorLike,
        *,
        mask: TensorLike | None = None,
        caches: list[nn.KVCache] | None = None,
        positions: TensorLike | None = None,
    ) -> Tensor:
        """Scores of the next tokens: see the class.

        `mask` is `(batch, keys)`, True at tokens and False at padding. `caches`, of `make_caches`,
        hold what was read before; `positions`, `(batch, length)`, are for texts that begin with
        padding.
        """
        return self.scores(self.hidden(tokens, mask=mask, caches=caches, positions=positions))

    def scores(self, hidden: Tensor) -> Tensor:
        """Scores of all tokens, of hidden states."""
        if self.head is None:
            return ops.linear(hidden, self.token_embedding.weight)
        found: Tensor = self.head(hidden)
        return found

    def hidden(
        self,
        tokens: TensorLike,
        *,
        mask: TensorLike | None = None,
        caches: list[nn.KVCache] | None = None,
        positions: TensorLike | None = None,
    ) -> Tensor:
        """Hidden states of every token, after the last norm: `(batch, length, hidden_size)`."""
        home = self.token_embedding.weight._spec.backend
        ids = convert.to_tensor(tokens, home)
        if ids.ndim != 2 or not ids.dtype.is_integer:
            raise ShapeError(
                f"Decoder got tokens of shape {ids.shape} and {ids.dtype}; it takes integers of "
                f"shape (batch, length)"
            )
        places = None if positions is None else convert.to_tensor(positions, home)
        seen = None if mask is None else ops.expand_dims(convert.to_tensor(mask, home), axis=1)
        x = self.token_embedding(ids)
        if self.position_embedding is not None:
            x = x + (
                self._learned(ids, caches) if places is None else self.position_embedding(places)
            )
            places = None
        if self.dropout is not None:
            x = self.dropout(x)
        for number, layer in enumerate(self.layers):
            x = layer(x, seen, None if caches is None else caches[number], places)
        return self.norm(x)  # type: ignore[no-any-return]  # __call__ gives what forward gives

    def _learned(self, ids: Tensor, caches: list[nn.KVCache] | None) -> Tensor:
        """What was learned of the places of these tokens."""
        assert self.position_embedding is not None  # asked by who calls
        length = ids.shape[1]
        start = caches[0].start if caches else 0
        if isinstance(start, Tensor):
            found: Tensor = self.position_embedding(counted(ids, length) + start)
            return found
        if start + length > self.config.max_length:
            raise ShapeError(
                f"Decoder(max_length={self.config.max_length}) got {start + length} tokens; "
                f"places beyond were not learned"
            )
        table: Tensor = self.position_embedding.weight
        return table[start : start + length]

    def make_caches(self, batch: int, max_length: int) -> list[nn.KVCache]:
        """Empty caches, one for each layer."""
        return [layer.attention.make_cache(batch, max_length) for layer in self.layers]

    def generate(
        self,
        tokens: TensorLike,
        max_new_tokens: int = 32,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        generator: Generator | None = None,
        eos: int | None = None,
        mask: TensorLike | None = None,
        jit: bool | None = None,
    ) -> Tensor:
        """The tokens with new ones after them: `(batch, length + new)`, or `(length + new,)`.

        A `temperature` of 0 takes the best token each time; above, tokens are drawn by their
        scores over the temperature, from the `top_k` best ones, or from the best ones that
        together have the probability `top_p`. The same seed gives the same tokens on every
        backend. A row that has written `eos` goes on with it, and all end when all have. `mask`
        is False at padding before shorter texts. `jit` compiles the step; None does where it pays.

        >>> from ember_ml.models import Decoder
        >>> model = Decoder(vocab_size=11, hidden_size=8, num_layers=1, num_heads=2)
        >>> a, b = ops.random.Generator(7), ops.random.Generator(7)
        >>> first = model.generate([1, 2], 5, temperature=1.0, top_k=4, generator=a)
        >>> first.tolist() == model.generate(
        ...     [1, 2], 5, temperature=1.0, top_k=4, generator=b
        ... ).tolist()
        True
        """
        choice = generation.Choice(temperature, top_k, top_p)
        return generation.generate(self, tokens, max_new_tokens, choice, generator, eos, mask, jit)
