"""NumPy without torch: its ranks talk by MPI, and mpiexec starts them.

mpiexec is between the launcher and the ranks: each rank connects back, with its channel and what
it prints, and the system is asked for its state by its number.
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
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from ember_ml.distributed.launching.addresses import free_ports
from ember_ml.distributed.launching.crew import Crew, Process
from ember_ml.distributed.launching.output import Relay
from ember_ml.distributed.launching.ranks import RankState
from ember_ml.distributed.launching.worker import command_line
from ember_ml.distributed.world import World
from ember_ml.errors import BackendUnavailableError, CommunicationError, DomainError

__all__ = ["MpiCrew", "agreed", "connected", "is_needed", "require"]

_START_SECONDS: Final = 60.0


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


def agreed(world: World) -> World:
    """Under mpiexec: the world with an address of rank 0, which MPI tells to all.

    NumPy's processes talk by MPI itself; the other engines need it.
    """
    if world.port or find_spec("mpi4py") is None:
        return world
    from mpi4py import MPI

    own = socket.gethostname()
    found = MPI.COMM_WORLD.allgather((own, free_ports(2)))
    hosts = {host for host, _ in found}
    names = {own: "127.0.0.1"} if len(hosts) == 1 else {}
    ring = tuple(f"{names.get(host, host)}:{ports[1]}" for host, ports in found)
    host, (port, _) = found[0]
    return replace(world, host=names.get(host, host), port=port, ring=ring)


def connected(path: str) -> socket.socket:
    """In a rank: the channel to the launcher; what is printed goes there as well."""
    # mpiexec may end its children by groups, and this one may have children of its own.
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    made = []
    for name in ("channel", "out", "err"):
        one = socket.socket(socket.AF_UNIX)
        one.connect(path)
        about = {"name": name, "rank": int(os.environ["RANK"]), "pid": os.getpid()}
        one.sendall(json.dumps(about).encode() + b"\n")
        made.append(one)
    for one, stream in zip(made[1:], (sys.stdout, sys.stderr), strict=True):
        stream.flush()
        os.dup2(one.fileno(), stream.fileno())
        one.close()
    return made[0]


class MpiCrew(Crew):
    """Ranks that mpiexec has started."""

    def start(self, worlds: Sequence[World], environ: Mapping[str, str]) -> None:
        with (
            tempfile.TemporaryDirectory(prefix="ember-") as folder,
            socket.socket(socket.AF_UNIX) as listener,
        ):
            path = str(Path(folder) / "ranks")
            listener.bind(path)
            listener.listen(3 * len(worlds))
            self._mpiexec = self._started(worlds, environ, path)
            self.guard.add(self._mpiexec.pid)
            self._meet(listener, len(worlds))

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

    def _meet(self, listener: socket.socket, count: int) -> None:
        """Wait until each rank has connected three times."""
        parts: dict[int, dict[str, socket.socket]] = {}
        pids: dict[int, int] = {}
        end = time.monotonic() + _START_SECONDS
        listener.settimeout(0.1)
        while sum(len(one) for one in parts.values()) < 3 * count:
            if self._mpiexec.poll() is not None or time.monotonic() > end:
                self._give_up()
            try:
                one, _ = listener.accept()
            except TimeoutError:
                continue
            one.settimeout(5.0)
            about = json.loads(_line(one))
            one.settimeout(None)
            parts.setdefault(about["rank"], {})[about["name"]] = one
            pids[about["rank"]] = about["pid"]
        for rank, found in sorted(parts.items()):
            out, err = (socket.SocketIO(found[name], "r") for name in ("out", "err"))
            self.add(rank, pids[rank], found["channel"], out, err)  # type: ignore[arg-type]

    def _give_up(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._mpiexec.pid, signal.SIGKILL)
        said, _ = self._mpiexec.communicate()
        raise CommunicationError(
            f"mpiexec did not start the ranks: {said.decode(errors='replace')[-2000:].strip()}"
        )

    def made(self, state: RankState, channel: socket.socket, relays: list[Relay]) -> Process:
        return _MpiProcess(state, channel, relays, self._mpiexec)

    def kill(self) -> None:
        super().kill()
        with contextlib.suppress(OSError):
            os.killpg(self._mpiexec.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._mpiexec.communicate(timeout=5.0)
        self.guard.remove(self._mpiexec.pid)


class _MpiProcess(Process):
    """A grandchild: its end is seen by the closed channel, its stops in the system's table."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given[:3])
        self._mpiexec: subprocess.Popen[bytes] = given[3]
        self._said: int | None = None
        self._gone_at = 0.0

    def on_exit(self, code: int) -> None:
        super().on_exit(code)
        self._said = code & 0xFF

    def look(self, now: float) -> None:
        if not self.is_alive:
            self.signal(0)
            return
        state = process_state(self.pid)
        if state in ("", "Z", "X"):
            self._gone(now)
        elif state == "T" and self.stopped_at is None:
            self.paused(now, signal.SIGSTOP)
        elif state != "T" and self.stopped_at is not None:
            self.paused(None, 0)

    def _gone(self, now: float) -> None:
        self.listen()
        if self._said is not None or self.state.error:
            self.ended("exit", self._said if self._said is not None else 1, now)
            return
        # How it ended, mpiexec knows: its own code is that of the rank, or its signal.
        self._gone_at = self._gone_at or now
        code = self._mpiexec.poll()
        if code is None and now - self._gone_at < 1.0:
            return
        number = -code if code is not None and code < 0 else (code or 0) & 0x7F
        is_signal = number in (one.value for one in signal.Signals)
        self.ended("signal", number if is_signal else int(signal.SIGKILL), now)


def process_state(pid: int) -> str:
    """A letter for the state of a process, T where it is stopped; empty where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        return text.rpartition(")")[2].split()[0]
    except OSError:
        if Path("/proc/self").exists():
            return ""
    asked = subprocess.run(
        ["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip()[:1]


def _line(connection: socket.socket) -> bytes:
    held = b""
    while not held.endswith(b"\n"):
        held += connection.recv(1) or b"\n"
    return held
