"""Beats: what a rank tells its launcher of where it is, from a thread beside the program."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import sysconfig
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, Final

__all__ = ["Channel", "leaving", "note", "place_of", "waiting"]

_PACKAGE: Final = str(Path(__file__).resolve().parents[2]) + os.sep
_LIBRARIES: Final = tuple(
    path + os.sep
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_paths().get(name))
)
_HERE: Final = os.getcwd() + os.sep
# Since when the program has waited for other ranks; 0 while it does not.
_since = 0.0
# True while the program stays only until the others have left as well.
_leaves = False
# The channel to the launcher; None in a process that it did not start.
_channel: Channel | None = None


def note(*, step: int | None = None, epoch: int | None = None) -> None:
    """Tell how far the program is; free of charge where `ember launch` did not start it.

    >>> note(step=3, epoch=1)
    """
    if _channel is not None:
        if step is not None:
            _channel.step = step
        if epoch is not None:
            _channel.epoch = epoch


def waiting(since: float) -> None:
    """Tell since when the program waits for other ranks, by time.monotonic(); 0 for not."""
    global _since
    _since = since


def leaving(leaves: bool) -> None:
    """Tell whether the program has left the others, and takes part in nothing any more."""
    global _leaves
    _leaves = leaves


class Channel:
    """A rank's connection with its launcher: beats go out, wishes to end come in.

    When the launcher is gone, this process and all that it has started end.
    """

    def __init__(self, connection: socket.socket, interval: float) -> None:
        self.step: int | None = None
        self.epoch: int | None = None
        self._connection = connection
        self._interval = interval
        self._main = threading.main_thread().ident
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Beat from now on, beside the program."""
        global _channel
        _channel = self
        # A forked child has the connection and no thread: nobody else speaks for this rank.
        os.register_at_fork(after_in_child=self._leave)
        threading.Thread(target=self._run, name="ember-beats", daemon=True).start()

    def tell(self, kind: str, **about: Any) -> None:
        """Send a message; that the launcher is gone is found out by the thread."""
        message = {"kind": kind, "step": self.step, "epoch": self.epoch, **about}
        try:
            with self._lock:
                self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return

    def _leave(self) -> None:
        global _channel
        _channel = None
        self._connection.close()

    def _run(self) -> None:
        # The first beat is about the program, not about this thread being started.
        time.sleep(min(self._interval, 0.05))
        while True:
            frame = sys._current_frames().get(self._main or 0)
            where, inside = place_of(frame)
            del frame  # it would keep the program's variables alive
            since = _since
            waits = round(time.monotonic() - since, 1) if since else 0.0
            self.tell("beat", where=where, inside=inside, waits=waits, left=_leaves)
            try:
                ready, _, _ = select.select([self._connection], [], [], self._interval)
                if ready:
                    self._heed(self._connection.recv(4096))
            except ConnectionError:
                self._heed(b"")
            except (OSError, ValueError):
                return  # the program has closed files that were not its own

    def _heed(self, came: bytes) -> None:
        if not came:
            # Nobody watches any more, and nobody else would end what was started here.
            if os.getpgrp() == os.getpid():
                os.killpg(os.getpgrp(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        for line in came.splitlines():
            number = int(line) if line.isdigit() else signal.SIGINT
            # A program that does not expect SIGTERM is asked as by Ctrl-C: a Trainer then ends
            # after the step, and saves.
            if number == signal.SIGTERM and signal.getsignal(number) in (signal.SIG_DFL, None):
                number = signal.SIGINT
            os.kill(os.getpid(), number)


def place_of(frame: FrameType | None) -> tuple[str, str]:
    """Where a program is: the innermost place of its own code, and where that has led to."""
    innermost, own = "", ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not innermost:
            innermost = _told(frame)
        if not _is_library(name):
            own = _told(frame)
            break
        frame = frame.f_back
    return (own, innermost if innermost != own else "") if own else (innermost, "")


def _is_library(name: str) -> bool:
    return name.startswith((_PACKAGE, "<frozen", *_LIBRARIES))


def _told(frame: FrameType) -> str:
    code = frame.f_code
    name = code.co_filename
    if name.startswith(_PACKAGE):
        name = "ember_ml/" + name[len(_PACKAGE) :]
    else:
        for path in _LIBRARIES:
            name = name.removeprefix(path)
        name = name.removeprefix("site-packages" + os.sep)
        name = name.removeprefix(_HERE)
    function = "" if code.co_name == "<module>" else f" in {code.co_qualname}"
    return f"{name}:{frame.f_lineno}{function}"
