"""Logs in files: CSV, JSON lines, TensorBoard."""

from __future__ import annotations

import csv
import json
import math
import os
from typing import IO, TYPE_CHECKING, Any

from ember_ml.errors import DomainError
from ember_ml.training.callbacks.base import Callback, Logs

if TYPE_CHECKING:
    from ember_ml.training.trainer.trainer import Trainer

__all__ = ["CSVLogger", "JSONLogger", "TensorBoardLogger"]

_LEVELS = ("epoch", "step", "both")


class _Logger(Callback):
    """What is written by epoch, by step, or both."""

    main_only = True

    def __init__(self, by: str) -> None:
        if by not in _LEVELS:
            raise DomainError(f"{type(self).__name__} got by={by!r}; it is 'epoch', 'step', 'both'")
        self.by = by

    def on_step_end(self, trainer: Trainer, logs: Logs) -> None:
        """Write a step."""
        if self.by != "epoch":
            self._write(trainer, "step", {"step": trainer.step, "epoch": trainer.epoch, **logs})

    def on_epoch_end(self, trainer: Trainer, logs: Logs) -> None:
        """Write an epoch."""
        if self.by != "step":
            self._write(trainer, "epoch", {"epoch": trainer.epoch, "step": trainer.step, **logs})

    def _write(self, trainer: Trainer, level: str, record: dict[str, Any]) -> None:
        raise NotImplementedError


class CSVLogger(_Logger):
    """Write a row for each epoch, or with by="step" for each step, to a CSV file.

    A resumed run goes on in the same file; rows of steps that are done again are left out first.
    """

    def __init__(self, path: str | os.PathLike[str], by: str = "epoch") -> None:
        if by == "both":
            raise DomainError("CSVLogger has one kind of rows; make one for steps and one more")
        super().__init__(by)
        self.path = os.fspath(path)
        self._rows: list[dict[str, Any]] = []
        self._columns: list[str] = []

    def on_fit_begin(self, trainer: Trainer) -> None:
        """Begin the file, or find what of it stays."""
        self._rows, self._columns = [], []
        if trainer.resumed and os.path.exists(self.path):
            with open(self.path, newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file)
                found = list(reader)
                self._columns = list(reader.fieldnames or ())
            self._rows = [row for row in found if _is_past(row, self.by, trainer)]
        self._rewrite()

    def _write(self, trainer: Trainer, level: str, record: dict[str, Any]) -> None:
        self._rows.append(record)
        new = [name for name in record if name not in self._columns]
        if new:  # a value that was not there before: all rows get its column
            self._columns += new
            self._rewrite()
            return
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns).writerow(record)

    def _rewrite(self) -> None:
        with open(self.path, "w", newline="", encoding="utf-8") as file:
            if self._columns:
                writer = csv.DictWriter(file, self._columns)
                writer.writeheader()
                writer.writerows(self._rows)


class JSONLogger(_Logger):
    """Write a JSON object on a line of its own for each epoch, each step, or both.

    Numbers that JSON does not have, NaN and infinities, are null.
    """

    def __init__(self, path: str | os.PathLike[str], by: str = "epoch") -> None:
        super().__init__(by)
        self.path = os.fspath(path)
        self._file: IO[str] | None = None

    def on_fit_begin(self, trainer: Trainer) -> None:
        """Begin the file, or find what of it stays."""
        kept: list[str] = []
        if trainer.resumed and os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                for line in file:
                    record = json.loads(line)
                    if _is_past(
                        record, "step" if record.get("kind") == "step" else "epoch", trainer
                    ):
                        kept.append(line)
        self._file = open(self.path, "w", encoding="utf-8")  # noqa: SIM115  # open for the run
        self._file.writelines(kept)
        self._file.flush()

    def _write(self, trainer: Trainer, level: str, record: dict[str, Any]) -> None:
        if self._file is not None:
            plain = {name: _json(value) for name, value in record.items()}
            self._file.write(json.dumps({"kind": level, **plain}) + "\n")
            self._file.flush()

    def on_fit_end(self, trainer: Trainer) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class TensorBoardLogger(_Logger):
    """Write scalars for TensorBoard, by the package tensorboardX."""

    def __init__(self, directory: str | os.PathLike[str], by: str = "both") -> None:
        super().__init__(by)
        self.directory = os.fspath(directory)
        self._writer: Any = None

    def on_fit_begin(self, trainer: Trainer) -> None:
        """Open the log."""
        try:
            from tensorboardX import SummaryWriter  # type: ignore[import-untyped,unused-ignore]
        except ImportError as error:
            raise ImportError(
                "TensorBoardLogger needs tensorboardX: pip install 'ember-ml[tensorboard]'"
            ) from error
        # Steps that a resumed run does again take the place of the old ones.
        purge = trainer.step + 1 if trainer.resumed else None
        self._writer = SummaryWriter(self.directory, purge_step=purge)

    def _write(self, trainer: Trainer, level: str, record: dict[str, Any]) -> None:
        for name, value in record.items():
            if isinstance(value, float) and self._writer is not None:
                self._writer.add_scalar(f"{level}/{name}", value, trainer.step)

    def on_fit_end(self, trainer: Trainer) -> None:
        """Close the log."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _is_past(record: dict[str, Any], by: str, trainer: Trainer) -> bool:
    """Whether a line is of before the checkpoint from which a run goes on."""
    done = trainer.step if by == "step" else trainer.epochs_done
    return int(record[by]) <= done


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [_json(one) for one in value] if isinstance(value, list) else value
