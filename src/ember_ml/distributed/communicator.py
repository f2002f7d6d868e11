"""Communicator: what the processes of a job say to each other, in tensors.

Each process calls the same methods in the same order. Before anything moves, ranks compare what
they are about to do: a wrong shape on one of them is the same error on all, and nobody waits for
ever. Gradients go through: that of a sum over ranks is a sum over ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.autodiff.custom import custom_gradient
from ember_ml.backend import selection
from ember_ml.backend.contract import Backend, NativeArray, Spec
from ember_ml.distributed.world import World
from ember_ml.dtypes import DType
from ember_ml.errors import (
    AxisError,
    BackendMismatchError,
    CommunicationError,
    DomainError,
    DTypeError,
    EmberError,
    ShapeError,
)
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill

__all__ = ["REDUCTIONS", "Communicator", "Pending"]

REDUCTIONS: Final = ("sum", "mean", "max", "min", "prod")
# What a rank is about to do, in numbers of one length, so that ranks can compare them.
_CALLS: Final = ("barrier", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "send")
_DTYPES: Final = dtypes.ALL
_MOST_AXES: Final = 16
_WORDS: Final = 4 + _MOST_AXES


class Pending:
    """Reductions that have been started: `wait()` gives their results."""

    def __init__(self, natives: list[NativeArray]) -> None:
        self._natives = natives

    def wait(self) -> list[NativeArray]:
        """The results, once they are there."""
        return self._natives


class Communicator:
    """The processes of a job: `rank` of `world_size`, and collectives over tensors of a backend.

    `em.distributed.initialize()` gives the one of the processes that `ember launch` started; in a
    process that is alone, it is one of a single rank.

    >>> from ember_ml import distributed
    >>> alone = distributed.initialize("numpy")
    >>> alone.rank, alone.world_size, alone.all_reduce(ops.asarray([1.0, 2.0])).tolist()
    (0, 1, [1.0, 2.0])
    """

    # By what the processes talk: "gloo", "nccl", "mpi", "ring", "jax", or "none".
    transport: ClassVar[str] = "none"

    def __init__(self, world: World, backend: Backend | str) -> None:
        self.world = world
        self.rank = world.rank
        self.world_size = world.size
        self._backend = selection.load(backend) if isinstance(backend, str) else backend
        self.backend = self._backend.name

    def __repr__(self) -> str:
        return (
            f"<Communicator rank {self.rank} of {self.world_size}, "
            f"{self.backend} over {self.transport}>"
        )

    # --- Collectives ------------------------------------------------------------------------

    def all_reduce(self, x: Any, op: str = "sum") -> Tensor:
        """The sum, mean, max, min or product over ranks, on every rank; the dtype stays."""
        tensor = self._taken("all_reduce", x)
        self._require_op("all_reduce", op, tensor.dtype)
        self._agree("all_reduce", tensor, REDUCTIONS.index(op))
        return self._all_reduce(tensor, op)

    def _all_reduce(self, x: Tensor, op: str) -> Tensor:
        if not _is_differentiated(x):
            return self._reduced(x, op)
        if op not in ("sum", "mean"):
            return _without_gradient(f"Communicator.all_reduce(op={op!r})", self._reduced, x, op)

        def forward(x: Tensor) -> Any:
            return self._reduced(x, op), lambda g: self._all_reduce(g, op)

        return custom_gradient(forward)(x)  # type: ignore[no-any-return]  # what forward gives

    def broadcast(self, x: Any, root: int = 0) -> Tensor:
        """The tensor of the rank `root`, on every rank; all come with its shape and dtype."""
        tensor = self._taken("broadcast", x)
        self._require_rank("broadcast", root)
        self._agree("broadcast", tensor, root)

        def forward(x: Tensor) -> Any:
            def pull(g: Tensor) -> Tensor:
                return self._only(self._all_reduce(g, "sum"), root)

            return self._run(self._broadcast, x, root), pull

        if _is_differentiated(tensor):
            return custom_gradient(forward)(tensor)  # type: ignore[no-any-return]
        return self._run(self._broadcast, tensor, root)

    def all_gather(self, x: Any, axis: int = 0) -> Tensor:
        """The tensors of all ranks one after another along `axis`; numbers become a vector."""
        tensor = self._taken("all_gather", x)
        if tensor.ndim == 0:
            tensor = ops.reshape(tensor, (1,))
        axis = _axis("all_gather", axis, tensor)
        self._agree("all_gather", tensor, axis)
        return self._all_gather(tensor, axis)

    def _all_gather(self, x: Tensor, axis: int) -> Tensor:
        def forward(x: Tensor) -> Any:
            return self._gathered(x, axis), lambda g: self._reduce_scatter(g, "sum", axis)

        if _is_differentiated(x):
            return custom_gradient(forward)(x)  # type: ignore[no-any-return]
        return self._gathered(x, axis)

    def reduce_scatter(self, x: Any, op: str = "sum", axis: int = 0) -> Tensor:
        """The part of this rank of a reduction: its share along `axis`, which ranks divide."""
        tensor = self._taken("reduce_scatter", x)
        self._require_op("reduce_scatter", op, tensor.dtype)
        if tensor.ndim == 0:
            raise ShapeError(
                "Communicator.reduce_scatter takes a tensor with an axis, not a number"
            )
        axis = _axis("reduce_scatter", axis, tensor)
        self._agree("reduce_scatter", tensor, REDUCTIONS.index(op) * 64 + axis)
        if tensor.shape[axis] % self.world_size:
            raise ShapeError(
                f"Communicator.reduce_scatter got shape {tensor.shape}; {self.world_size} ranks "
                f"cannot divide axis {axis} into equal parts"
            )
        return self._reduce_scatter(tensor, op, axis)

    def _reduce_scatter(self, x: Tensor, op: str, axis: int) -> Tensor:
        if not _is_differentiated(x):
            return self._scattered(x, op, axis)
        if op not in ("sum", "mean"):
            name = f"Communicator.reduce_scatter(op={op!r})"
            return _without_gradient(name, self._scattered, x, op, axis)
        share = 1.0 if op == "sum" else 1.0 / self.world_size

        def forward(x: Tensor) -> Any:
            return self._scattered(x, op, axis), lambda g: self._all_gather(g * share, axis)

        return custom_gradient(forward)(x)  # type: ignore[no-any-return]

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self._agree("barrier", None, 0)

    def send(self, x: Any, to: int) -> None:
        """Hand a tensor to the rank `to`, which calls `recv`."""
        tensor = self._taken("send", x)
        self._require_peer("send", to)
        self._guarded("send", self._send, _header("send", tensor, self.rank), tensor.native, to)

    def recv(self, source: int) -> Tensor:
        """The tensor that the rank `source` sends, with its shape and dtype."""
        self._require_peer("recv", source)
        return self._guarded("recv", self._receive, source)  # type: ignore[no-any-return]

    # --- Without looking: for strategies, whose ranks have agreed on the model ---------------

    def start_sum(self, natives: Sequence[NativeArray]) -> Pending:
        """Begin sums over ranks of native arrays, which are given up to it; ranks do not compare.

        Work goes on meanwhile, where the transport works by itself.
        """
        return Pending([self._sum(native) for native in natives])

    def close(self) -> None:
        """Let go of the others; nothing can be said afterwards."""

    # --- What an engine says: by default, that of a process which is alone ------------------

    def _gather_words(self, words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A row of int64 from every rank, on the host."""
        return words[None]

    def _carries(self, op: str, dtype: DType) -> bool:
        """Whether `_reduce` takes an op and a dtype; for others, all is gathered and reduced."""
        return False

    def _reduce(self, native: NativeArray, op: str) -> NativeArray:
        """A new array: the reduction over ranks."""
        raise NotImplementedError

    def _sum(self, native: NativeArray) -> NativeArray:
        """The sum over ranks of an array of floats; it may be written to."""
        return native

    def _broadcast(self, native: NativeArray, root: int) -> NativeArray:
        """A new array with what the rank `root` has."""
        return self._backend.copy(native)

    def _gather(self, native: NativeArray) -> NativeArray:
        """A new array with a first axis of ranks."""
        return self._backend.copy(native)[None]

    def _scatter(self, native: NativeArray, op: str) -> NativeArray | None:
        """The part of this rank along the first axis; None where a reduction has to do."""
        return None

    def _only(self, x: Tensor, root: int) -> Tensor:
        """The tensor on the rank `root`, zeros on the others."""
        return x if self.rank == root else ops.zeros_like(x)

    def _send(self, header: np.ndarray[Any, Any], native: NativeArray, to: int) -> None:
        raise NotImplementedError

    def _receive(self, source: int) -> Tensor:
        raise NotImplementedError

    # --- Values -----------------------------------------------------------------------------

    def _run(self, hook: Any, x: Tensor, *options: Any) -> Tensor:
        """Call what an engine says with an array, unless it is empty."""
        native = x.detach().native
        if x.size == 0:
            return fill(self._backend.copy(native), x._spec)
        return fill(self._guarded(hook.__name__.lstrip("_"), hook, native, *options), x._spec)

    def _reduced(self, x: Tensor, op: str) -> Tensor:
        if self.world_size == 1:
            return x.detach().copy()
        if op == "mean":
            return self._reduced(x, "sum") / self.world_size
        if self._carries(op, x.dtype):
            return self._run(self._reduce, x, op)
        return _reduction(self._stacked(x), op)

    def _stacked(self, x: Tensor) -> Tensor:
        if x.size == 0:
            return ops.zeros((self.world_size, *x.shape), dtype=x.dtype, device=x.device)
        return fill(self._guarded("all_gather", self._gather, x.detach().native), x._spec)

    def _gathered(self, x: Tensor, axis: int) -> Tensor:
        parts = self._stacked(x)
        if axis == 0:
            return ops.reshape(parts, (-1, *x.shape[1:]) if x.size else _times(x, self.world_size))
        return ops.concat([parts[rank] for rank in range(self.world_size)], axis=axis)

    def _scattered(self, x: Tensor, op: str, axis: int) -> Tensor:
        rows = ops.moveaxis(x.detach(), axis, 0)
        if rows.size and self.world_size > 1 and op != "mean":
            found = self._guarded("reduce_scatter", self._scatter, rows.native, op)
            if found is not None:
                return ops.moveaxis(fill(found, x._spec), 0, axis)
        whole = self._reduced(rows, op)
        count = rows.shape[0] // self.world_size
        part = whole[self.rank * count : (self.rank + 1) * count].copy()
        return ops.moveaxis(part, 0, axis)

    # --- Agreement --------------------------------------------------------------------------

    def _agree(self, call: str, x: Tensor | None, option: int) -> None:
        """Compare with the other ranks what is about to be done; the same error on all if not."""
        if self.world_size == 1 or (x is not None and self._backend.is_traced(x.native)):
            return
        own = _header(call, x, option)
        found = self._guarded(call, self._gather_words, own)
        if (found == own).all():
            return
        raise _disagreement(self.rank, found)

    def _guarded(self, call: str, function: Any, *args: Any) -> Any:
        """Call an engine; what it says of a peer that is gone is CommunicationError."""
        try:
            return function(*args)
        except EmberError:
            raise
        except Exception as error:
            if self._is_loss(error):
                raise CommunicationError(
                    f"Communicator.{call} on rank {self.rank} of {self.world_size} failed: "
                    f"another rank is gone or does not answer ({error})"
                ) from error
            raise

    def _is_loss(self, error: Exception) -> bool:
        """True for an engine's way of saying that a peer is gone."""
        return isinstance(error, RuntimeError | OSError)

    # --- What comes in ----------------------------------------------------------------------

    def _taken(self, call: str, x: Any) -> Tensor:
        tensor = convert.to_tensor(x, self._backend)
        if tensor._spec.backend is not self._backend:
            raise BackendMismatchError(
                f"Communicator.{call} got a tensor of '{tensor.backend}'; this communicator is of "
                f"'{self.backend}': move it by em.to_backend(x, {self.backend!r})"
            )
        if tensor.ndim > _MOST_AXES:
            raise ShapeError(
                f"Communicator.{call} got {tensor.ndim} axes; it takes up to {_MOST_AXES}"
            )
        return tensor

    def _require_op(self, call: str, op: str, dtype: DType) -> None:
        if op not in REDUCTIONS:
            raise DomainError(
                f"Communicator.{call} got op={op!r}; it is one of {', '.join(REDUCTIONS)}"
            )
        if dtype.kind == "bool" and op not in ("max", "min"):
            raise DTypeError(
                f"Communicator.{call}(op={op!r}) got bool; take op='max' for any, 'min' for all"
            )
        if op == "mean" and not dtype.is_inexact:
            raise DTypeError(f"Communicator.{call}(op='mean') takes floats, not {dtype}")
        if op in ("max", "min") and dtype.is_inexact and not dtype.is_floating:
            raise DTypeError(f"Communicator.{call}(op={op!r}) takes real numbers, not {dtype}")

    def _require_rank(self, call: str, rank: int) -> None:
        if not 0 <= rank < self.world_size:
            raise DomainError(
                f"Communicator.{call} got rank {rank}; there are {self.world_size}, from 0 on"
            )

    def _require_peer(self, call: str, rank: int) -> None:
        self._require_rank(call, rank)
        if rank == self.rank:
            raise DomainError(f"Communicator.{call} got its own rank {rank}; it takes another one")


