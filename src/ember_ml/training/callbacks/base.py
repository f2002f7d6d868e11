"""Callback: the moments of a training run at which something else can happen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ember_ml.errors import DomainError, UnknownKeyError

if TYPE_CHECKING:
    from ember_ml.training.trainer.trainer import Trainer

__all__ = ["Best", "Callback"]

Logs = Mapping[str, Any]
_GROWING: Final = ("acc", "auc", "f1", "precision", "recall", "r2")


class Callback:
    """Something to do while a model is trained; a subclass has those methods that it needs.

    Each gets the trainer: its `model`, `optimizer`, `history`, `epoch` and `step` (from 1 on), and
    `stop(reason)`, which ends the run after this step. `logs` has what was measured.

    >>> from ember_ml import nn, training
    >>> class Counting(training.Callback):
    ...     steps = 0
    ...
    ...     def on_step_end(self, trainer, logs):
    ...         self.steps += 1
    >>> counting = Counting()
    >>> model = nn.Linear(2, 1)
    >>> trainer = training.Trainer(model, training.SGD(model, 0.1), "mse", callbacks=[counting])
    >>> _ = trainer.fit((ops.ones((6, 2)), ops.ones((6, 1))), epochs=2, batch_size=2, verbose=0)
    >>> counting.steps
    6
    """

    # True where one of several processes does it for all: what prints or writes logs.
    main_only: ClassVar[bool] = False

    def on_fit_begin(self, trainer: Trainer) -> None:
        """Before the first step; after what a resumed run has loaded."""

    def on_fit_end(self, trainer: Trainer) -> None:
        """After the last step, also where the run was stopped or failed."""

    def on_epoch_begin(self, trainer: Trainer) -> None:
        """Before the first step of an epoch."""

    def on_epoch_end(self, trainer: Trainer, logs: Logs) -> None:
        """After an epoch and its validation."""

    def on_step_begin(self, trainer: Trainer) -> None:
        """Before a step."""

    def on_step_end(self, trainer: Trainer, logs: Logs) -> None:
        """After a step: `logs` has loss and lr."""

    def on_validation_begin(self, trainer: Trainer) -> None:
        """Before the validation of an epoch."""

    def on_validation_end(self, trainer: Trainer, logs: Logs) -> None:
        """After it: `logs` has val_loss and the metrics."""

    def on_interrupt(self, trainer: Trainer) -> None:
        """After the step in which somebody pressed Ctrl-C."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what a checkpoint has kept."""


class Best:
    """The best value of something that is measured."""

    def __init__(self, who: str, monitor: str, mode: str, min_delta: float = 0.0) -> None:
        if mode not in ("auto", "min", "max"):
            raise DomainError(f"{who} got mode={mode!r}; it is 'min', 'max' or 'auto'")
        if min_delta < 0:
            raise DomainError(f"{who} got min_delta={min_delta}; it is not negative")
        self.who = who
        self.monitor = monitor
        if mode == "auto":
            mode = "max" if any(part in monitor for part in _GROWING) else "min"
        self.sign = 1.0 if mode == "min" else -1.0
        self.min_delta = min_delta
        self.value: float | None = None

    def of(self, logs: Logs) -> float:
        """What is watched, as it was measured now."""
        try:
            return float(logs[self.monitor])
        except KeyError:
            hint = "; give fit(validation=...)" if self.monitor.startswith("val_") else ""
            raise UnknownKeyError(
                f"{self.who} watches '{self.monitor}', which was not measured; there are "
                f"{', '.join(logs)}{hint}"
            ) from None

    def improves(self, now: float) -> bool:
        """True where a value is better than all before, and is then the best one."""
        best = self.value
        if now != now or (best is not None and self.sign * (best - now) <= self.min_delta):
            return False
        self.value = now
        return True
