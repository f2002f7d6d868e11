"""Jobs: a function or a script run in several processes on loopback, and what each rank gives.

    def task(scale):                    # at the top of a test module
        comm = em.distributed.initialize()
        return {"sum": comm.all_reduce(em.ops.ones((2,)) * scale)}

    found = jobs.run(task, 3, "torch", [2.0])
    assert found[0].value["sum"].tolist() == [6.0, 6.0]

What a task returns is JSON, with arrays and tensors as leaves; tensors come back as NumPy arrays.
Every process has a process group of its own, which is killed at the time limit, or some seconds
after a rank has failed: no test waits for ever, and none leaves processes behind.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

import ember_ml as em
from ember_ml.distributed.launching.addresses import Ports

ROOT = Path(__file__).resolve().parents[2]
# Where the library of this process lies: in src, or in a wheel that was unpacked.
PACKAGE = str(Path(em.__file__).parents[1])
# Two shared cores start three processes of JAX in some 20 s when others use them too.
LIMIT = 180.0
# How long the others may still run when a rank has failed by itself.
GRACE = 30.0
# What else starts processes must not be taken for the job's own launcher.
_OTHERS = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("EMBER_LAUNCH", "EMBER_RING", "EMBER_ATTEMPT", "MLX_RANK", "MLX_HOSTFILE"),
)


class JobFailed(AssertionError):
    """A rank failed, or the time was up; the text has the output of every rank."""


@dataclass
class Outcome:
    """What one rank gave: a value, or the name and the text of an error; and what it printed."""

    rank: int
    value: Any = None
    # The name of the class of what was raised, and of the classes it derives from.
    error: str | None = None
    errors: list[str] = field(default_factory=list)
    text: str = ""
    trace: str = ""
    output: str = ""
    # The exit code; negative for a signal. None for a rank that was given up.
    code: int | None = None


def environments(ports: Sequence[int], *, attempt: int = 0) -> list[dict[str, str]]:
    """The variables of each rank of a job of this machine: on a port for all, and one for each."""
    from ember_ml.distributed import World

    port, *ring = ports
    n = len(ring)
    addresses = tuple(f"127.0.0.1:{one}" for one in ring)
    return [
        World(rank, n, rank, n, "127.0.0.1", port, addresses, attempt).environment()
        for rank in range(n)
    ]


def run(
    task: Callable[..., Any] | Path,
    n: int,
    backend: str = "numpy",
    arguments: Sequence[Any] = (),
    *,
    environment: Mapping[str, str] | None = None,
    attempt: int = 0,
    check: bool = True,
    abandoned: Sequence[int] = (),
    limit: float = LIMIT,
    grace: float = GRACE,
    mpi: bool = False,
) -> list[Outcome]:
    """Run a function (of the top of a module) or a script in `n` processes; outcomes by rank.

    `arguments` are JSON. With `check`, a rank that fails raises JobFailed with all that was
    printed. Ranks in `abandoned` (which stop themselves, say) are not waited for, but killed at the
    end. With `mpi`, mpiexec starts the processes instead of variables for each.
    """
    with Job(task, n, backend, arguments, environment, attempt, mpi=mpi) as job:
        found = job.wait(limit=limit, grace=grace, abandoned=abandoned)
    failed = [one for one in found if one.rank not in abandoned and (one.error or one.code)]
    if check and failed:
        raise JobFailed(_told(found, f"ranks {[one.rank for one in failed]} failed"))
    return found


class Job:
    """The processes of a job; a context that leaves none behind. `pids` are those of the ranks."""

    def __init__(
        self,
        task: Callable[..., Any] | Path,
        n: int,
        backend: str = "numpy",
        arguments: Sequence[Any] = (),
        environment: Mapping[str, str] | None = None,
        attempt: int = 0,
        *,
        mpi: bool = False,
    ) -> None:
        self.size = n
        self._mpi = mpi
        self._ports = Ports(0 if mpi else n + 1)
        self._folder = tempfile.TemporaryDirectory(prefix="ember-job-")
        self.folder = Path(self._folder.name)
        if isinstance(task, Path):
            command = [sys.executable, str(task), *(str(one) for one in arguments)]
        else:
            name = f"{task.__module__}:{task.__qualname__}"
            given = json.dumps(list(arguments))
            command = [sys.executable, str(Path(__file__)), name, given, str(self.folder)]
        base = {key: value for key, value in os.environ.items() if key not in _OTHERS}
        paths = [PACKAGE, str(ROOT), base.get("PYTHONPATH", "")]
        base |= {
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "EMBER_ML_BACKEND": backend,
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",  # SIGABRT shows where a rank is
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        if mpi:
            worlds, command = [{}], ["mpiexec", "-n", str(n), *command]
        else:
            worlds = environments(self._ports.numbers, attempt=attempt)
        for index, own in enumerate(worlds):
            with (self.folder / f"{index}.log").open("wb") as log:
                started = subprocess.Popen(
                    command,
                    env={**base, **own, **(environment or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.folder,
                    start_new_session=True,
                )
            self.processes.append(started)

    @property
    def pids(self) -> list[int]:
        return [one.pid for one in self.processes]

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self._ports.close()
        self._folder.cleanup()

    def kill(self) -> None:
        """End every process of the job, and what they have started."""
        for one in self.processes:
            # The group outlives its leader where that has left children behind.
            _signal(one.pid, signal.SIGKILL)
            one.wait()

    def wait(
        self, *, limit: float = LIMIT, grace: float = GRACE, abandoned: Sequence[int] = ()
    ) -> list[Outcome]:
        """What each rank gave; JobFailed where the time is up."""
        end, failed = time.monotonic() + limit, False
        awaited = [one for rank, one in enumerate(self.processes) if rank not in abandoned]
        while any(one.poll() is None for one in awaited):
            if not failed and any(one.returncode not in (None, 0) for one in awaited):
                failed, end = True, min(end, time.monotonic() + grace)
            if time.monotonic() > end:
                self._show_places(awaited)
                self.kill()
                text = f"{grace:g} s after a rank had failed" if failed else f"within {limit:g} s"
                raise JobFailed(_told(self.outcomes(), f"the job did not end {text}"))
            time.sleep(0.02)
        return self.outcomes()

    def outcomes(self) -> list[Outcome]:
        """What there is now."""
        return [self._outcome(rank) for rank in range(self.size)]

    def _outcome(self, rank: int) -> Outcome:
        index = 0 if self._mpi else rank
        log = (self.folder / f"{index}.log").read_text(errors="replace")
        found = Outcome(rank, output=log, code=self.processes[index].poll())
        written = self.folder / f"{rank}.json"
        if written.exists():
            for key, value in _read(self.folder, rank, json.loads(written.read_text())).items():
                setattr(found, key, value)
        return found

    def _show_places(self, processes: list[subprocess.Popen[bytes]]) -> None:
        for one in processes:
            if one.poll() is None:
                _signal(one.pid, signal.SIGABRT)
                _signal(one.pid, signal.SIGCONT)
        time.sleep(1.0)


def _signal(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _told(found: Sequence[Outcome], what: str) -> str:
    parts = [what]
    for one in found:
        parts.append(f"--- rank {one.rank}: exit code {one.code}, {one.error}: {one.text}")
        parts.append(one.trace or one.output[-6000:])
        if one.trace:
            parts.append(one.output[-2000:])
    return "\n".join(parts)


# --- Values between processes -----------------------------------------------------------------


def _write(folder: Path, rank: int, found: dict[str, Any]) -> None:
    arrays: list[np.ndarray[Any, Any]] = []
    text = json.dumps(_encoded(found, arrays))
    # As bytes: NumPy's files do not know bfloat16.
    flat = {str(i): np.frombuffer(one.tobytes(), np.uint8) for i, one in enumerate(arrays)}
    np.savez(folder / f"{rank}.npz", allow_pickle=False, **flat)
    part = folder / f"{rank}.part"
    part.write_text(text)
    part.rename(folder / f"{rank}.json")


def _encoded(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _encoded(one, arrays) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(one, arrays) for one in value]
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    arrays.append(array)
    return {"__array__": len(arrays) - 1, "dtype": array.dtype.name, "shape": list(array.shape)}


def _read(folder: Path, rank: int, value: Any) -> Any:
    with np.load(folder / f"{rank}.npz") as arrays:
        return _decoded(value, arrays)


def _decoded(value: Any, arrays: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(one, arrays) for one in value]
    if not isinstance(value, dict):
        return value
    if "__array__" in value:
        from ember_ml import dtypes

        flat = arrays[str(value["__array__"])]
        dtype = dtypes.to_dtype(value["dtype"]).numpy
        return np.frombuffer(flat.tobytes(), dtype).reshape(value["shape"])
    return {key: _decoded(one, arrays) for key, one in value.items()}


# --- In each process --------------------------------------------------------------------------


def _main() -> None:
    name, given, folder = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
    rank = int(os.environ.get("RANK") or os.environ.get("PMI_RANK") or 0)
    try:
        module, _, qualified = name.partition(":")
        task = importlib.import_module(module)
        for part in qualified.split("."):
            task = getattr(task, part)
        value = task(*given)  # type: ignore[operator]  # a function of the module
        _write(folder, rank, {"value": value})
        from ember_ml import distributed

        distributed.shutdown()
    except BaseException as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        _write(
            folder,
            rank,
            {
                "error": kinds[0],
                "errors": kinds,
                "text": str(error),
                "trace": traceback.format_exc(),
            },
        )
        sys.stdout.flush()
        sys.stderr.flush()
        # Engines wait at exit for peers that may be gone.
        os._exit(1)


def leave(value: Any) -> None:
    """End this process with a value, at once: engines wait at exit for peers that are gone."""
    rank = int(os.environ.get("RANK") or os.environ.get("PMI_RANK") or 0)
    _write(Path(sys.argv[3]), rank, {"value": value})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    _main()
