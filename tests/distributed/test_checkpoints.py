"""Checkpoints under a strategy: they load on another number of ranks, and in one process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import ember_ml as em
from ember_ml import nn, ops, training
from ember_ml.cli.app import app
from ember_ml.distributed.strategy import DataParallelStrategy
from ember_ml.io import joint
from ember_ml.training import checkpointing
from tests.distributed import jobs


def data() -> tuple[Any, Any]:
    # Four batches of eight; the last one of five, but JAX would compile its step once more.
    rows = 29 if em.get_backend() == "numpy" else 32
    rng = np.random.default_rng(7)
    x = rng.normal(size=(rows, 6)).astype(np.float32)
    return x, (x[:, 0] > 0.2).astype(np.int64)


class StopAt(training.Callback):
    def __init__(self, step: int) -> None:
        self.at = step

    def on_step_end(self, trainer: Any, logs: Any) -> None:
        if trainer.step == self.at:
            trainer.stop("as asked")


def made(strategy: Any, seed: int, *callbacks: Any, jit: Any = "auto") -> training.Trainer:
    ops.random.set_seed(seed)
    # No bias before a batch norm: its gradient is zero but for rounding, which Adam would enlarge.
    model = nn.Sequential(
        nn.Linear(6, 8, bias=False), nn.BatchNorm(8, momentum=None), nn.ReLU(), nn.Linear(8, 2)
    )
    return training.Trainer(
        model,
        training.AdamW(model, lr=training.CosineSchedule(1e-2, 12)),
        "cross_entropy",
        metrics=["accuracy"],
        callbacks=callbacks,
        seed=3,
        strategy=strategy,
        jit=jit,
    )


def fit(trainer: training.Trainer, **options: Any) -> dict[str, Any]:
    """Three epochs of four steps, or what is left of them."""
    loader = training.DataLoader(data(), 8, shuffle=True, seed=5)
    history = trainer.fit(loader, 3, verbose=0, **options)
    return {
        "weights": {name: x.numpy() for name, x in trainer.model.state_dict().items()},
        "slots": {
            f"{name}.{key}": x.numpy()
            for name, found in trainer.optimizer.state_dict()["state"].items()
            for key, x in found.items()
        },
        "loss": list(history["loss"]),
        "accuracy": list(history["accuracy"]),
        "resumed": trainer.resumed,
        "step": trainer.step,
        "random": ops.random.get_state()["counter"],
    }


def compare(found: Any, wanted: Any, tolerance: float) -> None:
    for key in ("weights", "slots"):
        assert found[key].keys() == wanted[key].keys()
        for name, x in wanted[key].items():
            assert found[key][name].dtype == x.dtype
            np.testing.assert_allclose(found[key][name], x, atol=tolerance, err_msg=name)
    np.testing.assert_allclose(found["loss"], wanted["loss"], atol=tolerance)
    np.testing.assert_allclose(found["accuracy"], wanted["accuracy"], atol=tolerance)
    assert (found["step"], found["random"]) == (wanted["step"], wanted["random"])


# --- In several processes --------------------------------------------------------------------


def two_ranks(folder: str, is_full: bool) -> dict[str, Any]:
    """A run that saves, and one that goes on from within; then what takes longer."""
    strategy = DataParallelStrategy()
    rank = em.distributed.initialize().rank
    place = Path(folder)
    saving = training.Checkpoint(place / "ranks", every_steps=3)
    found: dict[str, Any] = {"straight": fit(made(strategy, rank, saving))}
    found["files"] = [os.path.basename(path) for path in saving.files()]
    path = place / "ranks" / "step-00000006"
    found["again"] = fit(made(strategy, 10 + rank), resume=path)
    if is_full:
        few = training.Checkpoint(place / "few", every_steps=2, keep=2)
        fit(made(strategy, rank, few, StopAt(6)))
        found["kept"] = [os.path.basename(path) for path in few.files()]
        found["newest"] = fit(made(strategy, 10 + rank, few), resume=True)
        found["of one"] = fit(made(strategy, 10 + rank), resume=place / "one")
        found["errors"] = errors(strategy, place, rank)
    return found


def errors(strategy: Any, place: Path, rank: int) -> dict[str, Any]:
    """What ranks are told when something is wrong; all the same."""
    joint._SEEN_WITHIN = 0.5  # type: ignore[misc]  # a test has no time
    found = {}

    def told(name: str, action: Any) -> None:
        try:
            action()
            found[name] = "nothing"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"

    own = place / f"of-rank-{rank}"
    own.mkdir()
    trainer = made(strategy, 0, training.Checkpoint(own, every_steps=1))
    told("not shared", lambda: fit(trainer))
    found["left"] = sorted(os.listdir(own))
    told("no checkpoint", lambda: fit(made(strategy, 0), resume=place / "none"))
    if rank == 1:
        checkpointing.appears = lambda path: False  # type: ignore[assignment]  # as on another host
    told("seen by one", lambda: fit(made(strategy, 0), resume=place / "ranks"))
    checkpointing.appears = joint.appears
    em.save(place / f"x{rank}.safetensors", {"x": ops.ones(2)})
    told("no training", lambda: fit(made(strategy, 0), resume=place / "x0.safetensors"))
    (place / "file").write_text("")
    told("no directory", lambda: fit(made(strategy, 0, training.Checkpoint(place / "file"))))
    return found


def three_ranks(folder: str) -> dict[str, Any]:
    """On another number of ranks, started again by a launcher: no `resume` is needed."""
    strategy = DataParallelStrategy()
    rank = em.distributed.initialize().rank
    os.environ["EMBER_ATTEMPT"] = "1"
    saving = training.Checkpoint(Path(folder, "moved"), every_steps=4, keep=2)
    return fit(made(strategy, 20 + rank, saving))


@pytest.mark.parametrize("engine", ["torch", "jax", "mlx"])
def test_engines_go_on_with_two_ranks_and_with_one(engine: str, tmp_path: Path) -> None:
    two = jobs.run(two_ranks, 2, engine, [str(tmp_path), False])
    wanted = two[0].value["straight"]
    for one in two:
        assert one.value["files"] == [f"step-{step:08d}" for step in (3, 6, 9, 12)]
        assert one.value["again"]["resumed"]
        compare(one.value["again"], wanted, 1e-7)
    with em.use_backend(engine):
        found = fit(made(None, 1), resume=tmp_path / "ranks" / "step-00000009")
    compare(found, wanted, 1e-5)


def test_they_load_on_any_number_of_ranks(tmp_path: Path) -> None:
    wanted = fit(made(None, 0))
    fit(made(None, 0, training.Checkpoint(tmp_path / "one", every_steps=3), StopAt(6)))
    (tmp_path / "few").mkdir()  # a file of one process, of a step that ranks save as well
    em.save(tmp_path / "few" / "step-00000006.safetensors", {"x": 1})
    two = jobs.run(two_ranks, 2, "numpy", [str(tmp_path), True])
    for one in two:
        value = one.value
        assert value["kept"] == ["step-00000004", "step-00000006"]
        compare(value["straight"], wanted, 1e-5)
        # The same number of ranks goes on as if nothing had been.
        for name in ("again", "newest"):
            assert value[name]["resumed"]
            compare(value[name], value["straight"], 1e-7)
        compare(value["of one"], wanted, 1e-5)
    assert two[0].value["errors"] == two[1].value["errors"]
    check_errors(two[0].value["errors"], tmp_path)

    # In this process, without a strategy: from a directory of two ranks.
    moved = tmp_path / "moved"
    moved.mkdir()
    path = moved / "step-00000009"
    (tmp_path / "ranks" / "step-00000009").rename(path)
    found = fit(made(None, 1), resume=moved)
    assert found["resumed"]
    compare(found, wanted, 1e-5)
    assert checkpointing.find(path) == str(path)
    assert len(sorted(path.glob("*.safetensors"))) == 2
    state = em.load(path, keys="model")
    assert sorted(state["model"]) == sorted(wanted["weights"])
    shown = CliRunner().invoke(app, ["inspect", str(path)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "optimizer.state.0.weight" in shown.output
    assert "ember_ml.pieces" not in shown.output

    three = jobs.run(three_ranks, 3, "numpy", [str(tmp_path)])
    for one in three:
        assert one.value["resumed"]
        compare(one.value, wanted, 1e-5)
    assert sorted(os.listdir(moved)) == ["step-00000009", "step-00000012"]
    assert len(list((moved / "step-00000012").glob("*.safetensors"))) == 3


def check_errors(said: dict[str, Any], place: Path) -> None:
    assert said["not shared"].startswith("OSError: saving '")
    assert "give a directory on a file system that all hosts share" in said["not shared"]
    assert said["left"] == []
    assert said["no checkpoint"].startswith("FileNotFoundError: ")
    assert f"there is no checkpoint '{place / 'none'}'" in said["no checkpoint"]
    assert "rank 1: host" in said["seen by one"]
    assert "does not see the checkpoint" in said["seen by one"]
    assert said["no training"].startswith("FormatError: ")
    assert "is no checkpoint of a training run" in said["no training"]
    assert "making the directory" in said["no directory"]


# --- In one ----------------------------------------------------------------------------------


def test_what_is_listed(tmp_path: Path) -> None:
    def folder(step: int, *names: str) -> Path:
        made = tmp_path / f"step-{step:08d}"
        made.mkdir()
        for name in names:
            (made / name).write_text("{}")
        return made

    assert checkpointing.listed(tmp_path / "none") == []
    index = "model.safetensors.index.json"
    whole = folder(12, index, "model-1a2b3c4d-00001-of-00002.safetensors")
    folder(13, "model-1a2b3c4d-00001-of-00002.safetensors")  # a save that was killed
    folder(14)
    (tmp_path / "step-00000015").write_text("")
    (tmp_path / "step-00000003.safetensors").write_text("")
    one = folder(100000000, "model.safetensors")
    both = tmp_path / "step-00000012.safetensors"
    both.write_text("")
    os.utime(both, (1, 1))  # of two of a step, the one that was written later comes last
    wanted = [str(tmp_path / "step-00000003.safetensors"), str(both), str(whole), str(one)]
    assert checkpointing.listed(tmp_path) == wanted
    assert training.callbacks.checkpoint.latest(tmp_path) == str(one)
    assert sorted(checkpointing.unfinished(str(tmp_path))) == [
        str(tmp_path / "step-00000013"),
        str(tmp_path / "step-00000014"),
    ]
    with pytest.raises(FileNotFoundError, match="no whole one"):
        checkpointing.find(tmp_path / "step-00000013")


def test_one_process_keeps_and_clears(tmp_path: Path) -> None:
    """Those that ranks wrote count for `keep`, and what a kill has left goes."""

    class Alone:
        rank, size = 0, 1

        def exchange(self, text: str) -> list[str]:
            return [text]

    trainer = made(None, 0, training.Checkpoint(tmp_path, every_steps=4, keep=2), StopAt(4))
    for step in (1, 2, 4):
        joint.save_jointly(tmp_path / f"step-{step:08d}", {"x": ops.ones(2)}, Alone())
    left = tmp_path / "step-00000003"
    left.mkdir()
    (left / ".saving.ember-01234567.tmp").write_text("")
    mine = tmp_path / "step-00000005"
    mine.mkdir()
    (mine / "notes.txt").write_text("not of a save")
    trainer.fit(data(), batch_size=8, verbose=0)
    assert sorted(os.listdir(tmp_path)) == [
        "step-00000002",
        "step-00000004.safetensors",
        "step-00000005",
    ]
    assert os.listdir(mine) == ["notes.txt"]


def test_a_job_goes_on_from_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is started again does not take up a run that was in the directory before."""

    def run(job: str, attempt: int, stop: int, **options: Any) -> training.Trainer:
        monkeypatch.setenv("EMBER_JOB", job)
        monkeypatch.setenv("EMBER_ATTEMPT", str(attempt))
        trainer = made(None, attempt, training.Checkpoint(tmp_path, every_steps=2), StopAt(stop))
        trainer.fit(data(), 3, batch_size=8, verbose=0, **options)
        return trainer

    run("old", 0, 10)
    assert not run("new", 0, 3).resumed  # it saves step 2 in the place of the old one
    os.remove(tmp_path / "step-00000002.safetensors")
    assert not run("new", 1, 5).resumed  # its own are gone
    again = run("new", 2, 6)
    assert again.resumed
    assert len(again.history.step_records) == 6  # from step 4, not from step 10
    assert run("old", 1, 12).resumed
    # Asked for by name, or with nothing of its own yet: as in a run that begins.
    assert run("third", 1, 12, resume=tmp_path).resumed
    assert not run("third", 1, 1, resume=False).resumed
