"""Numbers on the landing page and on that of conformance are those of the pages they are from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def rows(page: str) -> dict[str, list[str]]:
    """The rows of all tables of a page, by their first cell; the first table counts."""
    lines = [line for line in text(page).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in reversed(cells)}


def test_array_api_results() -> None:
    for backend in ("NumPy", "PyTorch", "JAX", "MLX, complex128 declared absent"):
        assert rows("conformance.md")[backend] == rows("array-api.md")[backend]
    landing = " ".join(text("index.md").split())
    passed = [rows("array-api.md")[name][0] for name in ("NumPy", "PyTorch", "JAX")]
    mlx = rows("array-api.md")["MLX, complex128 declared absent"][0]
    assert passed == [passed[0]] * 3
    assert f"{passed[0]} pass on NumPy, PyTorch and JAX, and {mlx} on MLX" in landing


def test_benchmarks_of_the_landing_page() -> None:
    landing = " ".join(text("index.md").split())
    said = re.search(
        r"takes ([\d.]+) times the time of torch.nn's, and ([\d.]+) times that of plain jitted",
        landing,
    )
    assert said is not None
    found = re.findall(
        r"^\| (PyTorch|JAX) \| transformer step \| [^|]+ \| \**([\d.]+)",
        text("benchmarks.md"),
        re.M,
    )
    assert found == [("PyTorch", said[1]), ("JAX", said[2])]


def test_webnn_results() -> None:
    ours, theirs = rows("conformance.md"), rows("webnn.md")
    for label, row in ours.items():
        if label.startswith(("numeric cases", "validation tests", "behaviour tests")):
            found = [row for other, row in theirs.items() if other.startswith(label)]
            assert found, label
            assert found[0][0] == row[0]


def test_node_tests_of_onnx() -> None:
    pytest.importorskip("onnx")
    from tests.graph.node_cases import MODULES, cases_of, reason_not_to_run

    cases = [case for module in MODULES for case in cases_of(module)]
    run = [case for case in cases if reason_not_to_run(case) is None]
    said = re.search(
        r"Of the ([\d,]+) tests outside of `ai.onnx.ml` in onnx [\d.]+, ([\d,]+) run on NumPy",
        " ".join(text("conformance.md").split()),
    )
    assert said is not None
    assert (said[1], said[2]) == (f"{len(cases):,}", f"{len(run):,}")
