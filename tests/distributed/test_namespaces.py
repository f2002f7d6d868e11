"""Two network namespaces stand for two hosts: `ember launch --nnodes 2`, and the loss of one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.distributed.launches import Launch

# Each rank adds what all ranks have, step by step; a file tells that it is at work.
SCRIPT = """
import os, sys, time
from pathlib import Path

import ember_ml as em
from ember_ml.distributed.launching import beats

comm = em.distributed.initialize()
steps = int(sys.argv[1])
for step in range(steps):
    beats.note(step=step)
    total = comm.all_reduce(em.ops.ones((1000,)) * (comm.rank + 1))
    if step == 3:
        Path(f"{sys.argv[2]}-{comm.rank}").touch()
    if steps > 10:
        time.sleep(0.02)
print("sum", float(total[0]), "of", comm.world_size, "by", comm.transport, flush=True)
em.distributed.shutdown()
"""


class Hosts:
    """Two namespaces, each with an address of its own on a cable between them."""

    addresses = ("10.213.77.1", "10.213.77.2")

    def __init__(self) -> None:
        mark = uuid.uuid4().hex[:6]
        self.names = (f"ember-{mark}-a", f"ember-{mark}-b")
        self.cables = (f"em{mark}a", f"em{mark}b")

    def open(self) -> None:
        for name in self.names:
            _ip("netns", "add", name)
        first, second = self.cables
        # Both ends at once, each in its namespace: none of it is seen outside.
        ends = ["name", first, "netns", self.names[0], "type", "veth"]
        _ip("link", "add", *ends, "peer", "name", second, "netns", self.names[1])
        for name, cable, address in zip(self.names, self.cables, self.addresses, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", cable)
            _ip("-n", name, "link", "set", cable, "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def cut(self) -> None:
        """Pull the cable."""
        _ip("-n", self.names[1], "link", "set", self.cables[1], "down")

    def join(self) -> None:
        """Put it back."""
        _ip("-n", self.names[1], "link", "set", self.cables[1], "up")

    def inside(self, number: int) -> list[str]:
        return ["ip", "netns", "exec", self.names[number]]

    def close(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False, timeout=30)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    if shutil.which("ip") is None:
        pytest.skip("network namespaces are made by iproute2, which is not installed")
    made = Hosts()
    try:
        made.open()
    except OSError as error:
        made.close()
        pytest.skip(f"network namespaces cannot be made here ({error})")
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.py").write_text(SCRIPT)
    return tmp_path


def launched(hosts: Hosts, node: int, folder: Path, port: int, *arguments: object) -> Launch:
    given = ["--nnodes", 2, "--node-rank", node, "--master", f"{hosts.addresses[0]}:{port}"]
    return Launch([*given, *arguments], folder, prefix=hosts.inside(node))


@pytest.fixture(scope="module")
def outcomes(
    hosts: Hosts, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    """What came of the jobs of all engines that are asked for, which run at the same time."""
    asked = [
        item.callspec.params["engine"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.originalname == test_a_job_on_two_hosts.__name__
    ]
    with ThreadPoolExecutor(len(asked)) as pool:
        yield {
            one: pool.submit(run_on_both, one, hosts, tmp_path_factory.mktemp(one), 29420 + place)
            for place, one in enumerate(asked)
        }


@pytest.mark.parametrize("engine", ["torch", "numpy", "jax", "mlx"])
def test_a_job_on_two_hosts(engine: str, outcomes: dict[str, Future[None]]) -> None:
    outcomes[engine].result()


def run_on_both(engine: str, hosts: Hosts, folder: Path, port: int) -> None:
    (folder / "job.py").write_text(SCRIPT)
    about = ["--backend", engine, "job.py", 6, "well"]
    with (
        launched(hosts, 1, folder, port, *about) as second,
        launched(hosts, 0, folder, port, *about) as first,
    ):
        assert first.wait() == 0, first.told() + second.told()
        assert second.wait() == 0, first.told() + second.told()
    assert "[rank 0] sum 3.0 of 2 by" in first.out
    assert "[rank 1] sum 3.0 of 2 by" in second.out


def test_the_loss_of_a_host_ends_the_job_on_both(hosts: Hosts, folder: Path) -> None:
    about = ["--backend", "torch", "--heartbeat", 3, "job.py", 100_000, "lost"]
    with (
        launched(hosts, 1, folder, 29417, *about) as second,
        launched(hosts, 0, folder, 29417, *about) as first,
    ):
        first.until(lambda: all((folder / f"lost-{rank}").exists() for rank in range(2)))
        began = time.monotonic()
        hosts.cut()
        try:
            assert first.wait(30) == 1, first.told()
            assert second.wait(30) == 1, second.told()
        finally:
            hosts.join()
        assert time.monotonic() - began < 15
        first.assert_no_orphans()
        second.assert_no_orphans()
    name = os.uname().nodename
    assert f"node 1 (host {name}, 10.213.77.2) is lost: it has not answered for 3 s" in _flat(first)
    assert "node 0 at 10.213.77.1:29417 is lost (it has not answered for 3 s)" in _flat(second)


def test_a_host_that_comes_back_takes_part_in_the_next_attempt(hosts: Hosts, folder: Path) -> None:
    about = ["--backend", "mlx", "--heartbeat", 4, "--max-restarts", 2, "job.py", 100, "back"]
    with (
        launched(hosts, 1, folder, 29417, *about) as second,
        launched(hosts, 0, folder, 29417, *about) as first,
    ):
        first.until(lambda: all((folder / f"back-{rank}").exists() for rank in range(2)))
        # Its launcher dies, and its ranks with it; another one is started, as clusters do.
        second.send(signal.SIGKILL)
        second.wait()
        second.assert_no_orphans()
        with launched(hosts, 1, folder, 29417, *about) as third:
            assert first.wait() == 0, first.told() + third.told()
            assert third.wait() == 0, third.told()
    assert "node 1" in _flat(first)
    assert "is lost" in _flat(first)
    assert "[rank 1] sum 3.0 of 2 by ring" in third.out


def _flat(job: Launch) -> str:
    return " ".join(job.err.replace("│", " ").split())
