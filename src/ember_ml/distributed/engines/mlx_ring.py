"""MLX's own groups: a ring of sockets, or MPI where MLX was built with it.

MLX is lazy, and ranks must do things in one order: what is called outside of em.jit is computed
before the call ends. A rank that is stopped, not dead, makes the others wait without an end: the
watch of `ember launch` ends such a job. Inside of em.jit, MLX runs a graph in an order of its own,
so all ranks must trace the same graph: what differs between them comes in as an argument.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import numpy as np

from ember_ml.backend.contract import NativeArray
from ember_ml.backend.mlx.hosting import evaluated
from ember_ml.distributed import headers
from ember_ml.distributed.communicator import Communicator, Pending, spec_of
from ember_ml.distributed.engines.mailbox import Mailbox
from ember_ml.distributed.world import World
from ember_ml.dtypes import DType
from ember_ml.errors import CommunicationError, DomainError
from ember_ml.tensor.core import Tensor, fill

__all__ = ["MlxCommunicator"]

_BITS: Final = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}
_LOSSES: Final = ("[ring]", "[mpi]", "socket", "connection", "recv", "send")


class MlxCommunicator(Communicator):
    """Over mx.distributed: "ring", or "mpi" in processes that mpiexec has started."""

    def __init__(self, world: World, backend: str = "mlx", *, timeout: float = 600.0) -> None:
        super().__init__(world, backend)
        self._timeout = timeout
        by_mpi = world.launcher == "mpi" and mx.distributed.is_available("mpi")
        self.transport = "mpi" if by_mpi else "ring"
        self._group = _group_of(world, self.transport)
        if (self._group.rank(), self._group.size()) != (world.rank, world.size):
            raise CommunicationError(
                f"MLX has a group of {self._group.size()} processes already, in which this is "
                f"{self._group.rank()}; it is rank {world.rank} of {world.size} here"
            )
        self._sums: dict[str, Any] = {
            "sum": mx.distributed.all_sum,
            "max": mx.distributed.all_max,
            "min": mx.distributed.all_min,
        }
        self._mailbox: Mailbox | None = self._opened()

    # --- Hooks ------------------------------------------------------------------------------

    def _gather_words(self, words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.array(self._gather(mx.array(words)))

    def _carries(self, op: str, dtype: DType) -> bool:
        # Whether max and min keep NaN depends on which rank has it.
        return op == "sum" or (op in ("max", "min") and not dtype.is_inexact)

    def _reduce(self, native: NativeArray, op: str) -> NativeArray:
        return _done(self._sums[op](native, group=self._group))

    def _sum(self, native: NativeArray) -> NativeArray:
        return _done(mx.distributed.all_sum(native, group=self._group))

    def start_sum(self, natives: Sequence[NativeArray]) -> Pending:
        """Begin sums, which MLX computes in a thread of its own."""
        sums = [
            mx.distributed.all_sum(native, group=self._group) if native.size else native
            for native in natives
        ]
        return _Started(self, sums)

    def _broadcast(self, native: NativeArray, root: int) -> NativeArray:
        # A sum of numbers would change -0.0 and some bits of NaN. All ranks multiply, so that all
        # have the same graph, which MLX runs in the same order then.
        if native.dtype == mx.bool_:
            return self._broadcast(native.astype(mx.uint8), root).astype(mx.bool_)
        shape, kind = native.shape, _BITS[native.itemsize]
        bits = native.reshape(-1).view(kind) * mx.array(int(self.rank == root), kind)
        total = mx.distributed.all_sum(bits, group=self._group)
        return _done(total.view(native.dtype).reshape(shape))

    def _gather(self, native: NativeArray) -> NativeArray:
        return _done(mx.distributed.all_gather(native[None], group=self._group))

    def _only(self, x: Tensor, root: int) -> Tensor:
        # Not by `if`: what no result depends on is never computed, and others would wait for it.
        native = mx.where(mx.array(self.rank == root), x.native, mx.zeros_like(x.native))
        return fill(_done(native), x._spec)

    def _is_loss(self, error: Exception) -> bool:
        text = str(error).lower()
        is_theirs = isinstance(error, RuntimeError) and any(word in text for word in _LOSSES)
        return is_theirs or isinstance(error, OSError)

    # --- Between two ranks ------------------------------------------------------------------

    def _opened(self) -> Mailbox:
        """A mailbox that knows those of the other ranks."""
        hosts = [address.rpartition(":")[0] for address in self.world.ring]
        hosts = hosts or [self.world.host] * self.world_size
        made = Mailbox(self.rank, self.world_size, hosts[self.rank])
        own = np.array([made.port, secrets.randbits(62)], np.int64)
        rows = self._guarded("initialize", self._gather_words, own)
        ports = [int(row[0]) for row in rows]
        made.open(list(zip(hosts, ports, strict=True)), int(rows[0][1]))
        return made

    def _letters(self) -> Mailbox:
        if self._mailbox is None:
            raise CommunicationError("this communicator is closed")
        return self._mailbox

    def _send(self, header: np.ndarray[Any, Any], native: NativeArray, to: int) -> None:
        data = self._backend.to_numpy(native)
        self._letters().send(to, header.tobytes() + data.tobytes())

    def _receive(self, source: int) -> Tensor:
        letter = self._letters().take(source, self._timeout)
        size = headers.WORDS * 8
        dtype, shape = headers.read_header(np.frombuffer(letter[:size], np.int64))
        spec = spec_of(self._backend, dtype)
        array = np.frombuffer(letter[size:], dtype.numpy).reshape(shape)
        return fill(self._backend.from_numpy(array, spec, copy=True), spec)

    def close(self) -> None:
        """Wait until what was sent is on its way; MLX keeps its group until the process ends."""
        if self._mailbox is not None:
            self._mailbox.close(self._timeout)
            self._mailbox = None


def _done(native: NativeArray) -> NativeArray:
    """A result that is computed, or a part of what em.jit traces."""
    evaluated(native)
    return native


class _Started(Pending):
    """Sums that MLX computes in a thread of its own."""

    def __init__(self, communicator: MlxCommunicator, natives: list[NativeArray]) -> None:
        super().__init__(natives)
        self._communicator = communicator
        self._is_traced = False
        try:
            communicator._guarded("all_reduce", mx.async_eval, natives)
        except ValueError:  # a part of what em.jit traces
            self._is_traced = True

    def wait(self) -> list[NativeArray]:
        if not self._is_traced:
            self._communicator._guarded("all_reduce", mx.eval, self._natives)
        return self._natives


def _group_of(world: World, transport: str) -> Any:
    """The group of all processes; MLX makes one, and gives it again to who asks later."""
    if transport == "mpi":
        return mx.distributed.init(strict=True, backend="mpi")
    if len(world.ring) != world.size:
        raise DomainError(
            f"MLX's ring needs an address of each of {world.size} ranks, and knows "
            f"{len(world.ring)}; start the processes by `ember launch`, or set EMBER_RING to a "
            f'JSON list of "host:port", by rank'
        )
    before = {name: os.environ.get(name) for name in ("MLX_HOSTFILE", "MLX_RANK")}
    with tempfile.TemporaryDirectory(prefix="ember-ring-") as folder:
        hosts = Path(folder) / "hosts.json"
        hosts.write_text(json.dumps([[address] for address in world.ring]), encoding="utf-8")
        os.environ |= {"MLX_HOSTFILE": str(hosts), "MLX_RANK": str(world.rank)}
        try:
            return mx.distributed.init(strict=True, backend="ring")
        except RuntimeError as error:
            raise CommunicationError(
                f"rank {world.rank} of {world.size} could not join MLX's ring at "
                f"{', '.join(world.ring)} ({error})"
            ) from error
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
