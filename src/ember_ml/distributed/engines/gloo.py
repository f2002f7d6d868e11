"""torch.distributed: gloo between CPUs, nccl between GPUs; NumPy's arrays go by the same memory."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist

from ember_ml.backend.contract import NativeArray
from ember_ml.distributed.communicator import Communicator, Pending, read_header, spec_of
from ember_ml.distributed.world import World
from ember_ml.dtypes import DType
from ember_ml.tensor.core import Tensor, fill

__all__ = ["GlooCommunicator", "TorchCommunicator"]

_OPS: Final = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
}
# Others are gathered as bytes, and reduced by ops.
_CARRIED: Final = frozenset(("float32", "float64", "int8", "uint8", "int32", "int64"))
_FLOATS: Final = frozenset(("float32", "float64"))


class TorchCommunicator(Communicator):
    """Over torch.distributed."""

    transport = "gloo"

    def __init__(self, world: World, backend: str = "torch", *, timeout: float = 600.0) -> None:
        super().__init__(world, backend)
        store = dist.TCPStore(  # type: ignore[attr-defined]  # torch exports it without saying so
            world.host,
            world.port,
            world.size,
            is_master=world.rank == 0,
            timeout=timedelta(seconds=timeout),
        )
        # A name of its own for each attempt: what an earlier one has written is not read.
        named = dist.PrefixStore(f"attempt-{world.attempt}", store)  # type: ignore[attr-defined]  # as above
        dist.init_process_group(
            self.transport,
            store=named,
            rank=world.rank,
            world_size=world.size,
            timeout=timedelta(seconds=timeout),
        )
        self._store = store

    # NumPy has other arrays of the same memory: see GlooCommunicator.
    def _theirs(self, native: NativeArray) -> torch.Tensor:
        return native.contiguous()  # type: ignore[no-any-return]  # native arrays are untyped

    def _ours(self, tensor: torch.Tensor) -> NativeArray:
        return tensor

    def _gather_words(self, words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        row = torch.from_numpy(words)
        rows = torch.empty((self.world_size, len(words)), dtype=torch.int64)
        dist.all_gather(list(rows), row)
        return rows.numpy()

    def _carries(self, op: str, dtype: DType) -> bool:
        # gloo's max and min drop NaN or keep it by the order of ranks.
        return dtype.name in _CARRIED and (op in ("sum", "prod") or dtype.name not in _FLOATS)

    def _reduce(self, native: NativeArray, op: str) -> NativeArray:
        result = self._theirs(native).clone()
        dist.all_reduce(result, _OPS[op])
        return self._ours(result)

    def _sum(self, native: NativeArray) -> NativeArray:
        result = self._theirs(native)
        dist.all_reduce(result)
        return self._ours(result)

    def start_sum(self, natives: Any) -> Pending:
        return _Works(self, [self._theirs(native) for native in natives])

    def _broadcast(self, native: NativeArray, root: int) -> NativeArray:
        result = self._theirs(native).clone()
        dist.broadcast(result.view(-1).view(torch.uint8), root)
        return self._ours(result)

    def _gather(self, native: NativeArray) -> NativeArray:
        own = self._theirs(native)
        rows = torch.empty((self.world_size, *own.shape), dtype=own.dtype, device=own.device)
        found = list(rows.view(self.world_size, -1).view(torch.uint8))
        dist.all_gather(found, own.reshape(-1).view(torch.uint8))
        return self._ours(rows)

    def _send(self, header: np.ndarray[Any, Any], native: NativeArray, to: int) -> None:
        dist.send(torch.from_numpy(header), to)
        if 0 not in native.shape:
            dist.send(self._theirs(native).reshape(-1).view(torch.uint8), to)

    def _receive(self, source: int) -> Tensor:
        from ember_ml.distributed.communicator import _WORDS

        header = torch.zeros(_WORDS, dtype=torch.int64)
        dist.recv(header, source)
        dtype, shape = read_header(header.numpy())
        spec = spec_of(self._backend, dtype)
        native = self._backend.empty(shape, spec)
        if 0 not in shape:
            dist.recv(self._theirs(native).reshape(-1).view(torch.uint8), source)
        return fill(native, spec)

    def close(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()


class GlooCommunicator(TorchCommunicator):
    """NumPy's arrays by torch's gloo: torch.from_numpy shares their memory."""

    def __init__(self, world: World, backend: str = "numpy", *, timeout: float = 600.0) -> None:
        super().__init__(world, backend, timeout=timeout)

    def _theirs(self, native: NativeArray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(native))

    def _ours(self, tensor: torch.Tensor) -> NativeArray:
        return tensor.numpy()


class _Works(Pending):
    """Reductions that gloo makes in threads of its own."""

    def __init__(self, communicator: TorchCommunicator, tensors: list[torch.Tensor]) -> None:
        self._communicator = communicator
        self._tensors = tensors
        self._works = [dist.all_reduce(one, async_op=True) for one in tensors]

    def wait(self) -> list[NativeArray]:
        for work in self._works:
            self._communicator._guarded("all_reduce", work.wait)
        return [self._communicator._ours(one) for one in self._tensors]
