"""Gradients of normalization.

With the deviations from the mean divided by their spread, n, and the gradient h that reaches them,
that of the input is (h - mean(h) - n mean(h n)) / spread: one pass for each of the means, whichever
axes they are over. 16-bit floats are computed in float32, as in the ops themselves.
"""

from __future__ import annotations

import math
from typing import Any

from ember_ml import dtypes, ops
from ember_ml.autodiff.rules.table import joint_rule, rule
from ember_ml.backend import pairs
from ember_ml.ops.dispatch import binary, reduce, unary
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

__all__: list[str] = []

Optional = Tensor | None
Axes = tuple[int, ...]


def _wide(*tensors: Optional) -> list[Any]:
    """In the dtype in which gradients are computed."""
    return [
        convert.cast(x, dtypes.float32) if x is not None and x.dtype.itemsize < 4 else x
        for x in tensors
    ]


def _narrow(parts: list[Optional], like: Tensor) -> list[Optional]:
    return [None if part is None else convert.cast(part, like.dtype) for part in parts]


def _mean(x: Tensor, axes: Axes) -> Tensor:
    return reduce("mean", x, axes, True)


def _spread(squares: Tensor, eps: float) -> Tensor:
    """One by the root of the mean square."""
    return 1.0 / unary("sqrt", squares + eps)


def _normal(x: Tensor, axes: Axes, eps: float) -> tuple[Tensor, Tensor]:
    """The normalized values, and one by the spread."""
    centred = binary(pairs.SUBTRACT, x, _mean(x, axes))
    scale = _spread(_mean(binary(pairs.MULTIPLY, centred, centred), axes), eps)
    return binary(pairs.MULTIPLY, centred, scale), scale


def _through(h: Tensor, n: Tensor, scale: Tensor, axes: Axes, *, centred: bool = True) -> Tensor:
    """From the gradient of normalized values to that of the input."""
    inner = binary(pairs.MULTIPLY, n, _mean(binary(pairs.MULTIPLY, h, n), axes))
    if centred:
        inner = binary(pairs.ADD, inner, _mean(h, axes))
    return binary(pairs.MULTIPLY, binary(pairs.SUBTRACT, h, inner), scale)


@joint_rule("layer_norm")
def _layer_norm(
    g: Tensor,
    needs: tuple[bool, ...],
    y: Any,
    x: Tensor,
    weight: Optional,
    bias: Optional,
    ndim: int,
    eps: float,
) -> list[Optional]:
    given = x
    g, x, weight = _wide(g, x, weight)
    rows, last = _rows_and_last(x, ndim)
    parts: list[Optional] = [None, None, None]
    if needs[0] or needs[1]:
        n, scale = _normal(x, last, eps)
        if needs[0]:
            parts[0] = _through(g if weight is None else g * weight, n, scale, last)
        if needs[1]:
            parts[1] = reduce("sum", g * n, rows, False)
    if needs[2]:
        parts[2] = reduce("sum", g, rows, False)
    return _narrow(parts, given)


@joint_rule("rms_norm")
def _rms_norm(
    g: Tensor, needs: tuple[bool, ...], y: Any, x: Tensor, weight: Optional, ndim: int, eps: float
) -> list[Optional]:
    given = x
    g, x, weight = _wide(g, x, weight)
    rows, last = _rows_and_last(x, ndim)
    scale = _spread(_mean(x * x, last), eps)
    n = x * scale
    parts: list[Optional] = [None, None]
    if needs[0]:
        parts[0] = _through(g if weight is None else g * weight, n, scale, last, centred=False)
    if needs[1]:
        parts[1] = reduce("sum", g * n, rows, False)
    return _narrow(parts, given)


def _rows_and_last(x: Tensor, ndim: int) -> tuple[Axes, Axes]:
    first = x.ndim - ndim
    return tuple(range(first)), tuple(range(first, x.ndim))


# --- By channels, in axis 1 -------------------------------------------------------------------


def _by_channel(vector: Tensor, x: Tensor) -> Tensor:
    return ops.reshape(vector, (-1, *(1,) * (x.ndim - 2)))


def _others(x: Tensor) -> Axes:
    """The axes along which a channel lies."""
    return (0, *range(2, x.ndim))


