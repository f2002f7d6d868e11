"""Attention with several heads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ember_ml import ops
from ember_ml.backend.contract import Backend
from ember_ml.dtypes import DTypeLike
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.nn.module import Module
from ember_ml.nn.modules.kv_cache import KVCache, KVMemory
from ember_ml.nn.modules.linear import Linear
from ember_ml.nn.modules.normalization import RMSNorm
from ember_ml.nn.modules.rotary import rotary
from ember_ml.ops.attention import attended, merge_heads, rotated, split_heads
from ember_ml.ops.fitting import beside, counted
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["KVCache", "KVMemory", "MultiHeadAttention"]


class MultiHeadAttention(Module):
    """`softmax(q kᵀ / √head_dim) v` in several heads, between four linear maps.

    Shapes: query `(batch, queries, embed_dim)`, key `(batch, keys, kdim)`, value `(batch, keys,
    vdim)`; the result is `(batch, queries, embed_dim)`. Without a key the query attends to itself;
    without a value, the key is the value.

    `mask` is bool, True where a key may be seen, or numbers that are added to the scores. Its
    shape is `(batch, keys)`, `(queries, keys)`, `(batch, queries, keys)` or `(batch, heads,
    queries, keys)`; a length may be 1. With `causal`, a query sees no later key. `num_kv_heads`
    heads of keys and values are shared by groups of query heads. `rotary` turns queries and keys by
    their positions, pairs being `(i, i + rope_dims / 2)` as in Llama; positions go on from those
    in `cache`. `qk_norm` normalises queries and keys in each head by an RMSNorm with `norm_eps`.
    `dropout` is that of the weights, in training.

    >>> from ember_ml import nn
    >>> attention = nn.MultiHeadAttention(8, 2, causal=True).eval()
    >>> x = ops.ones((1, 3, 8))
    >>> whole = attention(x)
    >>> cache = attention.make_cache(batch=1, max_length=3)
    >>> with em.no_grad():
    ...     steps = [attention(x[:, i : i + 1], cache=cache) for i in range(3)]
    >>> bool(ops.allclose(ops.concat(steps, axis=1), whole, atol=1e-6))
    True
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        out_bias: bool | None = None,
        dropout: float = 0.0,
        causal: bool = False,
        rotary: bool = False,
        rope_base: float = 10000.0,
        rope_dims: int | None = None,
        qk_norm: bool = False,
        norm_eps: float = 1e-6,
        kdim: int | None = None,
        vdim: int | None = None,
    ) -> None:
        groups = num_heads if num_kv_heads is None else num_kv_heads
        size = embed_dim // max(num_heads, 1) if head_dim is None else head_dim
        said = f"MultiHeadAttention(embed_dim={embed_dim}, num_heads={num_heads})"
        if num_heads < 1 or (head_dim is None and embed_dim % num_heads):
            raise DomainError(
                f"{said}: the heads must share embed_dim evenly, or head_dim be given"
            )
        if groups < 1 or num_heads % groups:
            raise DomainError(f"{said} got num_kv_heads={groups}, which does not divide the heads")
        if not 0 <= dropout < 1:
            raise DomainError(f"{said} got dropout={dropout}; it must be in [0, 1)")
        turned = size if rope_dims is None else rope_dims
        if rotary and (turned % 2 or not 0 < turned <= size):
            raise DomainError(
                f"{said} got rope_dims={turned} for heads of {size}; it must be even and no larger"
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.num_kv_heads = groups
        self.head_dim = size
        self.dropout = dropout
        self.causal = causal
        self.rotary = rotary
        self.rope_base = float(rope_base)
        self.rope_dims = turned
        self.q_proj = Linear(embed_dim, num_heads * size, bias)
        self.k_proj = Linear(embed_dim if kdim is None else kdim, groups * size, bias)
        self.v_proj = Linear(embed_dim if vdim is None else vdim, groups * size, bias)
        self.out_proj = Linear(num_heads * size, embed_dim, bias if out_bias is None else out_bias)
        self._scale = 1 / math.sqrt(size)
        self.q_norm = self.k_norm = None
        if qk_norm:
            self.q_norm, self.k_norm = RMSNorm(size, norm_eps), RMSNorm(size, norm_eps)

    def forward(
        self,
        query: TensorLike,
        key: TensorLike | None = None,
        value: TensorLike | None = None,
        *,
        mask: TensorLike | None = None,
        is_causal: bool | None = None,
        cache: KVCache | KVMemory | None = None,
        positions: TensorLike | None = None,
    ) -> Tensor:
        """See the class. `cache` is a KVCache, or what `remember` gave.

        `positions`, `(queries,)` or `(batch, queries)`, are those of rotary attention where they
        are not 0, 1, ... or go on from the cache.
        """
        query = self._input("query", query, self.q_proj)
        batch, length, _ = query.shape
        q = split_heads(self.q_proj(query), self.num_heads)
        if self.q_norm is not None:
            q = self.q_norm(q)
        causal = (self.causal and key is None) if is_causal is None else is_causal
        if isinstance(cache, KVMemory):
            k, v = cache
            causal = bool(is_causal)
            if self.rotary:
                q = self._turned(q, positions, None)
        else:
            if key is None and value is None:
                k, v = self._keys_of(query, query)
            else:
                k, v = self._keys(query if key is None else key, key if value is None else value)
            if self.rotary:
                q, k = self._turned_pair(q, k, positions, cache)
            if cache is not None:
                k, v, seen, causal = cache.extend(k, v, causal)
                if mask is not None:
                    seen = self._seen(mask, seen, batch, length, k.shape[2])
                return self._attend(q, k, v, seen, causal)
        if mask is not None:
            mask = self._mask(mask, batch, length)
            self._require_fit(mask, batch, length, k.shape[2])
        return self._attend(q, k, v, mask, causal)

    def remember(self, key: TensorLike, value: TensorLike | None = None) -> KVMemory:
        """The keys and values of a sequence, such as that of an encoder, for many calls.

        >>> from ember_ml import nn
        >>> attention = nn.MultiHeadAttention(8, 2)
        >>> memory = attention.remember(ops.ones((1, 5, 8)))
        >>> attention(ops.ones((1, 1, 8)), cache=memory).shape
        (1, 1, 8)
        """
        k, v = self._keys(key, value)
        return KVMemory(self._turned(k, None, None) if self.rotary else k, v)

    def make_cache(self, batch: int, max_length: int, dtype: DTypeLike = None) -> KVCache:
        """An empty cache for this layer, beside its weights."""
        weight = self.k_proj.weight
        assert weight is not None  # its size was given
        return KVCache(
            batch,
            self.num_kv_heads,
            self.head_dim,
            max_length,
            dtype or weight.dtype,
            backend=weight.backend,
            device=weight.device,
        )

    # --- The parts --------------------------------------------------------------------------

    def _input(self, name: str, x: Any, layer: Linear) -> Tensor:
        if not isinstance(x, Tensor):
            x = convert.to_tensor(x, self._home())
        shape = x.shape
        if len(shape) != 3 or shape[2] != layer.in_features:
            raise ShapeError(
                f"{self._said()} got a {name} of shape {shape}; it takes (batch, length, "
                f"{layer.in_features})"
            )
        return x  # type: ignore[no-any-return]  # a Tensor, as was asked

    def _home(self) -> Backend:
        weight = self.q_proj.weight
        assert weight is not None  # its size was given
        home: Backend = weight._spec.backend
        return home

    def _said(self) -> str:
        return f"MultiHeadAttention(embed_dim={self.embed_dim}, num_heads={self.num_heads})"

    def _keys(self, key: Any, value: Any) -> tuple[Tensor, Tensor]:
        key = self._input("key", key, self.k_proj)
        batch, length, _ = key.shape
        value = key if value is None else self._input("value", value, self.v_proj)
        if value.shape[:2] != (batch, length):
            raise ShapeError(
                f"{self._said()} got a key of shape {key.shape} and a value of shape "
                f"{value.shape}; there must be a value for each key"
            )
        return self._keys_of(key, value)

    def _keys_of(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        k = split_heads(self.k_proj(key), self.num_kv_heads)
        if self.k_norm is not None:
            k = self.k_norm(k)
        return k, split_heads(self.v_proj(value), self.num_kv_heads)

    def _turned_pair(
        self, q: Tensor, k: Tensor, positions: Any, cache: KVCache | None
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys, turned by their positions."""
        if positions is None and q.shape[2] != k.shape[2]:
            return self._turned(q, None, None), self._turned(k, None, None)
        cosine, sine = self._angles(k, positions, cache)
        return rotated(q, cosine, sine), rotated(k, cosine, sine)

    def _turned(self, x: Tensor, positions: Any, cache: KVCache | None) -> Tensor:
        cosine, sine = self._angles(x, positions, cache)
        return rotated(x, cosine, sine)

    def _angles(self, x: Tensor, positions: Any, cache: KVCache | None) -> tuple[Tensor, Tensor]:
        table = rotary(self.rope_dims, self.rope_base, x._spec)
        length = x.shape[2]
        if positions is None:
            start = 0 if cache is None else cache.start
            if not isinstance(start, Tensor):
                return table.between(start, length)
            places = counted(x, length) + start
            return table.at(places, None if cache is None else cache.max_length)
        given = convert.to_tensor(positions, x._spec.backend)
        if given.shape not in ((length,), (1, length), (x.shape[0], length)):
            raise ShapeError(
                f"{self._said()} got positions of shape {given.shape}; it takes ({length},) or "
                f"({x.shape[0]}, {length})"
            )
        if given.ndim == 2:  # one axis more, for the heads
            given = ops.expand_dims(given, axis=1)
        return table.at(given)

    def _mask(self, mask: Any, batch: int, queries: int) -> Tensor:
        """A mask with an axis for each of those of the scores, or without leading ones."""
        given = convert.to_tensor(mask, self._home())
        if given.dtype.name != "bool" and not given.dtype.is_floating:
            raise DTypeError(
                f"{self._said()} got a mask of {given.dtype}; it takes bool, True where a key may "
                f"be seen, or floats that are added (mask.astype('bool') turns 1 into True)"
            )
        shape = given.shape
        if len(shape) == 2:
            if shape[0] == batch == queries > 1:
                raise ShapeError(
                    f"{self._said()} got a mask of shape {shape}, which may be (batch, keys) or "
                    f"(queries, keys); write mask[:, None] for the first, mask[None] for the second"
                )
            return ops.reshape(given, (batch, 1, 1, shape[1])) if shape[0] == batch > 1 else given
        if len(shape) == 3:
            return ops.expand_dims(given, axis=1)
        return given

    def _require_fit(self, mask: Tensor, batch: int, queries: int, keys: int) -> None:
        scores = (batch, self.num_heads, queries, keys)
        shape = mask.shape
        if len(shape) > 4 or any(
            n not in (1, m) for n, m in zip(shape[::-1], scores[::-1], strict=False)
        ):
            raise ShapeError(
                f"{self._said()} got a mask that is {shape} beside scores of (batch, heads, "
                f"queries, keys) = {scores}; see the class for the shapes of masks"
            )

    def _seen(self, mask: Any, seen: Tensor | None, batch: int, queries: int, keys: int) -> Tensor:
        """A mask that was given for the tokens of a cache, together with its own."""
        given = self._mask(mask, batch, queries)
        there = given.shape[-1]
        if there > keys:  # one for all places, of which some are not filled yet
            given = given[..., :keys]
        elif 1 < there < keys and seen is not None:
            # What is ahead is hidden by `seen`.
            given = ops.pad(given, [(0, 0)] * (given.ndim - 1) + [(0, keys - there)])
        self._require_fit(given, batch, queries, keys)
        if seen is None:
            return given
        if given.dtype.name == "bool":
            return ops.logical_and(given, seen)
        return ops.where(seen, given, -math.inf)

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        causal: bool,
    ) -> Tensor:
        if self.dropout and self.training:
            out = self._dropped(q, k, v, mask, causal)
        elif (
            type(q) is type(k) is type(v) is Tensor
            and q._spec is k._spec is v._spec
            and (mask is None or self._is_ready(mask, q, k))
        ):
            groups = self.num_heads // self.num_kv_heads
            out = attended(q, k, v, mask, causal, self._scale, groups)
        else:
            out = ops.scaled_dot_product_attention(
                q, k, v, mask, is_causal=causal, enable_gqa=self.num_kv_heads != self.num_heads
            )
        return self.out_proj(merge_heads(out))  # type: ignore[no-any-return]  # __call__ gives what forward gives

    def _is_ready(self, mask: Tensor, q: Tensor, k: Tensor) -> bool:
        """True for a mask that a kernel takes as it is."""
        shape = mask.shape
        return (
            mask.dtype.name == "bool"
            and type(mask) is Tensor
            and mask._spec.backend is q._spec.backend
            and mask.device == q.device
            and len(shape) >= 2
            and shape[-1] == k.shape[2]
            and shape[-2] in (1, q.shape[2])
            and all(n in (1, m) for n, m in zip(shape[-3::-1], q.shape[1::-1], strict=False))
        )

    def _dropped(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool
    ) -> Tensor:
        """Attention of which some weights are dropped: the fused kernels tell no weights."""
        groups = self.num_heads // self.num_kv_heads
        if groups > 1:
            k, v = ops.repeat(k, groups, axis=1), ops.repeat(v, groups, axis=1)
        scores = ops.matmul(q * (1 / math.sqrt(self.head_dim)), ops.matrix_transpose(k))
        hidden: Tensor | None = None
        if mask is not None and mask.dtype.name != "bool":
            scores = scores + mask
            hidden = mask == -math.inf
        elif mask is not None:
            hidden = ops.logical_not(mask)
        if causal:
            rows, columns = scores.shape[-2:]
            later = beside(scores, ~np.tri(rows, columns, dtype=bool))
            hidden = later if hidden is None else ops.logical_or(hidden, later)
        if hidden is not None:
            scores = ops.where(hidden, -1e30 if scores.dtype.itemsize > 2 else -6e4, scores)
        weights = ops.softmax(scores, axis=-1)
        if hidden is not None:  # a query that sees nothing gives zeros
            weights = ops.where(hidden, 0.0, weights)
        return ops.matmul(ops.dropout(weights, self.dropout), v)
