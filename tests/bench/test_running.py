"""Measuring, worker processes, and the command; nothing here depends on how long anything takes."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import ember_ml as em
from ember_ml.backend.numpy import blas
from ember_ml.bench import Record, Run, catalog, load_run, running, save_run, timing, worker
from ember_ml.bench.catalog import Benchmark, Setting
from ember_ml.bench.suites import autodiff, engines, imports
from ember_ml.bench.timing import Measure
from ember_ml.cli.app import app
from ember_ml.compiled import is_compiled
from ember_ml.errors import UnknownBackendError, UnknownKeyError


def ember(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"})


# --- Timing ---------------------------------------------------------------------------------


def test_all_sides_take_turns() -> None:
    called: list[str] = []
    programs = {name: (lambda name=name: called.append(name)) for name in ("raw", "ours", "peer")}
    found = timing.medians(programs, rounds=7, batch=1e-5)
    assert set(found) == {"raw", "ours", "peer"}
    assert all(cpu >= 0 and wall > 0 for cpu, wall in found.values())
    # In one round after another, not one side after the other.
    last = "".join(name[0] for name in called)
    turns = re.sub(r"(.)\1+", r"\1", last)
    assert len(turns) > 3 + 7
    assert min(called.count(name) for name in programs) >= 7


def test_the_collector_is_as_it_was() -> None:
    import gc

    def fail() -> None:
        if len(seen) > 50:
            raise ValueError("enough")
        seen.append(1)

    seen: list[int] = []
    assert gc.isenabled()
    with pytest.raises(ValueError, match="enough"):
        timing.medians({"raw": fail}, rounds=100, batch=1e-6)
    assert gc.isenabled()


def test_a_result_is_not_looked_at() -> None:
    """A view may become an array of its engine only when it is asked for."""

    class Shy:
        @property
        def native(self) -> object:
            raise AssertionError("looked at")

    timing.medians({"raw": Shy, "ours": Shy}, rounds=2, batch=1e-6)
    with pytest.raises(AssertionError, match="looked at"):
        timing.medians({"raw": Shy}, rounds=2, batch=1e-6, wait=True)


def test_a_peer_that_fails_is_left_out_with_its_reason(tmp_path: Path) -> None:
    def fails() -> None:
        raise RuntimeError("no such dtype\nand more")

    measure = Measure("m", int, int, 1.5, peers={"good": int, "bad": fails}, notes="small")
    setting = Setting("numpy", tmp_path, quick=True)
    found = worker.measured(measure, setting, "b", "g")
    assert set(found.peers) == {"good"}
    assert found.notes == "small; bad left out: RuntimeError: no such dtype"
    assert found.bar is not None
    assert (found.bar.kind, found.bar.value) == ("ratio", 1.5)
    assert found.ratio is not None


def test_libraries_that_are_not_installed_are_no_finding() -> None:
    def absent() -> None:
        raise ModuleNotFoundError("No module named 'nothing'", name="nothing")

    def broken() -> None:
        raise ValueError("broken")

    found, notes = engines.peers({"absent": absent, "broken": broken, "there": lambda: 1})
    assert found == {"there": 1}
    assert notes == "broken left out: ValueError: broken"


# --- Workers --------------------------------------------------------------------------------


def told(benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    monkeypatch.setattr(worker, "benchmark", lambda name: benchmark)
    out = io.StringIO()
    task = {"benchmark": "test", "backend": "", "groups": list(benchmark.groups), "quick": True}
    worker.main(task, out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_group_that_fails_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(setting: Setting) -> Iterator[Measure]:
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy.signal")
        yield

    def broken(setting: Setting) -> Iterator[Measure]:
        yield Measure("fine", int, int)
        yield Measure("wrong", int, lambda: 1 / 0)

    def ready(setting: Setting) -> Iterator[Record]:
        yield Record("", "", "ready", ours=1.0)

    groups = {"absent": absent, "broken": broken, "ready": ready}
    said = told(Benchmark("test", "A test.", groups, ()), monkeypatch)
    records = [Record.from_json(one["record"]) for one in said if "record" in one]
    assert [(one.group, one.name) for one in records] == [
        ("absent", "absent"),
        ("broken", "fine"),
        ("broken", "wrong"),
        ("ready", "ready"),
    ]
    assert records[0].left_out == "needs scipy, which is not installed"
    assert records[1].ratio is not None
    assert records[2].error == "ZeroDivisionError: division by zero"
    assert {"at": "wrong"} in said
    assert said[-1] == {"done": True}


def fake_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> running.Task:
    """Another program in place of the worker, as a module of its name."""
    package = tmp_path / "ember_ml_fake.py"
    package.write_text(program, encoding="utf-8")
    real = subprocess.Popen

    def popen(command: list[str], **options: object) -> subprocess.Popen[str]:
        return real([sys.executable, str(package), *command[3:]], **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(running.subprocess, "Popen", popen)
    return running.Task("overhead", "numpy", ("ops",))


def test_a_process_that_dies_is_a_row_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record("overhead", "ops", "add", "numpy", ours=1.0, raw=1.0)
    program = (
        "import json, sys\n"
        f"print(json.dumps({{'record': {record.to_json()!r}}}), flush=True)\n"
        "print(json.dumps({'at': 'matmul'}), flush=True)\n"
        "print('out of memory', file=sys.stderr)\n"
        "sys.exit(3)\n"
    )
    task = fake_worker(tmp_path, monkeypatch, program)
    heard: list[str] = []
    ((_, found),) = running.run_tasks([task], listen=heard.append)
    assert heard == ["matmul"]
    assert found[0] == record
    assert found[1].error == "its process ended with status 3 at 'matmul': out of memory"


def test_a_process_that_halts_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would sleep for ten minutes; that this returns shows that it was not waited for."""
    task = fake_worker(tmp_path, monkeypatch, "import time\ntime.sleep(600)\n")
    ((_, found),) = running.run_tasks([task], silence=0.5)
    assert [one.error for one in found] == ["no sign of life for 0.5 s at 'start'"]


