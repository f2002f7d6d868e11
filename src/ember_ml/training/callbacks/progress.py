"""ProgressBar: how far a run is, in a terminal or in a log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from ember_ml.training.callbacks.base import Callback, Logs

if TYPE_CHECKING:
    from ember_ml.training.trainer.trainer import Trainer

__all__ = ["ProgressBar"]

# Seconds between two looks at the metrics, which have to be read from the device.
_PAUSE: Final = 0.25


class ProgressBar(Callback):
    """A bar with loss, metrics, rate and time to go; where there is no terminal, a line per epoch.

    `trainer.fit(verbose=0)` shows nothing.
    """

    main_only = True

    def __init__(self, console: Any = None) -> None:
        self.console = console
        self._progress: Any = None
        self._task: Any = None
        self._shown = 0.0
        self._began = 0.0
        self._first = 0

    def on_fit_begin(self, trainer: Trainer) -> None:
        """Begin the display."""
        from rich.console import Console

        if self.console is None:
            self.console = Console()
        if not self.console.is_terminal:
            return
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[values]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self._progress.start()

    def on_epoch_begin(self, trainer: Trainer) -> None:
        """A new bar."""
        self._began, self._first = time.perf_counter(), trainer.step
        self._shown = 0.0
        if self._progress is None:
            return
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(
            f"epoch {trainer.epoch}/{trainer.epochs}",
            total=trainer.steps_per_epoch,
            completed=trainer.step_in_epoch,
            values="",
        )

    def on_step_end(self, trainer: Trainer, logs: Logs) -> None:
        """Move on."""
        if self._progress is None:
            return
        self._progress.update(self._task, completed=trainer.step_in_epoch)
        now = time.perf_counter()
        if now - self._shown >= _PAUSE:
            self._shown = now
            rate = (trainer.step - self._first) / max(now - self._began, 1e-9)
            values = {"loss": logs["loss"], **trainer.running_metrics()}
            text = f"{_values(values)}  {rate:.3g} steps/s  lr {logs['lr']:.3g}"
            self._progress.update(self._task, values=text)

    def on_epoch_end(self, trainer: Trainer, logs: Logs) -> None:
        """A line of what was measured, which stays."""
        hidden = ("seconds", "samples_per_second", "lr")
        values = {name: value for name, value in logs.items() if name not in hidden}
        line = (
            f"epoch {trainer.epoch}/{trainer.epochs}  {_values(values)}  "
            f"{logs['samples_per_second']:.4g} samples/s  {logs['seconds']:.1f} s"
        )
        self.console.print(line, highlight=False, soft_wrap=True)

    def on_fit_end(self, trainer: Trainer) -> None:
        """Give the terminal back."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = self._task = None


def _values(values: Logs) -> str:
    return "  ".join(
        f"{name} {value:.4g}" for name, value in values.items() if isinstance(value, float)
    )
