"""Metrics of classes: how often predictions name the right one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, ShapeError
from ember_ml.tensor.core import Tensor
from ember_ml.training.metrics.base import Metric, Sums, divided, mask_of

__all__ = ["F1", "Accuracy", "Precision", "Recall", "TopKAccuracy"]

_AVERAGES: Final = ("auto", "binary", "macro", "micro", "weighted", "none")


class _OfClasses(Metric):
    """What is told by predicted and true classes."""

    def __init__(
        self,
        name: str | None,
        threshold: float,
        from_logits: bool,
        ignore_index: int | None,
        axis: int,
    ) -> None:
        # A logit is 0 where the probability is a half.
        probability = float(threshold)
        if from_logits and not 0.0 < probability < 1.0:
            raise DomainError(f"{type(self).__name__} got threshold={threshold} for logits")
        self.threshold = (
            float(np.log(probability / (1.0 - probability))) if from_logits else probability
        )
        self.ignore_index = ignore_index
        self.axis = axis
        super().__init__(name)

    def _read(
        self, predictions: Tensor, targets: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, int]:
        """Predicted and true classes, the mask, and how many classes the scores tell of."""
        who, count = type(self).__name__, 0
        if predictions.shape == (*targets.shape, 1):
            predictions = ops.squeeze(predictions, axis=-1)
        if predictions.ndim == targets.ndim + 1:
            count = predictions.shape[self.axis]
            if not count:
                raise ShapeError(f"{who} got predictions of shape {predictions.shape}: no classes")
            chosen = ops.argmax(predictions, axis=self.axis)
        elif predictions.dtype.is_floating:
            chosen = (predictions > self.threshold).astype(dtypes.int64)
        else:
            chosen = predictions.astype(dtypes.int64)
        if chosen.shape != targets.shape:
            raise ShapeError(
                f"{who} got predictions of shape {predictions.shape} and targets of shape "
                f"{targets.shape}; scores of classes have one more axis than targets, and "
                f"probabilities or classes have the same shape"
            )
        targets = targets.astype(dtypes.int64)
        kept = mask_of(who, mask, targets.shape)
        if self.ignore_index is not None:
            asked = targets != self.ignore_index
            kept = asked if kept is None else ops.logical_and(kept, asked)
        return chosen, targets, kept, count


class Accuracy(_OfClasses):
    """The share of predictions that are right.

    Scores (..., classes) are read by the highest one along `axis`; floats of the shape of the
    targets as probabilities, against `threshold` (as logits with `from_logits`); integers as
    classes. Targets that are `ignore_index`, or where `mask` is false, do not count.

    >>> from ember_ml import training
    >>> accuracy = training.Accuracy()
    >>> accuracy([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], [1, 0, 0]), accuracy([0.2, 0.6], [0, 1])
    (0.6666666666666666, 1.0)
    """

    starts: ClassVar[Mapping[str, DType]] = {"right": dtypes.int64, "count": dtypes.int64}

    def __init__(
        self,
        name: str | None = None,
        *,
        threshold: float = 0.5,
        from_logits: bool = False,
        ignore_index: int | None = None,
        axis: int = -1,
    ) -> None:
        super().__init__(name, threshold, from_logits, ignore_index, axis)

    def sums(self, predictions: Tensor, targets: Any, mask: Tensor | None) -> Sums:
        """How many are right, of how many."""
        chosen, true, kept, _ = self._read(predictions, targets, mask)
        return _shares(chosen == true, kept)

    def value(self, sums: Mapping[str, Any]) -> Any:
        """The share."""
        return divided(sums["right"], sums["count"])


def _shares(right: Tensor, kept: Tensor | None) -> Sums:
    if kept is None:
        return {"right": ops.sum(right), "count": ops.full((), right.size, dtype=dtypes.int64)}
    return {"right": ops.sum(ops.logical_and(right, kept)), "count": ops.sum(kept)}


class TopKAccuracy(Metric):
    """The share of targets among the `k` classes of highest score; of equal ones, the first.

    >>> from ember_ml import training
    >>> training.TopKAccuracy(k=2)([[0.1, 0.5, 0.4], [0.6, 0.3, 0.1]], [2, 2])
    0.5
    """

    starts: ClassVar[Mapping[str, DType]] = {"right": dtypes.int64, "count": dtypes.int64}

    def __init__(
        self, name: str | None = None, *, k: int = 5, ignore_index: int | None = None
    ) -> None:
        if k < 1:
            raise DomainError(f"TopKAccuracy got k={k}; it is at least 1")
        self.k = k
        self.ignore_index = ignore_index
        super().__init__(name or f"top{k}_accuracy")

    def sums(self, predictions: Tensor, targets: Any, mask: Tensor | None) -> Sums:
        """How many targets are among the first k, of how many."""
        if predictions.ndim != targets.ndim + 1 or predictions.shape[:-1] != targets.shape:
            raise ShapeError(
                f"TopKAccuracy(k={self.k}) got predictions of shape {predictions.shape} and "
                f"targets of shape {targets.shape}; scores have one more axis, of classes"
            )
        kept = mask_of("TopKAccuracy", mask, targets.shape)
        true = targets.astype(dtypes.int64)
        if self.ignore_index is not None:
            asked = true != self.ignore_index
            kept = asked if kept is None else ops.logical_and(kept, asked)
            true = ops.where(asked, true, ops.zeros_like(true))
        numbers = ops.arange(predictions.shape[-1])
        place = ops.expand_dims(true, axis=-1)
        own = ops.take_along_axis(predictions, place, axis=-1)
        before = ops.logical_or(
            predictions > own, ops.logical_and(predictions == own, numbers < place)
        )
        return _shares(ops.sum(before, axis=-1) < self.k, kept)

    def value(self, sums: Mapping[str, Any]) -> Any:
        """The share."""
        return divided(sums["right"], sums["count"])


class _OfCounts(_OfClasses):
    """What is told by true positives, predicted and true members of each class."""

    def __init__(
        self,
        name: str | None = None,
        *,
        average: str | None = "auto",
        num_classes: int | None = None,
        threshold: float = 0.5,
        from_logits: bool = False,
        ignore_index: int | None = None,
        zero_division: float = 0.0,
        axis: int = -1,
    ) -> None:
        average = "none" if average is None else average
        if average not in _AVERAGES:
            raise DomainError(
                f"{type(self).__name__} got average={average!r}; there are {', '.join(_AVERAGES)}"
            )
        self.average = average
        self.num_classes = num_classes
        self.zero_division = float(zero_division)
        super().__init__(name, threshold, from_logits, ignore_index, axis)

    def sums(self, predictions: Tensor, targets: Any, mask: Tensor | None) -> Sums:
        """Of each class: predicted rightly, predicted, and there."""
        chosen, true, kept, told = self._read(predictions, targets, mask)
        count = self.num_classes or told
        if not count and self.average in ("auto", "binary"):
            count = 2
        if not count:
            raise DomainError(
                f"{type(self).__name__}(average={self.average!r}) got classes and no scores; "
                f"give num_classes="
            )
        numbers = ops.arange(count)
        predicted = ops.reshape(chosen, (-1, 1)) == numbers
        there = ops.reshape(true, (-1, 1)) == numbers
        if kept is not None:
            rows = ops.reshape(kept, (-1, 1))
            predicted, there = ops.logical_and(predicted, rows), ops.logical_and(there, rows)
        return {
            "right": ops.sum(ops.logical_and(predicted, there), axis=0),
            "predicted": ops.sum(predicted, axis=0),
            "there": ops.sum(there, axis=0),
        }

    def value(self, sums: Mapping[str, Any]) -> Any:
        """The score of each class, averaged as asked for."""
        right, predicted, there = (
            np.asarray(sums[name], np.float64) for name in ("right", "predicted", "there")
        )
        average = self.average
        if average == "auto":
            average = "binary" if len(right) == 2 else "macro"
        if average == "binary":
            if len(right) != 2:
                raise DomainError(
                    f"{type(self).__name__}(average='binary') got {len(right)} classes; take "
                    f"average='macro', 'micro', 'weighted' or None"
                )
            if not there.sum():
                return float("nan")
            return self._score(right[1:], predicted[1:], there[1:])[0]
        if average == "micro":
            if not there.sum():
                return float("nan")
            return self._score(right.sum()[None], predicted.sum()[None], there.sum()[None])[0]
        scores = self._score(right, predicted, there)
        met = (predicted + there) > 0
        if average == "none":
            return np.where(met, scores, np.nan)
        if not met.any():
            return float("nan")
        if average == "macro":
            return scores[met].mean()
        if not there.sum():
            return float("nan")
        return (scores * there).sum() / there.sum()

    def _score(self, right: Any, predicted: Any, there: Any) -> Any:
        raise NotImplementedError

    def _share(self, part: Any, whole: Any) -> Any:
        empty = whole == 0
        return np.where(empty, self.zero_division, part / np.where(empty, 1.0, whole))


class Precision(_OfCounts):
    """The share of what was predicted as a class that is of it.

    `average`: "binary" (of class 1), "macro" (the mean over the classes that were met), "micro"
    (over all samples), "weighted" (by the samples of each class), or None, which lists the classes.
    "auto" is "binary" for two classes, and "macro" else. A class that was never predicted has
    `zero_division`, 0 as in scikit-learn; in a list, one that was neither predicted nor there has
    NaN. No samples at all give NaN.

    >>> from ember_ml import training
    >>> training.Precision()([1, 1, 0, 0], [1, 0, 0, 1])
    0.5
    """

    def _score(self, right: Any, predicted: Any, there: Any) -> Any:
        return self._share(right, predicted)


class Recall(_OfCounts):
    """The share of a class that was predicted as it; arguments are those of `Precision`.

    >>> from ember_ml import training
    >>> training.Recall(average=None, num_classes=3)([0, 1, 1], [0, 1, 2])
    [1.0, 1.0, 0.0]
    """

    def _score(self, right: Any, predicted: Any, there: Any) -> Any:
        return self._share(right, there)


class F1(_OfCounts):
    """The harmonic mean of precision and recall: 2 right / (predicted + there).

    Arguments are those of `Precision`.

    >>> from ember_ml import training
    >>> training.F1()([1, 1, 0, 0], [1, 0, 0, 0])
    0.6666666666666666
    """

    def _score(self, right: Any, predicted: Any, there: Any) -> Any:
        return self._share(2.0 * right, predicted + there)
