"""Data parallel training: the same as in one process, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, ops, training
from ember_ml.distributed.strategy import DataParallelStrategy
from tests.distributed import jobs

BACKENDS = ("numpy", "torch")
# 20 steps: two epochs of ten, the last batch of each with 3 rows for up to 3 ranks, or 1 row.
ROWS, SIZE = 9 * 16 + 3, 16


def data(rows: int = ROWS) -> tuple[Any, Any]:
    generator = np.random.default_rng(7)
    x = generator.normal(size=(rows, 6)).astype(np.float32)
    y = (x[:, :1] * 2.0 - x[:, 1:2] + 0.5).astype(np.float32)
    return x, y


def mlp(seed: int) -> nn.Module:
    ops.random.set_seed(seed)
    # No bias before a batch norm: its gradient is zero but for rounding, which Adam would enlarge.
    return nn.Sequential(
        nn.Linear(6, 16, bias=False),
        nn.BatchNorm(16),
        nn.ReLU(),
        nn.Linear(16, 8, bias=False),
        nn.BatchNorm(8, momentum=None),
        nn.Tanh(),
        nn.Linear(8, 1),
    )


def trained(strategy: Any, seed: int, **options: Any) -> dict[str, Any]:
    rows = options.pop("rows", ROWS)
    model = mlp(seed)
    trainer = training.Trainer(
        model,
        training.Adam(model, lr=0.01),
        "mse",
        metrics=["mae", "r2"],
        strategy=strategy,
        **options,
    )
    history = trainer.fit(
        training.DataLoader(data(rows), SIZE, shuffle=True, seed=3 if strategy is None else seed),
        epochs=2,
        validation=data(21),
        verbose=0,
    )
    found = {name: x.numpy() for name, x in model.state_dict().items()}
    return {
        "weights": found,
        "history": {
            name: list(history[name]) for name in ("loss", "mae", "r2", "val_loss", "val_mae")
        },
        "steps": history.steps["loss"] if isinstance(history.steps, dict) else [],
        "evaluated": trainer.evaluate(data(5), batch_size=2),
        "predicted": trainer.predict(data(7)[0], batch_size=3).numpy(),
    }


def train_job(cases: list[dict[str, Any]]) -> list[Any]:
    """Every case in one job; ranks begin with other weights and other orders of the data."""
    strategy = DataParallelStrategy(bucket_mb=0.0005, first_bucket_mb=0.0001)
    rank = em.distributed.initialize().rank
    return [trained(strategy, 3 + rank, **case) for case in cases]


CASES: list[dict[str, Any]] = [
    {},
    {"rows": 9 * 16 + 2},
    {"jit": True},
    {"accumulate": 3, "clip_norm": 0.5},
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_training_equals_one_process(backend: str, ranks: int) -> None:
    found = jobs.run(train_job, ranks, backend, [CASES])
    with em.use_backend(backend):
        for place, case in enumerate(CASES):
            wanted = trained(None, 3, **case)
            for one in found:
                got = one.value[place]
                for name, x in wanted["weights"].items():
                    np.testing.assert_allclose(
                        got["weights"][name], x, rtol=1e-5, atol=1e-5, err_msg=f"{case} {name}"
                    )
                    assert got["weights"][name].dtype == x.dtype
