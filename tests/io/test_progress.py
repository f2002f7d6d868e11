"""A bar appears where saving or loading takes longer than a second, on a terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import ember_ml as em
from ember_ml import ops
from ember_ml.io import content, progress


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "monotonic", clock)
    return clock


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal would show of the bars of em.save and em.load."""
    shown = io.StringIO()
    real = progress._bar
    monkeypatch.setattr(progress, "_on_terminal", lambda: True)
    monkeypatch.setattr(
        progress,
        "_bar",
        lambda console: real(
            Console(file=shown, force_terminal=True, width=100, force_interactive=True)
        ),
    )
    return shown


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_nothing_within_the_first_second(clock: Clock, terminal: io.StringIO) -> None:
    with progress.ByteProgress("saving x", 1000) as bar:
        for _ in range(9):
            clock.now += 0.11
            bar.advance(100)
    assert terminal.getvalue() == ""
    with progress.ByteProgress("saving x", 1000) as bar:
        clock.now += 0.9
        bar.advance(500)
        assert terminal.getvalue() == ""
        clock.now += 0.2
        bar.advance(300)
        assert "saving x" in plain(terminal.getvalue())
        assert "0.8/1.0 kB" in plain(terminal.getvalue())


def test_drawn_at_most_ten_times_a_second(clock: Clock, terminal: io.StringIO) -> None:
    with progress.ByteProgress("saving x", 10**6) as bar:
        clock.now += 2.0
        bar.advance(1)
        drawn = len(terminal.getvalue())
        for _ in range(1000):
            bar.advance(1)
        assert len(terminal.getvalue()) == drawn
        clock.now += 0.11
        bar.advance(1)
        assert len(terminal.getvalue()) > drawn


def test_nothing_where_there_is_no_terminal(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress.ByteProgress("saving x", 1000) as bar:
        for _ in range(10):
            clock.now += 5.0
            bar.advance(100)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".npy"])
def test_saving_and_loading_show_it(
    suffix: str,
    clock: Clock,
    terminal: io.StringIO,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(content, "PIECE", 4096)
    x = ops.asarray(np.arange(10_000.0))
    tree = x if suffix == ".npy" else {"a": x, "t": x[::2]}
    path = tmp_path / f"x{suffix}"
    em.save(path, tree)
    em.load(path, mmap=False)
    assert terminal.getvalue() == ""
    clock.step = 0.2  # each look at the clock
    em.save(path, tree)
    assert f"saving x{suffix}" in plain(terminal.getvalue())
    terminal.truncate(0)
    em.load(path, mmap=False)
    if suffix != ".npz":  # whose pieces are larger than this file
        assert f"loading x{suffix}" in plain(terminal.getvalue())


def test_it_ends_after_an_error(clock: Clock, terminal: io.StringIO) -> None:
    def work() -> None:
        with progress.ByteProgress("saving x", 1000) as bar:
            clock.now += 2.0
            bar.advance(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert "\x1b[?25h" in terminal.getvalue()  # the cursor is back
