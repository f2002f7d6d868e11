"""What launchers say in the environment, read as a World."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

from ember_ml.distributed.world import ATTEMPT, LAUNCHED, RING, World
from ember_ml.errors import DomainError

__all__ = ["hosts_of", "tasks_of", "world_of"]

# Kubernetes and torchrun listen there where nothing else is said.
_PORT: Final = 29500
# Ports that Slurm's jobs share out among themselves; those that systems give away are higher.
_FIRST_PORT: Final = 20000
_PORTS: Final = 10000

Environment = Mapping[str, str]


def world_of(given: Environment) -> World:
    """The world that variables tell of; one of a single process where they tell of none."""
    if "JOB_COMPLETION_INDEX" in given and "RANK" not in given:
        return _indexed_job(given)
    if "RANK" in given or "WORLD_SIZE" in given:
        return _torchrun(given)
    by_mpi = _mpi(given)
    by_slurm = _slurm(given)
    if by_mpi is None or by_slurm is None:
        return by_mpi or by_slurm or World()
    # Of srun with PMI, Slurm says more. mpiexec in a job of Slurm is started once for each node,
    # and Slurm counts those.
    agree = (by_mpi.rank, by_mpi.size) == (by_slurm.rank, by_slurm.size)
    return by_slurm if agree else by_mpi


# --- Each of them -----------------------------------------------------------------------------


def _torchrun(given: Environment) -> World:
    """By torchrun's variables, which `ember launch` and Kubernetes' PyTorchJob set as well."""
    rank, size = _pair(given, "RANK", "WORLD_SIZE")
    by_agent = "LOCAL_RANK" in given or "LOCAL_WORLD_SIZE" in given
    local_rank, local_size = _pair(given, "LOCAL_RANK", "LOCAL_WORLD_SIZE") if by_agent else (0, 1)
    host, port = _master(given, size)
    launcher = "torchrun"
    if LAUNCHED in given:
        launcher = "ember"
    elif not by_agent and "KUBERNETES_SERVICE_HOST" in given:
        launcher = "kubernetes"
    attempt = ATTEMPT if ATTEMPT in given else "TORCHELASTIC_RESTART_COUNT"
    return World(
        rank,
        size,
        local_rank,
        local_size,
        host,
        port,
        _ring(given),
        _integer(given, attempt) if attempt in given else 0,
        launcher,
    )


def _indexed_job(given: Environment) -> World:
    """By an Indexed Job of Kubernetes, whose pods are told how many they are, and of the first."""
    if "WORLD_SIZE" not in given:
        if "MASTER_ADDR" in given:
            raise DomainError(
                "the environment has JOB_COMPLETION_INDEX and MASTER_ADDR without WORLD_SIZE; set "
                "it to the number of completions in the Job's template, or unset MASTER_ADDR"
            )
        return World()  # pods that know nothing of each other
    rank, size = _pair(given, "JOB_COMPLETION_INDEX", "WORLD_SIZE")
    if size > 1 and "MASTER_ADDR" not in given:
        raise DomainError(
            "the environment has JOB_COMPLETION_INDEX and WORLD_SIZE without MASTER_ADDR; set it "
            "in the Job's template to the name of its first pod, by a headless Service"
        )
    port = _integer(given, "MASTER_PORT") if "MASTER_PORT" in given else _PORT
    host = given.get("MASTER_ADDR", "127.0.0.1")
    return World(rank, size, 0, 1, host, port, _ring(given), launcher="kubernetes")


# Rank, size, and the same on the node, by Open MPI, and by MPICH and Intel's.
_MPI: Final = (
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


def _mpi(given: Environment) -> World | None:
    for rank_name, size_name, local_rank_name, local_size_name in _MPI:
        if rank_name not in given and size_name not in given:
            continue
        rank, size = _pair(given, rank_name, size_name)
        known = local_rank_name in given and local_size_name in given
        local_rank, local_size = _pair(given, local_rank_name, local_size_name) if known else (0, 1)
        # Where nobody says where rank 0 is, MPI itself is asked later.
        told = "MASTER_ADDR" in given and "MASTER_PORT" in given
        host, port = _master(given, size) if told else ("127.0.0.1", 0)
        return World(rank, size, local_rank, local_size, host, port, _ring(given), launcher="mpi")
    return None


def _slurm(given: Environment) -> World | None:
    """By srun. A script of sbatch, which is no step of its job, is alone."""
    if "SLURM_PROCID" not in given:
        return None
    if "SLURM_JOB_ID" in given and not any(name.startswith("SLURM_STEP") for name in given):
        return World()
    size_name = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in given else "SLURM_NTASKS"
    if size_name not in given:
        # One task where nothing was asked for.
        return World() if _integer(given, "SLURM_PROCID") == 0 else _missing(given, size_name)
    rank, size = _pair(given, "SLURM_PROCID", size_name)
    if size == 1:
        return World(launcher="slurm")
    nodes = _first(given, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    if nodes is None:
        return _missing(given, "SLURM_STEP_NODELIST")
    hosts = hosts_of(given[nodes])
    job = _integer(given, "SLURM_JOB_ID") if "SLURM_JOB_ID" in given else 0
    step = _integer(given, "SLURM_STEP_ID") if "SLURM_STEP_ID" in given else 0
    port = (
        _integer(given, "MASTER_PORT")
        if "MASTER_PORT" in given
        else _FIRST_PORT + (job * 101 + step * 1009) % _PORTS
    )
    counts_name = _first(given, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    counts = tasks_of(given[counts_name]) if counts_name is not None else []
    local_rank = _integer(given, "SLURM_LOCALID") if "SLURM_LOCALID" in given else 0
    local_size = local_rank + 1
    ring: tuple[str, ...] = _ring(given)
    if len(counts) == len(hosts) and sum(counts) == size:
        node = _integer(given, "SLURM_NODEID") if "SLURM_NODEID" in given else -1
        local_size = counts[node] if 0 <= node < len(counts) else max(*counts, local_size)
        # By default, ranks fill one node after the other.
        if not ring and "cyclic" not in given.get("SLURM_DISTRIBUTION", ""):
            places = [host for host, count in zip(hosts, counts, strict=True) for _ in range(count)]
            ring = tuple(f"{host}:{port + 1 + i}" for i, host in enumerate(places))
    elif len(hosts) == 1:
        local_size = size
    return World(
        rank,
        size,
        local_rank,
        max(local_size, local_rank + 1),
        given.get("MASTER_ADDR", hosts[0]),
        port,
        ring,
        launcher="slurm",
    )


# --- Slurm's short forms ----------------------------------------------------------------------


def hosts_of(text: str) -> list[str]:
    """The hosts of a list as Slurm writes it.

    >>> hosts_of("gpu[01-03,7],login")
    ['gpu01', 'gpu02', 'gpu03', 'gpu7', 'login']
    """
    hosts: list[str] = []
    # Commas inside of brackets are those of a range.
    for one in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text):
        parts = re.split(r"\[([^\[\]]*)\]", one)
        choices = [
            _numbers(part, text) if place % 2 else [part] for place, part in enumerate(parts)
        ]
        hosts += ["".join(chosen) for chosen in product(*choices)]
    if not hosts or len(re.findall(r"[\[\]]", text)) % 2 or re.search(r"\[[^\]]*(\[|$)", text):
        raise DomainError(f"a list of Slurm's nodes is like gpu[01-03,7],login, not {text!r}")
    return hosts


def _numbers(ranges: str, text: str) -> list[str]:
    found: list[str] = []
    for one in ranges.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", one.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise DomainError(f"a list of Slurm's nodes is like gpu[01-03,7],login, not {text!r}")
        first, last = match[1], match[2] or match[1]
        found += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    return found


def tasks_of(text: str) -> list[int]:
    """How many tasks each node has, as Slurm writes it.

    >>> tasks_of("2(x3),1")
    [2, 2, 2, 1]
    """
    counts: list[int] = []
    for one in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", one.strip())
        if match is None:
            raise DomainError(f"Slurm's tasks of each node are like 2(x3),1, not {text!r}")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


# --- Variables --------------------------------------------------------------------------------


def _integer(given: Environment, name: str) -> int:
    text = given[name]
    try:
        return int(text)
    except ValueError:
        raise DomainError(
            f"the environment has {name}={text!r}, which is to be an integer"
        ) from None


def _missing(given: Environment, *names: str) -> World:
    raise DomainError(_without(given, names))


def _without(given: Environment, names: Sequence[str]) -> str:
    families = ("RANK", "WORLD_SIZE", "MASTER_", "LOCAL_", "OMPI_", "PMI_", "SLURM_PROCID")
    there = sorted(name for name in given if name.startswith(families))
    return (
        f"the environment has {', '.join(there)} without {' and '.join(names)}; set all of them, "
        f"as `ember launch` does, or unset them for a process that is alone"
    )


def _pair(given: Environment, rank_name: str, size_name: str) -> tuple[int, int]:
    missing = [name for name in (rank_name, size_name) if name not in given]
    if missing:
        raise DomainError(_without(given, missing))
    rank, size = _integer(given, rank_name), _integer(given, size_name)
    if not 0 <= rank < size:
        raise DomainError(
            f"the environment has {rank_name}={rank} and {size_name}={size}; ranks go from 0 to "
            f"{size_name} - 1"
        )
    return rank, size


def _master(given: Environment, size: int) -> tuple[str, int]:
    if size == 1:
        port = _integer(given, "MASTER_PORT") if "MASTER_PORT" in given else 0
        return given.get("MASTER_ADDR", "127.0.0.1"), port
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not given.get(name)]
    if missing:
        raise DomainError(_without(given, missing))
    port = _integer(given, "MASTER_PORT")
    if not 0 < port < 65536:
        raise DomainError(f"the environment has MASTER_PORT={port}, which is no port")
    return given["MASTER_ADDR"], port


def _ring(given: Environment) -> tuple[str, ...]:
    text = given.get(RING, "[]")
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise DomainError(
            f"the environment has {RING}={text!r}, which is to be a JSON list of addresses"
        )
    return tuple(found)


def _first(given: Environment, *names: str) -> str | None:
    return next((name for name in names if given.get(name)), None)
