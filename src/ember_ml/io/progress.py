"""A progress bar for what takes longer than a second, and nothing before that."""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

__all__ = ["ByteProgress"]

PATIENCE = 1.0  # seconds without a bar
_BETWEEN_DRAWINGS = 0.1


class ByteProgress:
    """Counts bytes; draws a bar on the terminal once the work has taken longer than a second."""

    def __init__(self, label: str, total: int, console: Console | None = None) -> None:
        self._label = label
        self._total = total
        self._console = console
        self._done = 0
        self._next = monotonic() + PATIENCE
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> ByteProgress:
        return self

    def advance(self, count: int) -> None:
        """Note that `count` more bytes are done."""
        self._done += count
        now = monotonic()
        if now >= self._next and self._total:
            self._next = now + _BETWEEN_DRAWINGS
            self._draw()

    def _draw(self) -> None:
        if self._bar is None:
            if self._console is None and not _on_terminal():
                self._total = 0  # nobody watches
                return
            self._bar = _bar(self._console)
            self._task = self._bar.add_task(self._label, total=self._total)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, completed=self._done, refresh=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._draw()
            self._bar.stop()


def _on_terminal() -> bool:
    # None under pythonw and in some services.
    return sys.stderr is not None and sys.stderr.isatty()


def _bar(console: Console | None) -> Progress:
    # rich costs more than most files take to save.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console or Console(stderr=True),
        auto_refresh=False,  # a thread of its own would outlive a killed save's patience
        transient=True,
    )
