"""What is known of a rank: where it is, and how it ended."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

__all__ = ["RankState", "cause_of", "signal_name"]

# Engines end a process by these when another one is gone; they may also be a rank's own fault.
_DOUBTFUL: Final = (signal.SIGABRT, signal.SIGPIPE, signal.SIGHUP)


@dataclass
class RankState:
    """A rank as its launcher sees it."""

    rank: int
    host: str = ""
    pid: int = 0
    # How it ended: "exit", "signal", "stopped", "lost" with its machine; "" while it runs.
    ending: str = ""
    # The exit code, or the number of the signal.
    code: int = 0
    # The launcher ended it, because of another.
    asked: bool = False
    step: int | None = None
    epoch: int | None = None
    # The place in the program's own code, and where that has led to.
    where: str = ""
    inside: str = ""
    # It is stopped now, perhaps not for long; the number of the signal, or 0.
    paused: int = 0
    # Seconds without a beat, at its end.
    silent: float = 0.0
    error: str = ""
    lines: list[str] = field(default_factory=list)
    # The error says that another rank is gone.
    follows: bool = False
    # Its program has ended well; the process may still wait for others.
    finished: bool = False
    # It has left the others, and stays until they have as well.
    left: bool = False
    # Seconds for which it has waited for others in one collective.
    waits: float = 0.0

    @property
    def failed(self) -> bool:
        """It ended badly by itself, or has said that it will."""
        if self.asked:
            return False
        return bool(self.error) or self.ending in ("signal", "stopped", "lost") or self.code != 0

    @property
    def doubt(self) -> int:
        """0 where it failed by its own fault, more where it may be another's."""
        if self.follows:
            return 2
        return int(self.ending == "signal" and self.code in _DOUBTFUL)

    @property
    def is_over(self) -> bool:
        """It runs no more."""
        return bool(self.ending)

    @property
    def is_interrupted(self) -> bool:
        """It ended as programs do after Ctrl-C or SIGTERM: by that, or with a code of their own."""
        if self.ending == "signal":
            return self.code in (signal.SIGINT, signal.SIGTERM)
        return self.ending in ("", "exit") and not self.error

    @property
    def exit_code(self) -> int:
        """What a shell would be told of it."""
        if self.ending in ("signal", "stopped"):
            return 128 + self.code
        return self.code or 1

    def how(self) -> str:
        """How it ended, in words."""
        if self.ending == "signal":
            return f"killed by {signal_name(self.code)}"
        if self.ending == "stopped":
            return f"stopped by {signal_name(self.code)}, and not continued"
        if self.ending == "lost":
            return "lost with its machine"
        if self.ending == "exit":
            return f"ended with exit code {self.code}"
        return "failed" if self.failed else "running"

    def stop_for_good(self) -> None:
        """A stop counts as the end."""
        self.ending, self.code = "stopped", self.paused or int(signal.SIGSTOP)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, given: dict[str, Any]) -> RankState:
        names = {one.name for one in fields(cls)}
        return cls(**{key: value for key, value in given.items() if key in names})


def signal_name(number: int) -> str:
    """SIGKILL for 9.

    >>> signal_name(9)
    'SIGKILL'
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def cause_of(failed: Sequence[RankState]) -> RankState | None:
    """Whose fault it was: the first in the order of failing that does not blame others."""
    return min(failed, key=lambda one: (one.doubt, one.finished), default=None)
