"""jax.jit: one look at a function gives a program, which is compiled, and differentiated by JAX."""

from __future__ import annotations

from typing import Any

import jax
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun

from ember_ml.backend.compiling import Compiler, Function, Natives, Plan
from ember_ml.backend.jax import ranks as processes
from ember_ml.backend.jax.sequence import has_collectives

__all__ = ["JaxCompiler"]


class _Binding:
    """The arguments of a program, bound to their device all of them, or none; without a copy.

    What came by DLPack or was moved to a device is bound, others are not, results are where an
    input was. JAX compiles a program for each mixture that it meets, which differ from call to
    call.
    """

    __slots__ = ("_last", "_twin")

    def __init__(self) -> None:
        # The last argument, which is the same in most calls (a key that is not used), and its
        # twin: binding an array costs more than all else that a call of a small program takes.
        self._last: Any = None
        self._twin: Any = None

    def alike(self, natives: Natives) -> Natives:
        """The arguments as the program is to get them."""
        states = [getattr(native, "committed", None) for native in natives]
        if True not in states or False not in states:
            return natives
        bound = [
            jax.device_put(native, native.sharding) if state is False else native
            for native, state in zip(natives[:-1], states[:-1], strict=True)
        ]
        last = natives[-1]
        if states[-1] is False:
            if last is not self._last:
                self._twin = jax.device_put(last, last.sharding)
                self._last = last
            last = self._twin
        return [*bound, last]


class JaxCompiler(Compiler):
    """XLA; arrays of the state are given up to the call that replaces them."""

    traces = True
    donates = True
    replays = True

    def compile(self, function: Function, natives: Natives, plan: Plan) -> Function:
        # Traced here, and not by the first call of what jax.jit gives: what was written to is
        # known then, and the function is never asked again, whatever JAX does with the program.
        ranks = processes.current()
        axes = None if ranks is None else [(processes.AXIS, ranks.size)]
        program = jax.make_jaxpr(function, axis_env=axes)(*natives)
        donated = tuple(plan.donated())
        if ranks is not None and has_collectives(program, processes.AXIS):
            gradients = self.backend.gradients
            return processes.SpreadProgram(program, donated, ranks, gradients)
        run: Any = jax.jit(jaxpr_as_fun(program), donate_argnums=donated)
        kept: Any = jax.jit(jaxpr_as_fun(program)) if donated else run
        binding = _Binding()

        def choose(*natives: Any) -> list[Any]:
            # JAX gives arrays up before a gradient has read them.
            if any(isinstance(native, Tracer) for native in natives):
                return kept(*natives)  # type: ignore[no-any-return]  # untyped
            return run(*binding.alike(natives))  # type: ignore[no-any-return]  # untyped

        return choose

    def cut(self, native: Any) -> Any:
        # What has no gradient is no tracer of one either, and may be kept.
        return jax.lax.stop_gradient(native)

    def is_complaint(self, error: BaseException) -> bool:
        return isinstance(
            error,
            jax.errors.ConcretizationTypeError
            | jax.errors.TracerArrayConversionError
            | jax.errors.TracerIntegerConversionError
            | jax.errors.UnexpectedTracerError,
        )
