"""Metrics of numbers: errors, explained variance, perplexity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.dtypes import DType
from ember_ml.errors import ShapeError
from ember_ml.tensor.core import Tensor
from ember_ml.training.metrics.base import Metric, Sums, divided, floating, mask_of

__all__ = ["MAE", "MSE", "R2", "Perplexity"]


def _pair(who: str, predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    if predictions.shape != targets.shape:
        raise ShapeError(
            f"{who} got predictions of shape {predictions.shape} and targets of shape "
            f"{targets.shape}, which must be equal; reshape one of them"
        )
    p, t = floating(predictions), floating(targets)
    if p.dtype != t.dtype:
        p, t = p.astype(dtypes.float64), t.astype(dtypes.float64)
    return p, t


class _MeanError(Metric):
    """The mean over all elements of a function of the difference."""

    starts: ClassVar[Mapping[str, DType]] = {"total": dtypes.float32, "count": dtypes.int64}

    def sums(self, predictions: Tensor, targets: Any, mask: Tensor | None) -> Sums:
        """The sum of errors, and of how many."""
        p, t = _pair(type(self).__name__, predictions, targets)
        errors = self._error(p - t)
        kept = mask_of(type(self).__name__, mask, t.shape)
        if kept is None:
            count = ops.full((), t.size, dtype=dtypes.int64)
            return {"total": ops.sum(errors), "count": count}
        errors = ops.where(kept, errors, ops.zeros_like(errors))
        return {"total": ops.sum(errors), "count": ops.sum(kept)}

    def _error(self, difference: Tensor) -> Tensor:
        raise NotImplementedError

    def value(self, sums: Mapping[str, Any]) -> Any:
        """The mean."""
        return divided(sums["total"], sums["count"])


class MSE(_MeanError):
    """The mean squared error.

    >>> from ember_ml import training
    >>> training.MSE()([1.0, 2.0], [1.0, 4.0])
    2.0
    """

    def _error(self, difference: Tensor) -> Tensor:
        return difference * difference


class MAE(_MeanError):
    """The mean absolute error.

    >>> from ember_ml import training
    >>> training.MAE()([1.0, 2.0], [1.0, 4.0])
    1.0
    """

    def _error(self, difference: Tensor) -> Tensor:
        return ops.abs(difference)


class R2(Metric):
    """The share of the variance of targets that predictions explain, averaged over outputs.

    Samples lie along the first axis; what is beyond are outputs. 1 - squared errors / squared
    deviations from the mean. As in scikit-learn, targets that are all equal give 1 where
    predictions are right and 0 where they are not. Fewer than two samples give NaN.

    >>> from ember_ml import training
    >>> round(training.R2()([2.5, 0.0, 2.0, 8.0], [3.0, -0.5, 2.0, 7.0]), 4)
    0.9486
    """

    def sums(self, predictions: Tensor, targets: Any, mask: Tensor | None) -> Sums:
        """Count, mean and squared deviations of targets, and squared errors."""
        p, t = _pair("R2", predictions, targets)
        if t.ndim == 0:
            raise ShapeError("R2 takes samples along the first axis, not single numbers")
        if mask is None:
            share = ops.ones_like(t)
        else:
            mask_of("R2", mask, t.shape[: mask.ndim])
            wide = (*mask.shape, *(1,) * (t.ndim - mask.ndim))
            share = ops.ones_like(t) * ops.reshape(mask != 0, wide).astype(t.dtype)
        on = share > 0
        t = ops.where(on, t, ops.zeros_like(t))
        errors = ops.where(on, p - t, ops.zeros_like(t))
        count = ops.sum(share, axis=0)
        mean = ops.sum(t, axis=0) / ops.maximum(count, ops.ones_like(count))
        off = ops.where(on, t - mean, ops.zeros_like(t))
        return {
            "count": count,
            "mean": mean,
            "deviation": ops.sum(off * off, axis=0),
            "error": ops.sum(errors * errors, axis=0),
        }

    def merge(self, batch: Sums) -> None:
        """Join two samples: differences of large sums would lose what matters."""
        old = {
            name: x if x.backend == batch["count"].backend else x.to_backend(batch["count"].backend)
            for name, x in self._totals.items()
        }
        if not old:
            self._totals = dict(batch)
            return
        count = old["count"] + batch["count"]
        safe = ops.maximum(count, ops.ones_like(count))
        apart = batch["mean"] - old["mean"]
        part = batch["count"] / safe
        between = apart * apart * old["count"] * part
        self._totals = {
            "count": count,
            "mean": old["mean"] + apart * part,
            "deviation": old["deviation"] + batch["deviation"] + between,
            "error": old["error"] + batch["error"],
        }

    def gathered(self) -> dict[str, Any]:
        """What is known, in float64."""
        return {name: x.numpy().astype(np.float64) for name, x in self._totals.items()}

    def value(self, sums: Mapping[str, Any]) -> Any:
        """The mean of R2 over outputs."""
        if np.size(sums["count"]) == 0 or np.min(sums["count"]) < 2:
            return float("nan")
        error, deviation = sums["error"], sums["deviation"]
        flat = deviation == 0
        score = 1.0 - error / np.where(flat, 1.0, deviation)
        return np.mean(np.where(flat, np.where(error == 0, 1.0, 0.0), score))


class Perplexity(Metric):
    """exp of the mean negative log-likelihood of the targets.

    Predictions are logits (..., classes) beside targets (...); with `from_logits=False` they are
    losses, one for each token, and targets are not needed. Targets that are `ignore_index`, or
    where `mask` is false, do not count.

    >>> from ember_ml import training
    >>> round(training.Perplexity()(ops.zeros((2, 3, 10)), ops.zeros((2, 3), dtype="int64")), 4)
    10.0
    """

    starts: ClassVar[Mapping[str, DType]] = {"total": dtypes.float32, "count": dtypes.int64}

    def __init__(
        self,
        name: str | None = None,
        *,
        from_logits: bool = True,
        ignore_index: int | None = None,
    ) -> None:
        self.from_logits = from_logits
        self.ignore_index = ignore_index
        super().__init__(name)

    def sums(self, predictions: Tensor, targets: Any, mask: Tensor | None) -> Sums:
        """The sum of losses, and of how many tokens."""
        x = floating(predictions)
        kept = None
        if targets is not None:
            kept = mask_of("Perplexity", mask, targets.shape)
            if self.ignore_index is not None:
                asked = targets != self.ignore_index
                kept = asked if kept is None else ops.logical_and(kept, asked)
                targets = ops.where(asked, targets, ops.zeros_like(targets))
        else:
            kept = mask_of("Perplexity", mask, x.shape)
        if self.from_logits:
            if targets is None or x.ndim != targets.ndim + 1 or x.shape[:-1] != targets.shape:
                raise ShapeError(
                    f"Perplexity got predictions of shape {x.shape} and targets of shape "
                    f"{getattr(targets, 'shape', None)}; logits have one more axis, of classes. "
                    f"Losses are taken with from_logits=False"
                )
            likely = ops.log_softmax(x, axis=-1)
            place = ops.expand_dims(targets.astype(dtypes.int64), axis=-1)
            x = -ops.squeeze(ops.take_along_axis(likely, place, axis=-1), axis=-1)
        if kept is None:
            return {"total": ops.sum(x), "count": ops.full((), x.size, dtype=dtypes.int64)}
        return {
            "total": ops.sum(ops.where(kept, x, ops.zeros_like(x))),
            "count": ops.sum(kept),
        }

    def value(self, sums: Mapping[str, Any]) -> Any:
        """exp of the mean; infinite where that is beyond all numbers."""
        mean = divided(sums["total"], sums["count"])
        with np.errstate(over="ignore"):
            return float(np.exp(mean))
