"""Schedules that are made of others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ember_ml.errors import DomainError, DTypeError
from ember_ml.tensor.core import Tensor
from ember_ml.training.schedules.base import Schedule, Value, count, rate
from ember_ml.training.schedules.curves import ConstantSchedule

__all__ = ["ChainSchedule", "WarmupSchedule"]


class ChainSchedule(Schedule):
    """One schedule after another: the next takes over at each milestone, from its own beginning.

    >>> from ember_ml.training import ChainSchedule, ConstantSchedule, LinearSchedule
    >>> chain = ChainSchedule([LinearSchedule(0.0, 1.0, 4), ConstantSchedule(0.5)], [4])
    >>> chain(2), chain(4)
    (0.5, 0.5)
    """

    def __init__(self, schedules: Sequence[Schedule | float], milestones: Sequence[int]) -> None:
        self.schedules = [_schedule(self, one) for one in schedules]
        self.milestones = list(milestones)
        increases = all(a < b for a, b in zip([0, *milestones], milestones, strict=False))
        if len(self.milestones) != len(self.schedules) - 1 or not increases:
            raise DomainError(
                f"ChainSchedule got {len(self.schedules)} schedules and milestones {milestones}; "
                f"it takes one milestone less than schedules, each larger than the one before"
            )

    def _parts(self) -> Sequence[Schedule]:
        return self.schedules

    def value(self, step: Value, xp: Any) -> Value:
        """See the class."""
        starts = [0, *self.milestones]
        if not isinstance(step, Tensor):
            place = max(bisect_right(starts, step) - 1, 0)
            return self.schedules[place].value(step - starts[place], xp)
        found: Value = None
        for start, one in zip(starts, self.schedules, strict=True):
            here = one.value(xp.maximum(step - start, 0), xp)
            found = here if found is None else xp.where(step >= start, here, found)
        return found


class WarmupSchedule(ChainSchedule):
    """A line from `start` times the first rate of a schedule up to it, then the schedule itself.

    `schedule` may be a number, for a rate that stays.

    >>> from ember_ml.training import CosineSchedule, WarmupSchedule
    >>> warm = WarmupSchedule(CosineSchedule(1.0, 100), 10)
    >>> warm(0), warm(5), warm(10), warm(110)
    (0.0, 0.5, 1.0, 0.0)
    """

    def __init__(self, schedule: Schedule | float, steps: int, start: float = 0.0) -> None:
        after = _schedule(self, schedule)
        super().__init__([_Warmup(after, count(self, "steps", steps), start), after], [steps])


class _Warmup(Schedule):
    """The way up to the first rate of another schedule."""

    def __init__(self, schedule: Schedule, steps: int, start: float) -> None:
        self.schedule = schedule
        self.steps = steps
        self.start = rate(self, "start", start)

    def value(self, step: Value, xp: Any) -> Value:
        done = xp.minimum(step, self.steps) / self.steps
        return self.schedule.value(step * 0, xp) * (self.start + (1.0 - self.start) * done)


def _schedule(schedule: Schedule, value: Any) -> Schedule:
    if isinstance(value, Schedule):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DTypeError(
            f"{type(schedule).__name__} takes schedules and numbers, not {type(value).__name__}"
        )
    return ConstantSchedule(float(value))
