"""torch.distributed: gloo between CPUs, nccl between GPUs; NumPy's arrays go by the same memory."""

from __future__ import annotations

import gc
import os
import queue
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist

# Its functions have the group of the moment as a default. Imported by the compiler when there is
# one, they keep it, and its threads run into Python's end, which aborts the process.
import torch.distributed.nn.functional

from ember_ml.backend.contract import NativeArray
from ember_ml.backend.torch import accelerators
from ember_ml.backend.torch.tracing import is_fake
from ember_ml.distributed import headers
from ember_ml.distributed.communicator import Communicator, Pending, spec_of
from ember_ml.distributed.world import World
from ember_ml.dtypes import DType
from ember_ml.errors import CommunicationError, DeviceError, DomainError
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill

__all__ = ["MESHES", "GlooCommunicator", "TorchCommunicator"]

# The meshes of torch that were made over the group.
MESHES: Final[list[Any]] = []

_OPS: Final = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
}
# torch's own collectives as operators, which its graphs hold.
_C10D: Final = torch.ops._c10d_functional
# Others are carried by wider ones, or gathered as bytes and reduced by ops.
_CARRIED: Final = frozenset(("float32", "float64", "int8", "uint8", "int32", "int64"))
_FLOATS: Final = frozenset(("float32", "float64"))
_COMPLEX: Final = frozenset(("complex64", "complex128"))
# Seconds for what is on its way when a program fails.
_FAREWELL: Final = 1.0
# What torch says of a peer that is gone or silent, in errors that are plain RuntimeErrors.
_LOSSES: Final = (
    "gloo",
    "connection",
    "socket",
    "store",
    "nccl",
    "timed out",
    "timeout",
    "peer",
    "address",
)


