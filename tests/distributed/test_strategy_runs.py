"""What a run over several processes has to agree on: ends, errors, random numbers, metrics."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import dtypes, nn, ops, training
from ember_ml.distributed.strategy import DataParallelStrategy, SingleDeviceStrategy, Strategy
from tests.distributed import jobs
from tests.distributed.test_strategy import near

ROWS = 20


def data(rows: int = ROWS, inputs: int = 4) -> tuple[Any, Any]:
    generator = np.random.default_rng(3)
    x = generator.normal(size=(rows, inputs)).astype(np.float32)
    return x, (x.sum(axis=1, keepdims=True) > 0).astype(np.float32)


def linear(seed: int = 0, inputs: int = 4) -> nn.Module:
    ops.random.set_seed(seed)
    return nn.Linear(inputs, 1)


def trainer_of(model: nn.Module, strategy: Any, **options: Any) -> training.Trainer:
    given: dict[str, Any] = {"loss": "mse", **options}
    return training.Trainer(model, training.SGD(model, lr=0.1), strategy=strategy, **given)


def said(function: Any) -> list[str]:
    try:
        function()
    except em.EmberError as error:
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


# --- One job: what is asked of each rank, by name -------------------------------------------------


class StopAt(training.Callback):
    """Stops, or is interrupted, at a step on one rank alone."""

    def __init__(self, rank: int, step: int, interrupts: bool = False) -> None:
        self.rank, self.step, self.interrupts = rank, step, interrupts

    def on_step_end(self, trainer: training.Trainer, logs: Any) -> None:
        if trainer.strategy.communicator.rank == self.rank and trainer.step == self.step:
            if self.interrupts:
                os.kill(os.getpid(), signal.SIGINT)
            else:
                trainer.stop(f"said rank {self.rank}")


def stopped(strategy: Any, rank: int) -> Any:
    trainer = trainer_of(linear(), strategy, callbacks=[StopAt(1, 3)])
    history = trainer.fit(data(), epochs=3, batch_size=4, verbose=0)
    return [trainer.step, history.stopped, trainer.loader.state_dict()["position"]]


def interrupted(strategy: Any, rank: int) -> Any:
    trainer = trainer_of(linear(), strategy, callbacks=[StopAt(1, 2, True)])
    trainer.fit(data(), epochs=3, batch_size=4, verbose=0)
    return [trainer.step, trainer.interrupted, trainer.loader.state_dict()["position"]]


def stopped_early(strategy: Any, rank: int) -> Any:
    stopping = training.EarlyStopping("val_loss", patience=0, min_delta=1e9)
    trainer = trainer_of(linear(), strategy, callbacks=[stopping])
    history = trainer.fit(data(), epochs=9, batch_size=4, validation=data(6), verbose=0)
    return [trainer.step, history.stopped, history.to_dict()]


def other_models(strategy: Any, rank: int) -> Any:
    trainer = trainer_of(linear(inputs=4 + rank), strategy)
    return said(lambda: trainer.fit(data(inputs=4 + rank), verbose=0))


def other_data(strategy: Any, rank: int) -> Any:
    trainer = trainer_of(linear(), strategy)
    return said(lambda: trainer.fit(data(ROWS + rank), verbose=0))


def other_lengths(strategy: Any, rank: int) -> Any:
    x, y = data()
    samples = [(x[i], y[i]) for i in range(8 + 4 * rank)]
    trainer = trainer_of(linear(), strategy)
    return said(lambda: trainer.fit((one for one in samples), batch_size=4, verbose=0))


def iterables(strategy: Any, rank: int) -> Any:
    x, y = data(10)
    model = linear()
    trainer = trainer_of(model, strategy)
    history = trainer.fit(_Stream(x, y), batch_size=4, verbose=0)
    return [history["loss"], model.weight.numpy()]


class _Stream:
    """Samples without numbers and without a length."""

    def __init__(self, x: Any, y: Any) -> None:
        self._pairs = list(zip(x, y, strict=True))

    def __iter__(self) -> Any:
        return iter(self._pairs)


def random_numbers(strategy: Any, rank: int) -> Any:
    """Masks of dropout differ between ranks; what is drawn afterwards does not."""
    masks: list[Any] = []

    class Masked(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.Linear(4, 1)
            self.dropout = nn.Dropout(0.5)

        def forward(self, x: Any) -> Any:
            masked = self.dropout(ops.ones((8, 8)))
            masks.append(masked.numpy())
            return self.layer(x) + 0.0 * ops.mean(masked)

    ops.random.set_seed(5 + rank)
    model = Masked()
    trainer_of(model, strategy, jit=False).fit(data(), batch_size=10, verbose=0)
    return [masks, ops.random.normal((3,)).numpy(), model.layer.weight.numpy()]


def frozen_tied_mixed(strategy: Any, rank: int, half: bool = False) -> Any:
    model = Mixed(dtypes.float16 if half else dtypes.float32)
    trainer = trainer_of(model, strategy, jit=False)
    history = trainer.fit(data(ROWS - 1), epochs=2, batch_size=5, shuffle=False, verbose=0)
    return [
        {name: x.astype("float64").numpy() for name, x in model.state_dict().items()},
        [x.dtype.name for x in model.parameters()],
        history["loss"],
    ]


def with_halves(strategy: Any, rank: int) -> Any:
    return frozen_tied_mixed(strategy, rank, True)


class Mixed(nn.Module):
    """Parameters of several dtypes, one that is frozen, and one that is used twice."""

    def __init__(self, half: Any) -> None:
        ops.random.set_seed(11)
        self.first = nn.Linear(4, 4)
        self.again = self.first
        self.frozen = nn.Linear(4, 4)
        self.frozen.freeze()
        self.wide = nn.Parameter(ops.random.normal((4, 2)).astype(dtypes.float64))
        self.half = nn.Parameter(ops.ones((2,), dtype=half))

    def forward(self, x: Any) -> Any:
        x = self.again(ops.tanh(self.first(x))) + self.frozen(x)
        wide = x.astype("float64") @ self.wide
        return (wide.astype("float32") * self.half.astype("float32")).sum(axis=1, keepdims=True)


def unused(strategy: Any, rank: int) -> Any:
    class Unused(nn.Module):
        def __init__(self) -> None:
            self.used, self.spare = nn.Linear(4, 1), nn.Linear(4, 1)

        def forward(self, x: Any) -> Any:
            return self.used(x)

    return said(lambda: trainer_of(Unused(), strategy).fit(data(), verbose=0))


def not_finite(strategy: Any, rank: int) -> Any:
    x, y = data()
    x[3, 1] = np.nan  # in the part of rank 0 of the first batch of 8
    model = linear()
    before = model.weight.numpy().copy()
    trainer = trainer_of(model, strategy)
    told = said(lambda: trainer.fit((x, y), batch_size=8, shuffle=False, verbose=0))
    return [told, bool((model.weight.numpy() == before).all())]


def half_precision(strategy: Any, rank: int) -> Any:
    ops.random.set_seed(2)
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm(8), nn.Linear(8, 1))
    # A factor with which nothing overflows: parts of a batch have smaller gradients than the whole.
    policy = training.MixedPrecision("float16", training.LossScaler(256.0))
    trainer = trainer_of(model, strategy, precision=policy)
    history = trainer.fit(data(), epochs=2, batch_size=8, shuffle=False, verbose=0)
    return [history["loss"], {name: x.numpy() for name, x in model.state_dict().items()}]


def own_values(strategy: Any, rank: int) -> Any:
    """Numbers of a step of the user's own, with and without accumulation."""

    def step(model: Any, batch: Any) -> Any:
        error = model(batch[0]) - batch[1]
        values = {f"v{i}": ops.mean(ops.abs(error)) * float(i) for i in range(20)}
        return ops.mean(error * error), values

    found = []
    for accumulate in (1, 2):
        model = linear()
        trainer = trainer_of(model, strategy, loss=None, step=step, accumulate=accumulate)
        history = trainer.fit(data(19), batch_size=4, shuffle=False, verbose=0)
        found.append([history["loss"], history["v1"], history["v19"], trainer.evaluate(data(7))])
    return found


