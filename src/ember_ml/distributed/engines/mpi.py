"""MPI for NumPy's arrays, by mpi4py's buffers: nothing is pickled.

MPI itself waits for ever for a rank that is silent. Every call here is one that does not wait, and
is asked until the timeout whether it is done.
"""

from __future__ import annotations

import atexit
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final

import mpi4py
import numpy as np

from ember_ml.backend.contract import NativeArray
from ember_ml.distributed import headers
from ember_ml.distributed.communicator import Communicator, Pending, spec_of
from ember_ml.distributed.world import World
from ember_ml.dtypes import DType
from ember_ml.errors import BackendUnavailableError, CommunicationError
from ember_ml.tensor.core import Tensor, fill

# Who uses MPI besides has its own way to end it.
_IS_OWN: Final = "mpi4py.MPI" not in sys.modules
if _IS_OWN:
    mpi4py.rc.finalize = False

from mpi4py import MPI  # noqa: E402 - once it is decided who ends it

__all__ = ["MpiCommunicator", "met"]

_OPS: Final = {"sum": MPI.SUM, "prod": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN}
_INTEGERS: Final = frozenset("iu")
# Seconds of asking without a pause, and the longest pause afterwards.
_EAGER: Final = 0.001
_PAUSE: Final = 0.001
_TAG: Final = 7