class TorchCommunicator(Communicator):
    """Over torch.distributed: nccl for tensors on a GPU, gloo for those in memory.

    Within em.jit, collectives are torch's functional ones, which its graphs can hold.
    """

    def __init__(self, world: World, backend: str = "torch", *, timeout: float = 600.0) -> None:
        super().__init__(world, backend)
        self._timeout = timeout
        self._sending: _Sending | None = None
        self._guarded("initialize", _GROUP.join, world, timeout)
        # That of new tensors; the first one on a GPU makes it nccl.
        on_gpu = convert.device_for(self._backend).startswith("cuda")
        self.transport = "nccl" if on_gpu and _GROUP.has_nccl else "gloo"

    # NumPy has other arrays of the same memory: see GlooCommunicator.
    def _theirs(self, native: NativeArray) -> torch.Tensor:
        """A contiguous tensor, which may share the memory of an array."""
        return native.detach().resolve_conj().resolve_neg().contiguous()  # type: ignore[no-any-return]  # native arrays are untyped

    def _copied(self, native: NativeArray) -> torch.Tensor:
        """A contiguous tensor of its own memory."""
        plain = native.detach().resolve_conj().resolve_neg()
        return plain.clone(memory_format=torch.contiguous_format)  # type: ignore[no-any-return]  # as above

    def _ours(self, tensor: torch.Tensor) -> NativeArray:
        return tensor

    def _gather_words(self, words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        row = torch.tensor(words)
        rows = torch.empty((self.world_size, len(words)), dtype=torch.int64)
        dist.all_gather(list(rows), row)
        return rows.numpy()

    def _broadcast_words(self, words: np.ndarray[Any, Any], root: int) -> np.ndarray[Any, Any]:
        row = torch.tensor(words)
        dist.broadcast(row, root)
        return row.numpy()

    def _carries(self, op: str, dtype: DType) -> bool:
        if op == "sum" and dtype.name in _COMPLEX:
            return True
        # gloo's max and min drop NaN or keep it by the order of ranks.
        return dtype.name in _CARRIED and (op in ("sum", "prod") or dtype.name not in _FLOATS)

    def _reduce(self, native: NativeArray, op: str) -> NativeArray:
        if is_fake(native):
            return _awaited(_C10D.all_reduce(_real(native), op.replace("prod", "product"), _name()))
        result = self._copied(native)
        self._require_device(result)
        dist.all_reduce(result, _OPS[op])
        return self._ours(result)

    def _sum(self, native: NativeArray) -> NativeArray:
        return self.start_sum([native]).wait()[0]

    def start_sum(self, natives: Sequence[NativeArray]) -> Pending:
        """Begin sums, which gloo makes in threads of its own and nccl in a stream."""
        if natives and is_fake(natives[0]):
            begun = [_C10D.all_reduce(_real(native), "sum", _name()) for native in natives]
            return Pending([_awaited(one) for one in begun])
        return _Works(self, [self._theirs(native) for native in natives])

    def _broadcast(self, native: NativeArray, root: int) -> NativeArray:
        if is_fake(native):
            return _awaited(_C10D.broadcast(native.contiguous(), root, _name()))
        result = self._copied(native)
        self._require_device(result)
        dist.broadcast(_bytes(result), root)
        return self._ours(result)

    def _gather(self, native: NativeArray) -> NativeArray:
        if is_fake(native):
            size = self.world_size
            rows = _C10D.all_gather_into_tensor(native.contiguous(), size, _name())
            return _awaited(rows).view(size, *native.shape)
        own = self._theirs(native)
        self._require_device(own)
        rows = torch.empty((self.world_size, *own.shape), dtype=own.dtype, device=own.device)
        found = list(rows.view(self.world_size, -1).view(torch.uint8))
        dist.all_gather(found, _bytes(own))
        return self._ours(rows)

    def _scatter(self, native: NativeArray, op: str) -> NativeArray | None:
        # gloo reduces all in less time than it scatters.
        if is_fake(native):
            return None
        own = self._theirs(native)
        if not own.is_cuda:
            return None
        self._require_device(own)
        part = torch.empty_like(own[: own.shape[0] // self.world_size])
        dist.reduce_scatter(part, list(own.chunk(self.world_size)), _OPS[op])
        return self._ours(part)

    def _send(self, header: np.ndarray[Any, Any], native: NativeArray, to: int) -> None:
        if self._sending is None:
            self._sending = _Sending()
        # Copies: the caller may write to what it has sent, and the other rank may be late.
        self._sending.start(torch.tensor(header), to)
        if 0 not in native.shape:
            own = self._copied(native)
            self._require_device(own)
            self._sending.start(_bytes(own), to)

    def _receive(self, source: int) -> Tensor:
        header = torch.zeros(headers.WORDS, dtype=torch.int64)
        dist.recv(header, source)
        dtype, shape = headers.read_header(header.numpy())
        spec = spec_of(self._backend, dtype)
        native = self._backend.empty(shape, spec)
        if 0 not in shape:
            dist.recv(_bytes(self._theirs(native)), source)
        return fill(native, spec)

    def _require_device(self, tensor: torch.Tensor) -> None:
        if not tensor.is_cuda:
            return
        if not _GROUP.has_nccl:
            raise DeviceError(
                f"this communicator talks over gloo, and got a tensor on '{tensor.device}'; "
                f"it takes those of the CPU, as this torch has no nccl, or its group none"
            )
        self.transport = "nccl"

    def _is_loss(self, error: Exception) -> bool:
        if isinstance(error, OSError | dist.DistError):
            return True
        text = str(error).lower()
        return isinstance(error, RuntimeError) and any(word in text for word in _LOSSES)

    def close(self) -> None:
        """Wait until what was sent has been received, and let go of the others."""
        try:
            # Of a rank that is lost, somebody has been told.
            if self._sending is not None and not self._loss:
                self._guarded("close", self._sending.finish, self._timeout)
        finally:
            self._sending = None
            _GROUP.leave()

    def _abandon(self) -> None:
        # A thread that is in torch when Python ends makes the process end by SIGABRT, and only the
        # other rank can get it out of there.
        if self._sending is not None:
            self._sending.is_over(_FAREWELL)


def _name() -> str:
    return str(dist.group.WORLD.group_name)  # type: ignore[union-attr]  # there is one by now


def _real(native: torch.Tensor) -> torch.Tensor:
    """What a reduction takes: 0-d tensors and others, contiguous."""
    return native.detach().contiguous()


def _awaited(begun: Any) -> Any:
    return _C10D.wait_tensor(begun)


class GlooCommunicator(TorchCommunicator):
    """NumPy's arrays by torch's gloo: torch.from_numpy shares their memory."""

    compiles = False

    def __init__(self, world: World, backend: str = "numpy", *, timeout: float = 600.0) -> None:
        super().__init__(world, backend, timeout=timeout)

    def _theirs(self, native: NativeArray) -> torch.Tensor:
        array = np.asarray(native, order="C")
        if not array.flags.writeable:  # torch has no such tensors, and warns
            array = array.copy()
        # torch does not know NumPy's bfloat16; only bits are moved here, or float32.
        if array.dtype.kind not in "biufc":
            return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    def _copied(self, native: NativeArray) -> torch.Tensor:
        return self._theirs(np.array(native, order="C", copy=True))

    def _ours(self, tensor: torch.Tensor) -> NativeArray:
        if tensor.dtype is torch.bfloat16:
            from ember_ml import dtypes

            return tensor.view(torch.uint16).numpy().view(dtypes.bfloat16.numpy)
        return tensor.numpy()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8)


class _Works(Pending):
    """Reductions that gloo makes in threads of its own."""

    def __init__(self, communicator: TorchCommunicator, tensors: list[torch.Tensor]) -> None:
        self._communicator = communicator
        self._tensors = tensors
        self._works = [
            communicator._guarded("all_reduce", _started, tensor)
            for tensor in tensors
            if tensor.numel()
        ]

    def wait(self) -> list[NativeArray]:
        while self._works:
            self._communicator._guarded("all_reduce", self._works[0].wait)
            del self._works[0]
        return [self._communicator._ours(one) for one in self._tensors]


def _started(tensor: torch.Tensor) -> Any:
    return dist.all_reduce(tensor, async_op=True)


class _Sending:
    """What is on its way to other ranks, held until they have it: senders do not wait for them.

    torch tells of a message only to who waits for it, so a thread does.
    """

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[tuple[Any, torch.Tensor] | None] = queue.SimpleQueue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._wait, daemon=True, name="ember-sending")
        self._thread.start()

    def start(self, tensor: torch.Tensor, to: int) -> None:
        self._require()
        self._works.put((dist.isend(tensor, to), tensor))

    def is_over(self, timeout: float) -> bool:
        """Whether all has been received, or nothing can be, within some seconds."""
        self._works.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def finish(self, timeout: float) -> None:
        is_over = self.is_over(timeout)
        self._require()
        if not is_over:
            raise CommunicationError(f"a tensor that was sent was not received in {timeout:g} s")

    def _require(self) -> None:
        if self._error is not None:
            raise CommunicationError(f"a tensor that was sent did not arrive ({self._error})")

    def _wait(self) -> None:
        while (pair := self._works.get()) is not None:
            try:
                pair[0].wait()
            except Exception as error:  # told where the next one is sent
                self._error = error
                return


class _Group:
    """torch's group of all processes, which the communicators of torch and NumPy share.

    One that exists already, by torch.distributed.init_process_group, is used and left alone.
    """

    def __init__(self) -> None:
        self.has_nccl = False
        self._users = 0
        self._joined = 0
        self._is_own = False
        # Stores stay: who joins again may come before rank 0 has let go of the old one.
        self._stores: dict[tuple[str, int], Any] = {}

    def join(self, world: World, timeout: float) -> None:
        if dist.is_initialized():
            found = dist.get_rank(), dist.get_world_size()
            if found != (world.rank, world.size):
                raise DomainError(
                    f"torch.distributed was initialized as rank {found[0]} of {found[1]}, and "
                    f"the environment says rank {world.rank} of {world.size}"
                )
            self.has_nccl = "nccl" in str(dist.get_backend_config())
        else:
            self.has_nccl = torch.cuda.is_available() and dist.is_nccl_available()
            if self.has_nccl:  # it joins the others when it is first used
                torch.cuda.set_device(accelerators.names()[0])
            dist.init_process_group(
                # Words of headers are in memory, also where tensors are not.
                "cpu:gloo,cuda:nccl" if self.has_nccl else "gloo",
                store=self._store(world, timeout),
                rank=world.rank,
                world_size=world.size,
                timeout=timedelta(seconds=timeout),
            )
            self._is_own = True
        self._users += 1

    def _store(self, world: World, timeout: float) -> Any:
        key = world.host, world.port
        if key not in self._stores:
            # torchrun has a store there already.
            hosts = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
            self._stores[key] = dist.TCPStore(  # type: ignore[attr-defined]  # torch exports it without saying so
                world.host,
                world.port,
                world.size,
                is_master=hosts and world.rank == 0,
                timeout=timedelta(seconds=timeout),
            )
        self._joined += 1
        # A name of its own for each attempt: what an earlier one has written is not read.
        name = f"ember-{world.attempt}-{self._joined}"
        return dist.PrefixStore(name, self._stores[key])  # type: ignore[attr-defined]  # as above

    def leave(self) -> None:
        self._users -= 1
        if self._users == 0 and self._is_own and dist.is_initialized():
            dist.destroy_process_group()
            self._is_own = False
            self._let_go()

    def _let_go(self) -> None:
        """Let the group go where meshes hold it: its threads end when nobody does.

        Caches of torch hold meshes for good, and what FSDP2 makes of them goes in circles. Threads
        that run into Python's end abort the process.
        """
        if MESHES:
            for mesh in MESHES:
                getattr(mesh, "_pg_registry", {}).clear()
            MESHES.clear()
            gc.collect()


_GROUP: Final = _Group()
