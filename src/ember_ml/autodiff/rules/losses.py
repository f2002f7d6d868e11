"""Gradients of losses."""

from __future__ import annotations

from typing import Any

from ember_ml import ops
from ember_ml.autodiff.rules.table import rule
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

__all__: list[str] = []


def _of_rows(g: Tensor, y: Any, scores: Tensor, slope: Any, classes: Any, reduction: str) -> Tensor:
    """Probabilities less one for the class of each row: of ops, to be differentiated again."""
    count = scores.shape[0]
    truth = ops.one_hot(convert.wrap(classes, scores._spec.backend), scores.shape[1])
    found = ops.softmax(scores, axis=1) - convert.cast(truth, scores.dtype)
    if reduction == "none":
        return found * ops.expand_dims(g, -1)
    return found * (g / count if reduction == "mean" else g)


rule("losses.of_rows", _of_rows)
