"""mypy and pyright report the errors that the files beside this one expect, and no other.

An expected error is a line that ends with `# error`; `assert_type` says what is inferred.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PROGRAMS = sorted(path for path in HERE.glob("*.py") if path != Path(__file__).resolve())

# A file, a line and what is wrong there.
Report = tuple[Path, int, str]


def expected(program: Path) -> set[int]:
    lines = program.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# error")}


def output_of(*command: str) -> str:
    # The sources beside the tests, whether or not the package is installed.
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy() -> list[Report]:
    out = output_of(sys.executable, "-m", "mypy", "--output=json", *map(str, PROGRAMS))
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert found, out
    return [
        (ROOT / one["file"], one["line"], f"{one['message']} [{one['code']}]")
        for one in found
        if one["severity"] == "error"
    ]


def pyright() -> list[Report]:
    out = output_of(
        sys.executable,
        "-m",
        "pyright",
        f"--project={HERE / 'pyrightconfig.json'}",
        f"--pythonpath={sys.executable}",
        "--outputjson",
    )
    return [
        (Path(one["file"]), one["range"]["start"]["line"] + 1, one["message"])
        for one in json.loads(out)["generalDiagnostics"]
        if one["severity"] == "error"
    ]


CHECKERS = {"mypy": mypy, "pyright": pyright}


@pytest.fixture(scope="module", params=sorted(CHECKERS))
def reports(request: pytest.FixtureRequest) -> list[Report]:
    return CHECKERS[request.param]()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_expected_errors_and_no_other(program: Path, reports: list[Report]) -> None:
    found = {line: message for path, line, message in reports if path == program}
    missing = sorted(expected(program) - set(found))
    unexpected = {line: found[line] for line in sorted(set(found) - expected(program))}
    assert (missing, unexpected) == ([], {})


def test_no_error_lies_elsewhere(reports: list[Report]) -> None:
    """The library itself is checked in its own step; here nothing of it may show."""
    assert [report for report in reports if report[0] not in PROGRAMS] == []


def test_files_expect_errors() -> None:
    counts = {path.stem: len(expected(path)) for path in PROGRAMS}
    assert set(counts) == {"accepted", "plain", "refused"}
    assert counts["accepted"] == counts["plain"] == 0
    assert counts["refused"] > 80
