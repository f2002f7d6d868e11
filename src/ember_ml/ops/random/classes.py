"""Classes drawn by their weights."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import dispatch, manipulation, searching
from ember_ml.ops import elementwise as el
from ember_ml.ops.axes import axis_of, broadcast, integer_of, shape_of
from ember_ml.ops.random.arrays import ArraySource, KeySource
from ember_ml.ops.random.generator import Generator
from ember_ml.ops.random.request import Array, Request, source_of, values_of
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import ShapeLike, TensorLike

__all__ = ["categorical", "draw_classes", "multinomial"]


@op("random.categorical", accepts=REAL_FLOATING, lift="float", result="index", standard=False)
def categorical(
    logits: TensorLike,
    /,
    shape: ShapeLike | None = None,
    *,
    axis: int = -1,
    generator: Generator | Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """Indices along `axis`, drawn with the probabilities softmax(logits).

    The result has the shape of the logits without the axis, or `shape`, to which that broadcasts.

    >>> categorical([[0.0, 1000.0], [1000.0, 0.0]]).tolist()
    [1, 0]
    >>> categorical([0.0, 0.0, 0.0], (2, 4)).shape
    (2, 4)
    """
    name = "random.categorical"
    tensor = dispatch.lifted(name, logits).detach()
    if not tensor.ndim:
        raise ShapeError(f"ops.{name} takes logits of at least one axis, not a 0-d tensor")
    place = axis_of(name, axis, tensor.ndim)
    order = [i for i in range(tensor.ndim) if i != place]
    rows = manipulation.permute_dims(tensor, (*order, place))
    sides = rows.shape[:-1] if shape is None else shape_of(name, shape)
    if broadcast(name, [sides, rows.shape[:-1]]) != sides:
        raise ShapeError(
            f"ops.{name} got shape {sides} for logits of {tensor.shape}; "
            f"{rows.shape[:-1]} must broadcast to it"
        )
    call = _call(name, rows, sides, generator, native)
    if not prod(sides):
        return call.nothing()
    _require_classes(name, rows.shape)
    source = call.arrays()
    if source is not None:
        if rows._spec.backend.checks_values(rows.native):
            _softmax(name, values_of(name, rows))
        return _largest(rows, source, sides)
    weights = _softmax(name, values_of(name, rows))
    return call.tensor(_pick(call.host(), weights, sides))


@op("random.multinomial", accepts=REAL_FLOATING, lift="float", result="index", standard=False)
def multinomial(
    probs: TensorLike,
    /,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """`num_samples` indices for each row of weights, which need not add up to one.

    Without `replacement`, the indices of a row differ, in the order in which they were drawn.

    >>> multinomial([0.0, 3.0], 2, replacement=True).tolist()
    [1, 1]
    >>> sorted(multinomial([1.0, 1.0, 2.0], 3).tolist())
    [0, 1, 2]
    """
    name = "random.multinomial"
    rows = dispatch.lifted(name, probs).detach()
    if not rows.ndim:
        raise ShapeError(f"ops.{name} takes weights of at least one axis, not a 0-d tensor")
    count = integer_of(name, num_samples, "num_samples")
    if count < 0:
        raise DomainError(f"ops.{name} got num_samples={count}; a count is not negative")
    sides = (*rows.shape[:-1], count)
    call = _call(name, rows, sides, generator, native)
    return draw_classes(call, rows, count, replacement)


def _call(name: str, rows: Tensor, sides: tuple[int, ...], generator: Any, native: bool) -> Request:
    source = source_of(name, generator, native)
    if isinstance(source, KeySource):
        dispatch.home_of(name, (rows, source.key))
    return Request(name, rows._spec.with_dtype(dtypes.int64), sides, (), source, native)


def draw_classes(call: Request, rows: Tensor, count: int, replacement: bool) -> Tensor:
    """`count` indices for each row of weights."""
    name, sides = call.op, (*rows.shape[:-1], count)
    if not replacement and count > rows.shape[-1]:
        raise DomainError(
            f"ops.{name} got num_samples={count} for {rows.shape[-1]} classes; "
            f"there are no more without replacement"
        )
    if not prod(sides):
        return call.nothing()
    _require_classes(name, rows.shape)
    source = call.arrays()
    if source is not None:
        if rows._spec.backend.checks_values(rows.native):
            _weights(name, values_of(name, rows), 1 if replacement else count)
        logits = el.log(convert.cast(rows, _wide(rows.dtype)))
        if replacement:
            return _largest(manipulation.expand_dims(logits, axis=-2), source, sides)
        noisy = el.add(logits, source.gumbel(rows.shape, logits._spec))
        first = searching.argsort(noisy, axis=-1, descending=True)
        return first[..., :count].copy()
    weights = _weights(name, values_of(name, rows), 1 if replacement else count)
    draws = call.host()
    if not replacement:
        # The classes in the order of exponential times, each as quick as its weight.
        with np.errstate(divide="ignore"):
            times = draws.standard_exponential(rows.shape) / weights
        return call.tensor(np.argsort(times, axis=-1, kind="stable")[..., :count])
    picked = [_pick(draws, row, (count,)) for row in weights.reshape(-1, rows.shape[-1])]
    return call.tensor(np.array(picked, np.int64).reshape(sides))


def _wide(dtype: DType) -> DType:
    return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32


def _require_classes(name: str, shape: tuple[int, ...]) -> None:
    if not shape[-1]:
        raise DomainError(f"ops.{name} got shape {shape}; there is no class to draw")


def _largest(logits: Tensor, source: ArraySource, sides: tuple[int, ...]) -> Tensor:
    """Classes by Gumbel's trick: the largest of logits with noise."""
    wide = convert.cast(logits, _wide(logits.dtype))
    noise = source.gumbel((*sides, logits.shape[-1]), wide._spec)
    return searching.argmax(el.add(wide, noise), axis=-1)


def _softmax(name: str, logits: Array) -> Array:
    """Weights of logits, in float64."""
    wide = logits.astype(np.float64)
    top = wide.max(axis=-1, keepdims=True)
    if not np.all(np.isfinite(top)):
        raise DomainError(
            f"ops.{name} got logits with NaN, with infinity, or with no class that is possible"
        )
    weights: Array = np.exp(wide - top)
    return weights


def _weights(name: str, values: Array, least: int) -> Array:
    """Weights in float64, of which some are positive in each row."""
    wide = values.astype(np.float64)
    if not np.all((wide >= 0) & (wide < np.inf)):
        raise DomainError(f"ops.{name} got weights that are not finite or negative")
    possible = np.count_nonzero(wide, axis=-1)
    if np.any(possible < least):
        raise DomainError(
            f"ops.{name} got a row with {int(possible.min())} positive weights "
            f"where {least} are needed"
        )
    return wide


def _pick(draws: Any, weights: Array, sides: tuple[int, ...]) -> Array:
    """Indices of the last axis, drawn by weights whose other axes broadcast to `sides`."""
    levels = draws.random(sides)
    total = np.cumsum(weights, axis=-1)
    total /= total[..., -1:]  # the last is one, and no level is
    if total.ndim == 1:
        return np.asarray(np.searchsorted(total, levels, side="right"))
    return np.asarray((total <= levels[..., None]).sum(axis=-1))
