"""Attention over settled kernels."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ember_ml.backend.contract import Kernel, Kernels, NativeArray

__all__ = ["KERNELS"]


def scaled_dot_product_attention(
    xp: Kernels,
    query: NativeArray,
    key: NativeArray,
    value: NativeArray,
    mask: NativeArray | None,
    causal: bool,
    scale: float,
    groups: int,
) -> NativeArray:
    """Rows that see no key give zeros. `groups` query heads share a head of keys and values."""
    if groups > 1:
        shape = tuple(query.shape)
        query = xp.reshape(query, (*shape[:-3], shape[-3] // groups, groups, *shape[-2:]))
        key, value = key[..., None, :, :], value[..., None, :, :]
        if mask is not None and mask.ndim > 2:
            heads = mask.shape[-3]
            split = (heads // groups, groups) if heads > 1 else (1, 1)
            mask = xp.reshape(mask, (*mask.shape[:-3], *split, *mask.shape[-2:]))
        out = scaled_dot_product_attention(xp, query, key, value, mask, causal, scale, 1)
        return xp.reshape(out, (*shape[:-1], out.shape[-1]))
    scores = xp.matmul(query * scale, xp.matrix_transpose(key))
    if mask is not None:
        additive = xp.dtype(mask).is_floating
        scores = (
            scores + mask if additive else xp.where(mask, scores, xp.full((), -math.inf, scores))
        )
    if causal:
        rows, columns = scores.shape[-2:]
        seen = xp.host(np.tri(rows, columns, dtype=bool), scores)
        scores = xp.where(seen, scores, xp.full((), -math.inf, scores))
    if not scores.shape[-1]:
        return xp.matmul(scores, value)  # no keys, so zeros
    largest = xp.max(scores, axis=-1, keepdims=True)
    if mask is not None or causal:
        largest = xp.where(largest == -math.inf, xp.full((), 0.0, largest), largest)
    weights = xp.exp(scores - largest)
    total = xp.sum(weights, axis=-1, keepdims=True)
    if mask is not None or causal:
        total = xp.where(total == 0, xp.full((), 1.0, total), total)
    # Fewer numbers are divided after the product than before, unless rows are short.
    return xp.matmul(weights, value) / total


def rope(
    xp: Kernels, x: NativeArray, cosine: NativeArray, sine: NativeArray, interleaved: bool
) -> NativeArray:
    """Pairs of features turned by angles; features beyond those of the angles stay."""
    half = cosine.shape[-1]
    turned, rest = x[..., : 2 * half], x[..., 2 * half :]
    if interleaved:
        shape = tuple(turned.shape)
        pairs = xp.reshape(turned, (*shape[:-1], half, 2))
        first, second = pairs[..., 0], pairs[..., 1]
        made = xp.stack([first * cosine - second * sine, second * cosine + first * sine], -1)
        out = xp.reshape(made, shape)
    else:
        first, second = turned[..., :half], turned[..., half:]
        out = xp.concat([first * cosine - second * sine, second * cosine + first * sine], -1)
    return xp.concat([out, rest], -1) if rest.shape[-1] else out


KERNELS: Final[dict[str, Kernel]] = {
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "rope": rope,
}