def metrics(strategy: Any, rank: int) -> Any:
    names = ["mae", "precision", training.AUC(), training.AUC("bins", thresholds=20), "r2"]
    trainer = trainer_of(linear(), strategy, metrics=names)
    history = trainer.fit(data(), batch_size=6, shuffle=False, verbose=0, validation=data(7))
    return {
        name: value
        for name, value in history.to_dict()["epochs"][0].items()
        if name not in ("seconds", "samples_per_second")
    }


def metric_without_join(strategy: Any, rank: int) -> Any:
    class Own(training.Metric):
        def compute(self) -> Any:
            return 1.0

    return said(lambda: trainer_of(linear(), strategy, metrics=[Own()]))


def instance_statistics(strategy: Any, rank: int) -> Any:
    ops.random.set_seed(2)
    model = nn.Sequential(
        nn.InstanceNorm(2, track_running_stats=True), nn.Flatten(), nn.Linear(6, 1)
    )
    generator = np.random.default_rng(0)
    x = generator.normal(size=(7, 2, 3)).astype(np.float32)
    trainer_of(model, strategy).fit((x, x[:, :1, 0]), batch_size=3, shuffle=False, verbose=0)
    return {name: value.numpy() for name, value in model.state_dict().items()}


CHECKS = (
    stopped,
    interrupted,
    stopped_early,
    other_models,
    other_data,
    other_lengths,
    iterables,
    random_numbers,
    frozen_tied_mixed,
    with_halves,
    unused,
    not_finite,
    half_precision,
    own_values,
    metrics,
    metric_without_join,
    instance_statistics,
)
# Those whose results are to be the same in one process.
SAME = (
    iterables,
    frozen_tied_mixed,
    with_halves,
    half_precision,
    own_values,
    metrics,
    instance_statistics,
)