@joint_rule("group_norm")
def _group_norm(
    g: Tensor,
    needs: tuple[bool, ...],
    y: Any,
    x: Tensor,
    weight: Optional,
    bias: Optional,
    groups: int,
    eps: float,
) -> list[Optional]:
    given = x
    g, x, weight = _wide(g, x, weight)
    parts: list[Optional] = [None, None, None]
    if needs[0] or needs[1]:
        cut = (x.shape[0], groups, math.prod(x.shape[1:]) // groups)
        n, scale = _normal(ops.reshape(x, cut), (2,), eps)
        if needs[0]:
            h = g if weight is None else g * _by_channel(weight, x)
            parts[0] = ops.reshape(_through(ops.reshape(h, cut), n, scale, (2,)), x.shape)
        if needs[1]:
            parts[1] = reduce("sum", g * ops.reshape(n, x.shape), _others(x), False)
    if needs[2]:
        parts[2] = reduce("sum", g, _others(x), False)
    return _narrow(parts, given)


@joint_rule("batch_norm")
def _batch_norm(
    g: Tensor,
    needs: tuple[bool, ...],
    y: Any,
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Optional,
    bias: Optional,
    eps: float,
) -> list[Optional]:
    given = x
    g, x, mean, variance, weight = _wide(g, x, mean, variance, weight)
    axes = _others(x)
    scale = _spread(variance, eps)
    full = scale if weight is None else scale * weight
    parts: list[Optional] = [None] * 5
    if needs[0]:
        parts[0] = g * _by_channel(full, x)
    total = reduce("sum", g, axes, False) if needs[1] or needs[4] else None
    if needs[1] and total is not None:
        parts[1] = -total * full
    if needs[2] or needs[3]:
        deviations = reduce("sum", g * (x - _by_channel(mean, x)), axes, False)
        if needs[2]:
            parts[2] = deviations * full * scale * scale * -0.5
        if needs[3]:
            parts[3] = deviations * scale
    parts[4] = total
    return _narrow(parts, given)


@joint_rule("batch_norm_training")
def _batch_norm_training(
    g: Tensor,
    needs: tuple[bool, ...],
    y: Any,
    x: Tensor,
    mean: Optional,
    variance: Optional,
    weight: Optional,
    bias: Optional,
    momentum: float,
    eps: float,
) -> list[Optional]:
    """The running values do not count here: those of the batch do."""
    given = x
    g, x, weight = _wide(g, x, weight)
    axes = _others(x)
    parts: list[Optional] = [None] * 5
    if needs[0] or needs[3]:
        n, scale = _normal(x, axes, eps)
        if needs[0]:
            h = g if weight is None else g * _by_channel(weight, x)
            parts[0] = _through(h, n, scale, axes)
        if needs[3]:
            parts[3] = reduce("sum", g * n, axes, False)
    if needs[4]:
        parts[4] = reduce("sum", g, axes, False)
    return _narrow(parts, given)


# --- Vectors ----------------------------------------------------------------------------------


def _normalize(g: Tensor, y: Any, x: Tensor, axes: Axes, order: float, eps: float) -> Tensor:
    """The length has no slope where it is below its bound, nor where an element is zero."""
    given = x
    g, x = _wide(g, x)
    sizes = ops.abs(x)
    if order == 2:
        limit = eps * eps
        total = reduce("sum", x * x, axes, True)
        length = ops.sqrt(ops.maximum(total, limit))
        slope = x / length
    elif order == math.inf:
        limit = eps
        total = reduce("max", sizes, axes, True)
        length = ops.maximum(total, limit)
        largest = convert.cast(ops.equal(sizes, total), x.dtype)
        slope = ops.sign(x) * largest / reduce("sum", largest, axes, True)
    else:
        limit = eps**order
        zero = ops.equal(x, 0.0)
        total = reduce("sum", sizes**order, axes, True)
        length = ops.maximum(total, limit) ** (1 / order)
        powers = ops.where(zero, 0.0, ops.where(zero, 1.0, sizes / length) ** (order - 1))
        slope = ops.sign(x) * powers
    inner = reduce("sum", g * x, axes, True) / (length * length)
    inner = ops.where(ops.greater(total, limit), inner, 0.0)
    return convert.cast(g / length - inner * slope, given.dtype)


rule("normalize", _normalize)
