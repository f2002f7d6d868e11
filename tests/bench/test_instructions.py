"""Counts of instructions: reading of callgrind's dumps, and when scripts/instructions fails."""

from __future__ import annotations

import importlib.util
import io
import json
import subprocess
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
HERE = {"core": "interpreted", "python": "CPython 3.11.7", "numpy": "2.4.6", "valgrind": "v1"}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "scripts" / "instructions"
    loader = SourceFileLoader("instructions_script", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def counting(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The command with valgrind's part replaced: what it finds is what a test puts here."""
    found: dict[str, Any] = {"here": dict(HERE), "counts": {"x + y": {"ours": 1000, "raw": 800}}}
    monkeypatch.setattr(script.shutil, "which", lambda _name: "/usr/bin/valgrind")
    monkeypatch.setattr(script, "environment", lambda _pure: found["here"])
    monkeypatch.setattr(script, "measured", lambda _pure, _keep: found["counts"])
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "RECORDS", tmp_path / "instructions.json")
    return found


def dump(path: Path, *, summary: int | None = None, totals: int | None = None) -> None:
    lines = ["# callgrind format", "version: 1", "cmd: python it.py", "", "events: Ir"]
    if summary is not None:
        lines.append(f"summary: {summary}")
    lines += ["", "fn=(1) PyObject_Call", "16 3000", "calls=7 0", "12 999"]
    if totals is not None:
        lines.append(f"totals: {totals}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


# --- Reading --------------------------------------------------------------------------------


def test_a_dump_tells_its_summary(script: ModuleType, tmp_path: Path) -> None:
    dump(tmp_path / "dump.1", summary=7_639_208, totals=7_639_208)
    assert script.total(tmp_path / "dump.1") == 7_639_208
    dump(tmp_path / "dump.2", totals=42)
    assert script.total(tmp_path / "dump.2") == 42


def test_a_dump_without_counts_is_refused(script: ModuleType, tmp_path: Path) -> None:
    dump(tmp_path / "dump.1")
    with pytest.raises(script.MeasuringError, match=r"dump\.1 has neither a summary nor totals"):
        script.total(tmp_path / "dump.1")
    (tmp_path / "dump.2").write_text("events: Dr Dw\nsummary: 1 2\n", encoding="utf-8")
    with pytest.raises(script.MeasuringError, match="no line 'events: Ir'"):
        script.total(tmp_path / "dump.2")


def test_every_second_dump_is_an_interval(script: ModuleType, tmp_path: Path) -> None:
    # What lies between intervals, and after the last, must not be counted. Ten and more: dumps
    # are ordered by number and not by name.
    names = ["", "a", "a", "b", "b", "c"]
    sides = ["nothing", "ours", "raw", "ours", "raw", "ours"]
    inside = [400, 40_400, 20_400, 8_400, 4_440, 600]
    for i, instructions in enumerate(inside, 1):
        dump(tmp_path / f"dump.{2 * i - 1}", summary=10**9)
        dump(tmp_path / f"dump.{2 * i}", summary=instructions)
    dump(tmp_path / "dump", summary=10**9)
    told = {"calls": 40, "intervals": [list(pair) for pair in zip(names, sides, strict=True)]}
    assert script.counts_of(tmp_path, told) == {
        "a": {"ours": 1000, "raw": 500},
        "b": {"ours": 200, "raw": 101},
        "c": {"ours": 5},
    }


@pytest.mark.parametrize("count", [3, 5])
def test_a_marker_too_few_or_too_many_is_an_error(
    script: ModuleType, tmp_path: Path, count: int
) -> None:
    for i in range(1, count + 1):
        dump(tmp_path / f"dump.{i}", summary=1)
    with pytest.raises(script.MeasuringError, match=f"{count} dumps for 2 intervals"):
        script.dump_files(tmp_path, 2)


# --- Comparing ------------------------------------------------------------------------------


def shown(script: ModuleType, now: Any, recorded: Any) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=80)
    code = script.show(script.changes(now, recorded), "compiled", console)
    file = console.file
    assert isinstance(file, io.StringIO)
    return code, file.getvalue()


@pytest.mark.parametrize(("ours", "code"), [(910, 0), (1000, 0), (1090, 0), (1100, 0), (1101, 1)])
def test_growth_by_over_a_tenth_fails(script: ModuleType, ours: int, code: int) -> None:
    recorded = {"x[0]": {"ours": 1000, "raw": 800}, "x + y": {"ours": 500, "raw": 400}}
    now = recorded | {"x[0]": {"ours": ours, "raw": 800}}
    found, text = shown(script, now, recorded)
    assert found == code
    assert ("x[0]: grew by 10.1 %" in text) == bool(code)
    assert "x + y: grew" not in text
    assert f"{ours:,}" in text
    assert f"{ours - 800:,}" in text


def test_engines_own_growth_is_told(script: ModuleType) -> None:
    recorded = {"x + y": {"ours": 1000, "raw": 800}}
    code, text = shown(script, {"x + y": {"ours": 1000, "raw": 900}}, recorded)
    assert code == 0
    assert "raw calls changed by over 10 % themselves: x + y" in text
    assert "themselves" not in shown(script, recorded, recorded)[1]


def test_a_gain_is_told(script: ModuleType) -> None:
    recorded = {"x + y": {"ours": 1000}}
    code, text = shown(script, {"x + y": {"ours": 800}}, recorded)
    assert code == 0
    assert "--record holds the gain" in text


def test_a_call_on_one_side_only_fails(script: ModuleType) -> None:
    one, two = {"x + y": {"ours": 10}}, {"x + y": {"ours": 10}, "x[0]": {"ours": 5}}
    code, text = shown(script, two, one)
    assert code == 1
    assert "x[0]: not on record" in text
    code, text = shown(script, one, two)
    assert code == 1
    assert "x[0]: no longer measured" in text


def test_environments_differ_by_name(script: ModuleType) -> None:
    assert script.differences(HERE, dict(HERE)) == []
    other = {key: value for key, value in HERE.items() if key != "valgrind"} | {"numpy": "2.5.0"}
    assert script.differences(HERE, other) == [
        "numpy: 2.4.6 here, 2.5.0 on record",
        "valgrind: v1 here, unknown on record",
    ]


# --- The command ----------------------------------------------------------------------------


def test_record_then_compare(
    script: ModuleType, counting: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--record"]) == 0
    assert "wrote instructions.json" in capsys.readouterr().out
    assert script.main([]) == 0
    counting["counts"] = {"x + y": {"ours": 1200, "raw": 800}}
    assert script.main([]) == 1
    assert "x + y: grew by 20.0 %" in capsys.readouterr().out
    # The other form is recorded beside, and leaves the first as it is.
    counting["here"] = HERE | {"core": "compiled"}
    assert script.main([]) == 0
    assert "nothing is on record for a core that is compiled" in capsys.readouterr().out
    assert script.main(["--record"]) == 0
    kept = json.loads(script.RECORDS.read_text(encoding="utf-8"))
    assert kept["interpreted"] == {
        "environment": HERE,
        "calls": {"x + y": {"ours": 1000, "raw": 800}},
    }
    assert kept["compiled"]["calls"] == {"x + y": {"ours": 1200, "raw": 800}}


def test_another_environment_is_told_and_not_compared(
    script: ModuleType, counting: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--record"]) == 0
    counting["here"] = HERE | {"python": "CPython 3.12.1"}
    counting["counts"] = {"x + y": {"ours": 5000, "raw": 800}}
    capsys.readouterr()
    assert script.main([]) == 0
    told = capsys.readouterr().out
    assert "python: CPython 3.12.1 here, CPython 3.11.7 on record" in told
    assert "numpy" not in told


def test_without_valgrind_nothing_is_counted(
    script: ModuleType,
    counting: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(script.shutil, "which", lambda _name: None)
    assert script.main([]) == 0
    assert "valgrind is not installed" in capsys.readouterr().out
    assert script.main(["--record"]) == 2
    assert not script.RECORDS.exists()


def test_a_program_that_fails_is_an_error(
    script: ModuleType,
    counting: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(script, "environment", lambda pure: script.run([], "--environment", pure))
    failed = subprocess.CompletedProcess(["valgrind"], 1, stdout="", stderr="compiled from older")
    monkeypatch.setattr(script.subprocess, "run", lambda *_args, **_options: failed)
    assert script.main([]) == 2
    assert "--environment failed (exit 1):\ncompiled from older" in capsys.readouterr().out


def test_the_program_runs_what_is_on_record(script: ModuleType) -> None:
    """Every call agrees with NumPy's, which the program checks, and both forms have it."""
    told = script.run([], "--measure", pure=False)
    measured: dict[str, set[str]] = {}
    for name, side in told["intervals"][1:]:
        measured.setdefault(name, set()).add(side)
    assert told["intervals"][0] == ["", "nothing"]
    recorded = json.loads((ROOT / "benchmarks" / "instructions.json").read_text(encoding="utf-8"))
    assert sorted(recorded) == ["compiled", "interpreted"]
    for core, form in recorded.items():
        assert form["environment"]["core"] == core
        assert {name: set(sides) for name, sides in form["calls"].items()} == measured
        assert all(sides["ours"] > 0 for sides in form["calls"].values())
