"""AUC: how well scores put positives before negatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.autodiff import tape
from ember_ml.errors import DomainError, ShapeError
from ember_ml.tensor.core import Tensor
from ember_ml.training.metrics.base import Metric, Sums, given, mask_of

__all__ = ["AUC"]

Array = np.ndarray[Any, Any]
# So many batches stay on the device before they are read: an engine that computes later would keep
# all that they were computed from.
_WAITING: Final = 32


class AUC(Metric):
    """The area under the ROC curve, or with `curve="pr"` the average precision.

    Scores of positives are any numbers of the shape of the targets; scores (..., classes) give the
    mean over classes, each against the rest. By default the area is exact, equal scores counted
    half, and all scores are kept. With `thresholds=n`, scores lie between 0 and 1 and are counted
    in n bins, in fixed memory; scores of one bin count as equal.

    Where there are only positives or only negatives, nothing is ordered: NaN. Such classes do not
    count in the mean over classes.

    >>> from ember_ml import training
    >>> training.AUC()([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """

    traceable = False

    def __init__(
        self, name: str | None = None, *, curve: str = "roc", thresholds: int | None = None
    ) -> None:
        if curve not in ("roc", "pr"):
            raise DomainError(f"AUC got curve={curve!r}; there are 'roc' and 'pr'")
        if thresholds is not None and thresholds < 2:
            raise DomainError(f"AUC got thresholds={thresholds}; it is at least 2")
        self.curve = curve
        self.thresholds = thresholds
        self._waiting: list[tuple[Tensor, Tensor, Tensor | None]] = []
        self._read: list[tuple[Array, Array]] = []
        super().__init__(name)

    def update(self, predictions: Any, targets: Any = None, mask: Any = None) -> None:
        """Add a batch of scores and truths."""
        if self.thresholds is not None:
            super().update(predictions, targets, mask)
            return
        with tape.no_grad():
            found = given(predictions)
            about = given(targets, found)
            scores, truths, kept = _checked(found, about, None if mask is None else given(mask))
            self._waiting.append((scores, truths, kept))
        if len(self._waiting) >= _WAITING:
            self._fetch()

    def _fetch(self) -> None:
        for scores, truths, kept in self._waiting:
            s, t = _floats(scores), truths.numpy()
            if kept is not None:
                chosen = kept.numpy()
                s, t = s[chosen], t[chosen]
            self._read.append((s.copy(), t.copy()))
        self._waiting.clear()

    def join(self, state: Mapping[str, Any]) -> None:
        """Add the scores or counts of another one."""
        super().join(state["totals"])
        self._fetch()
        self._read += [
            (_floats(given(one["scores"])), given(one["truths"]).numpy()) for one in state["kept"]
        ]

    def compute(self) -> Any:
        """The area; NaN where there are no positives or no negatives."""
        if self.thresholds is not None:
            return super().compute()
        self._fetch()
        if not self._read:
            return float("nan")
        if len(self._read) > 1:
            joined = [np.concatenate([one[i] for one in self._read]) for i in (0, 1)]
            self._read = [(joined[0], joined[1])]
        scores, truths = self._read[0]
        if scores.ndim == 1:
            return self._area(*_by_score(scores, truths.astype(bool)))
        areas = [self._area(*_by_score(scores[:, k], truths == k)) for k in range(scores.shape[1])]
        return _mean(areas)

    def sums(self, predictions: Tensor, targets: Any, mask: Tensor | None) -> Sums:
        """Positives and negatives in each bin of scores."""
        scores, truths, kept = _checked(predictions, targets, mask)
        count = self.thresholds or 0
        bins = ops.clip(ops.floor(scores * float(count)), 0, count - 1).astype(dtypes.int64)
        numbers = ops.arange(count)
        inside = ops.expand_dims(bins, axis=-1) == numbers  # (samples[, classes], bins)
        if kept is not None:
            rows = ops.reshape(kept, (-1,) + (1,) * (inside.ndim - 1))
            inside = ops.logical_and(inside, rows)
        if scores.ndim == 2:
            classes = ops.arange(scores.shape[1])
            positive = ops.expand_dims(truths, axis=-1) == classes
        else:
            positive = truths != 0
        positive = ops.expand_dims(positive, axis=-1)
        return {
            "positives": ops.sum(ops.logical_and(inside, positive), axis=0),
            "negatives": ops.sum(ops.logical_and(inside, ops.logical_not(positive)), axis=0),
        }

    def value(self, sums: Mapping[str, Any]) -> Any:
        """The area of the bins."""
        positives, negatives = np.asarray(sums["positives"]), np.asarray(sums["negatives"])
        if positives.ndim == 1:
            return self._area(positives, negatives)
        return _mean([self._area(p, n) for p, n in zip(positives, negatives, strict=True)])

    def _area(self, positives: Array, negatives: Array) -> float:
        """The area by how many positives and negatives each score has, lowest scores first."""
        p, n = (one[::-1].astype(np.float64) for one in (positives, negatives))
        all_p, all_n = p.sum(), n.sum()
        if not all_p or not all_n:
            return float("nan")
        found = np.cumsum(p)
        if self.curve == "pr":
            below = np.cumsum(p + n)
            precision = found / np.where(below == 0, 1.0, below)
            return float((precision * p).sum() / all_p)
        # A negative is passed by all positives above it, and by half of its equals.
        return float((n * (found - p / 2)).sum() / (all_p * all_n))

    def reset(self) -> None:
        """Forget all batches."""
        self._waiting, self._read = [], []
        super().reset()

    def __call__(self, predictions: Any, targets: Any = None, mask: Any = None) -> Any:
        """The area of one batch."""
        other = AUC(self.name, curve=self.curve, thresholds=self.thresholds)
        other.update(predictions, targets, mask)
        return other.compute()

    def state_dict(self) -> dict[str, Any]:
        """The scores or counts so far."""
        self._fetch()
        kept = [{"scores": ops.asarray(s), "truths": ops.asarray(t)} for s, t in self._read]
        return {"totals": super().state_dict(), "kept": kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        super().load_state_dict(state["totals"])
        self._waiting = []
        self._read = [
            (_floats(given(one["scores"])), given(one["truths"]).numpy()) for one in state["kept"]
        ]


def _floats(x: Tensor) -> Array:
    """Scores as NumPy sorts them."""
    x = x.astype(dtypes.float32) if x.dtype == dtypes.bfloat16 else x
    return np.asarray(x.numpy())


def _checked(
    scores: Tensor, truths: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Scores (samples,) or (samples, classes), and truths and mask (samples,)."""
    if scores.shape == (*truths.shape, 1):
        scores = ops.squeeze(scores, axis=-1)
    if scores.shape == truths.shape:
        flat = ops.reshape(scores, (-1,))
    elif scores.shape[:-1] == truths.shape and scores.ndim:
        flat = ops.reshape(scores, (-1, scores.shape[-1]))
    else:
        raise ShapeError(
            f"AUC got scores of shape {scores.shape} and targets of shape {truths.shape}; scores "
            f"have the shape of the targets, or one more axis of classes"
        )
    kept = mask_of("AUC", mask, truths.shape)
    rows = None if kept is None else ops.reshape(kept, (-1,))
    return flat, ops.reshape(truths, (-1,)), rows


def _by_score(scores: Array, positive: Array) -> tuple[Array, Array]:
    """How many positives and negatives each score has, in rising order."""
    values, places = np.unique(scores, return_inverse=True)
    count = len(values)
    p = np.bincount(places[positive], minlength=count)
    return p, np.bincount(places[~positive], minlength=count)


def _mean(areas: list[float]) -> float:
    known = [one for one in areas if one == one]
    return sum(known) / len(known) if known else float("nan")