# --- Headers ----------------------------------------------------------------------------------


def _header(call: str, x: Tensor | None, option: int) -> np.ndarray[Any, Any]:
    words = np.zeros(_WORDS, np.int64)
    shape = () if x is None else x.shape
    words[:4] = (
        _CALLS.index(call),
        -1 if x is None else _DTYPES.index(x.dtype),
        option,
        len(shape),
    )
    words[4 : 4 + len(shape)] = shape
    return words


def read_header(words: np.ndarray[Any, Any]) -> tuple[DType, tuple[int, ...]]:
    """The dtype and the shape of a tensor that is sent."""
    count = int(words[3])
    return _DTYPES[int(words[1])], tuple(int(n) for n in words[4 : 4 + count])


def _told(words: np.ndarray[Any, Any]) -> str:
    call, option = _CALLS[int(words[0])], int(words[2])
    if call == "barrier":
        return "barrier()"
    dtype, shape = read_header(words)
    about = {
        "all_reduce": lambda: f", op={REDUCTIONS[option]!r}",
        "reduce_scatter": lambda: f", op={REDUCTIONS[option // 64]!r}, axis={option % 64}",
        "broadcast": lambda: f", root={option}",
        "all_gather": lambda: f", axis={option}",
    }
    return f"{call}({dtype} {shape}{about[call]()})"


