"""Rates that follow a curve of the step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from ember_ml.errors import DomainError
from ember_ml.training.schedules.base import Schedule, Value, count, rate

__all__ = [
    "ConstantSchedule",
    "CosineSchedule",
    "ExponentialSchedule",
    "LinearSchedule",
    "OneCycleSchedule",
    "StepSchedule",
]

# Cycles that grow are told apart by their starts; this many reach beyond any count of updates.
_CYCLES: Final = 48


class ConstantSchedule(Schedule):
    """The same rate for ever.

    >>> from ember_ml.training import ConstantSchedule
    >>> ConstantSchedule(0.1)(1000)
    0.1
    """

    def __init__(self, lr: float) -> None:
        self.lr = rate(self, "lr", lr)

    def value(self, step: Value, xp: Any) -> Value:
        """See the class."""
        return self.lr


class StepSchedule(Schedule):
    """`lr` times `gamma` after every `step_size` updates, or at each of the `milestones`.

    >>> from ember_ml.training import StepSchedule
    >>> halved = StepSchedule(1.0, 10, gamma=0.5)
    >>> halved(9), halved(10), halved(20)
    (1.0, 0.5, 0.25)
    >>> StepSchedule(1.0, milestones=[2, 5], gamma=0.5)(6)
    0.25
    """

    def __init__(
        self,
        lr: float,
        step_size: int | None = None,
        gamma: float = 0.1,
        *,
        milestones: Sequence[int] | None = None,
    ) -> None:
        if (step_size is None) == (milestones is None):
            raise DomainError("StepSchedule takes a step_size or milestones, and not both")
        self.lr = rate(self, "lr", lr)
        self.step_size = None if step_size is None else count(self, "step_size", step_size)
        self.gamma = gamma
        self.milestones = sorted(milestones or ())

    def value(self, step: Value, xp: Any) -> Value:
        """See the class."""
        if self.step_size is not None:
            return self.lr * self.gamma ** xp.floor(step / self.step_size)
        found: Value = self.lr
        for place, milestone in enumerate(self.milestones):
            found = xp.where(step >= milestone, self.lr * self.gamma ** (place + 1), found)
        return found


class ExponentialSchedule(Schedule):
    """`lr * gamma ** step`.

    >>> from ember_ml.training import ExponentialSchedule
    >>> ExponentialSchedule(1.0, 0.5)(3)
    0.125
    """

    def __init__(self, lr: float, gamma: float) -> None:
        self.lr = rate(self, "lr", lr)
        self.gamma = gamma

    def value(self, step: Value, xp: Any) -> Value:
        """See the class."""
        return self.lr * self.gamma**step


class LinearSchedule(Schedule):
    """A straight line from `lr` to `end` over `steps` updates; it stays there.

    >>> from ember_ml.training import LinearSchedule
    >>> line = LinearSchedule(1.0, 0.0, 4)
    >>> line(0), line(1), line(4), line(9)
    (1.0, 0.75, 0.0, 0.0)
    """

    def __init__(self, lr: float, end: float, steps: int) -> None:
        self.lr = rate(self, "lr", lr)
        self.end = rate(self, "end", end)
        self.steps = count(self, "steps", steps)

    def value(self, step: Value, xp: Any) -> Value:
        """See the class."""
        return self.lr + (self.end - self.lr) * (xp.minimum(step, self.steps) / self.steps)


class CosineSchedule(Schedule):
    """Half a wave from `lr` down to `end` over `steps` updates; it stays there.

    With `restarts`, it begins anew then, each cycle `multiplier` times as long as the one before.

    >>> from ember_ml.training import CosineSchedule
    >>> wave = CosineSchedule(1.0, 10)
    >>> wave(0), round(wave(5), 3), wave(10), wave(11)
    (1.0, 0.5, 0.0, 0.0)
    >>> CosineSchedule(1.0, 10, restarts=True)(10)
    1.0
    """

    def __init__(
        self,
        lr: float,
        steps: int,
        end: float = 0.0,
        *,
        restarts: bool = False,
        multiplier: int = 1,
    ) -> None:
        self.lr = rate(self, "lr", lr)
        self.steps = count(self, "steps", steps)
        self.end = rate(self, "end", end)
        self.restarts = restarts
        self.multiplier = count(self, "multiplier", multiplier)

    def value(self, step: Value, xp: Any) -> Value:
        """See the class."""
        done = self._done(step, xp) if self.restarts else xp.minimum(step, self.steps) / self.steps
        return self.end + (self.lr - self.end) * (1 + xp.cos(math.pi * done)) / 2

    def _done(self, step: Value, xp: Any) -> Value:
        """How much of its cycle is done at a step."""
        if self.multiplier == 1:
            return (step - self.steps * xp.floor(step / self.steps)) / self.steps
        start: Value = 0
        length: Value = self.steps
        first, size = self.steps, self.steps * self.multiplier
        for _ in range(_CYCLES):
            start, length = (
                xp.where(step >= first, first, start),
                xp.where(step >= first, size, length),
            )
            first, size = first + size, size * self.multiplier
            if first > 2**53:
                break
        return (step - start) / length


class OneCycleSchedule(Schedule):
    """Up from `max_lr / div_factor` to `max_lr`, and down to a small fraction of the beginning.

    The way up takes `pct_start` of `total_steps`. `anneal_strategy` is "cos" or "linear". With
    `three_phase`, it goes down to where it began first, in as many updates as it went up.

    >>> from ember_ml.training import OneCycleSchedule
    >>> cycle = OneCycleSchedule(1.0, 11, pct_start=0.6)
    >>> round(cycle(0), 4), round(cycle(5), 4) > 0.9, round(cycle(10), 6)
    (0.04, True, 4e-06)
    """

    def __init__(
        self,
        max_lr: float,
        total_steps: int,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        self.max_lr = rate(self, "max_lr", max_lr)
        self.total_steps = count(self, "total_steps", total_steps)
        if not 0 <= pct_start <= 1:
            raise DomainError(f"OneCycleSchedule got pct_start={pct_start}; it is from 0 to 1")
        if anneal_strategy not in ("cos", "linear"):
            raise DomainError(
                f"OneCycleSchedule got anneal_strategy={anneal_strategy!r}; it is 'cos' or 'linear'"
            )
        self.is_cosine = anneal_strategy == "cos"
        low = max_lr / div_factor
        last = low / final_div_factor
        peak = pct_start * total_steps - 1.0
        # Where each phase ends, and the rates that it leads from and to.
        self._phases: list[tuple[float, float, float]] = [(peak, low, max_lr)]
        if three_phase:
            self._phases.append((2 * pct_start * total_steps - 2.0, max_lr, low))
        self._phases.append((total_steps - 1.0, self._phases[-1][2], last))

    def value(self, step: Value, xp: Any) -> Value:
        """See the class."""
        now = xp.minimum(step, self.total_steps - 1)
        found: Value = None
        start = 0.0
        for end, low, high in self._phases:
            done = (now - start) / (end - start) if end != start else now * 0.0 + 1.0
            if self.is_cosine:
                here = high + (low - high) / 2.0 * (xp.cos(math.pi * done) + 1)
            else:
                here = low + (high - low) * done
            found = here if found is None else xp.where(now > start, here, found)
            start = end
        return found
