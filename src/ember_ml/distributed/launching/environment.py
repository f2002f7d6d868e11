"""What started this process: torchrun, mpiexec, Slurm or Kubernetes, as their variables tell.

Some give each process a rank: then there is nothing left to start, and the program runs in this
very process. Others give machines: then a launcher runs on each.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from ember_ml.distributed.environments import tasks_of
from ember_ml.distributed.launching.addresses import DEFAULT_PORT, Endpoint
from ember_ml.distributed.world import World
from ember_ml.errors import DomainError

__all__ = ["Surroundings", "enter", "surroundings"]


@dataclass(frozen=True)
class Surroundings:
    """Where this process is: `world` where it has a rank, else what is known of machines."""

    # "ember", "torchrun", "mpi", "slurm", "kubernetes", or "" for none.
    kind: str = ""
    world: World | None = None
    nnodes: int | None = None
    node_rank: int | None = None
    master: Endpoint | None = None


def surroundings(
    environ: Mapping[str, str] | None = None, processes: int | None = None
) -> Surroundings:
    """What the variables tell; `processes` is what `-n` asks for on this machine, if it was given.

    >>> given = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    >>> surroundings(given).world.rank
    1
    """
    given = os.environ if environ is None else environ
    if "JOB_COMPLETION_INDEX" in given and (processes is not None or "WORLD_SIZE" not in given):
        return _indexed_job(given)
    world = World.of_environment(given)
    if not world.launcher or world.size == 1:
        return Surroundings(world.launcher)
    if processes is not None and _one_each(given, world):
        master = Endpoint(world.host, world.port or DEFAULT_PORT)
        return Surroundings(world.launcher, None, world.size, world.rank, master)
    if processes is not None and processes not in (1, world.local_size):
        raise DomainError(
            f"ember launch got -n {processes}, and {world.launcher} has started "
            f"{world.local_size} processes here already, each with its rank; drop -n, or let it "
            f"start one process for each node"
        )
    return Surroundings(world.launcher, world)


def enter(world: World, backend: str | None) -> None:
    """Set the variables of a world, so that the program of this process finds it."""
    if not world.port:
        # NumPy's processes talk by MPI itself; without it, what mpiexec has set is all there is.
        if backend == "numpy" or find_spec("mpi4py") is None:
            return
        from ember_ml.distributed.joining import met

        world = met(world)
    os.environ.update(world.environment())


def _one_each(given: Mapping[str, str], world: World) -> bool:
    """Whether there is one process for each machine, which is to start ranks of its own."""
    if world.launcher == "slurm":
        text = given.get("SLURM_STEP_TASKS_PER_NODE") or given.get("SLURM_TASKS_PER_NODE", "")
        counts = tasks_of(text) if text else []
        return len(counts) == world.size
    # Kubeflow has torchrun's names, without those of ranks on a machine.
    return world.launcher in ("torchrun", "kubernetes") and "LOCAL_RANK" not in given


def _indexed_job(given: Mapping[str, str]) -> Surroundings:
    """An indexed job of Kubernetes: its pods are <job>-0, <job>-1, ... behind a headless service.

    How many there are, their variables do not say; NNODES in the job's template may.
    """
    index = _number(given, "JOB_COMPLETION_INDEX")
    nnodes = _number(given, "NNODES") if given.get("NNODES") else None
    master = None
    if given.get("MASTER_ADDR"):
        port = _number(given, "MASTER_PORT") if given.get("MASTER_PORT") else DEFAULT_PORT
        master = Endpoint(given["MASTER_ADDR"], port)
    else:
        # The name of the pod within its service; only the number differs for the first one.
        first, dot, domain = socket.getfqdn().partition(".")
        if first.endswith(f"-{index}"):
            host = first.removesuffix(f"-{index}") + "-0" + dot + domain
            master = Endpoint(host, DEFAULT_PORT)
    # Pods that were not told how many they are know nothing of each other.
    return Surroundings("kubernetes", None, nnodes, index, master)


def _number(given: Mapping[str, str], name: str) -> int:
    try:
        return int(given[name])
    except ValueError:
        raise DomainError(f"the variable {name} is {given[name]!r}; it is a number") from None
