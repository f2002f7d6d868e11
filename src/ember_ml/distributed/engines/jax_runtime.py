"""JAX's own processes: each collective is a program over a mesh of one device for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer, eval_context
from jax.extend.core import Primitive
from jax.interpreters import mlir

from ember_ml.backend import processes
from ember_ml.backend.contract import NativeArray
from ember_ml.backend.jax import ranks
from ember_ml.backend.jax.ranks import AXIS, Ranks
from ember_ml.distributed import headers
from ember_ml.distributed.communicator import Communicator, Pending, spec_of
from ember_ml.distributed.world import World
from ember_ml.dtypes import DType
from ember_ml.errors import CommunicationError, TraceError
from ember_ml.tensor.core import Tensor, fill

__all__ = ["JaxCommunicator"]

# The store takes messages of up to 4 MB.
_PIECE: Final = 1 << 20
_Body = Callable[[Any, int], Any]


# --- What is done with the axis of ranks ---------------------------------------------------------


def _broadcast(x: Any, root: int) -> Any:
    """What the root has, bit by bit: a sum of numbers would change -0.0 and some of NaN's bits."""
    if x.dtype == jnp.bool_:
        return _broadcast(x.astype(jnp.uint8), root).astype(jnp.bool_)
    if jnp.iscomplexobj(x):
        return lax.complex(_broadcast(x.real, root), _broadcast(x.imag, root))
    bits = lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * x.dtype.itemsize}"))
    return lax.bitcast_convert_type(lax.psum(_only(bits, root), AXIS), x.dtype)


def _only(x: Any, root: int) -> Any:
    """The array on one rank, zeros on the others."""
    # By the number of the process at run time, so that all ranks have the same program.
    return jnp.where(lax.axis_index(AXIS) == root, x, jnp.zeros_like(x))


def _varying(x: Any) -> Any:
    """An array of which XLA cannot see that it is a constant.

    It takes constants for the same on all ranks, and leaves collectives of them out.
    """
    return lax.optimization_barrier(x)


_BODIES: Final[dict[str, _Body]] = {
    "sum": lambda x, _: lax.psum(x, AXIS),
    "max": lambda x, _: lax.pmax(x, AXIS),
    "min": lambda x, _: lax.pmin(x, AXIS),
    "gather": lambda x, _: lax.all_gather(x, AXIS),
    "scatter": lambda x, _: lax.psum_scatter(x, AXIS, tiled=True),
    "broadcast": _broadcast,
    "only": _only,
}


def _name(source: int, to: int, number: int) -> str:
    return f"ember/sent/{source}/{to}/{number}"


