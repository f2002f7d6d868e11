"""One suite of what communicators do, on every engine with 2 and 3 processes; and lost peers."""

from __future__ import annotations

import functools
import os
import signal
import time
from typing import Any

import numpy as np
import pytest

from ember_ml import distributed, errors, ops
from ember_ml.distributed import Communicator, World, joining
from ember_ml.distributed.world import free_ports
from tests.distributed import jobs, semantics

# Backend, by what it talks, and whether mpiexec starts the processes.
ENGINES = {
    "torch": ("torch", "gloo", False),
    "numpy": ("numpy", "gloo", False),
    "numpy-mpi": ("numpy", "mpi", True),
    "jax": ("jax", "jax", False),
    "mlx": ("mlx", "ring", False),
}


@functools.cache
def _found(engine: str, n: int) -> list[jobs.Outcome] | jobs.JobFailed:
    """What all cases gave on each rank: one job runs them all. A failure is kept as well."""
    backend, _, mpi = ENGINES[engine]
    # JAX compiles a program for each dtype and shape, which matters here and not how fast it runs.
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    try:
        return jobs.run(semantics.run_all, n, backend, mpi=mpi, environment=quick, limit=900)
    except jobs.JobFailed as error:
        return error


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", semantics.CASES)
def test_semantics(engine: str, n: int, case: str) -> None:
    found = _found(engine, n)
    if isinstance(found, jobs.JobFailed):
        raise found
    for outcome in found:
        assert outcome.value["transport"] == ENGINES[engine][1]
        wrong = outcome.value[case]
        assert not wrong, f"on rank {outcome.rank} of {n}:\n{wrong}"


# --- Alone -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [name for name in semantics.CASES if name in semantics.ALONE])
def test_semantics_of_one_process(backend: str, case: str) -> None:
    semantics.CASES[case](Communicator(World(), backend))


def test_a_process_that_is_alone_has_nobody_to_send_to(backend: str) -> None:
    alone = Communicator(World(), backend)
    for peer in (0, 1, -1):
        with pytest.raises(errors.DomainError, match=r"Communicator\.send"):
            alone.send([1.0], peer)
        with pytest.raises(errors.DomainError, match=r"Communicator\.recv"):
            alone.recv(peer)


# --- Joining ---------------------------------------------------------------------------------


def test_who_has_not_joined_is_told() -> None:
    assert not distributed.is_initialized("torch")
    with pytest.raises(errors.DomainError, match=r"em.distributed.initialize\('torch'\)"):
        distributed.get_communicator("torch")


def test_numpy_without_torch_and_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "find_spec", lambda name: None)
    with pytest.raises(errors.BackendUnavailableError, match="pip install mpi4py mpich"):
        distributed.initialize("numpy", world=World(0, 2, 0, 2, port=1))
    with pytest.raises(errors.DomainError, match="MASTER_ADDR"):
        distributed.initialize("torch", world=World(0, 2, 0, 2, launcher="mpi"))
    assert not distributed.is_initialized("numpy")


def test_nobody_comes() -> None:
    port = free_ports(1)[0]
    start = time.monotonic()
    with pytest.raises(errors.CommunicationError, match="initialize on rank 1 of 2"):
        distributed.initialize("torch", world=World(1, 2, 1, 2, port=port), timeout=2)
    assert time.monotonic() - start < 30
    assert not distributed.is_initialized("torch")


def _by_mpi() -> dict[str, Any]:
    """torch where mpiexec started the processes, and nothing says where rank 0 is."""
    found = distributed.initialize("torch")
    told = distributed.initialize("numpy")
    return {
        "transports": [found.transport, told.transport],
        "sum": found.all_reduce(ops.asarray(found.rank + 1, dtype="int64")),
        "ring": len(set(found.world.ring)),
    }


def test_torch_under_mpiexec() -> None:
    for outcome in jobs.run(_by_mpi, 2, "torch", mpi=True):
        assert outcome.value["transports"] == ["gloo", "mpi"]
        assert outcome.value["sum"].item() == 3
        assert outcome.value["ring"] == 2