def _disagreement(rank: int, rows: np.ndarray[Any, Any]) -> EmberError:
    """The error of ranks that come with different things; all of them raise the same."""
    told = [_told(row) for row in rows]
    text = "; ".join(f"rank {rank}: {one}" for rank, one in enumerate(told))
    if (rows[:, [0, 2]] != rows[0, [0, 2]]).any():
        kind: type[EmberError] = DomainError
    elif (rows[:, 1] != rows[0, 1]).any():
        kind = DTypeError
    else:
        kind = ShapeError
    return kind(
        f"Communicator.{_CALLS[int(rows[rank, 0])]}: ranks must make the same call with the same "
        f"dtype and shape, and came with {text}"
    )


# --- Small things -----------------------------------------------------------------------------


def _axis(call: str, axis: int, x: Tensor) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise AxisError(f"Communicator.{call} got axis={axis} for shape {x.shape}")
    return axis % x.ndim


def _times(x: Tensor, count: int) -> tuple[int, ...]:
    return (x.shape[0] * count, *x.shape[1:])


def _reduction(stacked: Tensor, op: str) -> Tensor:
    """Of what ranks came with, along the first axis; in the dtype that it has."""
    dtype = stacked.dtype
    if dtype.kind == "bool":
        return (ops.any if op == "max" else ops.all)(stacked, axis=0)
    found = {"sum": ops.sum, "prod": ops.prod, "max": ops.max, "min": ops.min}[op](stacked, axis=0)
    return found.astype(dtype)


def _is_differentiated(x: Tensor) -> bool:
    return x.requires_grad or x._spec.backend.is_differentiated(x.native)


def _without_gradient(name: str, function: Any, x: Tensor, *options: Any) -> Tensor:
    from ember_ml.errors import GradientError

    def forward(x: Tensor) -> Any:
        def pull(g: Tensor) -> Tensor:
            raise GradientError(f"{name} has no gradient; 'sum' and 'mean' have one")

        return function(x, *options), pull

    return custom_gradient(forward)(x)  # type: ignore[no-any-return]


def spec_of(backend: Backend, dtype: DType) -> Spec:
    """The spec of what is received: on the device where new tensors go."""
    return backend.spec(dtype, convert.device_for(backend))
