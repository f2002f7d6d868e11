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


def _alike(natives: Natives) -> Natives:
    """Arrays that are all bound to their device, or none of them, without a copy.

    Arrays in memory of NumPy are bound, others are not, results are where an input was. JAX
    compiles a program for each mixture that it meets, which differ from call to call.
    """
    bound = [getattr(native, "committed", None) for native in natives]
    if True not in bound or False not in bound:
        return natives
    return [
        jax.device_put(native, native.sharding) if own is False else native
        for native, own in zip(natives, bound, strict=True)
    ]


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

        def choose(*natives: Any) -> list[Any]:
            # JAX gives arrays up before a gradient has read them.
            if any(isinstance(native, Tracer) for native in natives):
                return kept(*natives)  # type: ignore[no-any-return]  # untyped
            return run(*_alike(natives))  # type: ignore[no-any-return]  # untyped

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