def test_the_next_task_runs_after_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = fake_worker(tmp_path, monkeypatch, "import sys; sys.exit(1)\n")
    outcomes = list(running.run_tasks([task, task]))
    assert [one.error for _, found in outcomes for one in found] == [
        "its process ended with status 1 at 'start': it said nothing"
    ] * 2
    # What has no group comes back from a file as well.
    one = outcomes[0][1][0]
    assert Record.from_json(json.loads(json.dumps(one.to_json()))) == one


# --- Plans ----------------------------------------------------------------------------------


def test_everything_is_planned_engine_by_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(em, "available_backends", lambda: ["numpy", "torch"])
    tasks, absent = running.plan()
    assert {task.benchmark for task in tasks} == set(catalog.BENCHMARKS)
    assert {task.backend for task in tasks} == {"numpy", "torch", ""}
    # A missing engine is one row, with what to do.
    assert [(one.name, one.left_out) for one in absent] == [
        ("jax", "pip install 'ember-ml[jax]'"),
        ("mlx", "pip install 'ember-ml[mlx]'"),
    ]
    storage = {task.backend: task.groups for task in tasks if task.benchmark == "storage"}
    assert "load" in storage["torch"]
    assert "load" not in storage["numpy"]


def test_engines_and_names_narrow_the_plan() -> None:
    tasks, absent = running.plan((), ("numpy",))
    assert absent == []
    assert {task.backend for task in tasks} == {"numpy"}
    tasks, _ = running.plan(("imports", "storage"), ("numpy",), ("views", "import"))
    assert [(one.benchmark, one.groups) for one in tasks] == [
        ("imports", ("import",)),
        ("storage", ("views",)),
    ]
    with pytest.raises(UnknownBackendError, match="'tensorflow' is none of them"):
        running.plan((), ("tensorflow",))
    with pytest.raises(UnknownKeyError, match="no group is called 'speed'; there are: iter, load"):
        running.plan(("storage",), (), ("speed",))


