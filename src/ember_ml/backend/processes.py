"""Joining JAX's runtime of several processes, which must come before anything is computed.

A model is often built before somebody asks for a communicator, so a process that `ember launch`
has started joins when the JAX backend is loaded. This module stands outside of backend/jax, whose
import computes already.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ember_ml.errors import CommunicationError, DomainError

if TYPE_CHECKING:
    from ember_ml.distributed.world import World

__all__ = ["join", "join_if_launched", "leave", "put", "take"]

# A peer that says nothing for so long is gone; JAX waits for 100 s where nothing is said.
_HEARTBEAT: Final = 10
# For others to say farewell as well, once all programs have ended; JAX ends all where one is late.
_FAREWELL: Final = 10
# Set by a process whose program has ended well.
_LEFT: Final = "ember/left/{}"
# Seconds between two looks whether others have.
_LOOK: Final = 1.0
# How long a process waits for the programs of others, where no launcher watches them.
_patience = 300.0
# What JAX says where something was computed before.
_TOO_LATE: Final = "must be called before"


def join_if_launched() -> None:
    """Join the others where `ember launch` has started this process as one of several.

    A job of another backend may still use JAX here and there, on some ranks only: nobody is
    waited for then.
    """
    if os.environ.get("EMBER_LAUNCH") != "1" or os.environ.get("WORLD_SIZE", "1") == "1":
        return
    if os.environ.get("EMBER_ML_BACKEND", "jax") != "jax":
        return
    from ember_ml.distributed.world import World

    # Where JAX has been used already, a communicator will say so, if somebody asks for one.
    with suppress(DomainError):
        join(World.of_environment())


def join(world: World, timeout: float = 300.0) -> None:
    """Connect with the other processes, once."""
    global _patience
    import jax

    if jax.distributed.is_initialized():
        return
    _patience = timeout
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # It would catch SIGTERM, by which launchers end processes, and go on.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            f"[{world.host}]:{world.port}" if ":" in world.host else f"{world.host}:{world.port}",
            world.size,
            world.rank,
            local_device_ids=[_device(world.local_rank)],
            cluster_detection_method="deactivate",
            initialization_timeout=max(1, round(timeout)),
            heartbeat_timeout_seconds=_HEARTBEAT,
            shutdown_timeout_seconds=_FAREWELL,
        )
    except RuntimeError as error:
        if _TOO_LATE in str(error):
            raise DomainError(
                "JAX has computed something before this process joined the others; call "
                "em.distributed.initialize('jax') first, or start the job by `ember launch`"
            ) from error
        raise CommunicationError(
            f"rank {world.rank} of {world.size} could not join the others by JAX's runtime at "
            f"{world.host}:{world.port} within {timeout:g} s ({error})"
        ) from error
    _listen_at(os.environ.get("EMBER_ADDRESS", ""))
    atexit.register(leave)


def _listen_at(address: str) -> None:
    """Let gloo be reached by the address that `ember launch` has found.

    It would take that of the host's name, which on many machines is a loopback address.
    """
    if not address:
        return
    from functools import partial
    from importlib import import_module

    from jax._src import xla_bridge

    library: Any = import_module("jaxlib._jax")  # a module without types, in C++
    made = library.make_gloo_tcp_collectives(distributed_client=_client(), hostname=address)
    xla_bridge.register_backend_factory(
        "cpu", partial(xla_bridge.make_cpu_client, made), priority=0, fail_quietly=False
    )


def _device(local_rank: int) -> int:
    """Which GPU of this machine is ours; a cluster may show each process its own only."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ.get("ROCR_VISIBLE_DEVICES")
    return local_rank % len(shown.split(",")) if shown else local_rank


def put(name: str, data: bytes | memoryview) -> None:
    """Leave bytes in the store of JAX's runtime, under a name that is used once."""
    _client().key_value_set_bytes(name, bytes(data))


def take(name: str, timeout: float) -> bytes:
    """Wait for bytes in the store, and remove them."""
    client = _client()
    found: bytes = client.blocking_key_value_get_bytes(name, max(1, round(timeout * 1000)))
    client.key_value_delete(name)
    return found


def _client() -> Any:
    from jax._src import distributed

    client = distributed.global_state.client
    if client is None:
        raise CommunicationError("this process has left the others")
    return client


def leave() -> None:
    """Tell the others that this process ends, and wait for them."""
    import jax

    if not jax.distributed.is_initialized():
        return
    from ember_ml.distributed.launching import beats

    try:
        beats.leaving(True)
        _await_others()
        jax.distributed.shutdown()
    except Exception:
        # A peer is gone, which somebody has been told already, or will be by the launcher.
        _forget()
    finally:
        beats.leaving(False)


def _await_others() -> None:
    """Stay until the programs of all have ended, however long one of them goes on alone.

    JAX gives those that are late some seconds, and then ends all of them: a rank that saves a model
    for the others would be killed. A program that has failed waits for nobody.
    """
    from jax._src import distributed

    if getattr(sys, "last_value", None) is not None:
        return
    state: Any = distributed.global_state
    state.client.key_value_set(_LEFT.format(state.process_id), "")
    # `ember launch` sees ranks that wait for one which will not come.
    is_watched = os.environ.get("EMBER_LAUNCH") == "1"
    end = float("inf") if is_watched else time.monotonic() + _patience
    for rank in range(state.num_processes):
        while time.monotonic() < end and not _is_there(state.client, _LEFT.format(rank)):
            continue


def _is_there(client: Any, name: str) -> bool:
    try:
        client.blocking_key_value_get(name, round(_LOOK * 1000))
    except Exception as error:
        if "DEADLINE_EXCEEDED" in str(error):
            return False
        raise
    return True


def _forget() -> None:
    from jax._src import distributed

    state: Any = distributed.global_state
    state.client = None
    state.service = None
