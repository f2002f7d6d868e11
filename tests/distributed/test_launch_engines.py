"""A rank is killed, and one is stopped, in the middle of collectives, on each engine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.distributed.jobs import PACKAGE
from tests.distributed.launches import Launch

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are found in /proc, which Linux alone has"
)

HEARTBEAT = 4
SCRIPT = """
import os, sys, time
from pathlib import Path

import ember_ml as em
from ember_ml.distributed.launching import beats


def train():
    comm = em.distributed.initialize()
    x = em.ops.ones((10_000,)) * (comm.rank + 1)
    for step in range(10_000_000):
        beats.note(step=step)
        total = comm.all_reduce(x)
        time.sleep(0.002)  # jobs of other engines run beside this one
        if step == 20:
            print("sum", float(total[0]), "by", comm.transport, flush=True)
            show_when_told(comm.rank)


def show_when_told(rank):
    tell, shown = beats._channel.tell, []

    def telling(kind, **about):
        tell(kind, **about)
        if not shown and " in train" in about.get("where", ""):
            shown.append(rank)
            Path("part-%d" % rank).write_text(str(os.getpid()))
            Path("part-%d" % rank).rename(f"{os.environ['EMBER_ATTEMPT']}-{rank}")

    beats._channel.tell = telling


train()
"""
# NumPy's ranks talk by MPI where torch is not installed; here it is hidden from them.
WITHOUT_TORCH = """
from importlib.machinery import PathFinder

kept = PathFinder.find_spec


def find_spec(name, path=None, target=None):
    return None if name == "torch" else kept(name, path, target)


PathFinder.find_spec = find_spec
"""


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    """What came of the jobs of all engines that are asked for, which run at the same time."""
    asked = [
        item.callspec.params["engine"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.originalname == test_a_rank_killed_and_one_stopped_among_collectives.__name__
    ]
    with ThreadPoolExecutor(len(asked)) as pool:
        yield {one: pool.submit(disturbed, one, tmp_path_factory.mktemp(one)) for one in asked}


@pytest.mark.parametrize("engine", ["torch", "numpy", "jax", "mlx", "mpi"])
def test_a_rank_killed_and_one_stopped_among_collectives(
    engine: str, outcomes: dict[str, Future[None]]
) -> None:
    if engine == "mpi" and (find_spec("mpi4py") is None or shutil.which("mpiexec") is None):
        pytest.skip("mpi4py and mpiexec are not installed")
    outcomes[engine].result()


def disturbed(engine: str, folder: Path) -> None:
    (folder / "job.py").write_text(SCRIPT)
    environment, backend = {}, engine
    if engine == "mpi":
        (folder / "hidden").mkdir()
        (folder / "hidden" / "sitecustomize.py").write_text(WITHOUT_TORCH)
        environment["PYTHONPATH"] = os.pathsep.join([str(folder / "hidden"), PACKAGE])
        backend = "numpy"
    given = ["-n", 2, "-b", backend, "--heartbeat", HEARTBEAT, "--max-restarts", 1, "job.py"]
    with Launch(given, folder, environment=environment) as job:

        def pids_of(attempt: int) -> list[int]:
            paths = [folder / f"{attempt}-{rank}" for rank in range(2)]
            job.until(lambda: all(path.exists() for path in paths))
            return [int(path.read_text()) for path in paths]

        killed = pids_of(0)[1]
        os.kill(killed, signal.SIGKILL)
        # Restarted within seconds, on fresh ports; now the other one is stopped.
        stopped = pids_of(1)[0]
        began = time.monotonic()
        os.kill(stopped, signal.SIGSTOP)
        assert job.wait(60) == 128 + signal.SIGSTOP, job.told()
        # With the heartbeat that is the default, 10 s, it is within 15 s.
        assert time.monotonic() - began < HEARTBEAT + 5, job.told()
        job.assert_no_orphans()
    told = " ".join(job.err.replace("│", " ").split())
    first = f"rank 1 (host {os.uname().nodename}, pid {killed}) was killed by SIGKILL at step"
    assert first in told, job.told()
    assert "starting again: attempt 2" in told, job.told()
    second = f"rank 0 (host {os.uname().nodename}, pid {stopped}) was stopped by SIGSTOP at step"
    assert second in told, job.told()
    assert re.search(r"in job\.py:\d+ in train", told), job.told()
    assert job.out.count("sum 3.0 by") == 4, job.told()