def run_job() -> dict[str, Any]:
    """All checks on one rank; ranks are then compared."""
    strategy = DataParallelStrategy(bucket_mb=0.0001, first_bucket_mb=0.00003)
    rank = strategy.communicator.rank
    found = {}
    for check in CHECKS:
        found[check.__name__] = check(strategy, rank)
    return found


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_runs_of_two_ranks(engine: str) -> None:
    first, second = (one.value for one in jobs.run(run_job, 2, engine))
    for name in set(first) - {"random_numbers"}:
        near(second[name], first[name], name, 0.0)
    assert first["stopped"] == [3, "said rank 1", 3]
    assert first["interrupted"] == [2, True, 2]
    assert first["stopped_early"][:2] == [10, "val_loss has not improved for 1 epoch"]
    kind, text = first["other_models"]
    assert kind == "DomainError"
    assert "rank 0 has 'weight' float32 (1, 4)" in text
    assert "rank 1 has 'weight' float32 (1, 5)" in text
    kind, text = first["other_data"]
    assert kind == "DomainError"
    assert "the same data" in text
    assert "21" in text
    kind, text = first["other_lengths"]
    assert kind == "DomainError"
    assert "ended on some" in text
    assert first["unused"][0] == "GradientError"
    assert "spare" in first["unused"][1]
    (kind, text), is_kept = first["not_finite"]
    assert kind == "NaNLossError"
    assert "in the input batch[0]" in text
    assert "rank 0" in text
    assert is_kept
    assert first["metric_without_join"][0] == "DomainError"
    masks, others = first["random_numbers"][0], second["random_numbers"][0]
    assert len(masks) == 2
    assert all((a != b).any() for a, b in zip(masks, others, strict=True))
    assert (masks[0] != masks[1]).any()
    near(second["random_numbers"][1:], first["random_numbers"][1:], "random state", 0.0)
    with em.use_backend(engine):
        for check in SAME:
            # Each rank rounds its gradients to float16, whose steps are 1e-3.
            tolerance = 2e-3 if check in (half_precision, with_halves) else 1e-5
            near(first[check.__name__], check(None, 0), check.__name__, tolerance)


