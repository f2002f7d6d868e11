"""Attention and rotary embeddings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.graph import types
from ember_ml.graph.executors.operators.registry import Host, operator
from ember_ml.graph.executors.operators.slicing import beside, padded
from ember_ml.tensor.core import Tensor

__all__ = ["rotated"]


@operator("Attention", 23)
def attention_of_old(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[Tensor, ...]:
    return attention(
        q, k, v, attn_mask, past_key, past_value, is_causal=is_causal, kv_num_heads=kv_num_heads,
        q_num_heads=q_num_heads, qk_matmul_output_mode=qk_matmul_output_mode, scale=scale,
        softcap=softcap, softmax_precision=softmax_precision,
    )  # fmt: skip


@operator("Attention", 24, 25)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Host | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[Tensor, ...]:
    """Scaled dot products, softmax and a weighted sum, with a cache, masks and groups of heads."""
    flat = q.ndim == 3
    if flat:
        q, k, v = (
            ops.permute_dims(ops.reshape(x, (*x.shape[:2], heads or 1, -1)), (0, 2, 1, 3))
            for x, heads in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads))
        )
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = ops.concat([past_key, k], axis=2), ops.concat([past_value, v], axis=2)
    present = (k, v)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = ops.repeat(k, groups, axis=1), ops.repeat(v, groups, axis=1)
    root = math.sqrt(1 / math.sqrt(q.shape[3]) if scale is None else scale)
    raw = ops.matmul(ops.multiply(q, root), ops.matrix_transpose(ops.multiply(k, root)))
    shown = raw
    scores = raw
    if softcap:
        scores = ops.multiply(ops.tanh(ops.divide(scores, softcap)), softcap)
        shown = scores if qk_matmul_output_mode == 1 else shown
    length = k.shape[2]
    if attn_mask is not None:
        missing = [(0, 0)] * (attn_mask.ndim - 1) + [(0, length - attn_mask.shape[-1])]
        if attn_mask.dtype is dtypes.bool:
            scores = ops.where(padded(attn_mask, missing, value=False), scores, -np.inf)
        else:
            scores = ops.add(scores, padded(attn_mask, missing, value=-np.inf))
    allowed = _allowed(q.shape[2], length, past, nonpad_kv_seqlen, is_causal,
                       left_window_size, right_window_size)  # fmt: skip
    if allowed is not None:
        scores = ops.where(beside(q, allowed), scores, -np.inf)
    if qk_matmul_output_mode == 2:
        shown = scores
    shares = _softmax(scores, softmax_precision)
    if qk_matmul_output_mode == 3:
        shown = shares
    made = ops.matmul(shares, v)
    if flat:
        made = ops.permute_dims(made, (0, 2, 1, 3))
        made = ops.reshape(made, (*made.shape[:2], -1))
    return (made, *present, shown)


def _allowed(
    queries: int,
    keys: int,
    past: int,
    lengths: np.ndarray[Any, Any] | None,
    is_causal: int,
    left: int,
    right: int,
) -> np.ndarray[Any, Any] | None:
    """Which keys each query may see, by position; None where it is all of them."""
    if not is_causal and lengths is None and left < 0 and right < 0:
        return None
    key = np.arange(keys)
    offset: Any = past
    if lengths is not None:
        offset = past if past else lengths.reshape(-1, 1, 1, 1) - queries
    position = np.arange(queries)[:, None] + offset
    found = np.ones((queries, keys), bool)
    if is_causal:
        found = found & (key <= position)
    if left >= 0:
        found = found & (key >= position - left)
    if right >= 0:
        found = found & (key <= position + right)
    if lengths is not None:
        found = found & (key < lengths.reshape(-1, 1, 1, 1))
    return found


def _softmax(scores: Tensor, precision: int | None) -> Tensor:
    """Softmax over keys; a query that sees none has shares of zero, not NaN."""
    wide = scores
    if precision is not None:
        wide = ops.astype(scores, types.type_name(precision), copy=False)
    none = ops.equal(ops.max(wide, axis=-1, keepdims=True), -np.inf)
    shares = ops.where(none, 0, ops.softmax(ops.where(none, 0, wide), -1))
    return ops.astype(shares, scores.dtype, copy=False)


@operator("RotaryEmbedding", 23)
def rotary_embedding(
    x: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    """Pairs of features turned by angles that grow with the position."""
    return rotated(
        x, cos_cache, sin_cache, position_ids, interleaved, num_heads, rotary_embedding_dim
    )


def rotated(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: int,
    num_heads: int,
    dims: int,
) -> Tensor:
    """x is [batch, heads, steps, features] or [batch, steps, heads * features]."""
    shape = x.shape
    if x.ndim == 4:
        heads = ops.permute_dims(x, (0, 2, 1, 3))
    else:
        heads = ops.reshape(x, (*shape[:2], num_heads, -1))
    dims = dims or heads.shape[-1]
    if position_ids is not None:
        rows = ops.reshape(position_ids, (-1,))
        cos, sin = (
            ops.reshape(ops.take(t, rows, axis=0), (*position_ids.shape, -1)) for t in (cos, sin)
        )
    cos, sin = ops.expand_dims(cos, 2), ops.expand_dims(sin, 2)
    turning, rest = heads[..., :dims], heads[..., dims:]
    if interleaved:
        first, second = turning[..., 0::2], turning[..., 1::2]
    else:
        first, second = turning[..., : dims // 2], turning[..., dims // 2 :]
    real = ops.subtract(ops.multiply(cos, first), ops.multiply(sin, second))
    imaginary = ops.add(ops.multiply(sin, first), ops.multiply(cos, second))
    if interleaved:
        made = ops.reshape(ops.stack([real, imaginary], axis=-1), turning.shape)
    else:
        made = ops.concat([real, imaginary], axis=-1)
    made = ops.concat([made, rest], axis=-1)
    return ops.permute_dims(made, (0, 2, 1, 3)) if x.ndim == 4 else ops.reshape(made, shape)
