"""initialize: the communicator of this process, by the engine of a backend."""

from __future__ import annotations

import atexit
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import Final

from ember_ml.backend import selection
from ember_ml.distributed.communicator import Communicator
from ember_ml.distributed.world import World
from ember_ml.errors import BackendUnavailableError, CommunicationError, DomainError

__all__ = ["get_communicator", "initialize", "is_initialized", "shutdown"]

# A process joins the others once for each backend.
_JOINED: Final[dict[str, Communicator]] = {}
# What ranks that mpiexec started have told each other of their addresses, once.
_MET: Final[dict[World, World]] = {}


def initialize(
    backend: str | None = None, *, world: World | None = None, timeout: float = 600.0
) -> Communicator:
    """Join the other processes of the job; gives the communicator of a backend.

    What `ember launch`, torchrun, mpiexec, Slurm or Kubernetes say in the environment decides who
    they are. A second call gives the same communicator. `timeout` is in seconds, for the others to
    come, and for each collective where the engine has one.
    """
    where = World.of_environment() if world is None else world
    if backend == "jax" and where.size > 1 and selection.loaded("jax") is None:
        from ember_ml.backend.processes import join

        # JAX asks for it before anything is computed, which loading its backend does.
        join(met(where, timeout), timeout)
    name = selection.current().name if backend is None else selection.load(backend).name
    found = _JOINED.get(name)
    if found is None:
        found = _JOINED[name] = _joined(name, where, timeout)
        if where.size > 1:
            atexit.unregister(_end)
            atexit.register(_end)  # the last to be registered is the first to run
    return found


def _end() -> None:
    """At the end of the program: what was sent has to arrive, unless the program has failed."""
    has_failed = getattr(sys, "last_value", None) is not None
    with suppress(CommunicationError):  # of a rank that is gone, the others tell
        while _JOINED:
            one = _JOINED.popitem()[1]
            if has_failed:
                one._abandon()
            else:
                one.close()


def is_initialized(backend: str | None = None) -> bool:
    """Whether this process has joined the others."""
    return (selection.current().name if backend is None else backend) in _JOINED


def get_communicator(backend: str | None = None) -> Communicator:
    """The communicator of a backend, once `initialize` has made it."""
    name = selection.current().name if backend is None else backend
    if name not in _JOINED:
        raise DomainError(
            f"this process has not joined others on '{name}'; call "
            f"em.distributed.initialize({name!r}) first"
        )
    return _JOINED[name]


def shutdown() -> None:
    """Leave the others; `initialize` joins them again."""
    while _JOINED:
        _JOINED.popitem()[1].close()


def met(world: World, timeout: float = 600.0) -> World:
    """The world with addresses for engines that need them: by MPI where only mpiexec told of it."""
    if world.size == 1 or world.port:
        return world
    if find_spec("mpi4py") is None:
        raise DomainError(
            f"mpiexec started rank {world.rank} of {world.size} and does not say where rank 0 "
            f"listens; pip install mpi4py, or set MASTER_ADDR and MASTER_PORT for all ranks"
        )
    from ember_ml.distributed.engines import mpi

    if world not in _MET:
        _MET[world] = mpi.met(world, timeout)
    return _MET[world]


def _joined(name: str, world: World, timeout: float) -> Communicator:
    if world.size == 1:
        return Communicator(world, name)
    if name == "numpy" and _takes_mpi(world):
        from ember_ml.distributed.engines.mpi import MpiCommunicator

        return MpiCommunicator(world, timeout=timeout)
    if name in ("numpy", "torch"):
        from ember_ml.distributed.engines import gloo

        kind = gloo.TorchCommunicator if name == "torch" else gloo.GlooCommunicator
        return kind(met(world, timeout), timeout=timeout)
    if name == "jax":
        from ember_ml.distributed.engines.jax_runtime import JaxCommunicator

        return JaxCommunicator(met(world, timeout), timeout=timeout)
    if name == "mlx":
        from ember_ml.distributed.engines.mlx_ring import MlxCommunicator

        return MlxCommunicator(met(world, timeout), timeout=timeout)
    raise DomainError(f"the backend '{name}' has no communicator")


def _takes_mpi(world: World) -> bool:
    """Whether NumPy's arrays go by MPI: where mpiexec was used, or torch is not here."""
    has_torch, has_mpi = find_spec("torch") is not None, find_spec("mpi4py") is not None
    if not has_torch and not has_mpi:
        raise BackendUnavailableError(
            f"NumPy has no way to the other {world.size - 1} processes: `pip install mpi4py mpich` "
            f"and start them with mpiexec, or `pip install torch` for its gloo"
        )
    return has_mpi and (world.launcher == "mpi" or not has_torch)