def _failing_under_mpi() -> None:
    comm = distributed.initialize()
    if comm.rank == 1:
        # Not as the harness ends: by the interpreter's own way out.
        import sys
        import traceback

        try:
            raise ValueError("this rank fails")
        except ValueError as error:
            sys.excepthook(ValueError, error, error.__traceback__)
            traceback.print_exc()
        sys.exit(0)
    comm.all_reduce(1.0)


# --- Peers that are lost ---------------------------------------------------------------------


def _left(how: int, timeout: float) -> dict[str, Any]:
    """The last rank is lost; what the others are told, and when."""
    # NumPy and torch talk over one group.
    comms = [distributed.initialize(timeout=timeout)]
    if comms[0].transport == "gloo":
        comms.append(distributed.initialize("torch", timeout=timeout))
        # They can leave, and join again.
        assert comms[1].all_reduce(1).item() == comms[0].world_size
        distributed.shutdown()
        comms = [distributed.initialize(name, timeout=timeout) for name in ("numpy", "torch")]
    for comm in comms:
        assert comm.all_reduce(1).item() == comm.world_size
    if comms[0].rank == comms[0].world_size - 1:
        os.kill(os.getpid(), how)
    start = time.monotonic()
    found: dict[str, Any] = {"errors": [], "texts": []}
    for comm in comms:
        for call in (
            lambda comm=comm: comm.all_reduce(np.ones(3, np.float32)),
            comm.barrier,
            lambda comm=comm: comm.start_sum(
                [ops.ones((3,)).to_backend(comm.backend).native]
            ).wait(),
            lambda comm=comm: comm.recv(comm.world_size - 1),
        ):
            try:
                call()
                found["errors"].append("")
            except Exception as error:
                found["errors"].append(type(error).__name__)
                found["texts"].append(str(error))
            found.setdefault("seconds", time.monotonic() - start)
    # Engines wait for peers when they are left.
    jobs.leave(found)
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_peer_over_gloo(how: int) -> None:
    timeout = 60.0 if how == signal.SIGKILL else 4.0
    *others, _ = jobs.run(_left, 3, "numpy", [int(how), timeout], abandoned=[2])
    for outcome in others:
        assert outcome.error is None, outcome.trace
        assert outcome.value["errors"] == ["CommunicationError"] * 8, outcome.value["texts"]
        assert f"on rank {outcome.rank} of 3 failed" in outcome.value["texts"][0]
        if how == signal.SIGKILL:
            assert outcome.value["seconds"] < 20
        else:
            assert 2 < outcome.value["seconds"] < 25


@pytest.mark.parametrize("engine", ["jax", "mlx"])
def test_a_killed_peer_of_an_engine(engine: str) -> None:
    first, _ = jobs.run(_left, 2, engine, [int(signal.SIGKILL), 60.0], abandoned=[1])
    assert first.error is None, first.trace
    assert first.value["errors"] == ["CommunicationError"] * 4, first.value["texts"]
    assert first.value["seconds"] < 20


def test_a_stopped_peer_over_mpi() -> None:
    first, _ = jobs.run(_left, 2, "numpy", [int(signal.SIGSTOP), 2.0], mpi=True, check=False)
    assert first.value["errors"] == ["CommunicationError"] * 4, first.value["texts"]
    assert 1.5 < first.value["seconds"] < 25


def test_a_killed_peer_over_mpi_ends_all() -> None:
    start = time.monotonic()
    first, _ = jobs.run(_left, 2, "numpy", [int(signal.SIGKILL), 60.0], mpi=True, check=False)
    assert first.code != 0  # of mpiexec
    assert time.monotonic() - start < 50


def test_a_failing_rank_over_mpi_ends_all() -> None:
    start = time.monotonic()
    first, _ = jobs.run(_failing_under_mpi, 2, "numpy", mpi=True, check=False)
    assert first.code != 0
    assert "this rank fails" in first.output
    assert time.monotonic() - start < 50