def fail_job() -> None:
    """One rank fails in the midst of a run."""

    class Failing(training.Callback):
        def on_step_end(self, trainer: training.Trainer, logs: Any) -> None:
            if trainer.strategy.communicator.rank == 1 and trainer.step == 2:
                raise RuntimeError("this rank has failed")

    trainer = trainer_of(linear(), DataParallelStrategy(), callbacks=[Failing()])
    trainer.fit(data(), epochs=100, batch_size=4, verbose=0)


def test_a_rank_that_fails_is_told_to_the_others() -> None:
    first, second = jobs.run(fail_job, 2, "numpy", check=False)
    assert second.error == "RuntimeError"
    assert first.error == "CommunicationError"
    assert "another rank is gone" in first.text


# --- Without other processes ----------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [SingleDeviceStrategy, DataParallelStrategy])
def test_one_process_is_as_without_a_strategy(strategy: Any) -> None:
    for check in SAME:
        # Several batches of an update are added up in float32 there.
        tolerance = 1e-6 if check is own_values else 0.0
        near(check(strategy(), 0), check(None, 0), check.__name__, tolerance)


def test_distribute_gives_a_part_for_each_rank() -> None:
    class Three(Strategy):
        @property
        def num_devices(self) -> int:
            return 3

    parts = Three().distribute({"x": ops.arange(7), "n": 2.0})
    assert [part["x"].tolist() for part in parts] == [[0, 1, 2], [3, 4], [5, 6]]
    assert [part["n"] for part in parts] == [2.0] * 3
    assert [len(part) for part in Three().distribute(ops.ones((2, 5)))] == [1, 1, 0]
    with pytest.raises(em.ShapeError, match=r"one number of rows, and got \[2, 3\]"):
        Three().distribute((ops.ones((2,)), ops.ones((3,))))
    with pytest.raises(em.ShapeError, match="rows"):
        Three().distribute(1.0)


def test_wrong_arguments() -> None:
    with pytest.raises(em.DTypeError, match="strategy"):
        trainer_of(linear(), "data parallel")
    with pytest.raises(em.DomainError, match="bucket_mb"):
        DataParallelStrategy(bucket_mb=0)
    with pytest.raises(em.DomainError, match="number 2 of 2"):
        training.DataLoader(range(3)).parts(2, 2)


def test_a_run_that_is_started_again_resumes(tmp_path: Any, monkeypatch: Any) -> None:
    def fitted(epochs: int) -> training.Trainer:
        saving = training.Checkpoint(tmp_path)
        trainer = trainer_of(linear(), DataParallelStrategy(), callbacks=[saving], metrics=["mae"])
        trainer.fit(data(), epochs=epochs, batch_size=4, verbose=0)
        return trainer

    monkeypatch.setenv("EMBER_ATTEMPT", "1")
    assert not fitted(1).resumed  # there is nothing yet
    assert fitted(3).resumed
    monkeypatch.setenv("EMBER_ATTEMPT", "0")
    assert not fitted(1).resumed


def test_parts_of_a_loader_are_its_batches(backend: str) -> None:
    loader = training.DataLoader(ops.arange(11), 4, shuffle=True, seed=1)
    whole = [batch.tolist() for batch in loader]
    parts = []
    for rank in range(3):
        loader.set_epoch(0)
        parts.append(list(loader.parts(rank, 3)))
    assert [[part.rows for part in one] for one in parts] == [[2, 2, 1], [1, 1, 1], [1, 1, 1]]
    assert all(
        part.total == len(batch) for one in parts for part, batch in zip(one, whole, strict=True)
    )
    for number, batch in enumerate(whole):
        assert [x for one in parts for x in one[number].batch.tolist()] == batch
    few = [next(iter(training.DataLoader(ops.arange(2), 4).parts(rank, 3))) for rank in range(3)]
    assert [part.rows for part in few] == [1, 1, 0]
    assert few[2].batch.tolist() == [0]  # a stand-in
    assert few[2].batch.backend == backend
