"""initialize: the communicator of this process, by the engine of a backend."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from ember_ml.backend import selection
from ember_ml.distributed.communicator import Communicator
from ember_ml.distributed.world import World
from ember_ml.errors import BackendUnavailableError, DomainError

__all__ = ["get_communicator", "initialize", "is_initialized", "shutdown"]

# A process joins the others once for each backend.
_JOINED: Final[dict[str, Communicator]] = {}


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

        join(where, timeout)  # JAX asks for it before anything is computed, as its backend does
    name = selection.current().name if backend is None else selection.load(backend).name
    found = _JOINED.get(name)
    if found is None:
        found = _JOINED[name] = _joined(name, where, timeout)
    return found


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
    """Leave the others."""
    while _JOINED:
        _JOINED.popitem()[1].close()


def _joined(name: str, world: World, timeout: float) -> Communicator:
    if world.size == 1:
        return Communicator(world, name)
    if name == "torch":
        from ember_ml.distributed.engines.gloo import TorchCommunicator

        return TorchCommunicator(world, timeout=timeout)
    if name == "numpy":
        if find_spec("torch") is not None:
            from ember_ml.distributed.engines.gloo import GlooCommunicator

            return GlooCommunicator(world, timeout=timeout)
        raise BackendUnavailableError("mpi")
    if name == "jax":
        from ember_ml.distributed.engines.jax_runtime import JaxCommunicator

        return JaxCommunicator(world, timeout=timeout)
    if name == "mlx":
        from ember_ml.distributed.engines.mlx_ring import MlxCommunicator

        return MlxCommunicator(world, timeout=timeout)
    raise DomainError(f"the backend '{name}' has no communicator")
