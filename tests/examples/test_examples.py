"""The examples run on every backend, and reach what they promise."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

import ember_ml as em

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, backend: str, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What an example prints."""
    path = EXAMPLES / f"{name}.py"
    before = sys.argv
    sys.argv = [str(path), "--backend", backend, *options]
    try:
        with em.use_backend(backend):
            runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv = before
    return capsys.readouterr().out


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found is not None, text
    return float(found[1])


def is_picture(path: Path) -> bool:
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_digits(backend: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = run("digits", backend, capsys, "--plot", str(tmp_path / "curve.png"))
    assert number(rf"accuracy on '{backend}': ([\d.]+)%", text) > 97.0
    assert is_picture(tmp_path / "curve.png")


def test_forecast(backend: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = run("forecast", backend, capsys, "--epochs", "3", "--plot", str(tmp_path / "f.png"))
    error = number(rf"error on '{backend}': ([\d.]+)", text)
    assert error < number(r"same hours: ([\d.]+)", text)
    assert is_picture(tmp_path / "f.png")


def test_characters(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = run("characters", backend, capsys, "--steps", "30")
    losses = [float(one) for one in re.findall(r"loss ([\d.]+)", text)]
    assert losses[-1] < 0.8 * losses[0]
    assert "the fox " in text


def test_autoencoder(backend: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = run("autoencoder", backend, capsys, "--epochs", "3", "--plot", str(tmp_path / "a.png"))
    error = number(rf"error on '{backend}': ([\d.]+)", text)
    assert error < 0.8 * number(r"mean picture: ([\d.]+)", text)
    assert is_picture(tmp_path / "a.png")


def test_liquid_control(backend: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "pole.png"
    text = run("liquid_control", backend, capsys, "--steps", "2", "--plot", str(path))
    for row in ("nobody", "the controller", "the network"):
        assert row in text
    assert is_picture(path)
    assert is_picture(tmp_path / "pole-wiring.png")


def test_every_example_says_how_it_is_run() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert f"python examples/{path.name}" in path.read_text().split('"""')[1], path.name
