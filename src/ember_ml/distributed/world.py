"""World: which rank a process is, of how many, and where the others are found."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ember_ml.errors import DomainError

__all__ = ["LAUNCHED", "World"]

# Set by `ember launch` in each process that it starts; the others are those of torchrun.
LAUNCHED: Final = "EMBER_LAUNCH"
_RING: Final = "EMBER_RING"
_ATTEMPT: Final = "EMBER_ATTEMPT"


@dataclass(frozen=True, slots=True)
class World:
    """The processes of a job, as seen by one of them.

    `host` and `port` are where rank 0 listens for the others; `ring` is an address for each rank,
    which MLX needs. `attempt` counts restarts of the job, from 0.
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
            _RING: json.dumps(list(self.ring)),
            _ATTEMPT: str(self.attempt),
        }

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] | None = None) -> World:
        """The world that variables tell of; one of a single process where they tell of none."""
        given = os.environ if environ is None else environ
        if "RANK" in given and "WORLD_SIZE" in given:
            return cls(
                rank=int(given["RANK"]),
                size=int(given["WORLD_SIZE"]),
                local_rank=int(given.get("LOCAL_RANK", "0")),
                local_size=int(given.get("LOCAL_WORLD_SIZE", "1")),
                host=given.get("MASTER_ADDR", "127.0.0.1"),
                port=int(given.get("MASTER_PORT", "0")),
                ring=tuple(json.loads(given.get(_RING, "[]"))),
                attempt=int(given.get(_ATTEMPT, "0")),
                launcher="ember" if LAUNCHED in given else "torchrun",
            )
        return cls()
