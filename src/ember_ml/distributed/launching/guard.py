"""Ends what a launcher has started when the launcher itself is gone.

A process of its own, run as a file with the standard library alone: it reads `+pid` and `-pid`
for process groups that begin and end, and when the launcher's end of the pipe closes, it kills
those that are left. Ranks that are stopped, or busy in C, could not do that by themselves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

__all__ = ["Guard"]


class Guard:
    """A launcher's hold on its guard."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def add(self, group: int) -> None:
        """Watch over a process group."""
        self._say(f"+{group}\n")

    def remove(self, group: int) -> None:
        """Forget a process group that is no more: its number may be another's soon."""
        self._say(f"-{group}\n")

    def _say(self, text: str) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(OSError):  # somebody killed the guard: ranks have other ways
            pipe.write(text.encode())
            pipe.flush()

    def close(self) -> None:
        """Let the guard go; it ends what is left."""
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(OSError):
            pipe.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line.startswith("+"):
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _main()
