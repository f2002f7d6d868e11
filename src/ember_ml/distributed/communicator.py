"""Communicator: what the processes of a job say to each other, in tensors.

Each process calls the same methods in the same order. Before anything moves, ranks compare what
they are about to do: a wrong shape on one of them is the same error on all, and nobody waits for
ever. Gradients go through: that of a sum over ranks is a sum over ranks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NoReturn

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.autodiff import tape
from ember_ml.autodiff.custom import custom_gradient
from ember_ml.backend import selection
from ember_ml.backend.contract import Backend, NativeArray, Spec
from ember_ml.distributed import arguments, headers
from ember_ml.distributed.headers import REDUCTIONS, read_header
from ember_ml.distributed.launching import beats
from ember_ml.distributed.world import World
from ember_ml.dtypes import DType
from ember_ml.errors import (
    BackendMismatchError,
    CommunicationError,
    EmberError,
    GradientError,
    ShapeError,
    TraceError,
)
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill

__all__ = ["REDUCTIONS", "Communicator", "Pending", "read_header", "spec_of"]

_WORDS: Final = headers.WORDS
# Where an engine does not reduce a dtype, one that holds its values and wraps around like it. Half
# precision is always summed in float32, and rounded once.
_CARRIERS: Final = {
    dtypes.float16: dtypes.float32,
    dtypes.bfloat16: dtypes.float32,
    dtypes.bool: dtypes.uint8,
    dtypes.int16: dtypes.int32,
    dtypes.uint16: dtypes.int32,
    dtypes.uint32: dtypes.int64,
}
# Calls that do not need every rank.
_BETWEEN_TWO: Final = frozenset(("send", "recv", "close"))


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
    process that is alone, it is one of a single rank. Tensors must have the same dtype and shape on
    every rank; what one rank does wrong raises the same class of error on all of them, and the job
    can go on. A rank that is gone, or silent until the timeout, is CommunicationError.

    Gradients are those of the sum of what all ranks compute from a result, and every rank must ask
    for them alike.

    >>> from ember_ml import distributed
    >>> alone = distributed.initialize("numpy")
    >>> alone.rank, alone.world_size, alone.all_reduce(ops.asarray([1.0, 2.0])).tolist()
    (0, 1, [1.0, 2.0])
    """

    # By what the processes talk: "gloo", "nccl", "mpi", "ring", "jax", or "none".
    transport: str = "none"
    # False where collectives cannot be a part of what em.jit compiles.
    compiles: ClassVar[bool] = True

    def __init__(self, world: World, backend: Backend | str) -> None:
        self.world = world
        self.rank = world.rank
        self.world_size = world.size
        self._backend = selection.load(backend) if isinstance(backend, str) else backend
        self.backend = self._backend.name
        # What an engine said when a peer was lost; "" while all are there.
        self._loss = ""

    def __repr__(self) -> str:
        return (
            f"<Communicator rank {self.rank} of {self.world_size}, "
            f"{self.backend} over {self.transport}>"
        )

    # --- Collectives ------------------------------------------------------------------------

    def all_reduce(self, x: Any, op: str = "sum") -> Tensor:
        """The sum, mean, max, min or product over ranks, on every rank; the dtype stays.

        Integers wrap around. NaN on any rank is NaN in the result. float16 and bfloat16 are
        reduced in float32 and rounded once. bool takes max (any) and min (all).
        """
        try:
            tensor = self._taken("all_reduce", x)
            arguments.require_op("all_reduce", op, tensor.dtype)
        except Exception as error:
            self._refuse("all_reduce", error, x)
        return self._all_reduce(tensor, op)

    def _all_reduce(self, x: Tensor, op: str) -> Tensor:
        needed = _is_differentiated(x)

        def run(x: Tensor) -> Tensor:
            self._agree("all_reduce", x, REDUCTIONS.index(op), needed)
            return self._reduced(x, op, self._total)

        if op in ("sum", "mean"):
            return _differentiable(run, lambda g: self._all_reduce(g, op), x, needed)
        return _without_gradient(f"Communicator.all_reduce(op={op!r})", run, x, needed)

    def broadcast(self, x: Any, root: int = 0) -> Tensor:
        """The tensor of the rank `root`, on every rank; all come with its shape and dtype."""
        try:
            tensor = self._taken("broadcast", x)
            root = arguments.rank_of("broadcast", "root", root, self.world_size)
        except Exception as error:
            self._refuse("broadcast", error, x)
        needed = _is_differentiated(tensor)

        def run(x: Tensor) -> Tensor:
            self._agree("broadcast", x, root, needed)
            return self._run(self._broadcast, x, root)

        def pull(g: Tensor) -> Tensor:
            return self._only(self._all_reduce(g, "sum"), root)

        return _differentiable(run, pull, tensor, needed)

    def all_gather(self, x: Any, axis: int = 0) -> Tensor:
        """The tensors of all ranks one after another along `axis`; numbers become a vector."""
        try:
            tensor = self._taken("all_gather", x)
            if tensor.ndim == 0:
                tensor = ops.reshape(tensor, (1,))
            axis = arguments.axis_of("all_gather", axis, tensor)
        except Exception as error:
            self._refuse("all_gather", error, x)
        return self._all_gather(tensor, axis)

    def _all_gather(self, x: Tensor, axis: int) -> Tensor:
        needed = _is_differentiated(x)

        def run(x: Tensor) -> Tensor:
            self._agree("all_gather", x, axis, needed)
            parts = ops.moveaxis(self._stacked(x), 0, axis)
            sides = list(x.shape)
            sides[axis] *= self.world_size
            return ops.reshape(parts, tuple(sides))

        return _differentiable(run, lambda g: self._reduce_scatter(g, "sum", axis), x, needed)

    def reduce_scatter(self, x: Any, op: str = "sum", axis: int = 0) -> Tensor:
        """The part of this rank of a reduction: its share along `axis`, which ranks divide."""
        try:
            tensor = self._taken("reduce_scatter", x)
            arguments.require_op("reduce_scatter", op, tensor.dtype)
            if tensor.ndim == 0:
                raise ShapeError(
                    "Communicator.reduce_scatter takes a tensor with an axis, not a number"
                )
            axis = arguments.axis_of("reduce_scatter", axis, tensor)
            if tensor.shape[axis] % self.world_size:
                raise ShapeError(
                    f"Communicator.reduce_scatter got shape {tensor.shape}; {self.world_size} "
                    f"ranks cannot divide axis {axis} into equal parts"
                )
        except Exception as error:
            self._refuse("reduce_scatter", error, x)
        return self._reduce_scatter(tensor, op, axis)

    def _reduce_scatter(self, x: Tensor, op: str, axis: int) -> Tensor:
        needed = _is_differentiated(x)
        share = 1.0 if op == "sum" else 1.0 / self.world_size

        def run(x: Tensor) -> Tensor:
            self._agree("reduce_scatter", x, REDUCTIONS.index(op) * 64 + axis, needed)
            part = self._reduced(ops.moveaxis(x, axis, 0), op, self._part)
            return ops.moveaxis(part, 0, axis)

        if op in ("sum", "mean"):
            return _differentiable(run, lambda g: self._all_gather(g * share, axis), x, needed)
        return _without_gradient(f"Communicator.reduce_scatter(op={op!r})", run, x, needed)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self._agree("barrier")

    # --- Between two ranks ------------------------------------------------------------------

    def send(self, x: Any, to: int) -> None:
        """Hand a tensor to the rank `to`, which calls `recv`; what is sent first comes first.

        It is received as a constant: gradients do not go through.
        """
        tensor = self._taken("send", x).detach()
        to = arguments.peer_of("send", "to", to, self.rank, self.world_size)
        self._guarded("send", self._send, headers.header_of("send", tensor), tensor.native, to)

    def recv(self, source: int) -> Tensor:
        """The tensor that the rank `source` sends, with its shape and dtype."""
        source = arguments.peer_of("recv", "source", source, self.rank, self.world_size)
        return self._guarded("recv", self._receive, source)  # type: ignore[no-any-return]

    # --- Objects ----------------------------------------------------------------------------

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """What JSON makes of the `value` of the rank `root`, on every rank: a tuple is a list.

        >>> from ember_ml import distributed
        >>> distributed.initialize("numpy").broadcast_object({"best": 0.5, "steps": (1, 2)})
        {'best': 0.5, 'steps': [1, 2]}
        """
        try:
            root = arguments.rank_of("broadcast_object", "root", root, self.world_size)
            data = arguments.json_of("broadcast_object", value) if self.rank == root else b""
        except Exception as error:
            self._refuse("broadcast_object", error)
        rows = self._agree("broadcast_object", option=root, length=len(data))
        if rows is None:
            return json.loads(data)
        length = headers.length_of(rows[root])
        words = headers.words_of(data.ljust(length, b"\0"))
        found = self._guarded("broadcast_object", self._broadcast_words, words, root)
        return json.loads(found.tobytes()[:length])

    def all_gather_object(self, value: Any) -> list[Any]:
        """What JSON makes of the values of all ranks, by rank, on every rank.

        >>> from ember_ml import distributed
        >>> distributed.initialize("numpy").all_gather_object({"rank": 0})
        [{'rank': 0}]
        """
        try:
            data = arguments.json_of("all_gather_object", value)
        except Exception as error:
            self._refuse("all_gather_object", error)
        rows = self._agree("all_gather_object", length=len(data))
        if rows is None:
            return [json.loads(data)]
        lengths = [headers.length_of(row) for row in rows]
        words = headers.words_of(data.ljust(max(lengths), b"\0"))
        found = self._guarded("all_gather_object", self._gather_words, words)
        return [
            json.loads(row.tobytes()[:length]) for row, length in zip(found, lengths, strict=True)
        ]

    # --- Without looking: for strategies, whose ranks have agreed on the model ---------------

    def start_sum(self, natives: Sequence[NativeArray]) -> Pending:
        """Begin sums over ranks of native arrays, which are given up to it; ranks do not compare.

        Work goes on meanwhile, where the transport works by itself.
        """
        return Pending([self._guarded("all_reduce", self._sum, native) for native in natives])

    def close(self) -> None:
        """Let go of the others; nothing can be said afterwards."""

    def _abandon(self) -> None:
        """Let go of the others without waiting for any of them: this program has failed."""

    # --- What an engine says: by default, that of a process which is alone ------------------

    def _gather_words(self, words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A row of int64 from every rank, on the host."""
        return words[None]

    def _broadcast_words(self, words: np.ndarray[Any, Any], root: int) -> np.ndarray[Any, Any]:
        """The row of int64 of the rank `root`, on the host."""
        found: np.ndarray[Any, Any] = self._gather_words(words)[root]
        return found

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

    def _reduced(self, x: Tensor, op: str, run: Callable[[Tensor, str], Tensor]) -> Tensor:
        """A reduction by `_total` or `_part`, in a dtype in which it comes out right."""
        if self.world_size == 1:
            return x.detach().copy()
        dtype, plain = x.dtype, "sum" if op == "mean" else op
        carrier = _CARRIERS.get(dtype)
        # Integers that the engine takes need no others.
        is_carried = not dtype.is_floating and self._carries(plain, dtype)
        if carrier is not None and not is_carried and self._carries(plain, carrier):
            x = x.astype(carrier)
        found = run(x, plain)
        return (found / self.world_size if op == "mean" else found).astype(dtype)

    def _total(self, x: Tensor, op: str) -> Tensor:
        if self._carries(op, x.dtype):
            return self._run(self._reduce, x, op)
        return _reduction(self._stacked(x), op)

    def _part(self, rows: Tensor, op: str) -> Tensor:
        if rows.size and self._carries(op, rows.dtype):
            native = rows.detach().native
            found = self._guarded("reduce_scatter", self._scatter, native, op)
            if found is not None:
                return fill(found, rows._spec)
        count = rows.shape[0] // self.world_size
        return self._total(rows, op)[self.rank * count : (self.rank + 1) * count].copy()

    def _stacked(self, x: Tensor) -> Tensor:
        if x.size == 0:
            return ops.zeros((self.world_size, *x.shape), dtype=x.dtype, device=x.device)
        return fill(self._guarded("all_gather", self._gather, x.detach().native), x._spec)

    # --- Agreement --------------------------------------------------------------------------

    def _agree(
        self,
        call: str,
        x: Tensor | None = None,
        option: int = 0,
        needed: bool = False,
        length: int = 0,
    ) -> np.ndarray[Any, Any] | None:
        """Compare with the other ranks what is about to be done; the same error on all if not.

        Gives the headers of all ranks, and None where there is nobody to compare with.
        """
        if self.world_size == 1 or (x is not None and self._backend.is_traced(x.native)):
            return None
        own = headers.header_of(call, x, option, needed=needed, length=length)
        found: np.ndarray[Any, Any] = self._guarded(call, self._gather_words, own)
        if headers.is_refusal(found):
            raise self._refusal(call, found, None)
        error = headers.disagreement(self.rank, found)
        if error is not None:
            raise error
        return found

    def _refuse(self, call: str, error: Exception, x: object = None) -> NoReturn:
        """Tell the other ranks that this one cannot do what it was called for; always raises."""
        native = x.native if isinstance(x, Tensor) else x
        is_alone = self.world_size == 1 or isinstance(error, TraceError)
        if is_alone or (
            isinstance(native, self._backend.native_types) and self._backend.is_traced(native)
        ):
            raise error
        own = headers.header_of(call, error=error)
        found = self._guarded(call, self._gather_words, own)
        raise self._refusal(call, found, error)

    def _refusal(self, call: str, rows: np.ndarray[Any, Any], own: Exception | None) -> Exception:
        words = headers.words_of(headers.text_of(own))
        texts = self._guarded(call, self._gather_words, words)
        return headers.refusal(self.rank, rows, texts, own)

    def _guarded(self, call: str, function: Any, *args: Any) -> Any:
        """Call an engine; what it says of a peer that is gone is CommunicationError.

        So is every call after it: engines do not mend, and some would wait for ever.
        """
        if self._loss:
            raise CommunicationError(
                f"Communicator.{call} on rank {self.rank} of {self.world_size} failed: "
                f"another rank was lost before ({self._loss})"
            )
        if call in _BETWEEN_TWO:
            return self._tried(call, function, args)
        beats.waiting(time.monotonic())
        try:
            return self._tried(call, function, args)
        finally:
            beats.waiting(0.0)

    def _tried(self, call: str, function: Any, args: tuple[Any, ...]) -> Any:
        try:
            return function(*args)
        except CommunicationError as error:
            self._loss = str(error)
            raise
        except EmberError:
            raise
        except Exception as error:
            if self._is_loss(error):
                self._loss = str(error)
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
                f"'{self.backend}': move it with .to_backend('{self.backend}')"
            )
        if tensor.ndim > headers.MOST_AXES:
            raise ShapeError(
                f"Communicator.{call} got {tensor.ndim} axes; it takes up to {headers.MOST_AXES}"
            )
        if not self.compiles and self.world_size > 1 and self._backend.is_traced(tensor.native):
            raise TraceError(
                f"Communicator.{call} over {self.transport} cannot be a part of what is compiled "
                f"or traced on '{self.backend}'; call it outside of em.jit"
            )
        return tensor


# --- Small things -----------------------------------------------------------------------------


def _reduction(stacked: Tensor, op: str) -> Tensor:
    """Of what ranks came with, along the first axis; in the dtype that it has."""
    dtype = stacked.dtype
    if dtype.kind == "bool":
        return (ops.any if op == "max" else ops.all)(stacked, axis=0)
    found = {"sum": ops.sum, "prod": ops.prod, "max": ops.max, "min": ops.min}[op](stacked, axis=0)
    return found.astype(dtype)


def _is_differentiated(x: Tensor) -> bool:
    if not x.dtype.is_inexact:
        return False
    recorded = x.requires_grad and tape.is_grad_enabled()
    return recorded or x._spec.backend.is_differentiated(x.native)


def _differentiable(
    run: Callable[[Tensor], Tensor], pull: Callable[[Tensor], Tensor], x: Tensor, needed: bool
) -> Tensor:
    """What `run` gives of a tensor, with a gradient by `pull` where one is needed."""
    if not needed:
        return run(x.detach())
    return custom_gradient(lambda x: (run(x), pull))(x)  # type: ignore[no-any-return]


def _without_gradient(
    name: str, run: Callable[[Tensor], Tensor], x: Tensor, needed: bool
) -> Tensor:
    def pull(g: Tensor) -> Tensor:
        raise GradientError(f"{name} has no gradient; 'sum' and 'mean' have one")

    return _differentiable(run, pull, x, needed)


def spec_of(backend: Backend, dtype: DType) -> Spec:
    """The spec of what is received: on the device where new tensors go."""
    return backend.spec(dtype, convert.device_for(backend))