class MpiCommunicator(Communicator):
    """NumPy's arrays over MPI, in processes that mpiexec (or srun) has started."""

    transport = "mpi"
    compiles = False

    def __init__(self, world: World, backend: str = "numpy", *, timeout: float = 600.0) -> None:
        super().__init__(world, backend)
        everyone = MPI.COMM_WORLD
        if (everyone.rank, everyone.size) != (world.rank, world.size):
            raise BackendUnavailableError(
                f"MPI says that this is rank {everyone.rank} of {everyone.size}, and the "
                f"environment that it is rank {world.rank} of {world.size}; start the processes "
                f"with mpiexec -n {world.size}, of the MPI that mpi4py is built for"
            )
        # Messages of the user's own do not get mixed with these.
        self._comm = everyone.Dup()
        self._timeout = timeout
        # Requests that are not done, with the memory that they read and write.
        self._sent: list[tuple[MPI.Request, Any]] = []
        self._lost: list[tuple[MPI.Request, Any]] = []
        _end_with(timeout)

    # --- Waiting ----------------------------------------------------------------------------

    def _done(self, request: MPI.Request, *held: Any) -> None:
        if not _wait(request, self._timeout):
            # It may still be written to: that memory is never given back.
            self._lost.append((request, held))
            raise CommunicationError(
                f"rank {self.rank} of {self.world_size} has waited {self._timeout:g} s for another "
                f"rank, which is gone or does not answer"
            )

    # --- Hooks ------------------------------------------------------------------------------

    def _gather_words(self, words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        rows = np.empty((self.world_size, len(words)), np.int64)
        self._done(self._comm.Iallgather(words, rows), words, rows)
        return rows

    def _broadcast_words(self, words: np.ndarray[Any, Any], root: int) -> np.ndarray[Any, Any]:
        row = words.copy()
        self._done(self._comm.Ibcast(row, root), row)
        return row

    def _carries(self, op: str, dtype: DType) -> bool:
        kind = dtype.numpy.kind
        # MPI does not say whether max and min keep NaN.
        return kind in _INTEGERS or (
            op in ("sum", "prod") and kind in "fc" and dtype.name != "float16"
        )

    def _reduce(self, native: NativeArray, op: str) -> NativeArray:
        own = np.asarray(native, order="C")
        result = np.empty_like(own)
        self._done(self._comm.Iallreduce(own, result, _OPS[op]), own, result)
        return result

    def _sum(self, native: NativeArray) -> NativeArray:
        return self.start_sum([native]).wait()[0]

    def start_sum(self, natives: Sequence[NativeArray]) -> Pending:
        """Begin sums, which go on while they are waited for."""
        return _Requests(self, natives)

    def _broadcast(self, native: NativeArray, root: int) -> NativeArray:
        result = np.array(native, order="C", copy=True)
        self._done(self._comm.Ibcast(_bytes(result), root), result)
        return result

    def _gather(self, native: NativeArray) -> NativeArray:
        own = np.asarray(native, order="C")
        rows = np.empty((self.world_size, *own.shape), own.dtype)
        self._done(self._comm.Iallgather(_bytes(own), _bytes(rows)), own, rows)
        return rows

    def _scatter(self, native: NativeArray, op: str) -> NativeArray | None:
        own = np.asarray(native, order="C")
        part = np.empty((own.shape[0] // self.world_size, *own.shape[1:]), own.dtype)
        self._done(self._comm.Ireduce_scatter_block(own, part, _OPS[op]), own, part)
        return part

    def _send(self, header: np.ndarray[Any, Any], native: NativeArray, to: int) -> None:
        self._sent = [pair for pair in self._sent if not pair[0].Test()]
        # A copy: the caller may write to what it has sent, and the other rank may be late.
        own = np.array(native, order="C", copy=True)
        self._sent.append((self._comm.Isend(header, to, _TAG), header))
        if own.size:
            self._sent.append((self._comm.Isend(_bytes(own), to, _TAG), own))

    def _receive(self, source: int) -> Tensor:
        header = np.zeros(headers.WORDS, np.int64)
        self._done(self._comm.Irecv(header, source, _TAG), header)
        dtype, shape = headers.read_header(header)
        spec = spec_of(self._backend, dtype)
        native = self._backend.empty(shape, spec)
        if native.size:
            self._done(self._comm.Irecv(_bytes(native), source, _TAG), native)
        return fill(native, spec)

    def _is_loss(self, error: Exception) -> bool:
        return isinstance(error, OSError) or (
            isinstance(error, MPI.Exception)
            and error.Get_error_class() in (MPI.ERR_OTHER, MPI.ERR_INTERN, MPI.ERR_UNKNOWN)
        )

    def close(self) -> None:
        """Wait until what was sent has been received."""
        for request, held in self._sent:
            self._guarded("close", self._done, request, held)
        self._sent = []


class _Requests(Pending):
    """Sums that MPI goes on with while one of them is waited for."""

    def __init__(self, communicator: MpiCommunicator, natives: Sequence[NativeArray]) -> None:
        self._communicator = communicator
        self._dtypes = [native.dtype for native in natives]
        # Halves are summed in float32, as everywhere: not every MPI has them.
        wide = [_wide(native) for native in natives]
        self._natives = [np.require(native, requirements=("C", "W")) for native in wide]
        self._requests = [
            communicator._guarded("all_reduce", communicator._comm.Iallreduce, MPI.IN_PLACE, native)
            for native in self._natives
        ]

    def wait(self) -> list[NativeArray]:
        for request, native in zip(self._requests, self._natives, strict=True):
            self._communicator._guarded("all_reduce", self._communicator._done, request, native)
        self._requests = []
        return [
            native.astype(dtype, copy=False)
            for native, dtype in zip(self._natives, self._dtypes, strict=True)
        ]


def _wide(native: NativeArray) -> NativeArray:
    return native.astype(np.float32) if native.dtype.itemsize == 2 else native


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.reshape(-1).view(np.uint8)


def _wait(request: MPI.Request, timeout: float) -> bool:
    """Whether a request is done within some seconds."""
    start = time.monotonic()
    pause = 0.0
    while not request.Test():
        waited = time.monotonic() - start
        if waited > timeout:
            return False
        if waited > _EAGER:
            pause = min(_PAUSE, pause + 0.00001)
        time.sleep(pause)  # 0 lets others run who may have what this one waits for
    return True


# --- Meeting, for engines that need addresses -----------------------------------------------


def met(world: World, timeout: float = 600.0) -> World:
    """A world with addresses, which ranks tell each other over MPI."""
    from ember_ml.distributed.world import free_ports

    comm = MpiCommunicator(world, timeout=timeout)
    local = world.local_size == world.size
    host = "127.0.0.1" if local else socket.getfqdn()
    # The first is rank 0's for all, the second for the ring.
    found = comm.all_gather_object([host, *free_ports(2)])
    comm.close()
    return replace(
        world,
        host=found[0][0],
        port=found[0][1],
        ring=tuple(f"{host}:{port}" for host, _, port in found),
    )


# --- The end ----------------------------------------------------------------------------------


class _Ending:
    """How MPI ends: together, or with all the others where this process has failed.

    MPI waits at the end for all ranks, and a rank that fails would leave the others waiting.
    """

    def __init__(self) -> None:
        self.timeout = 0.0
        self._has_failed = False
        self._before = sys.excepthook
        sys.excepthook = self._failed
        atexit.register(self._end)

    def _failed(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self._has_failed = True
        self._before(kind, error, trace)

    def _end(self) -> None:
        if not self._has_failed and _wait(MPI.COMM_WORLD.Ibarrier(), self.timeout):
            MPI.Finalize()
            return
        sys.stdout.flush()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)


_endings: Final[list[_Ending]] = []


def _end_with(timeout: float) -> None:
    if not _IS_OWN:
        return
    if not _endings:
        _endings.append(_Ending())
    _endings[0].timeout = timeout
