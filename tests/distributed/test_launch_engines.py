"""A rank is killed, and one is stopped, in the middle of collectives, on each engine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.distributed.launches import Launch

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are found in /proc, which Linux alone has"
)

SCRIPT = """
import os, sys
from pathlib import Path

import ember_ml as em
from ember_ml.distributed.launching import beats


def train():
    comm = em.distributed.initialize()
    x = em.ops.ones((10_000,)) * (comm.rank + 1)
    for step in range(10_000_000):
        beats.note(step=step)
        total = comm.all_reduce(x)
        if step == 20:
            print("sum", float(total[0]), "by", comm.transport, flush=True)
            Path("part-%d" % comm.rank).write_text(str(os.getpid()))
            Path("part-%d" % comm.rank).rename(f"{os.environ['EMBER_ATTEMPT']}-{comm.rank}")


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


@pytest.mark.parametrize("engine", ["torch", "numpy", "jax", "mlx", "mpi"])
def test_a_rank_killed_and_one_stopped_among_collectives(engine: str, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    environment, backend = {}, engine
    if engine == "mpi":
        if find_spec("mpi4py") is None or shutil.which("mpiexec") is None:
            pytest.skip("mpi4py and mpiexec are not installed")
        (tmp_path / "hidden").mkdir()
        (tmp_path / "hidden" / "sitecustomize.py").write_text(WITHOUT_TORCH)
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(tmp_path / "hidden"), str(Path(__file__).parents[2] / "src")]
        )
        backend = "numpy"
    given = ["-n", 2, "-b", backend, "--heartbeat", 5, "--max-restarts", 1, "job.py"]
    with Launch(given, tmp_path, environment=environment) as job:

        def pid_of(attempt: int, rank: int) -> int:
            path = tmp_path / f"{attempt}-{rank}"
            job.until(path.exists)
            return int(path.read_text())

        for rank in range(2):
            pid_of(0, rank)
        time.sleep(0.7)  # a beat
        killed = pid_of(0, 1)
        os.kill(killed, signal.SIGKILL)
        # Restarted within seconds, on fresh ports; now the other one is stopped.
        for rank in range(2):
            pid_of(1, rank)
        time.sleep(0.7)
        stopped = pid_of(1, 0)
        began = time.monotonic()
        os.kill(stopped, signal.SIGSTOP)
        assert job.wait(60) == 128 + signal.SIGSTOP, job.told()
        assert time.monotonic() - began < 15, job.told()
        job.assert_no_orphans()
    told = " ".join(job.err.replace("│", " ").split())
    host = os.uname().nodename
    assert re.search(rf"rank 1 \(host {host}, pid {killed}\) was killed by SIGKILL at step", told)
    assert "starting again: attempt 2" in told
    assert re.search(rf"rank 0 \(host {host}, pid {stopped}\) was stopped by SIGSTOP at", told)
    assert re.search(r"in job\.py:\d+ in train, which was in ", told), job.told()
    assert job.out.count("sum 3.0 by") == 4, job.told()
