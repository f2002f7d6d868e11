"""Sharded data parallel training: the same as in one process, with a part of the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, ops, training
from ember_ml.distributed.strategy import ShardedDataParallelStrategy
from ember_ml.distributed.strategy.sharded_layout import Layout
from ember_ml.errors import DTypeError, ShapeError
from tests.distributed import jobs

BACKENDS = ("numpy", "torch")
# 20 steps: two epochs of ten, the last batch of each with 3 rows for up to 3 ranks.
ROWS, SIZE = 9 * 16 + 3, 16


def data(rows: int = ROWS) -> tuple[Any, Any]:
    generator = np.random.default_rng(7)
    x = generator.normal(size=(rows, 6)).astype(np.float32)
    y = (x[:, :1] * 2.0 - x[:, 1:2] + 0.5).astype(np.float32)
    return x, y


class Reader(nn.Module):
    """Reads the weight of another module, which nobody calls."""

    def __init__(self, inner: nn.Module) -> None:
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return x @ ops.matrix_transpose(self.inner.weight)


class Odd(nn.Module):
    """Parameters in lists, without an axis, frozen, tied, read by others, and of odd sizes."""

    def __init__(self) -> None:
        self.first = nn.Linear(6, 5, bias=False)
        self.again = nn.Linear(6, 5, bias=False)
        self.again.weight = self.first.weight
        self.scale = nn.Parameter(1.25)
        self.offsets = [nn.Parameter(ops.ones(3)), nn.Parameter(ops.zeros((1, 5)))]
        self.fixed = nn.Linear(5, 5).freeze()
        self.reader = Reader(nn.Linear(5, 7, bias=False))
        # No bias whose gradient is zero but for rounding, which Adam would enlarge.
        self.attention = nn.MultiHeadAttention(8, 2, bias=False)
        self.recurrent = nn.GRU(2, 3, batch_first=True)
        self.body = nn.Sequential(
            nn.Linear(7, 8, bias=False), nn.BatchNorm(8), nn.Tanh(), nn.Residual(nn.Linear(8, 8))
        )
        self.last = nn.Linear(8 + 6, 1)

    def forward(self, x: Any) -> Any:
        h = self.first(x) + 0.5 * self.again(x[:, ::-1])
        h = h * self.scale + self.offsets[1] + ops.mean(self.offsets[0])
        h = self.reader(ops.tanh(h + self.fixed(h)))
        # The weights of a module after it has been called.
        back = ops.tanh(h[:, :5] @ self.first.weight)
        found = self.recurrent(ops.reshape(x, (-1, 3, 2)))
        steps = found[0] if isinstance(found, tuple) else found
        h = self.body(h) + ops.sum(steps, axis=(1, 2))[:, None] * 0.1
        tokens = ops.reshape(ops.concat([h, h * 0.5], axis=-1), (-1, 2, 8))
        mixed = self.attention(tokens, tokens, tokens)
        mixed = mixed[0] if isinstance(mixed, tuple) else mixed
        return self.last(ops.concat([ops.mean(mixed, axis=1), back], axis=-1))


def model_of(seed: int) -> nn.Module:
    ops.random.set_seed(seed)
    return Odd()


def penalized(model: Any, batch: Any) -> Any:
    """A step that reads parameters itself."""
    x, y = batch
    loss = ops.mean((model(x) - y) ** 2)
    weights = ops.sum(model.last.weight**2)
    for p in model.reader.parameters():
        weights = weights + ops.sum(p * p)
    return loss + 0.01 * weights, {"weights": weights}


def trained(strategy: Any, seed: int, **options: Any) -> dict[str, Any]:
    name = options.pop("optimizer", "AdamW")
    own_step = options.pop("own_step", False)
    dtype = options.pop("dtype", None)
    model = model_of(seed)
    x, y = data()
    if dtype is not None:
        model.to(dtype=dtype)
        x, y = (ops.asarray(one, dtype=dtype) for one in (x, y))
    optimizer = getattr(training, name)(model, lr=0.01)
    loss = {"step": penalized} if own_step else {"loss": "mse", "metrics": ["mae"]}
    trainer = training.Trainer(model, optimizer, strategy=strategy, **loss, **options)
    history = trainer.fit(
        training.DataLoader((x, y), SIZE, shuffle=True, seed=3 if strategy is None else seed),
        epochs=2,
        validation=(x[:21], y[:21]),
        verbose=0,
    )
    state = optimizer.state_dict()["state"]
    return {
        "weights": {key: _plain(one) for key, one in model.state_dict().items()},
        "state": {
            f"{key}.{inner}": _plain(x) for key, one in state.items() for inner, x in one.items()
        },
        "history": {
            key: list(history[key])
            for key in ("loss", "val_loss", "weights", "mae")
            if key in list(history)
        },
        "predicted": None if own_step else _plain(trainer.predict(x[:7], batch_size=3)),
        "steps": optimizer.steps,
    }


def _plain(x: Any) -> Any:
    return x.detach().astype("float32").numpy()


class Counting(training.Callback):
    """Counts the bytes that a rank keeps between steps, and looks at the model on the way."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def on_step_end(self, trainer: Any, logs: Any) -> None:
        if trainer.step != 5:
            return
        model, optimizer = trainer.model, trainer.optimizer
        kept = [
            x for slots in optimizer._slots for slot in slots for x in (slot.state or {}).values()
        ]
        self.found["weights"] = sum(x.nbytes for x in model.parameters())
        self.found["memory"] = sum(x.nbytes for x in kept)
        self.found["shapes"] = {name: list(x.shape) for name, x in model.state_dict().items()}
        model.eval()
        x = ops.asarray(data()[0][:4])
        self.found["called"] = [model(x).shape, model.first(x).shape]
        model.train()
        assert type(model) is not Odd and isinstance(model, Odd)


