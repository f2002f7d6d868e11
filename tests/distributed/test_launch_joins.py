"""`ember launch` among others: started by mpiexec, srun or Kubernetes, and with other nodes."""

from __future__ import annotations

import selectors
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ember_ml.distributed.launching.addresses import Endpoint
from ember_ml.distributed.launching.nodes import Hub, Link, Plan
from ember_ml.distributed.world import free_ports
from ember_ml.errors import CommunicationError
from tests.distributed.launches import Launch

SUM = """
import os, sys
import ember_ml as em

comm = em.distributed.initialize()
total = comm.all_reduce(em.ops.ones((4,)) * (comm.rank + 1))
line = f"sum {float(total[0])} by {comm.transport} {__name__} {sys.argv[1:]}\\n"
os.write(1, line.encode())  # at once: nobody else's line comes in between
em.distributed.shutdown()
"""
PLACE = """
import os, sys, time
from pathlib import Path

print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "at", os.environ["MASTER_ADDR"])
Path(f"at-work-{os.environ['RANK']}").touch()
if sys.argv[1:] == ["bad"] and os.environ["RANK"] == "1":
    raise ValueError("not here")
time.sleep(600 if sys.argv[1:] else 0)
"""
linux = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are found in /proc, which Linux alone has"
)


@linux
@pytest.mark.skipif(
    find_spec("mpi4py") is None or shutil.which("mpiexec") is None,
    reason="mpi4py and mpiexec are not installed",
)
def test_processes_of_mpiexec_are_the_ranks(tmp_path: Path) -> None:
    (tmp_path / "sum.py").write_text(SUM)
    command = ["mpiexec", "-n", "2", sys.executable, "-m", "ember_ml.launch"]
    with Launch(["-b", "numpy", "sum.py", "--lr", 3], tmp_path, command=command) as job:
        assert job.wait() == 0, job.told()
        job.assert_no_orphans()
    # In the very process: nothing is put before its lines.
    assert job.out.count("sum 3.0 by mpi __main__ ['--lr', '3']") == 2, job.told()


@linux
def test_tasks_of_srun_are_ranks_and_pods_are_nodes(tmp_path: Path) -> None:
    (tmp_path / "place.py").write_text(PLACE)
    slurm = {
        **dict.fromkeys(("SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"), "2"),
        "SLURM_STEP_NODELIST": "gpu7",
        "SLURM_JOB_ID": "8",
        "SLURM_STEP_ID": "0",
        "SLURM_NODEID": "0",
    }
    own = {"SLURM_PROCID": "1", "SLURM_LOCALID": "1"}
    pods = {
        "NNODES": "2",
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_ports(1)[0]),
    }
    with (
        Launch(["place.py"], tmp_path, environment={**slurm, **own}) as task,
        Launch(["-n", 1, "place.py"], tmp_path, environment=_pod(pods, 1)) as second,
        Launch(["-n", 2, "place.py"], tmp_path, environment=_pod(pods, 0)) as first,
    ):
        assert task.wait() == 0, task.told()
        assert first.wait() == 0, first.told() + second.told()
        assert second.wait() == 0, second.told()
    assert task.out == "rank 1 of 2 at gpu7\n"
    assert sorted(first.out.splitlines()) == [
        f"[rank {rank}] rank {rank} of 3 at 127.0.0.1" for rank in range(2)
    ]
    assert second.out == "[rank 2] rank 2 of 3 at 127.0.0.1\n"


def _pod(pods: dict[str, str], index: int) -> dict[str, str]:
    return {**pods, "JOB_COMPLETION_INDEX": str(index)}


@linux
def test_a_failure_and_a_signal_on_one_node_reach_the_other(tmp_path: Path) -> None:
    jobs: dict[tuple[str, int], Launch] = {}
    folders = {kind: tmp_path / kind for kind in ("bad", "ends")}
    try:
        for kind, folder in folders.items():
            folder.mkdir()
            (folder / "place.py").write_text(PLACE)
            master = f"127.0.0.1:{free_ports(1)[0]}"
            for node in range(2):
                given = ["--nnodes", 2, "--node-rank", node, "--master", master, "place.py", kind]
                jobs[kind, node] = Launch(given, folder)
        assert jobs["bad", 0].wait() == 1, jobs["bad", 0].told()
        assert jobs["bad", 1].wait() == 1, jobs["bad", 1].told()
        # The report is on node 0; the other tells in a line why it ends.
        assert "raised ValueError: not here" in jobs["bad", 0].err
        assert "[launch] node 1 ends: rank 1 (host" in jobs["bad", 1].err
        ending = jobs["ends", 1]
        ending.until(lambda: all((folders["ends"] / f"at-work-{n}").exists() for n in range(2)))
        ending.send(signal.SIGTERM)
        assert ending.wait() == 128 + signal.SIGTERM, ending.told()
        assert jobs["ends", 0].wait() == 128 + signal.SIGTERM, jobs["ends", 0].told()
        for job in jobs.values():
            job.assert_no_orphans()
            assert "Traceback" not in job.out
    finally:
        for job in jobs.values():
            job.kill()


