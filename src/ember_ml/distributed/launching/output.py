"""What ranks print: whole lines, each with the rank it came from."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from typing import IO, Final

__all__ = ["Relay", "Screen", "printable"]

# A line longer than this comes in pieces: a rank that never ends its line must not fill memory.
LONGEST: Final = 32_768
# A bar that draws itself anew by a carriage return is shown this often.
_REDRAWN: Final = 1.0
_COLOURS: Final = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
# Escape sequences: colours (which stay), other controls, strings to the terminal, the rest.
_ESCAPES: Final = re.compile(
    r"\x1b\[[0-9;:]*m|\x1b\[[0-?]*[ -/]*[@-~]?|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?"
)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;:]*m")
_RESET: Final = "\x1b[0m"
_CONTROLS: Final = {
    code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if code not in (9, 27)
}


class Screen:
    """Where lines go: the launcher's stdout and stderr, one line at a time.

    Ranks write from several threads; nobody's line is cut by another's.
    """

    def __init__(self, out: IO[str] | None = None, err: IO[str] | None = None) -> None:
        self._streams: dict[str, IO[str]] = {"out": out or sys.stdout, "err": err or sys.stderr}
        self._lock = threading.Lock()

    def stream(self, name: str) -> IO[str]:
        return self._streams[name]

    def prefix(self, rank: int, name: str) -> str:
        """What stands before the lines of a rank."""
        text = f"[rank {rank}]"
        stream = self._streams[name]
        if stream.isatty() and "NO_COLOR" not in os.environ:
            return f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{text}{_RESET} "
        return f"{text} "

    def write(self, name: str, text: str) -> None:
        """Write whole lines."""
        stream = self._streams[name]
        coding = getattr(stream, "encoding", None) or "utf-8"
        safe = text.encode(coding, "backslashreplace").decode(coding)
        # A reader that has gone (`| head`) does not end the training.
        with self._lock, contextlib.suppress(OSError, ValueError):
            stream.write(safe)
            stream.flush()

    def tell(self, text: str) -> None:
        """Say something of the launcher's own."""
        self.write("err", f"[launch] {text}\n")


class Relay:
    """Reads what a rank writes to one of its streams, in a thread, and shows it line by line."""

    def __init__(self, screen: Screen, name: str, rank: int, source: IO[bytes]) -> None:
        self._screen = screen
        self._name = name
        self._prefix = screen.prefix(rank, name)
        self._source = source
        self._colour = ""
        self._drawn = 0.0
        self._thread = threading.Thread(target=self._run, name=f"rank-{rank}-{name}", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait until all is shown; children that a rank left behind may keep the stream open."""
        self._thread.join(seconds)

    def _run(self) -> None:
        held = b""
        with self._source, contextlib.suppress(OSError, ValueError):
            while chunk := os.read(self._source.fileno(), 65_536):
                *lines, held = (held + chunk).split(b"\n")
                held = self._shown(lines, held)
        if held:
            self._show(held.split(b"\r"))

    def _shown(self, lines: list[bytes], held: bytes) -> bytes:
        """Show lines that have ended, and of a line that has not what must be shown now."""
        text = []
        for line in lines:
            text += self._pieces(line.rstrip(b"\r").rpartition(b"\r")[2])
        if b"\r" in held:
            # What a bar drew last is known to be whole when it draws again.
            *_, drawn, rest = held.split(b"\r")
            now = time.monotonic()
            if rest and drawn and now - self._drawn >= _REDRAWN:
                self._drawn = now
                text += self._pieces(drawn)
            held = rest or drawn + b"\r"
        while len(held) > LONGEST:
            text += self._pieces(held[:LONGEST])
            held = held[LONGEST:]
        if text:
            self._screen.write(self._name, "".join(text))
        return held

    def _show(self, parts: list[bytes]) -> None:
        last = next((one for one in reversed(parts) if one), b"")
        self._screen.write(self._name, "".join(self._pieces(last)))

    def _pieces(self, line: bytes) -> list[str]:
        cut = [line[i : i + LONGEST] for i in range(0, len(line), LONGEST)] or [b""]
        return [self._decorated(one) for one in cut]

    def _decorated(self, line: bytes) -> str:
        text = self._colour + printable(line.decode("utf-8", "backslashreplace"))
        if "\x1b" in text:
            # Colours end with the line, so that no other rank's is painted, and go on in the next.
            self._colour = _left_on(text)
            text += _RESET
        return f"{self._prefix}{text}\n"


def printable(text: str) -> str:
    """A line that cannot move the cursor, ring or rename the terminal; colours stay."""

    def kept(found: re.Match[str]) -> str:
        return found[0] if _COLOUR.fullmatch(found[0]) else ""

    return _ESCAPES.sub(kept, text).translate(_CONTROLS)


def _left_on(text: str) -> str:
    """The colours that are still on at the end of a line."""
    active: list[str] = []
    for sequence in _COLOUR.findall(text):
        if sequence in ("\x1b[m", _RESET, "\x1b[00m"):
            active.clear()
        elif sequence not in active:
            active.append(sequence)
    return "".join(active[-8:])
