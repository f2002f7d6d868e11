"""A rate that follows a metric."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ember_ml.errors import DomainError, FormatError
from ember_ml.training.schedules.base import Schedule, Value, rate

__all__ = ["PlateauSchedule"]


class PlateauSchedule(Schedule):
    """A rate that falls by `factor` when a metric gets no better for `patience` observations.

    Call `schedule.observe(metric)` after each epoch. `mode` is "min" where a smaller metric is
    better, else "max". Better means by more than `threshold`, relative ("rel") or absolute
    ("abs"). After a fall, `cooldown` observations do not count.

    >>> from ember_ml.training import PlateauSchedule
    >>> plateau = PlateauSchedule(1.0, factor=0.5, patience=1)
    >>> [plateau.observe(metric) for metric in (3.0, 2.0, 2.0, 2.0, 2.0)]
    [1.0, 1.0, 1.0, 0.5, 0.5]
    """

    def __init__(
        self,
        lr: float,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if mode not in ("min", "max"):
            raise DomainError(f"PlateauSchedule got mode={mode!r}; it is 'min' or 'max'")
        if threshold_mode not in ("rel", "abs"):
            raise DomainError(
                f"PlateauSchedule got threshold_mode={threshold_mode!r}; it is 'rel' or 'abs'"
            )
        if factor >= 1.0:
            raise DomainError(f"PlateauSchedule got factor={factor}; it is smaller than 1")
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.min_lr = min_lr
        self.eps = eps
        # The rate of now, the best metric, observations since, and those that do not count yet.
        self.rate = rate(self, "lr", lr)
        self.best = math.inf if mode == "min" else -math.inf
        self.bad = 0
        self.waits = 0

    def observe(self, metric: Any) -> float:
        """Take note of a metric; gives the rate from now on."""
        now = float(metric)
        if self._is_better(now):
            self.best, self.bad = now, 0
        else:
            self.bad += 1
        if self.waits > 0:
            self.waits -= 1
            self.bad = 0
        if self.bad > self.patience:
            lower = max(self.rate * self.factor, self.min_lr)
            if self.rate - lower > self.eps:
                self.rate = lower
            self.waits, self.bad = self.cooldown, 0
        return self.rate

    def _is_better(self, now: float) -> bool:
        by = self.threshold
        if self.mode == "min":
            return now < (
                self.best * (1.0 - by) if self.threshold_mode == "rel" else self.best - by
            )
        return now > (self.best * (1.0 + by) if self.threshold_mode == "rel" else self.best + by)

    def value(self, step: Value, xp: Any) -> Value:
        """See the class."""
        return xp.now(self)

    def _watching(self) -> list[PlateauSchedule]:
        return [self]

    def _seen(self) -> dict[str, Any]:
        return {"rate": self.rate, "best": self.best, "bad": self.bad, "waits": self.waits}

    def _resume(self, state: Mapping[str, Any]) -> None:
        try:
            self.rate, self.best = float(state["rate"]), float(state["best"])
            self.bad, self.waits = int(state["bad"]), int(state["waits"])
        except KeyError as error:
            raise FormatError(f"the state of a PlateauSchedule has no {error}") from None
