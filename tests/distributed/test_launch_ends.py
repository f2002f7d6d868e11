"""How launched jobs end on each engine: what was sent arrives, and nobody waits in vain."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.distributed.launches import Launch

# Rank 0 ends when it has sent; the other one goes on alone for longer than JAX waits for it.
LATE = """
import sys, time
import ember_ml as em

comm = em.distributed.initialize()
comm.barrier()
if comm.rank == 0:
    comm.send(em.ops.ones((int(sys.argv[1]),)), 1)
    comm.send(em.ops.arange(3), 1)
else:
    time.sleep(float(sys.argv[2]))
    first, second = comm.recv(0), comm.recv(0)
    print("got", float(em.ops.sum(first)), second.tolist(), flush=True)
"""
EARLY = """
import sys, time
import ember_ml as em

comm = em.distributed.initialize()
for step in range(1000):
    if step == 3 and comm.rank == 1:
        print("ends", flush=True)
        if sys.argv[1] == "left":
            em.distributed.shutdown()
            time.sleep(600)
        break
    comm.all_reduce(em.ops.ones((3,)))
"""
ENGINES: Final = ("torch", "jax", "mlx")
COUNT: Final = 2_000_000
linux = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are found in /proc, which Linux alone has"
)


def late(engine: str, folder: Path) -> None:
    seconds = 13.0 if engine == "jax" else 2.0
    (folder / "job.py").write_text(LATE)
    with Launch(["-n", 2, "-b", engine, "job.py", COUNT, seconds], folder) as job:
        assert job.wait() == 0, job.told()
        job.assert_no_orphans()
    assert f"[rank 1] got {float(COUNT)} [0, 1, 2]" in job.out, job.told()
    assert "Fatal" not in job.err, job.told()


def early(engine: str, folder: Path, how: str = "ended well") -> None:
    (folder / "job.py").write_text(EARLY)
    given = ["-n", 2, "-b", engine, "--heartbeat", 4, "job.py", how.split()[0]]
    with Launch(given, folder) as job:
        job.until(lambda: "[rank 1] ends" in job.out)
        began = time.monotonic()
        assert job.wait() == 1, job.told()
        assert time.monotonic() - began < 15, job.told()
        job.assert_no_orphans()
    told = " ".join(job.err.replace("│", " ").split())
    assert "rank 0 (host" in told, job.told()
    assert "raised CommunicationError" in told, job.told()
    why = f"the program of rank 1 had {how}, and another rank still needed it"
    assert why in told, job.told()


def left(engine: str, folder: Path) -> None:
    early(engine, folder, "left by em.distributed.shutdown()")


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Future[None]]]:
    """What came of the jobs that are asked for; some run at the same time, as most wait."""
    ends: dict[str, Callable[[str, Path], None]] = {"late": late, "early": early, "left": left}
    asked = [
        (item.callspec.params["how"], item.callspec.params["engine"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == test_ends.__name__
    ]
    with ThreadPoolExecutor(3) as pool:
        yield {
            (how, engine): pool.submit(ends[how], engine, tmp_path_factory.mktemp(how + engine))
            for how, engine in asked
        }


@linux
@pytest.mark.parametrize(
    ("how", "engine"),
    [*[(how, engine) for how in ("late", "early") for engine in ENGINES], ("left", "jax")],
)
def test_ends(how: str, engine: str, outcomes: dict[tuple[str, str], Future[None]]) -> None:
    outcomes[how, engine].result()
