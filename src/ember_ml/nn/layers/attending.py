"""Attention as a mixer of tokens: by softmax, and by feature maps in linear time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from ember_ml import ops
from ember_ml.backend.selection import use_backend
from ember_ml.errors import DomainError
from ember_ml.nn.layers.base import RecurrentMixingLayer, SequenceMixingLayer
from ember_ml.nn.layers.recurrences import last
from ember_ml.nn.modules.attention import KVCache, MultiHeadAttention
from ember_ml.nn.modules.linear import Linear
from ember_ml.ops.fitting import beside
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["Attention", "LinearAttention", "LinearAttentionState", "default_heads"]


def default_heads(hidden_size: int) -> int:
    """Heads of 64 channels; of smaller sizes up to 8 heads that share them evenly."""
    if hidden_size % 64 == 0:
        return hidden_size // 64
    return next(heads for heads in (8, 4, 2, 1) if hidden_size % heads == 0)


class Attention(SequenceMixingLayer):
    """Self attention: see `nn.MultiHeadAttention`, whose options it takes.

    Shapes: x and y `(batch, length, hidden_size)`. A mask `(batch, length)` multiplies the inputs,
    and hides what it leaves out from all queries. `attention_mask` is that of MultiHeadAttention,
    for pairs of tokens.

    >>> from ember_ml.nn.layers import sequence_mixing
    >>> sequence_mixing.Attention(8)(ops.ones((2, 3, 8)), mask=[[1, 1, 0], [1, 1, 1]]).shape
    (2, 3, 8)
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int | None = None,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        causal: bool = False,
        rotary: bool = False,
        rope_base: float = 10000.0,
        qk_norm: bool = False,
    ) -> None:
        self.hidden_size = hidden_size
        self.attention = MultiHeadAttention(
            hidden_size,
            default_heads(hidden_size) if num_heads is None else num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            bias=bias,
            dropout=dropout,
            causal=causal,
            rotary=rotary,
            rope_base=rope_base,
            qk_norm=qk_norm,
        )

    def forward(
        self,
        x: TensorLike,
        mask: TensorLike | None = None,
        *,
        attention_mask: TensorLike | None = None,
        is_causal: bool | None = None,
        cache: KVCache | None = None,
        positions: TensorLike | None = None,
    ) -> Tensor:
        """See the class."""
        x = self.input(x)
        if mask is not None:
            if cache is not None or attention_mask is not None:
                raise DomainError(
                    "Attention got a mask of tokens together with a cache or an attention_mask; "
                    "give attention_mask alone, which hides tokens as well: (batch, keys)"
                )
            factors = self.factors(x, mask)
            x = x * factors
            attention_mask = ops.permute_dims(factors[..., :1] != 0, (0, 2, 1))
        return self.attention(  # type: ignore[no-any-return]  # a Tensor
            x, mask=attention_mask, is_causal=is_causal, cache=cache, positions=positions
        )

    def make_cache(self, batch: int, max_length: int) -> KVCache:
        """An empty cache of keys and values, for decoding step by step."""
        return self.attention.make_cache(batch, max_length)


class LinearAttentionState(NamedTuple):
    """Sums over the tokens so far: of keys times values, and of keys."""

    products: Tensor
    keys: Tensor


def _elu_plus_one(x: Tensor) -> Tensor:
    return ops.elu(x) + 1.0


_MAPS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "elu": _elu_plus_one,
    "relu": ops.relu,
    "exp": ops.exp,
    "softmax": ops.softmax,
}


