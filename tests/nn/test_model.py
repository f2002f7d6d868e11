"""nn.Model: a module that trains itself by the Trainer."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ember_ml import nn, ops
from ember_ml.errors import DomainError, NotFittedError
from ember_ml.training import SGD


class Line(nn.Model):
    """A line, and a dropout that training uses."""

    def __init__(self, size: int = 3) -> None:
        self.layer = nn.Linear(size, 1)
        self.dropout = nn.Dropout(0.0)

    def forward(self, x: Any) -> Any:
        return self.layer(self.dropout(x))


def data(rows: int = 48) -> tuple[Any, Any]:
    x = np.random.default_rng(0).standard_normal((rows, 3)).astype(np.float32)
    return x, (x @ np.array([[1.0], [-2.0], [0.5]]) + 0.25).astype(np.float32)


def test_compile_fit_evaluate_predict(backend: str, tmp_path: Path) -> None:
    ops.random.set_seed(0)
    model = Line()
    x, y = data()
    with pytest.raises(NotFittedError, match=r"compile\(optimizer, loss\) first"):
        model.fit((x, y))
    assert model.compile(SGD(model, lr=0.1), "mse", metrics=["mae"]) is model
    history = model.fit((x, y), epochs=12, batch_size=16, verbose=0)
    assert history["loss"][-1] < 1e-2 * history["loss"][0]
    found = model.evaluate((x, y))
    assert found["loss"] < 0.05
    assert found["mae"] < 0.2
    told = model.predict(x, batch_size=20)
    assert (told.backend, told.shape, told.requires_grad) == (backend, (48, 1), False)
    np.testing.assert_allclose(told.numpy(), y, atol=0.5)
    assert model.training
    model.save(tmp_path / "line.safetensors")
    again = Line.load(tmp_path / "line.safetensors")
    np.testing.assert_array_equal(again.predict(x).numpy(), model.predict(x).numpy())
    with pytest.raises(DomainError, match="found Line in the file"):
        type("Other", (nn.Model,), {}).load(tmp_path / "line.safetensors")


def test_an_optimizer_by_its_name() -> None:
    ops.random.set_seed(0)
    x, y = data()
    history = Line().compile("adam", "mse").fit((x, y), epochs=2, verbose=0)
    assert history["loss"][1] < history["loss"][0]


def test_the_trainer_is_no_part_of_the_model() -> None:
    model = Line().compile("adam", "mse")
    assert list(model.state_dict()) == ["layer.weight", "layer.bias"]
    assert "Held" not in repr(model)
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert list(made.state_dict()) == ["layer.weight", "layer.bias"]


def test_predict_takes_several_inputs(backend: str) -> None:
    class Sum(nn.Model):
        def forward(self, a: Any, b: Any) -> Any:
            return {"sum": a + b}

    a, b = ops.ones((5, 2)), ops.full((5, 2), 2.0)
    for given in ((a, b), {"a": a, "b": b}):
        assert Sum().predict(given, batch_size=2)["sum"].tolist() == [[3.0, 3.0]] * 5
    with pytest.raises(DomainError, match="rows"):
        Sum().predict((a, b[:3]))
    with pytest.raises(DomainError, match="batch_size=0"):
        Sum().predict((a, b), batch_size=0)