def test_a_group_with_variables_has_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(blas, "faster_kernels", lambda: "SkylakeX")
    tasks, _ = running.plan(("autodiff",), ("numpy", "torch"))
    assert [(one.backend, one.groups, one.variables) for one in tasks] == [
        ("numpy", ("mlp", "tiny mlp", "mlp in programs of their own"), {}),
        ("numpy", ("mlp with AVX-512",), {"OPENBLAS_CORETYPE": "SkylakeX"}),
        ("torch", ("mlp", "tiny mlp"), {}),
    ]
    assert tasks[1].title == "autodiff on numpy OPENBLAS_CORETYPE=SkylakeX"
    say = "import json, os; print(json.dumps({'record': {**GIVEN, 'notes': os.environ['FOUND']}}))"
    given = Record("overhead", "ops", "add", "numpy", ours=1.0, raw=1.0).to_json()
    task = fake_worker(tmp_path, monkeypatch, say.replace("GIVEN", repr(given)))
    task = dataclasses.replace(task, variables={"FOUND": "it is here"})
    ((_, records),) = running.run_tasks([task])
    assert records[0].notes == "it is here"
    # Where OpenBLAS has chosen well there is nothing to measure, and nothing is missing.
    monkeypatch.setattr(blas, "faster_kernels", lambda: "")
    tasks, absent = running.plan(("autodiff",), ("numpy",))
    assert [one.groups for one in tasks] == [("mlp", "tiny mlp", "mlp in programs of their own")]
    assert absent == []


def test_a_library_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with em.use_backend("numpy"):
        autodiff.by_itself("ember_ml")
    assert 0 < float(capsys.readouterr().out) < 60


def test_bytecode_is_written_where_imports_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in imports.environment()
    assert imports.environment("numpy")["KERAS_BACKEND"] == "numpy"
    with pytest.raises(RuntimeError, match="'import no_such_module' failed"):
        imports.seconds("import no_such_module", os.environ)


def test_keras_is_on_the_engine_that_is_measured() -> None:
    for name in ("numpy", "torch", "jax"):
        assert running.environment(name)["KERAS_BACKEND"] == name
        assert running.environment(name)["OMP_NUM_THREADS"] == "1"


# --- The command ----------------------------------------------------------------------------


