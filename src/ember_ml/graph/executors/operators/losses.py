"""Losses of classes."""

from __future__ import annotations

from ember_ml import dtypes, ops
from ember_ml.graph.executors.operators.registry import operator
from ember_ml.tensor.core import Tensor

__all__: list[str] = []


@operator("NegativeLogLikelihoodLoss", 12, 13, 22)
def negative_log_likelihood_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    return _loss(x, target, weight, ignore_index, reduction)


@operator("SoftmaxCrossEntropyLoss", 12, 13)
def softmax_cross_entropy_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:
    logs = ops.log_softmax(x, 1)
    return _loss(logs, target, weight, ignore_index, reduction), logs


def _loss(
    logs: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, reduction: str
) -> Tensor:
    """The logarithm of the target's probability, negative, by its weight; none where ignored."""
    places = ops.astype(target, dtypes.int64)
    ignored = None
    if ignore_index is not None:
        ignored = ops.equal(places, ignore_index)
        places = ops.where(ignored, 0, places)  # an ignored target may be no class at all
    chosen = ops.squeeze(ops.take_along_axis(logs, ops.expand_dims(places, 1), axis=1), 1)
    if weight is None:
        shares = ops.ones_like(chosen)
    else:
        shares = ops.reshape(ops.take(weight, ops.reshape(places, (-1,)), axis=0), places.shape)
    if ignored is not None:
        shares = ops.where(ignored, 0, shares)
    made = ops.multiply(ops.negative(chosen), shares)
    if reduction == "none":
        return made
    total = ops.sum(made)
    return total if reduction == "sum" else ops.divide(total, ops.sum(shares))
