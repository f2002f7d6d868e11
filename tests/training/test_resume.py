"""Runs that were interrupted go on bit by bit; a kill leaves whole checkpoints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, training
from ember_ml.errors import DomainError, FormatError
from ember_ml.ops import random
from ember_ml.training import AdamW, Checkpoint, DataLoader, Trainer

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 6)).astype("float32")
Y = rng.integers(0, 3, 40)
SOURCE = str(Path(em.__file__).resolve().parents[1])


class StopAt(training.Callback):
    def __init__(self, step: int) -> None:
        self.at = step

    def on_step_end(self, trainer: Trainer, logs: Any) -> None:
        if trainer.step == self.at:
            trainer.stop("as asked")


def made(seed: int, callbacks: Any = (), accumulate: int = 1) -> Trainer:
    """A model with dropout and running statistics, and a rate by a schedule."""
    with random.use_seed(seed):
        model = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)
        )
    lr = training.CosineSchedule(1e-2, 20)
    return Trainer(
        model,
        AdamW(model, lr=lr),
        "cross_entropy",
        metrics=["accuracy", training.AUC()],
        callbacks=callbacks,
        seed=3,
        accumulate=accumulate,
    )


def fit(trainer: Trainer, workers: int = 0, **options: Any) -> training.History:
    data = DataLoader((X, Y), 8, shuffle=True, seed=5, num_workers=workers)
    return trainer.fit(data, 2, validation=(X[:16], Y[:16]), verbose=0, **options)


def curves(history: training.History) -> Any:
    hidden = ("seconds", "samples_per_second")
    epochs = [{n: v for n, v in one.items() if n not in hidden} for one in history.records]
    return epochs, history.step_records


def test_a_run_goes_on_bit_by_bit(backend: str, tmp_path: Path) -> None:
    straight = made(0)
    blank = em.tree.map(lambda x: x.copy(), straight.model.state_dict())
    start = straight.optimizer.state_dict()
    wanted = fit(straight)
    weights = {name: x.numpy().copy() for name, x in straight.model.state_dict().items()}
    steps = straight.optimizer.steps
    slots = {
        (name, key): x.numpy().copy()
        for name, found in straight.optimizer.state_dict()["state"].items()
        for key, x in found.items()
    }

    def another(seed: int, callbacks: Any) -> Trainer:
        if backend in ("numpy", "torch"):
            return made(seed, callbacks)
        # What was compiled serves again, with none of its values.
        straight.model.load_state_dict(made(seed).model.state_dict())
        empty = {n: {k: x * 0.0 for k, x in one.items()} for n, one in start["state"].items()}
        straight.optimizer.load_state_dict({**start, "steps": 0, "state": empty})
        straight.given_callbacks = list(callbacks)
        return straight

    # Interrupted after 3 of 5 steps of the first epoch; saved after each step.
    first = another(0, [Checkpoint(tmp_path, every_steps=1), StopAt(3)])
    assert all(
        np.array_equal(x.numpy(), blank[n].numpy()) for n, x in first.model.state_dict().items()
    )
    assert fit(first).stopped == "as asked"
    random.set_seed(99)  # nothing of this process is needed
    second = another(1, [Checkpoint(tmp_path, every_steps=1)])
    found = fit(second, workers=2, resume=tmp_path)
    assert curves(found) == curves(wanted)
    for name, x in second.model.state_dict().items():
        assert np.array_equal(x.numpy(), weights[name]), name
    state = second.optimizer.state_dict()
    assert state["steps"] == steps == 10
    for (name, key), x in slots.items():
        assert np.array_equal(x, state["state"][name][key].numpy()), (name, key)
    # And from the very end of an epoch, where only its validation is left.
    last = fit(another(1, []), resume=tmp_path / "step-00000005.safetensors")
    assert curves(last) == curves(wanted)


def test_accumulation_and_epochs(tmp_path: Path) -> None:
    wanted = fit(made(0, accumulate=2))
    first = made(0, [Checkpoint(tmp_path, every_steps=1), StopAt(2)], accumulate=2)
    fit(first)
    assert curves(fit(made(1, accumulate=2), resume=tmp_path)) == curves(wanted)
    # A run that was done goes on for more epochs.
    trainer = made(0, [Checkpoint(tmp_path / "more")])
    fit(trainer)
    data = DataLoader((X, Y), 8, shuffle=True, seed=5)
    history = made(1).fit(data, 3, verbose=0, resume=tmp_path / "more")
    assert history["epoch"] == [1, 2, 3]


def test_resume_from_the_callback(tmp_path: Path) -> None:
    """One program for the first run and for those after it."""
    for expected in (3, 10):
        callbacks = [Checkpoint(tmp_path, every_steps=1), *([StopAt(3)] if expected == 3 else [])]
        trainer = made(0, callbacks)
        fit(trainer, resume=True)
        assert trainer.step == expected
        assert trainer.resumed == (expected == 10)


def test_other_backends_go_on(tmp_path: Path) -> None:
    with em.use_backend("numpy"):
        wanted = fit(made(0))
        fit(made(0, [Checkpoint(tmp_path, every_steps=3), StopAt(3)]))
    with em.use_backend("torch"):
        found = fit(made(1), resume=tmp_path)
    np.testing.assert_allclose(found.steps["loss"], wanted.steps["loss"], rtol=1e-4)


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint step-"):
        fit(made(0), resume=tmp_path)
    em.save(tmp_path / "weights.safetensors", made(0).model.state_dict())
    with pytest.raises(FormatError, match="no checkpoint of a training run"):
        fit(made(0), resume=tmp_path / "weights.safetensors")
    fit(made(0, [Checkpoint(tmp_path), StopAt(6)]))
    other = made(0)
    other.metrics.append(training.MSE())
    with pytest.raises(DomainError, match="no metric 'mse'"):
        fit(other, resume=tmp_path)


# --- Processes --------------------------------------------------------------------------------

PROGRAM = """
    import sys, time
    import numpy as np
    import ember_ml as em
    from ember_ml import nn, training
    from ember_ml.ops import random

    class Telling(training.Callback):
        def on_step_end(self, trainer, logs):
            if trainer.step == 3:
                print("running", flush=True)
            time.sleep({pause})

    random.set_seed(0)
    model = nn.Sequential(nn.Linear(6, {width}), nn.Linear({width}, 3))
    x = np.random.default_rng(0).normal(size=(40, 6)).astype("float32")
    trainer = training.Trainer(
        model,
        training.AdamW(model, lr=1e-3),
        "cross_entropy",
        callbacks=[training.Checkpoint({path!r}, every_steps={every}, keep=2), Telling()],
        seed=1,
    )
    history = trainer.fit((x, np.arange(40) % 3), epochs=1000000, batch_size=8)
    print("ended", history.stopped, len(history.steps["loss"]), flush=True)
