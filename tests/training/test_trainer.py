"""Trainer: the same run on every backend, compiled or not, and what it says of mistakes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import ember_ml as em
from ember_ml import nn, ops, training
from ember_ml.errors import DomainError, DTypeError, NaNLossError, ShapeError
from ember_ml.ops import random
from ember_ml.training import SGD, AdamW, DataLoader, Trainer

rng = np.random.default_rng(0)
X = rng.normal(size=(24, 3)).astype("float32")
Y = (X @ np.array([[1.0], [-2.0], [0.5]], "float32")).astype("float32")


def linear(**options: Any) -> Trainer:
    """A trainer of a small model; MLX's compiler of kernels is left to the tests that need it."""
    with random.use_seed(0):
        model = nn.Linear(3, 1)
    options.setdefault("jit", em.get_backend() == "jax")  # there, op by op takes longer to begin
    return Trainer(model, SGD(model, lr=0.1), options.pop("loss", "mse"), seed=0, **options)


def weights(model: nn.Module) -> dict[str, Any]:
    return {name: x.numpy().copy() for name, x in model.state_dict().items()}


# --- The same everywhere ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    """The run on NumPy, with which others are compared."""
    with em.use_backend("numpy"):
        return digits("auto")


def digits(jit: bool | str) -> dict[str, Any]:
    """50 steps of an MLP with dropout on scikit-learn's digits."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16.0).astype("float32")
    with random.use_seed(0):
        model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
    trainer = Trainer(
        model, AdamW(model, lr=1e-2), "cross_entropy", metrics=["accuracy"], jit=jit, seed=1
    )
    history = trainer.fit((x[:1600], y[:1600]), epochs=2, batch_size=64, verbose=0)
    steps = history.steps["loss"]
    assert len(steps) == 50
    return {"steps": steps, "accuracy": history["accuracy"], "traces": trainer.traces}


def test_the_same_loss_curve_on_every_backend(backend: str, reference: dict[str, Any]) -> None:
    found = digits("auto")
    difference = np.abs(np.array(found["steps"]) - np.array(reference["steps"])).max()
    assert difference < 1e-4
    assert np.allclose(found["accuracy"], reference["accuracy"], atol=2 / 1600)
    assert found["steps"][-1] < 0.6 < 2.0 < found["steps"][0]
    # One step is traced once, and only where that is quicker.
    assert found["traces"] == (1 if backend in ("jax", "mlx") else 0)


@pytest.mark.parametrize("other", ["numpy", "torch"])
def test_compiled_or_not_draws_the_same(other: str, reference: dict[str, Any]) -> None:
    with em.use_backend(other):
        found = digits(True)
    assert np.abs(np.array(found["steps"]) - np.array(reference["steps"])).max() < 1e-4


# --- What fit does ------------------------------------------------------------------------------


def test_a_step_is_what_it_says(backend: str) -> None:
    trainer = linear()
    w, b = (x.numpy().astype("float64") for x in trainer.model.parameters())
    history = trainer.fit((X, Y), epochs=2, batch_size=12, shuffle=False, verbose=0)
    losses = []
    for start in (0, 12, 0, 12):
        x, y = X[start : start + 12].astype("float64"), Y[start : start + 12]
        error = x @ w.T + b - y
        losses.append(np.mean(error**2))
        w = w - 0.1 * 2 * (error.T @ x) / 12
        b = b - 0.1 * 2 * error.mean(0)
    np.testing.assert_allclose(history.steps["loss"], losses, rtol=1e-5)
    np.testing.assert_allclose(trainer.model.weight.numpy(), w, rtol=1e-5)
    # Of the steps as reported: what float64 gives, float32 does not hold to a part of 1e-7.
    steps = history.steps["loss"]
    np.testing.assert_allclose(history["loss"], [np.mean(steps[:2]), np.mean(steps[2:])])
    assert history["epoch"] == [1, 2]
    assert history["lr"] == [0.1, 0.1]
    assert history.stopped == ""
    assert trainer.model.weight.backend == backend


def test_accumulation_is_one_large_batch(backend: str) -> None:
    small = linear(accumulate=3)
    history = small.fit((X, Y), 1, batch_size=5, shuffle=False, verbose=0)
    assert len(history.steps["loss"]) == 2  # 15 samples and 9
    large = linear()
    large.fit((X, Y), 1, batch_size=15, shuffle=False, verbose=0)
    for name, x in weights(large.model).items():
        np.testing.assert_allclose(weights(small.model)[name], x, rtol=1e-5, atol=1e-7)


def test_clipping(backend: str) -> None:
    trainer = linear(clip_norm=1e-3)
    before = weights(trainer.model)
    trainer.fit((X, Y), 1, batch_size=24, verbose=0)
    after = weights(trainer.model)
    moved = math.sqrt(sum(float(((after[n] - before[n]) ** 2).sum()) for n in before))
    assert moved == pytest.approx(0.1 * 1e-3, rel=2e-2)


def test_validation_evaluate_and_predict(backend: str) -> None:
    trainer = linear(metrics=["mae", training.R2(), lambda p, t: ops.max(ops.abs(p - t))])
    history = trainer.fit((X, Y), 3, validation=(X[:7], Y[:7]), batch_size=8, verbose=0)
    assert list(history) == [
        *("epoch", "step", "loss", "mae", "r2", "<lambda>"),
        *("val_loss", "val_mae", "val_r2", "val_<lambda>", "lr", "seconds", "samples_per_second"),
    ]
    found = trainer.evaluate((X[:7], Y[:7]), batch_size=3)
    assert found["loss"] == pytest.approx(history["val_loss"][-1], rel=1e-6)
    predicted = trainer.predict(X[:7], batch_size=3)
    assert predicted.shape == (7, 1)
    assert predicted.backend == backend
    error = predicted.numpy() - Y[:7]
    assert found["loss"] == pytest.approx(float((error**2).mean()), rel=1e-5)
    assert found["mae"] == pytest.approx(float(np.abs(error).mean()), rel=1e-5)
    with_targets = trainer.predict((X[:7], Y[:7]), batch_size=3, targets=True)
    assert with_targets.tolist() == predicted.tolist()
    assert trainer.model.training


def test_auc_beside_a_compiled_step() -> None:
    """A metric that keeps scores is not part of the step, and sees the same predictions."""
    y = (Y[:, 0] > 0).astype("float32")[:, None]
    found = []
    for backend, jit in (("numpy", False), ("jax", True)):
        with em.use_backend(backend):
            trainer = linear(metrics=["auc", "accuracy"], loss="mse", jit=jit)
            history = trainer.fit((X, y), 2, validation=(X, y), batch_size=12, verbose=0)
            found.append([history[name] for name in ("auc", "accuracy", "val_auc")])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


def test_the_mode_of_the_model_and_running_statistics(backend: str) -> None:
    with random.use_seed(0):
        model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    model.eval()
    modes = []
    model[0].register_forward_hook(lambda m, args, y: modes.append(m.training) or None)
    trainer = Trainer(model, SGD(model, lr=0.1), "mse", jit=backend == "jax")
    trainer.fit((X, Y), 1, validation=(X, Y), batch_size=12, verbose=0)
    assert modes == ([True, False] if backend == "jax" else [True, True, False, False])
    assert not model.training  # as it was before
    assert model[0].num_batches_tracked.item() == 2
    assert float(np.abs(model[0].running_mean.numpy()).max()) > 0


def test_steps_of_your_own(backend: str) -> None:
    model = nn.Linear(3, 1)

    def step(model: Any, batch: Any) -> Any:
        error = model(batch["x"]) - batch["y"]
        return ops.mean(error * error), {"largest": ops.max(ops.abs(error))}

    trainer = Trainer(model, SGD(model, lr=0.1), step=step, jit=backend == "jax")
    history = trainer.fit({"x": X, "y": Y}, 2, batch_size=8, verbose=0)
    assert history["largest"][1] < history["largest"][0]
    assert set(history.steps) >= {"loss", "largest", "lr"}
    assert trainer.evaluate({"x": X, "y": Y})["largest"] > 0

    def whole(model: Any, batch: Any) -> Any:
        prediction = model(batch["x"])
        return ops.losses.mse(prediction, batch["y"]), prediction, batch["y"]

    measured = Trainer(model, SGD(model, lr=0.1), step=whole, metrics=["mae"], jit=backend == "jax")
    assert measured.fit({"x": X, "y": Y}, 1, verbose=0)["mae"][0] > 0
    plain = Trainer(
        model, SGD(model, 0.1), step=lambda m, b: ops.mean(m(b["x"])), jit=backend == "jax"
    )
    assert len(plain.fit({"x": X}, 1, verbose=0)["loss"]) == 1
    wrong = Trainer(
        model,
        SGD(model, 0.1),
        step=lambda m, b: ops.mean(m(b["x"])),
        metrics=["mae"],
        jit=backend == "jax",
    )
    with pytest.raises(DomainError, match="needs predictions"):
        wrong.fit({"x": X}, 1, verbose=0)


def test_several_inputs_and_optimizers_by_class(backend: str) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            self.linear = nn.Linear(3, 1)

        def forward(self, a: Any, b: Any) -> Any:
            return self.linear(a + b)

    trainer = Trainer(Both(), lambda model: SGD(model, lr=0.1), "mse", jit=backend == "jax")
    history = trainer.fit((X, X, Y), 2, batch_size=12, verbose=0)
    assert history["loss"][1] < history["loss"][0]
    assert trainer.predict((X, X)).shape == (24, 1)


def test_plateaus_follow_the_loss(backend: str) -> None:
    model = nn.Linear(3, 1)
    schedule = training.PlateauSchedule(
        0.5, factor=0.5, patience=0, threshold=1e9, threshold_mode="abs"
    )
    trainer = Trainer(model, SGD(model, lr=schedule), "mse", jit=backend == "jax")
    history = trainer.fit((X, Y), 4, validation=(X, Y), batch_size=24, verbose=0)
    assert history["lr"] == [0.5, 0.5, 0.25, 0.125]
    assert history.steps["lr"] == [0.5, 0.5, 0.25, 0.125]


def test_iterables_and_loaders(backend: str) -> None:
    class Samples:
        def __iter__(self) -> Any:
            return iter(list(zip(X, Y, strict=True)))

    trainer = linear()
    assert len(trainer.fit(Samples(), 2, batch_size=10, verbose=0).steps["loss"]) == 6
    assert trainer.steps_per_epoch is None
    loader = DataLoader((X, Y), 6, shuffle=True, seed=1, num_workers=2)
    assert len(trainer.fit(loader, 1, verbose=0).steps["loss"]) == 4
    assert trainer.steps_per_epoch == 4


# --- What is not finite -------------------------------------------------------------------------


class Root(nn.Module):
    """The square root, whose gradient at 0 is infinite."""

    def forward(self, x: Any) -> Any:
        return ops.sqrt(ops.abs(x))


class Log(nn.Module):
    def forward(self, x: Any) -> Any:
        return ops.log(x)


def bad_trainer(kind: str, jit: bool) -> tuple[Trainer, Any]:
    with random.use_seed(0):
        first = nn.Linear(3, 2)
        last: nn.Module = {"module": Log, "gradient": Root}.get(kind, nn.Identity)()
    with em.no_grad():
        if kind == "parameter":
            first.bias[...] = ops.asarray([math.inf, 0.0])
        if kind == "gradient":
            first.weight[...] = ops.zeros((2, 3))
            first.bias[...] = ops.zeros(2)
    model = nn.Sequential(nn.BatchNorm1d(3), first, last)
    x = X.copy()
    if kind == "input":
        x[13, 1] = math.nan
    y = np.ones((24, 2), "float32")
    if kind == "target":
        y[13, 1] = math.inf

    def loss(p: Any, t: Any) -> Any:
        return ops.log(ops.mean(p) - 1e6) if kind == "loss" else ops.losses.mse(p, t)

    return Trainer(model, AdamW(model, lr=0.1), loss, jit=jit), (x, y)


PLACES = {
    "input": ("batch[0]", "1 NaN and 0 infinite of 36; the others are from"),
    "target": ("batch[1]", "in the target batch"),
    "parameter": ("1.bias", "parameter '1.bias' shape (2,)"),
    "module": ("2", "the output of '2' Log()"),
    "loss": ("loss", "in the loss itself"),
    "gradient": ("1.bias", "the gradient of '1.bias'"),
}


@pytest.mark.parametrize("kind", PLACES)
def test_where_a_nan_arose(kind: str, backend: str) -> None:
    trainer, data = bad_trainer(kind, jit=backend == "jax")
    before = weights(trainer.model)
    with pytest.raises(NaNLossError) as caught:
        trainer.fit(data, 2, batch_size=12, shuffle=False, verbose=0)
    where, text = PLACES[kind]
    assert caught.value.where == where
    said = str(caught.value)
    assert text in said
    assert "Hint: " in said
    assert "lr 0.1" in said
    assert isinstance(caught.value, FloatingPointError)
    second = kind in ("input", "target")
    assert (caught.value.step, caught.value.batch) == ((2, 2) if second else (1, 1))
    if not second:
        for name, x in weights(trainer.model).items():
            assert np.array_equal(x, before[name]), name
    else:
        assert all(np.isfinite(x).all() for x in weights(trainer.model).values())
    assert trainer.optimizer.steps == (1 if second else 0)


@pytest.mark.parametrize("backend_name", ["torch", "jax", "mlx"])
def test_a_compiled_step_keeps_weights_from_before(backend_name: str) -> None:
    with em.use_backend(backend_name):
        trainer, data = bad_trainer("input", jit=True)
        kept: list[Any] = []

        class Keeping(training.Callback):
            def on_step_end(self, trainer: Trainer, logs: Any) -> None:
                kept.append((weights(trainer.model), trainer.optimizer.state_dict()))

        trainer.given_callbacks.append(Keeping())
        with pytest.raises(NaNLossError, match="batch\\[0\\]"):
            trainer.fit(data, 2, batch_size=12, shuffle=False, verbose=0)
        assert len(kept) == 1
        for name, x in weights(trainer.model).items():
            assert np.array_equal(x, kept[0][0][name]), name
        assert trainer.optimizer.steps == 1
        for slots in trainer.optimizer.state_dict()["state"].values():
            assert all(np.isfinite(x.numpy()).all() for x in slots.values())


def test_finite_checks_can_be_left_out(backend: str) -> None:
    trainer, data = bad_trainer("input", jit=False)
    model = trainer.model
    other = Trainer(model, SGD(model, 0.1), "mse", jit=False, check_finite=False)
    history = other.fit(data, 1, batch_size=12, shuffle=False, verbose=0)
    assert math.isnan(history.steps["loss"][1])


# --- Mistakes -----------------------------------------------------------------------------------


def test_mistakes() -> None:
    model = nn.Linear(3, 1)
    opt = SGD(model, lr=0.1)
    with pytest.raises(DomainError, match="no loss 'msee'; there are binary_crossentropy"):
        Trainer(model, opt, "msee")
    with pytest.raises(DomainError, match="and not both"):
        Trainer(model, opt)
    with pytest.raises(DTypeError, match="takes a Module, not function"):
        Trainer(lambda x: x, opt, "mse")  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="takes an optimizer"):
        Trainer(model, 0.1, "mse")
    with pytest.raises(DomainError, match="two metrics of the name 'mae'"):
        Trainer(model, opt, "mse", metrics=["mae", "mae"])
    for options in ({"accumulate": 0}, {"clip_norm": 0.0}, {"jit": "maybe"}):
        with pytest.raises(DomainError, match=next(iter(options))):
            Trainer(model, opt, "mse", **options)
    trainer = Trainer(model, opt, "mse")
    with pytest.raises(DTypeError, match=r"fit\(\(x, y\)\)"):
        trainer.fit(X, 1, verbose=0)
    with pytest.raises(DomainError, match="epochs=-1"):
        trainer.fit((X, Y), -1)
    with pytest.raises(ShapeError, match=r"not a tensor of shape \(24, 1\)"):
        Trainer(model, opt, lambda p, t: p - t).fit((X, Y), 1, verbose=0)
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        trainer.fit((X, Y), 1, resume="nowhere.safetensors", verbose=0)
    with pytest.raises(DomainError, match="needs a Checkpoint"):
        trainer.fit((X, Y), 1, resume=True, verbose=0)
    with pytest.raises(DomainError, match="without any batch"):
        trainer.predict(X[:0])


# --- 16 bits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_mixed_precision(dtype: str, backend: str) -> None:
    seen: list[Any] = []
    # The first scale is often too high, and then the first updates are left out.
    scaled = training.MixedPrecision("float16", training.LossScaler(256.0))
    trainer = linear(precision=scaled if dtype == "float16" else dtype, metrics=["mae"])
    trainer.model.register_forward_hook(lambda m, args, y: seen.append(y.dtype) or None)
    history = trainer.fit((X, Y), 3, batch_size=12, validation=(X, Y), verbose=0)
    plain = linear().fit((X, Y), 3, batch_size=12, verbose=0)
    assert set(map(str, seen)) == {dtype}
    assert trainer.model.weight.dtype == em.float32
    np.testing.assert_allclose(history["loss"], plain["loss"], rtol=3e-2)
    assert history["val_loss"][-1] < history["loss"][0]


def test_updates_of_a_scale_that_is_too_high_are_left_out(backend: str) -> None:
    precision = training.MixedPrecision("float16", training.LossScaler(2.0**40))
    trainer = linear(precision=precision)
    history = trainer.fit((X, Y), 40, batch_size=24, verbose=0)
    skipped = history.steps["skipped"]
    assert skipped[0] == 1.0
    assert math.isnan(skipped[-1])
    assert precision.scaler is not None
    assert precision.scaler.factor < 2.0**40
    assert trainer.optimizer.steps == 40 - int(np.nansum(skipped))
    assert history["loss"][-1] < 0.1 * history["loss"][0]
