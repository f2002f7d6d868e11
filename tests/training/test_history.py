"""History: curves, files, tables and pictures."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from ember_ml import nn, ops, training
from ember_ml.errors import DomainError, FormatError, UnknownKeyError
from ember_ml.training import SGD, History, Trainer


@pytest.fixture
def history() -> History:
    model = nn.Linear(2, 1)
    x = ops.random.normal((8, 2), generator=ops.random.Generator(0))
    trainer = Trainer(model, SGD(model, lr=0.1), "mse", metrics=["mae"])
    return trainer.fit((x, x[:, :1]), 3, batch_size=4, validation=(x, x[:, :1]), verbose=0)


def test_curves(history: History) -> None:
    assert len(history["loss"]) == 3
    assert len(history.steps["loss"]) == 6
    assert history.steps["step"] == [1, 2, 3, 4, 5, 6]
    assert history["step"] == [2, 4, 6]
    assert dict(history)["val_mae"] == history["val_mae"]
    assert "loss" in history
    assert "nothing" not in history
    assert history.best("loss")["epoch"] == 3
    assert history.best("loss", "max")["epoch"] == 1
    with pytest.raises(UnknownKeyError, match="no 'losss'; it has epoch, step, loss"):
        history["losss"]
    with pytest.raises(DomainError, match="mode="):
        history.best("loss", "lowest")


def test_missing_values_are_nan() -> None:
    history = History()
    history.add_epoch({"loss": 1.0})
    history.add_epoch({"loss": 2.0, "val_loss": 3.0})
    assert math.isnan(history["val_loss"][0])
    assert history.best()["loss"] == 2.0


def test_files(history: History, tmp_path: Path) -> None:
    history.add_epoch({"loss": math.inf, "odd": math.nan})
    path = tmp_path / "history.json"
    history.save(path)
    found = History.load(path)
    assert found["loss"] == history["loss"]
    assert found.steps["loss"] == history.steps["loss"]
    assert math.isnan(found["odd"][-1])
    path.write_text("{")
    with pytest.raises(FormatError, match="no JSON"):
        History.load(path)
    path.write_text("[]")
    with pytest.raises(FormatError, match="no history"):
        History.load(path)


def test_pandas(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = history.to_pandas()
    assert list(frame["loss"]) == history["loss"]
    assert list(frame.index) == [1, 2, 3]
    assert len(history.to_pandas(by="step")) == 6
    with pytest.raises(DomainError):
        history.to_pandas(by="day")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        history.to_pandas()


def test_a_picture(history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "curves.png"
    history.plot(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    history.plot(path, names=["loss"])
    with pytest.raises(DomainError, match="no curves"):
        History().plot(path)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"ember-ml\[plot\]"):
        history.plot(path)


def test_a_table(history: History) -> None:
    lines = repr(history).splitlines()
    assert "val_loss" in lines[0]
    assert len(lines) == 5  # the head, a line, and three epochs
    assert repr(History()) == "History(0 steps, no epoch)"
    history.stopped = "interrupted"
    assert "stopped: interrupted" in repr(history)
    assert isinstance(training.History(), dict) is False
