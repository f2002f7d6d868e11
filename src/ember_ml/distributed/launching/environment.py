"""What started this process: torchrun, mpiexec, Slurm or Kubernetes, as their variables tell.

Some give each process a rank: then there is nothing left to start, and the program runs in this
very process. Others give machines: then a launcher runs on each.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ember_ml.distributed.launching.addresses import DEFAULT_PORT, Endpoint
from ember_ml.distributed.world import LAUNCHED, World
from ember_ml.errors import DomainError

__all__ = ["Surroundings", "expand_hosts", "surroundings"]

# Of a process under Open MPI, MPICH or Intel MPI, and MVAPICH: its rank and their number, in the
# job and on this machine.
_MPI: Final = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_{}"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCAL{}"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_{}"),
)


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

    >>> surroundings({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}).world.rank
    1
    """
    given = os.environ if environ is None else environ
    for found in (_of_variables, _of_slurm, _of_mpi, _of_kubernetes):
        place = found(given, processes)
        if place is not None:
            return place
    return Surroundings()


def _of_variables(given: Mapping[str, str], processes: int | None) -> Surroundings | None:
    """torchrun's names, which `ember launch` and Kubeflow use as well."""
    if "RANK" not in given or "WORLD_SIZE" not in given:
        return None
    kind = "ember" if LAUNCHED in given else "torchrun"
    rank, size = _number(given, "RANK"), _number(given, "WORLD_SIZE")
    if "LOCAL_RANK" not in given and processes is not None:
        # Kubeflow starts one process for each machine, with these names.
        return Surroundings(kind, None, size, rank, _master(given))
    _require_agreement(kind, processes, _number(given, "LOCAL_WORLD_SIZE", 1))
    return Surroundings(kind, replace(World.of_environment(given), launcher=kind))


def _of_slurm(given: Mapping[str, str], processes: int | None) -> Surroundings | None:
    # Set by srun alone: a batch script runs on the first node, outside of any step.
    if "SLURM_STEP_NUM_TASKS" not in given or "SLURM_PROCID" not in given:
        return None
    tasks, nodes = _number(given, "SLURM_STEP_NUM_TASKS"), _number(given, "SLURM_STEP_NUM_NODES", 1)
    if tasks == 1:
        return None
    names = given.get("SLURM_STEP_NODELIST") or given.get("SLURM_JOB_NODELIST", "")
    hosts = expand_hosts(names)
    # No task can ask another for a port: all compute the same from the number of the job.
    number = _number(given, "SLURM_JOB_ID", 0) * 64 + _number(given, "SLURM_STEP_ID", 0)
    port = 20_000 + number % 8_000
    master = _master(given) or Endpoint(hosts[0] if hosts else "127.0.0.1", port)
    if tasks == nodes and processes is not None:
        return Surroundings("slurm", None, nodes, _number(given, "SLURM_NODEID"), master)
    counts = _task_counts(given.get("SLURM_STEP_TASKS_PER_NODE", str(tasks)))
    _require_agreement("slurm", processes, counts[0] if counts else tasks)
    ring = [
        f"{host}:{master.port + 1 + local}"
        for host, count in zip(hosts, counts, strict=False)
        for local in range(count)
    ]
    world = World(
        rank=_number(given, "SLURM_PROCID"),
        size=tasks,
        local_rank=_number(given, "SLURM_LOCALID", 0),
        local_size=counts[_number(given, "SLURM_NODEID", 0)] if len(counts) == nodes else 1,
        host=master.host,
        port=master.port,
        ring=tuple(ring) if len(ring) == tasks else (),
        launcher="slurm",
    )
    return Surroundings("slurm", world)


def _of_mpi(given: Mapping[str, str], processes: int | None) -> Surroundings | None:
    for rank, size, local in _MPI:
        of_mpich = rank.startswith("PMI")
        local_rank = local.format("RANKID" if of_mpich else "RANK")
        local_size = local.format("NRANKS" if of_mpich else "SIZE")
        if rank in given and size in given and _number(given, size) > 1:
            _require_agreement("mpi", processes, _number(given, local_size, 1))
            master = _master(given)
            world = World(
                rank=_number(given, rank),
                size=_number(given, size),
                local_rank=_number(given, local_rank, 0),
                local_size=_number(given, local_size, 1),
                host=master.host if master else "127.0.0.1",
                port=master.port if master else 0,
                launcher="mpi",
            )
            return Surroundings("mpi", world)
    return None


def _of_kubernetes(given: Mapping[str, str], processes: int | None) -> Surroundings | None:
    """An indexed job: its pods are <job>-0, <job>-1, ... behind a headless service."""
    if "JOB_COMPLETION_INDEX" not in given or "KUBERNETES_SERVICE_HOST" not in given:
        return None
    index = _number(given, "JOB_COMPLETION_INDEX")
    nnodes = _number(given, "NNODES") if "NNODES" in given else None
    master = _master(given)
    if master is None:
        # The name of the pod within its service; only the number differs for the first one.
        first, dot, domain = socket.getfqdn().partition(".")
        if first.endswith(f"-{index}"):
            host = first.removesuffix(f"-{index}") + "-0" + dot + domain
            master = Endpoint(host, DEFAULT_PORT)
    return Surroundings("kubernetes", None, nnodes, index, master)


def _master(given: Mapping[str, str]) -> Endpoint | None:
    if not given.get("MASTER_ADDR"):
        return None
    port = given.get("MASTER_PORT", "")
    return Endpoint(given["MASTER_ADDR"], int(port) if port.isdigit() else DEFAULT_PORT)


def _number(given: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = given.get(name, "")
    if not text and default is not None:
        return default
    try:
        return int(text)
    except ValueError:
        raise DomainError(f"the variable {name} is {text!r}; it should be a number") from None


def _require_agreement(kind: str, processes: int | None, there: int) -> None:
    if processes is not None and processes not in (1, there):
        raise DomainError(
            f"ember launch got -n {processes}, and {kind} has started {there} processes here "
            f"already, each with its rank; drop -n, or let it start one process for each node"
        )


def _task_counts(text: str) -> list[int]:
    """Of Slurm's "2(x3),1": 2, 2, 2, 1."""
    counts: list[int] = []
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(number)] * int(times or 1)
    return counts


def expand_hosts(text: str) -> list[str]:
    """The hosts of a Slurm list.

    >>> expand_hosts("gpu[08-10,12],login")
    ['gpu08', 'gpu09', 'gpu10', 'gpu12', 'login']
    """
    hosts: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        names = [""]
        for plain, numbers in re.findall(r"([^\[\]]+)|\[([^\]]*)\]", part):
            ends = [plain] if plain else list(_numbers(numbers))
            names = [name + end for name in names for end in ends]
        hosts += names
    return hosts


def _numbers(text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not dash:
            found.append(low)
            continue
        width = len(low) if low.startswith("0") else 0
        found += [str(one).zfill(width) for one in range(int(low), int(high) + 1)]
    return found
