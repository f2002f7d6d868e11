"""mypy and pyright report the errors that the files beside this one expect, and no other.

An expected error is a line that ends with `# error`; `assert_type` says what is inferred.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PROGRAMS = ("accepted", "plain", "refused")
PAGE = ROOT / "docs" / "typing.md"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHECKERS = ("mypy", "pyright")

# A file (by its name: mypy remembers errors with the folder of an earlier run), a line, a message.
Report = tuple[str, int, str]


def program_of_page() -> str:
    """The Python blocks of docs/typing.md as one program, each line at its place in the page."""
    text = PAGE.read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for block in FENCE.finditer(text):
        start = text.count("\n", 0, block.start(1))
        code = block[1].splitlines()
        lines[start : start + len(code)] = code
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What is checked, by name; in a folder of its own, since pyright looks into no other."""
    folder = tmp_path_factory.mktemp("programs")
    texts = {name: (HERE / f"{name}.py").read_text(encoding="utf-8") for name in PROGRAMS}
    texts["page"] = program_of_page()
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.py" for name in texts}


@pytest.fixture(scope="module", params=CHECKERS)
def reports(request: pytest.FixtureRequest, files: dict[str, Path]) -> list[Report]:
    check = mypy if request.param == "mypy" else pyright
    return check(list(files.values()))


def mypy(paths: list[Path]) -> list[Report]:
    out = output_of("-m", "mypy", "--output=json", *map(str, paths))
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return [
        (Path(one["file"]).stem, one["line"], f"{one['message']} [{one['code']}]")
        for one in found
        if one["severity"] == "error"
    ]


def pyright(paths: list[Path]) -> list[Report]:
    settings = {
        "extraPaths": [str(ROOT / "src")],
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
    }
    config = paths[0].parent / "pyrightconfig.json"
    config.write_text(json.dumps(settings), encoding="utf-8")
    out = output_of(
        "-m", "pyright", f"--project={config}", f"--pythonpath={sys.executable}", "--outputjson"
    )
    found = json.loads(out)
    assert found["summary"]["filesAnalyzed"] == len(paths)
    return [
        (Path(one["file"]).stem, one["range"]["start"]["line"] + 1, one["message"])
        for one in found["generalDiagnostics"]
        if one["severity"] == "error"
    ]


def output_of(*command: str) -> str:
    # The sources beside the tests, whether or not the package is installed.
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    # 1 says that there are errors, as there should be; more says that the checker failed.
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def expected(path: Path) -> set[int]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# error")}


@pytest.mark.parametrize("name", [*PROGRAMS, "page"])
def test_expected_errors_and_no_other(
    name: str, files: dict[str, Path], reports: list[Report]
) -> None:
    wanted = expected(files[name])
    found = {line: message for where, line, message in reports if where == name}
    missing = sorted(wanted - set(found))
    unexpected = {line: found[line] for line in sorted(set(found) - wanted)}
    assert (missing, unexpected) == ([], {})


def test_no_error_lies_elsewhere(files: dict[str, Path], reports: list[Report]) -> None:
    """The library has a step of its own; here nothing of it may show."""
    assert [report for report in reports if report[0] not in files] == []


def test_files_expect_errors(files: dict[str, Path]) -> None:
    counts = {name: len(expected(path)) for name, path in files.items()}
    assert counts["accepted"] == counts["plain"] == 0
    assert counts["refused"] > 90
    assert counts["page"] == 5
