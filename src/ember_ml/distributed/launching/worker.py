"""A rank: the user's program, in a process that tells its launcher how it is."""

from __future__ import annotations

import faulthandler
import json
import os
import runpy
import signal
import socket
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from ember_ml.distributed.launching.beats import Channel, place_of
from ember_ml.errors import CommunicationError, DomainError

__all__ = ["Program", "command_line", "die_with", "follows", "main", "run"]

_SET_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG in Linux
_MOST_LINES: Final = 30
# What engines say when another rank is gone, in errors of classes that say less.
_PEER_GONE: Final = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "socket closed",
    "coordination service",
    "gloo/transport",
    "[ring]",
    "failed to connect to all addresses",
    "heartbeat timeout",
)


@dataclass(frozen=True)
class Program:
    """What ranks run: a script or, with `is_module`, a module; and its arguments."""

    target: str
    args: tuple[str, ...] = ()
    is_module: bool = False

    def require(self) -> None:
        """An error where it is not there."""
        if self.is_module:
            from importlib.util import find_spec

            sys.path.insert(0, os.getcwd())
            try:
                found = find_spec(self.target.partition(".")[0])
            except ValueError:
                found = None
            finally:
                del sys.path[0]
            if found is None:
                raise DomainError(
                    f"ember launch -m {self.target}: there is no such module in this environment "
                    f"or in {os.getcwd()}"
                )
            return
        path = Path(self.target)
        if path.is_dir() and not (path / "__main__.py").exists():
            raise DomainError(f"ember launch: {self.target} is a folder without a __main__.py")
        if not path.exists():
            raise DomainError(
                f"ember launch: there is no script {self.target} in {os.getcwd()}; "
                f"options go before the script, those after it are its own"
            )


def run(program: Program) -> None:
    """Run a program in this process, as Python would."""
    sys.argv = [program.target, *program.args]
    if program.is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(program.target, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(program.target).resolve().parent)
        runpy.run_path(program.target, run_name="__main__")


def main(argv: list[str] | None = None) -> None:
    """Run a rank, as `command_line` says."""
    about, kind, target, *args = sys.argv[1:] if argv is None else argv
    given = json.loads(about)
    if "connect" in given:
        from ember_ml.distributed.launching.mpi import connected

        connection = connected(given["connect"])
    else:
        die_with(given["parent"])
        connection = socket.socket(fileno=given["channel"])
        os.set_inheritable(given["channel"], False)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background jobs ignore Ctrl-C, and this comes from the launcher alone.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.enable(all_threads=False)
    channel = Channel(connection, given["interval"])
    channel.begin()
    _run_watched(Program(target, tuple(args), kind == "-m"), channel)


def command_line(program: Program, **about: int | float | str) -> list[str]:
    """What starts a rank; the program and its arguments come last, for those who look at `ps`."""
    kind = "-m" if program.is_module else "--"
    here = [sys.executable, "-m", "ember_ml.distributed.launching.worker"]
    return [*here, json.dumps(about), kind, program.target, *program.args]


def _run_watched(program: Program, channel: Channel) -> None:
    try:
        run(program)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        channel.tell("exit", code=code)
        raise
    except KeyboardInterrupt:
        # Ended by the signal itself, as Python ends: the launcher sees why.
        traceback.print_exc(limit=-1)
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:
        trace = _own_part(error.__traceback__)
        lines = traceback.format_exception(type(error), error, trace)
        where = _place_of_error(trace)
        kind = type(error).__name__
        told = [line for part in lines for line in part.splitlines()][-_MOST_LINES:]
        text = f"{kind}: {error}"[:2000]
        # Told before the interpreter ends: engines may wait long for peers at exit.
        channel.tell("error", error=text, lines=told, follows=follows(error), where=where)
        sys.last_value = error  # as Python has it: at exit, nobody is waited for
        sys.stdout.flush()
        sys.stderr.write("".join(lines))
        sys.stderr.flush()
        sys.exit(1)
    else:
        channel.tell("exit", code=0)


def follows(error: BaseException) -> bool:
    """Whether an error says that another rank is gone: then that one is the cause."""
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen).lower()
        if isinstance(seen, CommunicationError | ConnectionError):
            return True
        if isinstance(seen, RuntimeError | ValueError) and any(one in text for one in _PEER_GONE):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _own_part(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from the user's program on, without how it was run."""
    kept = trace
    while kept is not None and (
        kept.tb_frame.f_code.co_filename == __file__
        or kept.tb_frame.f_code.co_filename == "<frozen runpy>"
        or kept.tb_frame.f_code.co_filename == runpy.__file__
    ):
        kept = kept.tb_next
    return trace if kept is None else kept


def _place_of_error(trace: TracebackType | None) -> str:
    """The innermost place of the program's own code, on the way to an error."""
    frames = []
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    for frame, line in reversed(frames):
        where, inside = place_of(frame)
        if not inside and where:
            head, _, tail = where.partition(":")
            _, blank, function = tail.partition(" ")
            return f"{head}:{line}{blank}{function}"
    return ""


def die_with(parent: int) -> None:
    """End when the process that started this one does; elsewhere the closed channel tells."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)  # it ended before that was set


if __name__ == "__main__":
    main()
