"""Checkpoint: files from which a run goes on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ember_ml.errors import DomainError
from ember_ml.io.joint import clear, remove, together
from ember_ml.training import checkpointing
from ember_ml.training.callbacks.base import Best, Callback, Logs
from ember_ml.training.checkpointing import latest, listed

if TYPE_CHECKING:
    from ember_ml.training.trainer.trainer import Trainer

__all__ = ["Checkpoint", "latest", "listed"]


class Checkpoint(Callback):
    """Save everything that a run needs to go on: `trainer.fit(..., resume=directory)`.

    A file `step-00000120.safetensors` is written after every `every_epochs` epochs, after every
    `every_steps` steps, and on Ctrl-C. It appears whole or not at all. With `best_only`, only
    epochs count in which `monitor` is better than ever before. Of all files, the last `keep` stay.

    Under a strategy of several ranks, it is a directory `step-00000120` to which each rank writes
    its share, and which all hosts must see; it loads on any number of ranks.

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
        ranks = checkpointing.ranks_of(trainer)
        if ranks is None:
            os.makedirs(self.directory, exist_ok=True)
            return
        what = f"making the directory '{self.directory}'"
        together(ranks, what, lambda: os.makedirs(self.directory, exist_ok=True))

    def on_step_end(self, trainer: Trainer, logs: Logs) -> None:
        """Save after so many steps."""
        if self.every_steps is not None and trainer.step % self.every_steps == 0:
            self.save(trainer)

    def on_epoch_end(self, trainer: Trainer, logs: Logs) -> None:
        """Save after so many epochs, or after a better one."""
        if self.every_epochs is None or trainer.epoch % self.every_epochs:
            return
        if self.best is None or self._agreed(trainer, self.best.improves(self.best.of(logs))):
            self.save(trainer)

    def _agreed(self, trainer: Trainer, improves: bool) -> bool:
        """What rank 0 says: ranks that save alone would wait for ever."""
        ranks = checkpointing.ranks_of(trainer)
        return improves if ranks is None else ranks.exchange(str(improves))[0] == "True"

    def on_interrupt(self, trainer: Trainer) -> None:
        """Save where the run was when it was interrupted."""
        self.save(trainer)

    def save(self, trainer: Trainer) -> str:
        """Save now; gives the path."""
        ranks = checkpointing.ranks_of(trainer)
        name = f"step-{trainer.step:08d}"
        file = os.path.join(self.directory, f"{name}.safetensors")
        folder = os.path.join(self.directory, name)
        path, other = (file, folder) if ranks is None else (folder, file)
        trainer.save_checkpoint(path)
        if ranks is None or ranks.rank == 0:
            self._tidy(path, other)
        return path

    def _tidy(self, path: str, other: str) -> None:
        """Remove what is too old, the same step of another number of ranks, and what kills left."""
        if os.path.lexists(other):
            with suppress(OSError):
                remove(other)
        for old in [] if self.keep is None else self.files()[: -self.keep]:
            if old != path:
                with suppress(OSError):
                    remove(old)
        for one in checkpointing.unfinished(self.directory):
            clear(one)

    def state_dict(self) -> dict[str, Any]:
        """The best value."""
        return {"best": None if self.best is None else self.best.value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        if self.best is not None:
            self.best.value = state["best"]
