"""Launches: `ember launch` as a process of its own, with an end and without anything left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.distributed.jobs import PACKAGE

# Eight processes on two shared cores: a start that takes 1 s alone may take 20 s.
LIMIT = 120.0
_OTHERS = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("EMBER_LAUNCH", "EMBER_RING", "EMBER_ATTEMPT", "EMBER_ML_BACKEND", "GLOO_SOCKET_IFNAME"),
)


class Launch:
    """`python -m ember_ml.launch` with arguments; a context that kills all of it at its end."""

    def __init__(
        self,
        arguments: Sequence[object],
        folder: Path,
        *,
        prefix: Sequence[str] = (),
        command: Sequence[str] = (sys.executable, "-m", "ember_ml.launch"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # By this, any process that came of it is found in the system's table.
        self.mark = f"EMBER_TEST_MARK={uuid.uuid4().hex}"
        self.folder = folder
        base = {key: value for key, value in os.environ.items() if key not in _OTHERS}
        paths = [PACKAGE, base.get("PYTHONPATH", "")]
        base |= {
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            **(environment or {}),
            "EMBER_TEST_MARK": self.mark.partition("=")[2],
        }
        name = uuid.uuid4().hex
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*prefix, *command, *(str(one) for one in arguments)],
                env=base,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return self._out.read_text(encoding="utf-8", errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(encoding="utf-8", errors="replace")

    def __enter__(self) -> Launch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """End every process that came of it."""
        for pid in self.pids():
            signal_to(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def wait(self, limit: float = LIMIT) -> int:
        """The exit code; an error with all that was printed where there is none in time."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.told(f"no end within {limit:g} s")) from None

    def until(self, what: Callable[[], object], limit: float = LIMIT) -> None:
        """Wait until something is true."""
        end = time.monotonic() + limit
        while not what():
            if time.monotonic() > end:
                raise AssertionError(self.told(f"not so within {limit:g} s"))
            if self.process.poll() is not None and not what():
                raise AssertionError(self.told(f"it ended with {self.process.returncode} before"))
            time.sleep(0.02)

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def pids(self) -> list[int]:
        """Processes that came of this launch, and are alive."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                given = (path / "environ").read_bytes()
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if self.mark.encode() in given.split(b"\0") and state != "Z":
                found.append(int(path.name))
        return found

    def assert_no_orphans(self, within: float = 5.0) -> None:
        """Nothing that was started is left."""
        end = time.monotonic() + within
        while left := self.pids():
            assert time.monotonic() < end, self.told(f"processes {left} were left behind")
            time.sleep(0.05)

    def told(self, what: str = "") -> str:
        return f"{what}\n--- stdout\n{self.out[-6000:]}\n--- stderr\n{self.err[-6000:]}"


def signal_to(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
