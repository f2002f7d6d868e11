"""World: which rank a process is, of how many, and where the others are found."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ember_ml.errors import DomainError

__all__ = ["LAUNCHED", "World", "free_ports"]

# Set by `ember launch` in each process that it starts; the others are those of torchrun.
LAUNCHED: Final = "EMBER_LAUNCH"
RING: Final = "EMBER_RING"
ATTEMPT: Final = "EMBER_ATTEMPT"


@dataclass(frozen=True, slots=True)
class World:
    """The processes of a job, as seen by one of them.

    `host` and `port` are where rank 0 listens for the others (a port of 0: not known); `ring` is an
    address for each rank, which MLX needs. `attempt` counts restarts of the job, from 0.

    >>> World(rank=1, size=2).environment()["RANK"]
    '1'
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    host: str = "127.0.0.1"
    port: int = 0
    ring: tuple[str, ...] = ()
    attempt: int = 0
    # Who started the processes: "ember", "torchrun", "mpi", "slurm", "kubernetes", or "" for none.
    launcher: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise DomainError(
                f"a process has rank {self.rank} of {self.size}; ranks go from 0 to size - 1"
            )
        if not 0 <= self.local_rank < self.local_size:
            raise DomainError(
                f"a process has local rank {self.local_rank} of {self.local_size} on its node; "
                f"local ranks go from 0 to local size - 1"
            )
        if not 0 <= self.port < 65536:
            raise DomainError(f"rank 0 cannot listen on port {self.port}; it is below 65536")
        if self.ring and len(self.ring) != self.size:
            raise DomainError(
                f"a ring has an address for each of {self.size} ranks, and got {len(self.ring)}"
            )

    @property
    def is_local(self) -> bool:
        """True where all processes are on one machine, as far as the launcher tells."""
        return self.local_size == self.size

    def environment(self) -> dict[str, str]:
        """The variables by which a process that is started learns of its place."""
        return {
            LAUNCHED: "1",
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_size),
            "MASTER_ADDR": self.host,
            "MASTER_PORT": str(self.port),
            RING: json.dumps(list(self.ring)),
            ATTEMPT: str(self.attempt),
        }

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] | None = None) -> World:
        """The world that variables tell of; one of a single process where they tell of none.

        Known are those of `ember launch`, torchrun, mpiexec (Open MPI, MPICH, Intel), Slurm's srun,
        and Kubernetes (PyTorchJob, and Indexed Jobs with WORLD_SIZE and MASTER_ADDR). Variables of
        which a part is missing, or which make no sense, raise DomainError.

        >>> given = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
        >>> World.of_environment(given).rank, World.of_environment({}).size
        (1, 1)
        """
        from ember_ml.distributed import environments

        return environments.world_of(os.environ if environ is None else environ)


def free_ports(count: int) -> list[int]:
    """Ports that nobody on this machine uses now, told by the system."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("", 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()