"""


def start(path: Path, **options: Any) -> subprocess.Popen[str]:
    values = {"path": str(path), "pause": 0.0, "width": 8, "every": 1000, **options}
    program = textwrap.dedent(PROGRAM).format(**values)
    environment = {**os.environ, "PYTHONPATH": SOURCE, "EMBER_ML_BACKEND": "numpy"}
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "running":
            return process
    raise AssertionError(process.stderr.read() if process.stderr else "it did not start")


def test_control_c_saves_and_ends_cleanly(tmp_path: Path) -> None:
    process = start(tmp_path, pause=0.005)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    ended = out.split("ended interrupted ")[1]
    steps = int(ended)
    assert steps >= 3
    (saved,) = tmp_path.glob("step-*.safetensors")
    assert saved.name == f"step-{steps:08d}.safetensors"
    assert f"Interrupted after step {steps}, in epoch" in errors
    assert f"resume='{saved}'" in errors
    state = em.load(saved)
    assert state["optimizer"]["steps"] == steps


def test_a_kill_leaves_whole_checkpoints(tmp_path: Path) -> None:
    """Weights of some MB are saved at each step, so that a kill mostly comes within a save."""
    for attempt in range(2):
        place = tmp_path / str(attempt)
        process = start(place, width=20_000, every=1)
        time.sleep(0.02 * attempt + 0.005)
        process.kill()
        process.communicate(timeout=30)
        found = sorted(place.glob("step-*.safetensors"))
        assert found
        for one in found:
            state = em.load(one)
            assert state["optimizer"]["steps"] == int(one.stem.removeprefix("step-"))
            assert state["model"]["0.weight"].shape == (20_000, 6)


def test_control_c_without_a_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupting(training.Callback):
        def on_step_end(self, trainer: Trainer, logs: Any) -> None:
            if trainer.step == 2:
                os.kill(os.getpid(), signal.SIGINT)

    trainer = made(0, [Interrupting()])
    before = signal.getsignal(signal.SIGINT)
    history = fit(trainer)
    assert (history.stopped, len(history.steps["loss"])) == ("interrupted", 2)
    assert "Nothing was saved" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before

    class Twice(training.Callback):
        def on_step_end(self, trainer: Trainer, logs: Any) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)

    with pytest.raises(KeyboardInterrupt):
        fit(made(0, [Twice()]))
    assert signal.getsignal(signal.SIGINT) is before


def test_a_state_dict_follows_compiled_steps(backend: str) -> None:
    """What `detach` gave before a compiled write shows it, as it does after an eager one."""
    w = nn.Parameter(em.ops.ones(2))
    shown = w.detach()

    def add() -> None:
        with em.no_grad():
            w[...] = w.detach() + 1.0

    em.jit(add, state=[w])()
    assert w.tolist() == shown.tolist() == w.detach().tolist() == [2.0, 2.0]
