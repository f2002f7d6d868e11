"""Programs over the processes of a job: arrays stay those of one device, collectives see all.

A mesh of one device for each process has the axis "ranks". An array of this process is shown to a
program as a part of a global one that every process has, without a copy; within, shard_map gives
each process its own again. The results are taken apart in the same way. So programs with
collectives take and give the arrays that all other programs do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from ember_ml.backend.jax.sequence import in_sequence
from ember_ml.errors import CommunicationError, UnsupportedOpError

__all__ = [
    "AXIS",
    "Ranks",
    "SpreadProgram",
    "as_loss",
    "bound",
    "current",
    "refused",
    "set_current",
]

AXIS: Final = "ranks"
_EVERYWHERE: Final = PartitionSpec()
# Words of gloo, nccl and of JAX's own service when a peer is gone.
_LOSSES: Final = (
    "gloo",
    "nccl",
    "connection",
    "heartbeat",
    "coordination",
    "peer",
    "unavailable",
    "deadline_exceeded",
    "socket",
)

_current: Ranks | None = None


def current() -> Ranks | None:
    """The processes that a communicator of this one has joined."""
    return _current


def set_current(ranks: Ranks | None) -> None:
    """Let programs that are compiled from now on have the axis of ranks."""
    global _current
    _current = ranks


def bound() -> bool:
    """True where a program is traced that may hold collectives."""
    try:
        jax.lax.axis_size(AXIS)
    except NameError:
        return False
    return True


def as_loss(error: Exception) -> CommunicationError | None:
    """The error of a peer that is gone, where JAX's says that."""
    text = str(error).lower()
    # Where JAX calls a program that it has called before, its errors are ValueErrors.
    is_theirs = isinstance(error, jax.errors.JaxRuntimeError) or (
        isinstance(error, ValueError) and ("gloo " in text or "nccl " in text)
    )
    if not is_theirs or not any(word in text for word in _LOSSES):
        return None
    return CommunicationError(f"another rank is gone or does not answer ({error})")


class Ranks:
    """One device of each of some processes, as a mesh."""

    def __init__(self, processes: Sequence[int]) -> None:
        self.size = len(processes)
        devices = jax.devices()
        chosen = [
            min((d for d in devices if d.process_index == p), key=lambda d: d.id) for p in processes
        ]
        self.mesh = Mesh(np.array(chosen), (AXIS,))
        self.device = next(d for d in chosen if d.process_index == jax.process_index())
        self._own = SingleDeviceSharding(self.device)
        self._global = NamedSharding(self.mesh, _EVERYWHERE)
        with jax.ensure_compile_time_eval():
            self._ordinary: Any = type(jax.numpy.zeros(()))

    def program(self, function: Callable[..., Any], donated: Sequence[int] = ()) -> Any:
        """A function of one process's arrays with collectives, compiled for global arrays."""
        mapped = jax.shard_map(
            function,
            mesh=self.mesh,
            in_specs=_EVERYWHERE,
            out_specs=_EVERYWHERE,
            check_vma=False,  # that arrays differ between processes is our affair
        )
        return jax.jit(mapped, donate_argnums=tuple(donated))

    def shown(self, natives: Sequence[Any]) -> list[Any]:
        """Arrays of this process as parts of global ones, in the same memory."""
        own, everywhere, ordinary = self._own, self._global, self._ordinary
        out = []
        for native in natives:
            if type(native) is not ordinary:
                native = jax.device_put(native, own)
            elif native.sharding is not own and native.sharding != own:
                native = self._moved(native)
            # What jax.make_array_from_single_device_arrays makes after checks that take most of
            # its time, and that arrays of one device cannot fail.
            made = ordinary(native.aval, everywhere, [native], committed=True, _skip_checks=True)
            out.append(made)
        return out

    def _moved(self, native: Any) -> Any:
        # As jax.jit does it: what is bound to another device is an error of JAX's.
        if native.committed and native.devices() != {self.device}:
            raise CommunicationError(
                f"a program with collectives got an array on {native.devices()}; this process "
                f"talks to the others by {self.device}"
            )
        return jax.device_put(native, self._own)

    def run(self, program: Any, natives: Sequence[Any]) -> list[Any]:
        """Call a program that gives a list, with arrays of this process."""
        return [out.addressable_data(0) for out in program(*self.shown(natives))]