# --- Nodes that come, or do not ---------------------------------------------------------------


@pytest.fixture
def made() -> Iterator[Callable[..., Any]]:
    """Makes ends of a job of several nodes, and closes them."""
    master = Endpoint("127.0.0.1", free_ports(1)[0])
    ends: list[Any] = []

    def make(node: int, nnodes: int, wait: float = 20.0) -> Any:
        selector = selectors.DefaultSelector()
        about: dict[str, Any] = {"wait": wait, "heartbeat": 5.0, "selector": selector}
        about["check"] = lambda: None
        if node == 0:
            one: Any = Hub(nnodes, master, **about)
        else:
            one = Link(node, nnodes, master, **about)
        ends.append((one, selector))
        return one

    yield make
    for one, selector in ends:
        one.close()
        selector.close()


def test_nodes_get_ranks_in_their_order_and_fresh_ports(made: Callable[..., Any]) -> None:
    hub, second, third = made(0, 3), made(1, 3), made(2, 3)
    plans: dict[int, Plan] = {}
    held: list[Any] = []  # to the end: a port that was given back may come again by chance

    def gather(number: int, end: Any, count: int, attempt: int) -> None:
        plans[number] = end.gather(count, attempt, f"job of {number}")
        held.append(plans[number].ports)

    ports = set()
    # A node that was here before knows of more attempts than node 0, and which job it is.
    for attempts, expected, job in (((0, 0, 0), 0, "job of 0"), ((1, 1, 3), 3, "job of 2")):
        threads = [
            threading.Thread(target=gather, args=(number, end, count, attempts[number]))
            for number, end, count in ((2, third, 1), (1, second, 3), (0, hub, 2))
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join(30.0)
        assert [plans[number].first for number in range(3)] == [0, 2, 5]
        assert {plan.size for plan in plans.values()} == {6}
        assert {plan.attempt for plan in plans.values()} == {expected}
        assert {plan.job for plan in plans.values()} == {job}
        assert len({(plan.host, plan.port, plan.ring) for plan in plans.values()}) == 1
        assert len(set(plans[0].ring)) == 6
        ports |= {plans[0].port, *plans[0].ring}
        plans.clear()
    for one in held:
        one.close()
    assert len(ports) == 14


def test_a_node_that_never_comes_is_an_error(made: Callable[..., Any]) -> None:
    hub, second = made(0, 3, wait=0.5), made(1, 3)
    found: list[str] = []

    def gather() -> None:
        with pytest.raises(CommunicationError) as error:
            second.gather(1, 0, "")
        found.append(str(error.value))

    thread = threading.Thread(target=gather)
    thread.start()
    with pytest.raises(CommunicationError, match=r"waited 0\.5 s at .* and node 2 of 3 did not"):
        hub.gather(1, 0, "")
    thread.join(20.0)
    assert found == ["ember launch: node 2 did not come"]


@pytest.mark.parametrize(
    ("node", "nnodes", "said"),
    [
        (1, 3, "node 0 was started with --nnodes 2, not 3"),
        (2, 2, "--node-rank 2 is not below --nnodes 2"),
    ],
)
def test_a_node_that_does_not_belong_is_refused(
    node: int, nnodes: int, said: str, made: Callable[..., Any]
) -> None:
    hub, stranger, second = made(0, 2), made(node, nnodes), made(1, 2)
    thread = threading.Thread(target=lambda: hub.gather(1, 0, "").ports.close())
    thread.start()
    with pytest.raises(CommunicationError, match=said):
        stranger.gather(1, 0, "")
    plan = second.gather(1, 0, "")
    plan.ports.close()
    assert plan.first == 1  # the job goes on with those that do
    thread.join(20.0)
    assert not thread.is_alive()