def _parts(array: np.ndarray[Any, Any]) -> list[memoryview]:
    """The memory of an array in pieces that the store takes."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return [flat[at : at + _PIECE].data for at in range(0, flat.size, _PIECE)]


class JaxCommunicator(Communicator):
    """Over JAX's runtime of several processes: gloo between CPUs, nccl between GPUs."""

    transport = "jax"

    def __init__(self, world: World, backend: str = "jax", *, timeout: float = 600.0) -> None:
        processes.join(world, timeout)
        super().__init__(world, backend)
        if (jax.process_count(), jax.process_index()) != (world.size, world.rank):
            raise CommunicationError(
                f"JAX was joined as process {jax.process_index()} of {jax.process_count()}, and "
                f"this is rank {world.rank} of {world.size}; call em.distributed.initialize('jax') "
                f"instead of jax.distributed.initialize"
            )
        self._ranks = Ranks(range(world.size))
        self._timeout = timeout
        self._programs: dict[Any, Any] = {}
        # How many tensors went to each rank, and came from it: they are told apart by numbers.
        self._sent: dict[int, int] = {}
        self._received: dict[int, int] = {}
        ranks.set_current(self._ranks)

    def close(self) -> None:
        ranks.set_current(None)
        processes.leave()

    # --- Running ----------------------------------------------------------------------------

    def _called(self, kind: str, native: NativeArray, option: int = 0) -> NativeArray:
        if ranks.bound():  # a part of a program of em.jit
            return _BODIES[kind](_varying(native), option)
        if isinstance(native, Tracer):
            return _collective.bind(native, communicator=self, kind=kind, option=option)
        return self.run(kind, native, option)

    def run(self, kind: str, native: NativeArray, option: int = 0) -> NativeArray:
        """Run a collective of arrays that have values; to its end, so that errors belong to it."""
        with eval_context():
            found = self._ranks.run(self._program(kind, option), [native])[0]
            return found.block_until_ready()

    def _program(self, kind: str, option: int) -> Any:
        program = self._programs.get((kind, option))
        if program is None:
            body = _BODIES[kind]
            program = self._ranks.program(lambda x: [body(x, option)])
            self._programs[kind, option] = program
        return program

    # --- Hooks ------------------------------------------------------------------------------

    def _gather_words(self, words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(self.run("gather", words))

    def _carries(self, op: str, dtype: DType) -> bool:
        # gloo's max and min drop NaN or keep it by the order of ranks.
        return op == "sum" or (op in ("max", "min") and not dtype.is_inexact)

    def _reduce(self, native: NativeArray, op: str) -> NativeArray:
        return self._called(op, native)

    def _sum(self, native: NativeArray) -> NativeArray:
        return self._called("sum", native)

    def start_sum(self, natives: Sequence[NativeArray]) -> Pending:
        if ranks.bound():
            return Pending(list(lax.psum(_varying(list(natives)), AXIS)))
        key = ("sums", len(natives))
        program = self._programs.get(key)
        if program is None:
            program = self._ranks.program(lambda *xs: list(lax.psum(xs, AXIS)), range(len(natives)))
            self._programs[key] = program
        return _Started(self, self._guarded("all_reduce", self._ranks.run, program, natives))

    def _broadcast(self, native: NativeArray, root: int) -> NativeArray:
        return self._called("broadcast", native, root)

    def _only(self, x: Tensor, root: int) -> Tensor:
        # Not by `if`: a program of which one rank leaves the collective out would never end.
        return fill(self._called("only", x.native, root), x._spec)

    def _gather(self, native: NativeArray) -> NativeArray:
        return self._called("gather", native)

    def _scatter(self, native: NativeArray, op: str) -> NativeArray | None:
        return self._called("scatter", native) if op == "sum" else None

    # By the store of JAX's runtime: a program would make the sender wait for the other rank.

    def _send(self, header: np.ndarray[Any, Any], native: NativeArray, to: int) -> None:
        if isinstance(native, Tracer):
            raise TraceError("Communicator.send has no place inside of what is compiled or traced")
        parts = _parts(np.asarray(native))
        number = self._sent[to] = self._sent.get(to, 0) + 1
        name = _name(self.rank, to, number)
        processes.put(f"{name}/header", header.tobytes())
        for place, part in enumerate(parts):
            processes.put(f"{name}/{place}", part)

    def _receive(self, source: int) -> Tensor:
        number = self._received[source] = self._received.get(source, 0) + 1
        name = _name(source, self.rank, number)
        words = np.frombuffer(processes.take(f"{name}/header", self._timeout), np.int64)
        dtype, shape = headers.read_header(words)
        array = np.empty(shape, dtype.numpy)
        for place, part in enumerate(_parts(array)):
            part[:] = processes.take(f"{name}/{place}", self._timeout)
        spec = spec_of(self._backend, dtype)
        return fill(self._backend.from_numpy(array, spec, copy=True), spec)

    def _is_loss(self, error: Exception) -> bool:
        return isinstance(error, OSError) or ranks.as_loss(error) is not None


class _Started(Pending):
    """Sums that XLA computes in its own threads."""

    def __init__(self, communicator: JaxCommunicator, natives: list[NativeArray]) -> None:
        super().__init__(natives)
        self._communicator = communicator

    def wait(self) -> list[NativeArray]:
        self._communicator._guarded("all_reduce", jax.block_until_ready, self._natives)
        return self._natives


# A collective as one step of a trace that is not compiled: JAX's gradients are such.
_collective: Final = Primitive("ember_collective")


def _run(x: Any, *, communicator: JaxCommunicator, kind: str, option: int) -> Any:
    return communicator.run(kind, x, option)


def _result(x: Any, *, communicator: JaxCommunicator, kind: str, option: int) -> Any:
    size = communicator.world_size
    if kind == "gather":
        return x.update(shape=(size, *x.shape))
    if kind == "scatter":
        return x.update(shape=(x.shape[0] // size, *x.shape[1:]))
    return x


_collective.def_impl(_run)
_collective.def_abstract_eval(_result)
mlir.register_lowering(_collective, ranks.refused)