class SpreadProgram:
    """A traced function with collectives, compiled; it takes and gives arrays of this process."""

    def __init__(self, program: Any, donated: Sequence[int], ranks: Ranks, gradients: Any) -> None:
        self.program = program
        self._ranks = ranks
        self._gradients = gradients
        self._flat = jaxpr_as_fun(program)
        ordered = in_sequence(program, AXIS)
        self._run = ranks.program(ordered, donated)
        # Keeps what it is given, for gradients.
        self._kept = ranks.program(ordered) if donated else self._run
        self._inner = jax.jit(self._flat)
        self._pull: SpreadProgram | None = None
        self._reached: list[int] = []
        inexact = jax.numpy.inexact
        self._inputs = [
            i for i, a in enumerate(program.in_avals) if jax.numpy.issubdtype(a.dtype, inexact)
        ]
        self._outs = [
            i for i, a in enumerate(program.out_avals) if jax.numpy.issubdtype(a.dtype, inexact)
        ]

    def __call__(self, *natives: Any) -> list[Any]:
        for native in natives:
            if isinstance(native, Tracer):
                return self._traced(natives)
        return self._started(self._run, natives)

    def kept(self, *natives: Any) -> list[Any]:
        """The results, without giving anything up."""
        return self._started(self._kept, natives)

    def _started(self, program: Any, natives: Sequence[Any]) -> list[Any]:
        try:
            return self._ranks.run(program, natives)
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            loss = as_loss(error)
            if loss is None:
                raise
            raise loss from error

    def _traced(self, natives: Sequence[Any]) -> list[Any]:
        if bound():  # a part of another program of the same kind
            return list(self._inner(*natives))

        # JAX differentiates a program by splitting it, and would run the parts as programs of one
        # process. So its gradient is a program of its own, which computes values again.
        @jax.custom_vjp
        def call(*given: Any) -> list[Any]:
            return list(_program.bind(*given, spread=self))

        def forward(*given: Any) -> tuple[list[Any], tuple[Any, ...]]:
            return call(*given), given

        def backward(given: tuple[Any, ...], gradients: list[Any]) -> tuple[Any, ...]:
            return tuple(self._pulled(given, gradients))

        call.defvjp(forward, backward)
        return list(call(*natives))

    def _pulled(self, given: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        chosen = [gradients[i] for i in self._outs]
        if self._pull is None:
            traced = jax.make_jaxpr(self._back, axis_env=[(AXIS, self._ranks.size)])
            self._pull = SpreadProgram(traced(*given, *chosen), (), self._ranks, self._gradients)
        found = dict(zip(self._reached, self._pull(*given, *chosen), strict=True))
        return [found.get(i) for i in range(len(given))]

    def _back(self, *natives: Any) -> list[Any]:
        count = len(self.program.in_avals)
        given, gradients = list(natives[:count]), natives[count:]

        def run(chosen: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            for place, native in zip(self._inputs, chosen, strict=True):
                given[place] = native
            outs = self._flat(*given)
            return [outs[i] for i in self._outs], []

        # It tells inputs that are not used, and has the conjugates of JAX's gradients.
        _, _, pull = self._gradients.vjp(run, [given[i] for i in self._inputs])
        found = pull([jax.numpy.conj(g) for g in gradients])
        pairs = [(i, g) for i, g in zip(self._inputs, found, strict=True) if g is not None]
        self._reached = [i for i, _ in pairs]
        return [jax.numpy.conj(g) for _, g in pairs]


# A call of a program as one step of a trace that is not compiled: JAX's gradients are such.
_program: Final = Primitive("ember_program")
_program.multiple_results = True


def _program_run(*natives: Any, spread: SpreadProgram) -> list[Any]:
    return spread.kept(*natives)


def _program_results(*natives: Any, spread: SpreadProgram) -> list[Any]:
    return list(spread.program.out_avals)


_program.def_impl(_program_run)
_program.def_abstract_eval(_program_results)


def refused(ctx: Any, *args: Any, **options: Any) -> Any:
    raise UnsupportedOpError(
        "a collective is inside of what JAX compiles for one process (jax.jit, or a loop of ops); "
        "put em.jit around the whole"
    )


mlir.register_lowering(_program, refused)
