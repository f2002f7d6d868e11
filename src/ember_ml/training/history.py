"""History: what a training run has measured, by step and by epoch."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ember_ml.errors import DomainError, FormatError, UnknownKeyError

__all__ = ["History"]

Record = dict[str, Any]


class History(Mapping[str, list[float]]):
    """Curves of a training run: `history["loss"]` by epoch, `history.steps["loss"]` by step.

    `records` and `step_records` have the same by epoch and step. A value that was not measured
    then is NaN. `stopped` says why a run ended before its last epoch, and is empty if it did not.

    >>> from ember_ml import training
    >>> history = training.History()
    >>> history.add_epoch({"epoch": 1, "loss": 0.5})
    >>> history.add_epoch({"epoch": 2, "loss": 0.25, "val_loss": 0.3})
    >>> history["loss"], history.best("loss")["epoch"]
    ([0.5, 0.25], 2)
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.step_records: list[Record] = []
        self.stopped = ""

    def add_epoch(self, record: Mapping[str, Any]) -> None:
        """Note what was measured over an epoch."""
        self.records.append(dict(record))

    def add_step(self, record: Mapping[str, Any]) -> None:
        """Note what was measured at a step."""
        self.step_records.append(dict(record))

    # --- Curves -----------------------------------------------------------------------------

    def __getitem__(self, name: str) -> list[float]:
        return _curve(self.records, name)

    def __iter__(self) -> Iterator[str]:
        return iter(_names(self.records))

    def __len__(self) -> int:
        return len(_names(self.records))

    @property
    def steps(self) -> dict[str, list[float]]:
        """The curves by step."""
        return {name: _curve(self.step_records, name) for name in _names(self.step_records)}

    def best(self, name: str = "val_loss", mode: str = "min") -> Record:
        """The record of the epoch in which a value was smallest, or with "max" greatest."""
        if mode not in ("min", "max"):
            raise DomainError(f"History.best got mode={mode!r}; it is 'min' or 'max'")
        curve = self[name]
        known = [place for place, value in enumerate(curve) if not math.isnan(value)]
        if not known:
            raise DomainError(f"History has no '{name}' that is a number")
        choose = min if mode == "min" else max
        return self.records[choose(known, key=lambda place: curve[place])]

    # --- Elsewhere --------------------------------------------------------------------------

    def to_pandas(self, by: str = "epoch") -> Any:
        """A data frame with a row for each epoch, or with by="step" for each step."""
        try:
            import pandas  # type: ignore[import-untyped,unused-ignore]
        except ImportError as error:
            raise ImportError("History.to_pandas needs pandas: pip install pandas") from error
        if by not in ("epoch", "step"):
            raise DomainError(f"History.to_pandas got by={by!r}; it is 'epoch' or 'step'")
        records = self.records if by == "epoch" else self.step_records
        frame = pandas.DataFrame(records)
        return frame.set_index(by) if by in frame.columns else frame

    def plot(self, path: str | os.PathLike[str], names: list[str] | None = None) -> None:
        """Draw the curves to a PNG: losses over steps and epochs, and a panel for each metric."""
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError(
                "History.plot needs matplotlib: pip install 'ember-ml[plot]'"
            ) from error
        panels = _panels(list(self), names)
        if not panels:
            raise DomainError("History.plot has no curves to draw yet")
        figure = Figure(figsize=(5.0 * len(panels), 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        epochs = self["epoch"] if "epoch" in self else list(range(1, len(self.records) + 1))
        for place, (title, curves) in enumerate(panels):
            axes = figure.add_subplot(1, len(panels), place + 1)
            steps = self.steps
            if title in steps and self.records:
                per_epoch = max(len(steps[title]) / max(len(self.records), 1), 1)
                xs = [(number + 1) / per_epoch for number in range(len(steps[title]))]
                axes.plot(xs, steps[title], color="0.8", linewidth=0.8, label=f"{title}, steps")
            for name in curves:
                axes.plot(epochs, self[name], marker="o", markersize=3, label=name)
            axes.set_xlabel("epoch")
            axes.set_title(title)
            axes.grid(alpha=0.3)
            axes.legend()
        figure.savefig(os.fspath(path), dpi=120, format="png")

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        return {"epochs": self.records, "steps": self.step_records, "stopped": self.stopped}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> History:
        """A history of what `to_dict` gave."""
        made = cls()
        try:
            made.records = [dict(one) for one in found["epochs"]]
            made.step_records = [dict(one) for one in found["steps"]]
            made.stopped = str(found["stopped"])
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"this is no history of a training run: {error}") from None
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a JSON file, which is replaced at once."""
        from ember_ml.io.atomic import replacing

        with replacing(os.fspath(path)) as file:
            file.write(json.dumps(self.to_dict(), indent=1).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> History:
        """Read what `save` has written."""
        with open(path, encoding="utf-8") as file:
            try:
                found = json.load(file)
            except ValueError as error:
                raise FormatError(f"'{os.fspath(path)}' is no JSON file: {error}") from None
        return cls.from_dict(found)

    # --- Showing ----------------------------------------------------------------------------

    def __rich__(self) -> Any:
        from rich import box
        from rich.table import Table

        title = f"stopped: {self.stopped}" if self.stopped else None
        table = Table(box=box.SIMPLE, title=title)
        names = _names(self.records)
        for name in names:
            table.add_column(name, justify="right")
        for record in self.records:
            table.add_row(*[_shown(record.get(name)) for name in names])
        return table

    def __repr__(self) -> str:
        if not self.records:
            return f"History({len(self.step_records)} steps, no epoch)"
        from rich.console import Console

        console = Console(width=20 * max(len(self), 4), color_system=None)
        with console.capture() as captured:
            console.print(self)
        lines = [line.rstrip() for line in captured.get().splitlines()]
        return "\n".join(line for line in lines if line)


def _curve(records: list[Record], name: str) -> list[float]:
    if not any(name in one for one in records):
        there = ", ".join(_names(records)) or "nothing yet"
        raise UnknownKeyError(f"History has no '{name}'; it has {there}")
    return [one.get(name, math.nan) for one in records]


def _names(records: list[Record]) -> list[str]:
    return list(dict.fromkeys(name for one in records for name in one))


def _panels(there: list[str], names: list[str] | None) -> list[tuple[str, list[str]]]:
    """Curves that are drawn together: a value, and the same on the data of validation."""
    hidden = ("epoch", "step", "seconds", "samples_per_second")
    chosen = [one for one in there if one not in hidden] if names is None else names
    if names is None and "lr" in chosen and len(chosen) > 1:
        chosen = [one for one in chosen if one != "lr"]
    panels: dict[str, list[str]] = {}
    for name in chosen:
        panels.setdefault(name.removeprefix("val_"), []).append(name)
    return list(panels.items())


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return " ".join(_shown(one) for one in value)
    return str(value)
