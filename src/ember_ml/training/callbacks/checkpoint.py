"""Checkpoint: files from which a run goes on."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ember_ml.errors import DomainError
from ember_ml.training.callbacks.base import Best, Callback, Logs

if TYPE_CHECKING:
    from ember_ml.training.trainer.trainer import Trainer

__all__ = ["Checkpoint", "latest", "listed"]

_NAME: Final = re.compile(r"step-(\d{8,})\.safetensors")


def listed(directory: str | os.PathLike[str]) -> list[str]:
    """The checkpoints in a directory, the newest last."""
    folder = os.fspath(directory)
    if not os.path.isdir(folder):
        return []
    found = [(int(m[1]), name) for name in os.listdir(folder) if (m := _NAME.fullmatch(name))]
    return [os.path.join(folder, name) for _, name in sorted(found)]


def latest(directory: str | os.PathLike[str]) -> str | None:
    """The newest checkpoint in a directory; None where there is none."""
    found = listed(directory)
    return found[-1] if found else None


class Checkpoint(Callback):
    """Save everything that a run needs to go on: `trainer.fit(..., resume=directory)`.

    A file `step-00000120.safetensors` is written after every `every_epochs` epochs, after every
    `every_steps` steps, and on Ctrl-C. It appears whole or not at all. With `best_only`, only
    epochs count in which `monitor` is better than ever before. Of all files, the last `keep` stay.

    >>> import os, tempfile
    >>> from ember_ml import nn, training
    >>> model, place = nn.Linear(2, 1), tempfile.mkdtemp()
    >>> saving = training.Checkpoint(place, keep=1)
    >>> trainer = training.Trainer(model, training.SGD(model, 0.1), "mse", callbacks=[saving])
    >>> data = ops.ones((4, 2)), ops.ones((4, 1))
    >>> _ = trainer.fit(data, epochs=2, verbose=0)
    >>> history = trainer.fit(data, epochs=3, verbose=0, resume=place)
    >>> len(history["loss"]), [os.path.basename(path) for path in saving.files()]
    (3, ['step-00000003.safetensors'])
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        every_epochs: int | None = None,
        every_steps: int | None = None,
        best_only: bool = False,
        monitor: str = "val_loss",
        mode: str = "auto",
        keep: int | None = None,
    ) -> None:
        self.directory = os.fspath(directory)
        for name, value in (("every_epochs", every_epochs), ("every_steps", every_steps)):
            if value is not None and value < 1:
                raise DomainError(f"Checkpoint got {name}={value}; it is at least 1")
        if keep is not None and keep < 1:
            raise DomainError(f"Checkpoint got keep={keep}; it is at least 1")
        if best_only and every_steps is not None:
            raise DomainError("Checkpoint(best_only=True) looks at epochs; leave out every_steps")
        # Every epoch, where nothing else is said.
        self.every_epochs = 1 if every_epochs is None and every_steps is None else every_epochs
        self.every_steps = every_steps
        self.best = Best("Checkpoint", monitor, mode) if best_only else None
        self.keep = keep

    def files(self) -> list[str]:
        """The checkpoints that are there, the newest last."""
        return listed(self.directory)

    def on_fit_begin(self, trainer: Trainer) -> None:
        """Make the directory."""
        os.makedirs(self.directory, exist_ok=True)

    def on_step_end(self, trainer: Trainer, logs: Logs) -> None:
        """Save after so many steps."""
        if self.every_steps is not None and trainer.step % self.every_steps == 0:
            self.save(trainer)

    def on_epoch_end(self, trainer: Trainer, logs: Logs) -> None:
        """Save after so many epochs, or after a better one."""
        if self.every_epochs is None or trainer.epoch % self.every_epochs:
            return
        if self.best is None or self.best.improves(self.best.of(logs)):
            self.save(trainer)

    def on_interrupt(self, trainer: Trainer) -> None:
        """Save where the run was when it was interrupted."""
        self.save(trainer)

    def save(self, trainer: Trainer) -> str:
        """Save now; gives the path."""
        path = os.path.join(self.directory, f"step-{trainer.step:08d}.safetensors")
        trainer.save_checkpoint(path)
        if self.keep is not None:
            for old in self.files()[: -self.keep]:
                if old != path:
                    with suppress(FileNotFoundError):
                        os.unlink(old)
        return path

    def state_dict(self) -> dict[str, Any]:
        """The best value."""
        return {"best": None if self.best is None else self.best.value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        if self.best is not None:
            self.best.value = state["best"]
