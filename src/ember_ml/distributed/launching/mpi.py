"""NumPy without torch: its ranks talk by MPI, and mpiexec starts them.

mpiexec is between the launcher and the ranks: each rank connects back, with its channel and what
it prints, and its parent tells what happens to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NoReturn

from ember_ml.distributed.launching.crew import Crew, Process
from ember_ml.distributed.launching.output import Relay
from ember_ml.distributed.launching.ranks import RankState
from ember_ml.distributed.launching.worker import command_line, die_with
from ember_ml.distributed.world import World
from ember_ml.errors import BackendUnavailableError, CommunicationError, DomainError

__all__ = ["MpiCrew", "connected", "is_needed", "require"]

_START_SECONDS: Final = 60.0
_LINGER_SECONDS: Final = 60.0
_FAREWELL_SECONDS: Final = 3.0
# Of each rank: its parent's, its channel, and its two streams.
_CONNECTIONS: Final = 4


def is_needed(backend: str | None) -> bool:
    """Whether ranks will talk by MPI: those of NumPy do where torch is not installed."""
    if find_spec("torch") is not None:
        return False
    from ember_ml.backend import selection

    return (backend or selection.current().name) == "numpy"


def require(nnodes: int) -> None:
    """An error that says what to install, or how to start."""
    if find_spec("mpi4py") is None:
        raise BackendUnavailableError(
            "processes on NumPy talk by torch's gloo or by MPI, and neither is installed: "
            "pip install torch, or pip install mpi4py mpich"
        )
    if shutil.which("mpiexec") is None:
        raise BackendUnavailableError(
            "processes on NumPy talk by MPI here, and mpiexec is not installed: pip install mpich, "
            "or pip install torch to talk by its gloo"
        )
    if nnodes > 1:
        raise DomainError(
            "ember launch --nnodes on NumPy without torch: MPI starts processes on several "
            "machines by itself, as in mpiexec -n 8 -hosts a,b ember launch train.py"
        )


def connected(path: str) -> socket.socket:
    """In a process of mpiexec: a child of it runs the rank; gives its channel to the launcher.

    The process itself tells the launcher how the child ends, and waits: when one process has
    failed, mpiexec ends the others, and nobody would know which was the first.
    """
    herd = _connection(path, "herd", 0)
    child = os.fork()
    if child:
        _watch(child, herd)
    herd.close()
    os.setpgid(0, 0)
    die_with(os.getppid())
    channel, out, err = (_connection(path, name, os.getpid()) for name in ("channel", "out", "err"))
    for one, stream in ((out, sys.stdout), (err, sys.stderr)):
        stream.flush()
        os.dup2(one.fileno(), stream.fileno())
        one.close()
    return channel


def _connection(path: str, name: str, pid: int) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.connect(path)
    about = {"name": name, "rank": int(os.environ["RANK"]), "pid": pid}
    made.sendall(json.dumps(about).encode() + b"\n")
    return made


def _watch(child: int, herd: socket.socket) -> NoReturn:
    status = 0
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # those are for the rank
    with contextlib.suppress(OSError):
        while True:
            _, status = os.waitpid(child, os.WUNTRACED | os.WCONTINUED)
            herd.sendall(f"{status}\n".encode())
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                break
        if status:
            herd.settimeout(_LINGER_SECONDS)
            herd.recv(1)  # until the launcher has seen to the others
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


class MpiCrew(Crew):
    """Ranks that mpiexec has started."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._mpiexec: subprocess.Popen[bytes] | None = None
        self._herds: dict[int, socket.socket] = {}

    def start(self, worlds: Sequence[World], environ: Mapping[str, str]) -> None:
        with (
            tempfile.TemporaryDirectory(prefix="ember-") as folder,
            socket.socket(socket.AF_UNIX) as listener,
        ):
            path = str(Path(folder) / "ranks")
            listener.bind(path)
            listener.listen(_CONNECTIONS * len(worlds))
            self._mpiexec = started = self._started(worlds, environ, path)
            self.guard.add(started.pid)
            self._meet(listener, len(worlds), started)

    def _started(
        self, worlds: Sequence[World], environ: Mapping[str, str], path: str
    ) -> subprocess.Popen[bytes]:
        command = ["mpiexec"]
        line = command_line(self.program, connect=path, interval=self.interval)
        for world in worlds:
            # Each rank with variables of its own: what differs is set by env, on any mpiexec.
            own = [f"{name}={value}" for name, value in world.environment().items()]
            command += [*([":"] if world.rank else []), "-n", "1", "env", *own, *line]
        return subprocess.Popen(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _meet(self, listener: socket.socket, count: int, started: subprocess.Popen[bytes]) -> None:
        """Wait until each rank has made its connections."""
        parts: dict[int, dict[str, socket.socket]] = {}
        pids: dict[int, int] = {}
        end = time.monotonic() + _START_SECONDS
        listener.settimeout(0.1)
        while sum(len(one) for one in parts.values()) < _CONNECTIONS * count:
            if started.poll() is not None or time.monotonic() > end:
                self._give_up(started)
            try:
                one, _ = listener.accept()
            except TimeoutError:
                continue
            one.settimeout(5.0)
            about = json.loads(_line(one))
            one.settimeout(None)
            parts.setdefault(about["rank"], {})[about["name"]] = one
            pids[about["rank"]] = about["pid"] or pids.get(about["rank"], 0)
        for rank, found in sorted(parts.items()):
            self._herds[rank] = found["herd"]
            out, err = (
                os.fdopen(found[name].detach(), "rb", buffering=0) for name in ("out", "err")
            )
            self.add(rank, pids[rank], found["channel"], out, err)

    def _give_up(self, started: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(OSError):
            os.killpg(started.pid, signal.SIGKILL)
        said, _ = started.communicate()
        self._mpiexec = None
        raise CommunicationError(
            f"mpiexec did not start the ranks: {said.decode(errors='replace')[-2000:].strip()}"
        )

    def made(self, state: RankState, channel: socket.socket, relays: list[Relay]) -> Process:
        return _MpiProcess(state, channel, relays, self._herds[state.rank])

    def kill(self) -> None:
        super().kill()
        for one in self._herds.values():
            one.close()
        if self._mpiexec is None:
            return
        try:
            # It may still say why something went wrong.
            said, _ = self._mpiexec.communicate(timeout=_FAREWELL_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(self._mpiexec.pid, signal.SIGKILL)
            said, _ = self._mpiexec.communicate()
        if self._mpiexec.returncode == 0 and said.strip():
            self.screen.tell(said.decode(errors="replace").strip())
        self.guard.remove(self._mpiexec.pid)
        self._mpiexec = None


class _MpiProcess(Process):
    """A grandchild: its parent, a process of mpiexec, tells what happens to it."""

    def __init__(
        self,
        state: RankState,
        channel: socket.socket,
        relays: list[Relay],
        herd: socket.socket,
    ) -> None:
        super().__init__(state, channel, relays)
        herd.setblocking(False)
        self._herd = herd

    def statuses(self) -> list[int]:
        try:
            came = self._herd.recv(4096)
        except BlockingIOError:
            return []
        except OSError:
            came = b""
        # mpiexec has ended the parent, and the rank with it.
        return [int(line) for line in came.split()] if came else [int(signal.SIGKILL)]


def _line(connection: socket.socket) -> bytes:
    held = b""
    while not held.endswith(b"\n"):
        held += connection.recv(1) or b"\n"
    return held