class LinearAttention(RecurrentMixingLayer):
    """`φ(q) Σ φ(k)ᵀ v / φ(q) Σ φ(k)ᵀ` in several heads: attention in time linear in the length.

    Shapes: x and y `(batch, length, hidden_size)`. The sums are over all tokens, or with `causal`
    over those so far. `feature_map` is φ: "elu" (plus 1), "relu", "exp" or "softmax". The causal
    form goes by chunks of `chunk_size` tokens: pairs within a chunk, and the sums of the chunks
    before. Masked tokens count as not there.

    >>> from ember_ml.nn.layers import sequence_mixing
    >>> layer = sequence_mixing.LinearAttention(8, 2)
    >>> x = ops.ones((1, 5, 8))
    >>> state = layer.initial_state(1)
    >>> for i in range(5):
    ...     y, state = layer.step(x[:, i], state)
    >>> bool(ops.allclose(y, layer(x)[:, -1], atol=1e-6))
    True
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int | None = None,
        *,
        causal: bool = True,
        feature_map: str = "elu",
        chunk_size: int = 64,
        bias: bool = True,
        eps: float = 1e-6,
    ) -> None:
        heads = default_heads(hidden_size) if num_heads is None else num_heads
        if heads < 1 or hidden_size % heads:
            raise DomainError(
                f"LinearAttention(hidden_size={hidden_size}) got num_heads={heads}; the heads must "
                f"share the channels evenly"
            )
        if feature_map not in _MAPS:
            raise DomainError(
                f"LinearAttention got feature_map={feature_map!r}; there are {', '.join(_MAPS)}"
            )
        if chunk_size < 1:
            raise DomainError(f"LinearAttention got chunk_size={chunk_size}; it is 1 or more")
        self.hidden_size = hidden_size
        self.num_heads = heads
        self.causal = causal
        self.feature_map = feature_map
        self.chunk_size = chunk_size
        self.eps = eps
        self.q_proj = Linear(hidden_size, hidden_size, bias)
        self.k_proj = Linear(hidden_size, hidden_size, bias)
        self.v_proj = Linear(hidden_size, hidden_size, bias)
        self.out_proj = Linear(hidden_size, hidden_size, bias)

    def forward(
        self,
        x: TensorLike,
        mask: TensorLike | None = None,
        *,
        state: LinearAttentionState | None = None,
        return_state: bool = False,
    ) -> Any:
        """See the class; with `return_state` the result and the sums after the last token."""
        given = self.input(x)
        factors = None if mask is None else self.factors(given, mask)
        if factors is not None:
            given = given * factors
        if (state is not None or return_state) and not self.causal:
            raise DomainError("LinearAttention(causal=False) sees all tokens at once: no state")
        phi = _MAPS[self.feature_map]
        q = phi(self._heads(self.q_proj(given)))
        k = phi(self._heads(self.k_proj(given)))
        v = self._heads(self.v_proj(given))
        if factors is not None:
            k = k * ops.expand_dims(factors[..., :1], axis=1)
        after: LinearAttentionState | None = None
        if self.causal:
            top, below, after = self._causal(q, k, v, state)
        else:
            top = ops.matmul(q, ops.matmul(ops.matrix_transpose(k), v))
            below = ops.sum(q * ops.sum(k, axis=2, keepdims=True), axis=-1, keepdims=True)
        out = ops.permute_dims(top / (below + self.eps), (0, 2, 1, 3))
        y = self.out_proj(ops.reshape(out, given.shape))
        return (y, after) if return_state else y

    def _heads(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        shape = (batch, length, self.num_heads, size // self.num_heads)
        return ops.permute_dims(ops.reshape(x, shape), (0, 2, 1, 3))

    def _causal(
        self, q: Tensor, k: Tensor, v: Tensor, state: LinearAttentionState | None
    ) -> tuple[Tensor, Tensor, LinearAttentionState]:
        """Sums over the tokens so far, for each token, and those after the last one."""
        batch, heads, length, size = q.shape
        chunk = min(self.chunk_size, max(length, 1))
        chunks = -(-length // chunk)
        rest = chunks * chunk - length
        if rest:  # keys of zeros add nothing
            q, k, v = (ops.pad(t, [(0, 0), (0, 0), (0, rest), (0, 0)]) for t in (q, k, v))
        q, k, v = (ops.reshape(t, (batch, heads, chunks, chunk, size)) for t in (q, k, v))
        products = ops.cumulative_sum(ops.matmul(ops.matrix_transpose(k), v), axis=2)
        keys = ops.cumulative_sum(ops.sum(k, axis=3, keepdims=True), axis=2)
        # What each chunk finds: the sums of those before it, and of the state.
        first = self.initial_state(batch) if state is None else state
        start, begun = ops.expand_dims(first.products, axis=2), first.keys[:, :, None, None]
        if state is not None:
            products, keys = products + start, keys + begun
        products = ops.concat([start, products], axis=2)
        keys = ops.concat([begun, keys], axis=2)
        pairs = ops.matmul(q, ops.matrix_transpose(k)) * beside(
            q, np.tri(chunk, dtype=np.float32)
        ).astype(q.dtype)
        top = ops.matmul(pairs, v) + ops.matmul(q, products[:, :, :-1])
        below = ops.sum(pairs, axis=-1, keepdims=True) + ops.sum(
            q * keys[:, :, :-1], axis=-1, keepdims=True
        )
        top = ops.reshape(top, (batch, heads, chunks * chunk, size))[:, :, :length]
        below = ops.reshape(below, (batch, heads, chunks * chunk, 1))[:, :, :length]
        return top, below, LinearAttentionState(last(products, 2), last(keys, 2)[:, :, 0])

    def initial_state(self, batch: int) -> LinearAttentionState:
        """Sums over no tokens."""
        weight = self.q_proj.weight
        size = self.hidden_size // self.num_heads
        with use_backend(weight.backend):
            return LinearAttentionState(
                ops.zeros(
                    (batch, self.num_heads, size, size), dtype=weight.dtype, device=weight.device
                ),
                ops.zeros((batch, self.num_heads, size), dtype=weight.dtype, device=weight.device),
            )
