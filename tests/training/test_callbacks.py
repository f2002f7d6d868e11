"""Callbacks: when they are called, stopping, checkpoints, logs and progress."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from ember_ml import nn, training
from ember_ml.errors import DomainError, UnknownKeyError
from ember_ml.ops import random
from ember_ml.training import (
    SGD,
    Callback,
    Checkpoint,
    CSVLogger,
    EarlyStopping,
    JSONLogger,
    ProgressBar,
    TensorBoardLogger,
    Trainer,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 3)).astype("float32")
Y = (X @ np.array([[1.0], [-2.0], [0.5]], "float32")).astype("float32")


def made(*callbacks: Callback, lr: float = 0.1) -> Trainer:
    with random.use_seed(0):
        model = nn.Linear(3, 1)
    return Trainer(model, SGD(model, lr=lr), "mse", callbacks=callbacks, seed=0, jit=False)


def fit(trainer: Trainer, epochs: int = 2, **options: Any) -> training.History:
    options.setdefault("verbose", 0)
    return trainer.fit((X, Y), epochs, batch_size=6, **options)


def test_the_moments() -> None:
    called: list[str] = []

    class Telling(Callback):
        def __getattribute__(self, name: str) -> Any:
            if name.startswith("on_"):
                called.append(name.removeprefix("on_"))
            return super().__getattribute__(name)

    fit(made(Telling()), 1, validation=(X, Y))
    steps = ["step_begin", "step_end"] * 2
    ends = ["validation_begin", "validation_end", "epoch_end", "fit_end"]
    assert called == ["fit_begin", "epoch_begin", *steps, *ends]


def test_the_end_is_called_after_an_error() -> None:
    ended = []

    class Failing(Callback):
        def on_step_end(self, trainer: Trainer, logs: Any) -> None:
            raise RuntimeError("no")

        def on_fit_end(self, trainer: Trainer) -> None:
            ended.append(True)

    with pytest.raises(RuntimeError, match="no"):
        fit(made(Failing()))
    assert ended == [True]


# --- Stopping ----------------------------------------------------------------------------------


class Given(Callback):
    """Put values of a test into the logs."""

    def __init__(self, *values: float) -> None:
        self.values = list(values)
        self.weights: list[Any] = []

    def on_epoch_end(self, trainer: Trainer, logs: Any) -> None:
        logs["score"] = self.values[trainer.epoch - 1]
        self.weights.append(trainer.model.weight.numpy().copy())


@pytest.mark.parametrize("mode", ["min", "max"])
def test_early_stopping(mode: str, backend: str) -> None:
    sign = 1.0 if mode == "min" else -1.0
    given = Given(*(sign * v for v in (3.0, 2.0, 2.5, 2.4, 1.0, 0.5)))
    stopping = EarlyStopping("score", patience=1, mode=mode, restore_best=True)
    trainer = made(given, stopping)
    history = fit(trainer, 6)
    assert len(history["loss"]) == 4
    assert history.stopped == "score has not improved for 2 epochs"
    assert np.array_equal(trainer.model.weight.numpy(), given.weights[1])
    assert not np.array_equal(given.weights[1], given.weights[3])
    again = fit(trainer, 1)  # a new run begins anew
    assert again.stopped == ""


def test_what_counts_as_better() -> None:
    small = EarlyStopping("score", patience=0, min_delta=0.5)
    assert len(fit(made(Given(3.0, 2.8, 1.0), small), 3)["loss"]) == 2
    nan = EarlyStopping("score", patience=0)
    assert len(fit(made(Given(3.0, float("nan"), 1.0), nan), 3)["loss"]) == 2
    assert EarlyStopping("val_accuracy").best.sign == -1.0
    assert EarlyStopping("val_loss").best.sign == 1.0
    with pytest.raises(UnknownKeyError, match=r"watches 'val_loss'.*fit\(validation"):
        fit(made(EarlyStopping()))
    with pytest.raises(DomainError, match="mode='up'"):
        EarlyStopping(mode="up")
    with pytest.raises(DomainError, match="patience=-1"):
        EarlyStopping(patience=-1)


def test_stopping_goes_on_after_a_resume(tmp_path: Path) -> None:
    values = (3.0, 2.0, 2.5, 2.4, 2.3)
    wanted = made(Given(*values), EarlyStopping("score", patience=2, restore_best=True))
    assert len(fit(wanted, 6)["loss"]) == 5
    fit(made(Given(*values), EarlyStopping("score", 2, restore_best=True), Checkpoint(tmp_path)), 3)
    resumed = made(Given(*values), EarlyStopping("score", 2, restore_best=True))
    history = fit(resumed, 6, resume=tmp_path)
    assert len(history["loss"]) == 5
    assert np.array_equal(resumed.model.weight.numpy(), wanted.model.weight.numpy())


# --- Checkpoints --------------------------------------------------------------------------------


def names(place: Path) -> list[int]:
    return [int(one.stem.removeprefix("step-")) for one in sorted(place.glob("step-*"))]


def test_checkpoints(tmp_path: Path) -> None:
    fit(made(Checkpoint(tmp_path / "a")), 3)
    assert names(tmp_path / "a") == [2, 4, 6]
    fit(made(Checkpoint(tmp_path / "b", every_epochs=2)), 3)
    assert names(tmp_path / "b") == [4]
    fit(made(Checkpoint(tmp_path / "c", every_steps=4, keep=1)), 5)
    assert names(tmp_path / "c") == [8]
    best = Checkpoint(tmp_path / "d", best_only=True, monitor="score", keep=2)
    fit(made(Given(3.0, 4.0, 2.0, 1.0), best), 4)
    assert names(tmp_path / "d") == [6, 8]
    assert [Path(one).name for one in best.files()] == [
        "step-00000006.safetensors",
        "step-00000008.safetensors",
    ]
    for wrong in ({"every_steps": 0}, {"keep": 0}, {"every_steps": 2, "best_only": True}):
        with pytest.raises(DomainError):
            Checkpoint(tmp_path, **wrong)


# --- Logs ---------------------------------------------------------------------------------------


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    history = fit(made(CSVLogger(path), Checkpoint(tmp_path)), 3)
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3]
    assert [float(row["loss"]) for row in rows] == history["loss"]
    # A resumed run goes on; what it does again is not there twice.
    resumed = made(CSVLogger(path))
    longer = fit(resumed, 4, resume=tmp_path / "step-00000004.safetensors")
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in rows] == longer["loss"]
    steps = tmp_path / "steps.csv"
    history = fit(made(CSVLogger(steps, by="step")), 2)
    with open(steps, newline="") as file:
        assert [float(r["loss"]) for r in csv.DictReader(file)] == history.steps["loss"]
    with pytest.raises(DomainError):
        CSVLogger(path, by="both")
    with pytest.raises(DomainError, match="by='week'"):
        JSONLogger(path, by="week")


def test_a_column_that_comes_later(tmp_path: Path) -> None:
    class Late(Callback):
        def on_epoch_end(self, trainer: Trainer, logs: Any) -> None:
            if trainer.epoch == 2:
                logs["late"] = 1.0

    path = tmp_path / "log.csv"
    fit(made(Late(), CSVLogger(path)), 3)
    with open(path, newline="") as file:
        assert [row["late"] for row in csv.DictReader(file)] == ["", "1.0", ""]


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"

    class Odd(Callback):
        def on_epoch_end(self, trainer: Trainer, logs: Any) -> None:
            logs["odd"] = [float("nan"), 1.0]

    history = fit(made(Odd(), JSONLogger(path, by="both"), Checkpoint(tmp_path)), 2)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [r["loss"] for r in records if r["kind"] == "step"] == history.steps["loss"]
    assert [r["odd"] for r in records if r["kind"] == "epoch"] == [[None, 1.0]] * 2
    longer = fit(
        made(JSONLogger(path, by="both")), 3, resume=tmp_path / "step-00000002.safetensors"
    )
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [r["loss"] for r in records if r["kind"] == "step"] == longer.steps["loss"]


def test_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit(made(TensorBoardLogger(tmp_path / "tb")), 2)
    (events,) = (tmp_path / "tb").glob("events.out.*")
    data = events.read_bytes()
    assert b"epoch/loss" in data
    assert b"step/lr" in data
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r"ember-ml\[tensorboard\]"):
        fit(made(TensorBoardLogger(tmp_path)))


# --- Progress -----------------------------------------------------------------------------------


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    fit(made(), 2, validation=(X, Y), verbose=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("epoch 1/2  loss ")
    assert "val_loss " in lines[1]
    assert "samples/s" in lines[1]
    fit(made(), 2, verbose=0)
    fit(made(ProgressBar()), 2, verbose=0)
    assert capsys.readouterr().out == ""


def test_a_bar_in_a_terminal() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=140)
    trainer = made(ProgressBar(console))
    trainer.metrics.append(training.MAE())
    trainer.stepper.metrics.append(trainer.metrics[0])
    fit(trainer, 2, verbose=1)
    shown = screen.getvalue()
    for text in ("epoch 1/2", "loss", "mae", "steps/s", "lr 0.1", "2/2"):
        assert text in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # the cursor comes back


def test_the_terminal_comes_back_after_an_error() -> None:
    class Failing(Callback):
        def on_step_end(self, trainer: Trainer, logs: Any) -> None:
            raise RuntimeError("no")

    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with pytest.raises(RuntimeError):
        fit(made(ProgressBar(console), Failing()), 2, verbose=1)
    assert screen.getvalue().count("\x1b[?25h") == 1
