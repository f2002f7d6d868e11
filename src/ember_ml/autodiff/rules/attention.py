"""Gradients of attention and of rotary positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.autodiff.rules.shapes import summed_to
from ember_ml.autodiff.rules.table import joint_rule, rule
from ember_ml.backend import pairs
from ember_ml.ops import attention
from ember_ml.ops.dispatch import binary, reduce, together
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill

__all__: list[str] = []

Optional = Tensor | None


rule("split_heads", lambda g, y, x, heads: attention.merge_heads(g), inputs=False)
rule("merge_heads", lambda g, y, x: attention.split_heads(g, x.shape[-3]), inputs=False)


@joint_rule("scaled_dot_product_attention", output=True)
def _attention(
    g: Tensor,
    needs: tuple[bool, ...],
    y: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional,
    causal: bool,
    scale: float,
    groups: int,
) -> list[Optional]:
    """By the weights, which are computed once more."""
    given = (query, key, value, mask)
    if query.dtype.itemsize < 4:
        g, y, query, key, value, mask = (_wide(x) for x in (g, y, query, key, value, mask))
    if groups > 1:
        g, y, query = (_split(x, groups) for x in (g, y, query))
        key, value = ops.expand_dims(key, axis=-3), ops.expand_dims(value, axis=-3)
        if mask is not None and mask.ndim > 2:
            mask = _split(mask, groups if mask.shape[-3] > 1 else 1)
    if not key.shape[-2]:
        return [None if x is None else ops.zeros_like(x) for x in given]
    weights = _weights(query, key, mask, causal, scale)
    parts: list[Optional] = [None] * 4
    if needs[2]:
        parts[2] = ops.matmul(ops.matrix_transpose(weights), g)
    if needs[0] or needs[1] or needs[3]:
        reached = ops.matmul(g, ops.matrix_transpose(value))
        mean = reduce("sum", binary(pairs.MULTIPLY, g, y), -1, True)
        scores = binary(pairs.MULTIPLY, weights, binary(pairs.SUBTRACT, reached, mean))
        if needs[0]:
            parts[0] = ops.matmul(scores, key) * scale
        if needs[1]:
            parts[1] = ops.matmul(ops.matrix_transpose(scores), query) * scale
        if needs[3] and mask is not None:
            parts[3] = summed_to(scores, mask)
    return [
        None if part is None or x is None else convert.cast(_joined(part, x), x.dtype)
        for part, x in zip(parts, given, strict=True)
    ]


def _weights(query: Tensor, key: Tensor, mask: Optional, causal: bool, scale: float) -> Tensor:
    """What each key counts for each query; those of a query that sees no key are zeros."""
    scores = ops.matmul(query * scale, ops.matrix_transpose(key))
    hides = mask is not None or causal
    if mask is not None:
        scores = scores + mask if mask.dtype.is_floating else ops.where(mask, scores, -math.inf)
    if causal:
        spec = scores._spec.with_dtype(dtypes.bool)
        rows, columns = scores.shape[-2:]
        seen = np.tri(rows, columns, dtype=bool)
        scores = ops.where(fill(spec.backend.from_numpy(seen, spec), spec), scores, -math.inf)
    # What is subtracted has no influence, and so no gradient.
    largest = reduce("max", scores.detach(), -1, True)
    if hides:
        largest = ops.where(ops.equal(largest, -math.inf), 0.0, largest)
    powers = ops.exp(scores - largest)
    total = reduce("sum", powers, -1, True)
    if hides:
        total = ops.where(ops.equal(total, 0.0), 1.0, total)
    return powers / total


def _wide(x: Optional) -> Any:
    return x if x is None or not x.dtype.is_floating else convert.cast(x, dtypes.float32)


def _split(x: Tensor, groups: int) -> Tensor:
    """Heads apart into those of keys and the queries that share one."""
    heads = x.shape[-3]
    return ops.reshape(x, (*x.shape[:-3], heads // groups, groups, *x.shape[-2:]))


def _joined(part: Tensor, x: Tensor) -> Tensor:
    """A gradient in the shape of an operand: heads together again, and summed where shared."""
    if part.shape == x.shape:
        return part
    if part.size != x.size:
        part = reduce("sum", part, -3, False)
    return ops.reshape(part, x.shape)


@joint_rule("rope")
def _rope(
    g: Tensor,
    needs: tuple[bool, ...],
    y: Any,
    x: Tensor,
    cosine: Tensor,
    sine: Tensor,
    interleaved: bool,
) -> list[Optional]:
    """Turned back; and where the angles count too, how far pairs move with them."""
    parts: list[Optional] = [None, None, None]
    if needs[0]:
        parts[0] = together("rope", (g, cosine, ops.negative(sine)), interleaved)
    if needs[1] or needs[2]:
        half = cosine.shape[-1]
        first, second = _pairs(x, half, interleaved)
        one, two = _pairs(g, half, interleaved)
        if needs[1]:
            parts[1] = summed_to(one * first + two * second, cosine)
        if needs[2]:
            parts[2] = summed_to(two * first - one * second, sine)
    return parts


def _pairs(x: Tensor, half: int, interleaved: bool) -> tuple[Tensor, Tensor]:
    if interleaved:
        return x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]
    return x[..., :half], x[..., half : 2 * half]
