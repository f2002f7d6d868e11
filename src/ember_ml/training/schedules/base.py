"""Schedules: rates that follow the number of updates.

A schedule is a function of the number of updates so far; the first update has number 0. Nothing is
to be called: an optimizer that was given a schedule as its `lr` asks it before each update. Each is
one formula, which runs on numbers and, within compiled functions, on tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from ember_ml import ops
from ember_ml.errors import DomainError, FormatError
from ember_ml.nn import config
from ember_ml.tensor.core import Tensor, fill

if TYPE_CHECKING:
    from ember_ml.training.schedules.plateau import PlateauSchedule

__all__ = ["Rate", "Schedule", "Value", "count", "rate"]

Self = TypeVar("Self", bound="Schedule")
# A number, or a tensor where a function is compiled.
Value = Any


class _Numbers:
    """What formulas are written with, for Python's numbers."""

    cos = staticmethod(math.cos)
    floor = staticmethod(math.floor)
    log = staticmethod(math.log)
    minimum = staticmethod(min)
    maximum = staticmethod(max)

    def where(self, condition: bool, a: Value, b: Value) -> Value:
        return a if condition else b

    def now(self, schedule: PlateauSchedule) -> Value:
        return schedule.rate


class _Tensors:
    """The same for tensors of one spec."""

    cos: ClassVar[Callable[..., Tensor]] = staticmethod(ops.cos)
    floor: ClassVar[Callable[..., Tensor]] = staticmethod(ops.floor)
    log: ClassVar[Callable[..., Tensor]] = staticmethod(ops.log)
    minimum: ClassVar[Callable[..., Tensor]] = staticmethod(ops.minimum)
    maximum: ClassVar[Callable[..., Tensor]] = staticmethod(ops.maximum)

    def __init__(self, step: Tensor, now: Mapping[int, Tensor]) -> None:
        self._spec = step._spec
        self._now = now

    def tensor(self, value: Value) -> Tensor:
        return value if isinstance(value, Tensor) else fill(self._spec.scalar(value), self._spec)

    def where(self, condition: Tensor, a: Value, b: Value) -> Value:
        # Two numbers alone would have the default dtype.
        return ops.where(condition, self.tensor(a), self.tensor(b))

    def now(self, schedule: PlateauSchedule) -> Value:
        return self._now[id(schedule)]


_NUMBERS: Final = _Numbers()


class Schedule(config.Configured):
    """A rate as a function of the number of updates so far.

    A subclass has `value(step, xp)`, where `step` and the result are numbers or tensors, and
    `xp` has `where`, `minimum`, `maximum`, `floor`, `log` and `cos` for them.

    >>> from ember_ml.training import Schedule
    >>> class InverseRoot(Schedule):
    ...     def __init__(self, lr):
    ...         self.lr = lr
    ...
    ...     def value(self, step, xp):
    ...         return self.lr * (step + 1) ** -0.5
    >>> schedule = InverseRoot(0.1)
    >>> schedule(0), schedule(3)
    (0.1, 0.05)
    """

    def value(self, step: Value, xp: Any) -> Value:
        """The rate of an update."""
        raise NotImplementedError(f"{type(self).__name__} has no method value(step, xp)")

    def __call__(self, step: int) -> float:
        return float(self.value(step, _NUMBERS))

    def traced(self, step: Tensor, numbers: Sequence[Tensor]) -> Tensor:
        """The rate as a tensor, by a step that is one; `numbers` are as from `numbers()`."""
        now = {id(one): x for one, x in zip(self._watching(), numbers, strict=True)}
        xp = _Tensors(step, now)
        return xp.tensor(self.value(step, xp))

    def numbers(self) -> list[float]:
        """The rates in it that follow something else than the step, as they are now."""
        return [one.rate for one in self._watching()]

    def _parts(self) -> Sequence[Schedule]:
        """The schedules that it is made of."""
        return ()

    def _watching(self) -> list[PlateauSchedule]:
        return [one for part in self._parts() for one in part._watching()]

    # --- Keeping ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a schedule has seen; most have no state but the count of the optimizer."""
        return {str(place): one._seen() for place, one in enumerate(self._watching())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        mine = self._watching()
        if sorted(state) != sorted(str(place) for place in range(len(mine))):
            raise FormatError(
                f"{type(self).__name__}.load_state_dict got the state of another schedule"
            )
        for place, one in enumerate(mine):
            one._resume(state[str(place)])

    def __eq__(self, other: object) -> bool:
        return self is other  # two of the same arguments may have seen other things

    def __hash__(self) -> int:
        return id(self)


# What an optimizer takes as `lr`.
Rate = float | Schedule


def rate(schedule: Schedule, name: str, value: float) -> float:
    """A rate that a schedule was given; raises where it is none."""
    if not math.isfinite(value) or value < 0:
        raise DomainError(
            f"{type(schedule).__name__} got {name}={value}; it is a finite number, not negative"
        )
    return value


def count(schedule: Schedule, name: str, value: int) -> int:
    """A count that a schedule was given; raises where it is none."""
    if int(value) != value or value < 1:
        raise DomainError(f"{type(schedule).__name__} got {name}={value}; it is at least 1")
    return int(value)