def test_a_quick_run_of_one_benchmark(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = ember("bench", "overhead", "--quick", "--backend", "numpy", "--out", str(out))
    assert result.exit_code == 0, result.output
    run = load_run(out / "bench.json")
    assert run.quick
    assert [one.title for one in run.records] == [
        f"numpy {name}" for name in ("x + y", "add", "matmul", "sum", "mlp")
    ]
    assert run.failed == []
    for one in run.records:
        assert one.ours is not None
        assert one.raw is not None
        assert one.ours > 0 < one.raw
        operator = one.name == "x + y"  # whose bar is that of the compiled core
        assert (one.bar is not None) == (not operator or is_compiled())
        assert ("array-api-compat" in one.peers) == (not operator)
    assert (out / "bench.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    met = len(run.judged) - len(run.missed)
    assert f"{met} of {4 + is_compiled()} bars met" in result.output
    assert "numpy add" in result.output
    assert "A quick run" in result.output


def test_what_was_measured_is_kept_when_a_run_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Record("overhead", "ops", "add", "numpy", ours=1.0, raw=1.0)

    def one_and_the_end(*given: object, **options: object) -> Iterator[object]:
        yield running.Task("overhead", "numpy", ("ops",)), [found]
        raise SystemExit(9)

    monkeypatch.setattr("ember_ml.bench.progress.run_tasks", one_and_the_end)
    result = ember("bench", "overhead", "--backend", "numpy", "--out", str(tmp_path))
    assert result.exit_code == 9
    assert load_run(tmp_path / "bench.json").records == (found,)


def test_what_was_measured_is_shown_when_a_run_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Record("overhead", "ops", "add", "numpy", ours=1.0, raw=1.0)

    def one_and_ctrl_c(*given: object, **options: object) -> Iterator[object]:
        yield running.Task("overhead", "numpy", ("ops",)), [found]
        raise KeyboardInterrupt

    monkeypatch.setattr("ember_ml.bench.progress.run_tasks", one_and_ctrl_c)
    result = ember("bench", "overhead", "--backend", "numpy", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "interrupted: what was measured so far is shown" in result.output
    assert "overhead on numpy: 1 measure" in result.output
    assert (tmp_path / "bench.html").is_file()


def test_an_earlier_run_is_shown_and_compared(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    save_run(run, path)
    arguments = ("bench", "--from", str(path), "--compare", str(path), "--out", str(tmp_path / "o"))
    result = ember(*arguments)
    # One of its records is a failure.
    assert result.exit_code == 1
    assert "0 ratios differ by more than a tenth" in result.output
    assert "1 failed" in result.output
    assert load_run(tmp_path / "o" / "bench.json") == run
    kept = Run(run.machine, tuple(one for one in run.records if not one.error))
    save_run(kept, path)
    assert ember(*arguments).exit_code == 0
    assert ember(*arguments, "--check").exit_code == 1


def test_the_documentation_is_renewed_from_a_run(run: Run, tmp_path: Path) -> None:
    path, docs = tmp_path / "run.json", tmp_path / "docs"
    docs.mkdir()
    page = docs / "benchmarks.md"
    page.write_text("<!-- bench:files -->\n<!-- /bench:files -->\n", encoding="utf-8")
    save_run(Run(run.machine, tuple(run.of("storage"))), path)
    out = str(tmp_path / "o")
    result = ember("bench", "--from", str(path), "--docs", str(docs), "--out", out)
    assert result.exit_code == 0, result.output
    assert "load 512 MB, 64 tensors" in page.read_text(encoding="utf-8")
    assert (docs / "assets" / "bench.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speed"], "no benchmark is called 'speed'; there are: overhead, growth"),
        (["--backend", "tensorflow"], "'tensorflow' is none of them"),
        (["--compare", "missing.json"], "--compare takes the bench.json of an earlier run"),
        (["--from", "missing.json"], "--from takes the bench.json of an earlier run"),
        (["--docs", "missing"], "--docs takes the folder that has benchmarks.md"),
        (["--out", __file__], "--out takes a directory"),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running.subprocess, "Popen", None)
    result = ember("bench", *arguments)
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())


def test_from_runs_nothing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    save_run(run, path)
    result = ember("bench", "overhead", "--from", str(path))
    assert result.exit_code == 1
    assert "--from shows an earlier run" in result.output


def test_nothing_to_run_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(em, "available_backends", lambda: ["numpy"])
    result = ember("bench", "--backend", "jax", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "nothing to run: jax (pip install 'ember-ml[jax]')" in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


def test_a_program_of_the_checkout_runs_by_itself(tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "benchmarks" / "storage.py"
    path, page = tmp_path / "out.json", tmp_path / "out.html"
    command = [sys.executable, str(program), "--quick", "--backend", "numpy", "--only", "iter"]
    command += ["--rounds", "1", "--json", str(path), "--plot", str(page)]
    out = subprocess.run(command, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    assert [one.title for one in load_run(path).records] == ["numpy iter()"]
    assert "numpy iter()" in out.stdout
    assert page.is_file()
    wrong = subprocess.run([*command, "--rounds", "0"], capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "--rounds takes a number of at least 1, not 0" in wrong.stderr