def counted(strategy: Any) -> dict[str, Any]:
    model, counting = model_of(3), Counting()
    optimizer = training.Adam(model, lr=0.01)
    training.Trainer(model, optimizer, "mse", strategy=strategy, callbacks=[counting]).fit(
        training.DataLoader(data(), SIZE), verbose=0
    )
    assert type(model) is Odd and type(optimizer) is training.Adam
    return {**counting.found, "whole": sum(x.nbytes for x in model.parameters())}


CASES: list[dict[str, Any]] = [
    {},
    {"accumulate": 3, "clip_norm": 0.5},
    {"own_step": True, "optimizer": "RMSprop"},
]


def train_job(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Every case in one job; ranks begin with other weights and other orders of the data."""
    strategy = ShardedDataParallelStrategy()
    rank = em.distributed.initialize().rank
    return {
        "cases": [trained(strategy, 3 + rank, **case) for case in cases],
        "counted": counted(strategy),
    }


@pytest.fixture(scope="module")
def alone() -> dict[str, list[dict[str, Any]]]:
    found = {}
    for backend in BACKENDS:
        with em.use_backend(backend):
            found[backend] = [trained(None, 3, **case) for case in CASES]
    return found


@pytest.mark.parametrize(
    ("backend", "ranks"), [("numpy", 2), ("numpy", 3), ("torch", 2), ("torch", 3)]
)
def test_training_gives_what_one_process_gives(backend: str, ranks: int, alone: Any) -> None:
    found = jobs.run(train_job, ranks, backend, [CASES])
    for one in found:
        for expected, got in zip(alone[backend], one.value["cases"], strict=True):
            for key, value in expected["weights"].items():
                np.testing.assert_allclose(got["weights"][key], value, atol=1e-5, err_msg=key)
                np.testing.assert_array_equal(
                    got["weights"][key], found[0].value["cases"][0]["weights"][key]
                ) if got is one.value["cases"][0] else None
            assert set(got["state"]) == set(expected["state"])
            for key, value in expected["state"].items():
                assert got["state"][key].shape == value.shape
                np.testing.assert_allclose(got["state"][key], value, atol=1e-5, err_msg=key)
            for key, values in expected["history"].items():
                np.testing.assert_allclose(got["history"][key], values, rtol=1e-4, err_msg=key)
            if expected["predicted"] is not None:
                np.testing.assert_allclose(got["predicted"], expected["predicted"], atol=1e-5)
            assert got["steps"] == expected["steps"]
        kept = one.value["counted"]
        # Some parts are filled up, and numbers without an axis are one number on each rank.
        whole = kept["whole"]
        assert whole / ranks - 200 <= kept["weights"] <= whole / ranks + 400
        assert kept["memory"] <= 2 * (whole / ranks + 400) + 200
        shapes = {key: list(x.shape) for key, x in alone[backend][0]["weights"].items()}
        assert kept["shapes"] == shapes
        assert kept["called"] == [[4, 1], [4, 5]]
    total = sum(one.value["counted"]["weights"] for one in found)
    assert whole <= total <= whole + 40 * 4 * ranks
