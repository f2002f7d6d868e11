"""Ctrl-C: noted at once, heeded after the step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interrupts"]


class Interrupts:
    """A block in which the first Ctrl-C is noted, and a second one ends it as usual.

    Signals come to the main thread alone; elsewhere, and where the program handles them by
    itself, nothing is changed.
    """

    def __init__(self) -> None:
        self.came = False
        self._before: Callable[[int, FrameType | None], Any] | int | None = None
        self._is_set = False

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if before is signal.default_int_handler:
                self._before = before
                signal.signal(signal.SIGINT, self._note)
                self._is_set = True
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.came:
            raise KeyboardInterrupt
        self.came = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_set:
            signal.signal(signal.SIGINT, self._before)
            self._is_set = False
