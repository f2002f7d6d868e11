"""Data parallel training: the same as in one process, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, ops, training
from ember_ml.distributed.strategy import DataParallelStrategy
from tests.distributed import jobs

# 20 steps: two epochs of ten, the last batch of each with 3 rows.
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
    records = history.to_dict()
    for record in records["epochs"]:
        del record["seconds"], record["samples_per_second"]
    return {
        "weights": {name: x.numpy() for name, x in model.state_dict().items()},
        "history": records,
        "evaluated": trainer.evaluate(data(5), batch_size=2),
        "predicted": trainer.predict(data(7)[0], batch_size=3).numpy(),
    }


def train_job(cases: list[dict[str, Any]]) -> list[Any]:
    """Every case in one job; ranks begin with other weights and other orders of the data."""
    strategy = DataParallelStrategy(bucket_mb=0.0005, first_bucket_mb=0.0001)
    rank = em.distributed.initialize().rank
    return [trained(strategy, 3 + rank, **case) for case in cases]


# With three ranks, two rows are left in the end: one rank has none.
FEW = ROWS - 1
CASES: dict[str, dict[int, list[dict[str, Any]]]] = {
    "numpy": {2: [{}, {"accumulate": 3, "clip_norm": 0.5}], 3: [{"rows": FEW}, {"jit": True}]},
    "torch": {
        2: [{}, {"jit": True}],
        3: [{"rows": FEW}, {"accumulate": 3, "clip_norm": 0.5, "rows": FEW}],
    },
    "jax": {2: [{}, {"jit": False, "rows": 19}], 3: [{"rows": FEW}]},
    "mlx": {2: [{}, {"jit": False, "rows": 35}], 3: [{"rows": FEW}, {"accumulate": 3, "rows": 50}]},
}


@pytest.mark.parametrize("ranks", [2, 3])
def test_training_equals_one_process(backend: str, ranks: int) -> None:
    cases = CASES[backend][ranks]
    # One process first: MLX keeps the kernels that it compiles, and ranks would all compile them.
    wanted = [trained(None, 3, **case) for case in cases]
    found = jobs.run(train_job, ranks, backend, [cases])
    for place, case in enumerate(cases):
        for one in found:
            near(one.value[place], wanted[place], f"rank {one.rank}, {case}")
            # What ranks have is the same to the last bit.
            near(one.value[place], found[0].value[place], f"rank {one.rank}, {case}", 0.0)


def near(got: Any, wanted: Any, where: str, tolerance: float = 1e-5) -> None:
    if isinstance(wanted, dict):
        assert set(got) == set(wanted), where
        for name in wanted:
            near(got[name], wanted[name], f"{where}.{name}", tolerance)
    elif isinstance(wanted, list | tuple):
        assert len(got) == len(wanted), where
        for place, (a, b) in enumerate(zip(got, wanted, strict=True)):
            near(a, b, f"{where}[{place}]", tolerance)
    elif isinstance(wanted, float | np.ndarray):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance, err_msg=where)
        assert np.asarray(got).dtype == np.asarray(wanted).dtype, where
    else:
        assert got == wanted, where
