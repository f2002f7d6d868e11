"""Losses of margins and of distances between vectors."""

from __future__ import annotations

import math
from typing import Any

from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import elementwise, reduction, scoring
from ember_ml.ops.axes import axis_of
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.ops.scoring import checked_reduction, reduced, same_shape
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = [
    "cosine",
    "cosine_similarity",
    "hinge",
    "margin_ranking",
    "squared_hinge",
    "triplet",
]


@op("losses.hinge", accepts=REAL_FLOATING, lift="float", arity=2, standard=False)
def hinge(predictions: TensorLike, targets: TensorLike, /, *, reduction: str = "mean") -> Tensor:
    """How far scores fall short of 1 on the side of their targets, which are -1 or 1.

    >>> hinge([0.5, 2.0], [1.0, -1.0], reduction="none").tolist()
    [0.5, 3.0]
    """
    short, dtype = _shortfall("losses.hinge", predictions, targets, reduction)
    return reduced(short, reduction, dtype)


@op("losses.squared_hinge", accepts=REAL_FLOATING, lift="float", arity=2, standard=False)
def squared_hinge(
    predictions: TensorLike, targets: TensorLike, /, *, reduction: str = "mean"
) -> Tensor:
    """The square of `hinge`, which punishes large violations more.

    >>> squared_hinge([0.5, 2.0], [1.0, -1.0], reduction="none").tolist()
    [0.25, 9.0]
    """
    short, dtype = _shortfall("losses.squared_hinge", predictions, targets, reduction)
    return reduced(elementwise.square(short), reduction, dtype)


def _shortfall(name: str, predictions: TensorLike, targets: TensorLike, reduction: str) -> Any:
    checked_reduction(name, reduction)
    (score, side), dtype = scoring.operands(name, predictions, targets)
    same_shape(name, score, side)
    margin = elementwise.multiply(score, side)
    return elementwise.maximum(elementwise.subtract(1.0, margin), 0.0), dtype


@op("losses.margin_ranking", accepts=REAL_FLOATING, lift="float", arity=3, standard=False)
def margin_ranking(
    first: TensorLike,
    second: TensorLike,
    targets: TensorLike,
    /,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """How far one score fails to exceed another by `margin`; targets are 1 (first) or -1.

    >>> margin_ranking([1.0], [3.0], [1.0]).item()
    2.0
    """
    name = "losses.margin_ranking"
    checked_reduction(name, reduction)
    (a, b, side), dtype = scoring.operands(name, first, second, targets)
    same_shape(name, a, b, side)
    gain = elementwise.multiply(elementwise.subtract(a, b), side)
    return reduced(elementwise.maximum(elementwise.subtract(margin, gain), 0.0), reduction, dtype)


# --- Vectors --------------------------------------------------------------------------------------


@op("losses.cosine_similarity", accepts=REAL_FLOATING, lift="float", arity=2, standard=False)
def cosine_similarity(
    x1: TensorLike, x2: TensorLike, /, *, axis: int = -1, eps: float = 1e-8
) -> Tensor:
    """The cosine of the angle between vectors along an axis; lengths count as at least `eps`.

    >>> cosine_similarity([1.0, 0.0], [0.0, 2.0]).item()
    0.0
    """
    (a, b), dtype = scoring.operands("losses.cosine_similarity", x1, x2)
    return convert.cast(_cosine("losses.cosine_similarity", a, b, axis, eps), dtype)


@op("losses.cosine", accepts=REAL_FLOATING, lift="float", arity=2, standard=False)
def cosine(
    predictions: TensorLike,
    targets: TensorLike,
    /,
    *,
    axis: int = -1,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """One less the cosine of the angle between predicted and true vectors.

    >>> cosine([1.0, 0.0], [0.0, 2.0]).item()
    1.0
    """
    checked_reduction("losses.cosine", reduction)
    (a, b), dtype = scoring.operands("losses.cosine", predictions, targets)
    likeness = _cosine("losses.cosine", a, b, axis, eps)
    return reduced(elementwise.subtract(1.0, likeness), reduction, dtype)


def _cosine(name: str, a: Tensor, b: Tensor, axis: int, eps: float) -> Tensor:
    if not a.ndim or not b.ndim:
        raise ShapeError(f"ops.{name} takes vectors, not a 0-d tensor")
    same_shape(name, a, b)
    place = axis_of(name, axis, a.ndim)

    def total(x: Tensor) -> Tensor:
        return reduction.sum(x, axis=place)

    def length(x: Tensor) -> Tensor:
        # The root of zero has no gradient: the bound comes before it.
        return elementwise.sqrt(elementwise.maximum(total(elementwise.square(x)), eps * eps))

    # One division for each length: their product may overflow.
    product = elementwise.divide(total(elementwise.multiply(a, b)), length(a))
    return elementwise.divide(product, length(b))


@op("losses.triplet", accepts=REAL_FLOATING, lift="float", arity=3, standard=False)
def triplet(
    anchor: TensorLike,
    positive: TensorLike,
    negative: TensorLike,
    /,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    swap: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """How far an anchor fails to be nearer to the positive than to the negative by `margin`.

    Vectors lie along the last axis; distances are norms of order `p` of differences to which
    `eps` is added, so that they have gradients. `swap` takes the distance from the positive to
    the negative where that is smaller.

    >>> round(triplet([0.0], [1.0], [3.0], margin=3.0).item(), 4)
    1.0
    """
    name = "losses.triplet"
    checked_reduction(name, reduction)
    if not p > 0:
        raise DomainError(f"ops.{name} got p={p}; the order of a norm is positive")
    (a, b, c), dtype = scoring.operands(name, anchor, positive, negative)
    same_shape(name, a, b, c)
    if not a.ndim:
        raise ShapeError(f"ops.{name} takes vectors, not a 0-d tensor")
    near, far = _distance(a, b, p, eps), _distance(a, c, p, eps)
    if swap:
        far = elementwise.minimum(far, _distance(b, c, p, eps))
    excess = elementwise.add(elementwise.subtract(near, far), margin)
    return reduced(elementwise.maximum(excess, 0.0), reduction, dtype)


def _distance(a: Tensor, b: Tensor, p: float, eps: float) -> Tensor:
    gap = elementwise.add(elementwise.subtract(a, b), eps)
    if p == 2:
        return elementwise.sqrt(reduction.sum(elementwise.square(gap), axis=-1))
    size = elementwise.abs(gap)
    if p == math.inf:
        return reduction.max(size, axis=-1)
    if p == 1:
        return reduction.sum(size, axis=-1)
    return elementwise.pow(reduction.sum(elementwise.pow(size, p), axis=-1), 1 / p)
