"""jax.jit: one look at a function gives a program, which is compiled, and differentiated by JAX."""

from __future__ import annotations

from typing import Any

import jax
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun

from ember_ml.backend.compiling import Compiler, Function, Natives, Plan

__all__ = ["JaxCompiler"]


class JaxCompiler(Compiler):
    """XLA; arrays of the state are given up to the call that replaces them."""

    traces = True
    donates = True
    replays = True

    def compile(self, function: Function, natives: Natives, plan: Plan) -> Function:
        # Traced here, and not by the first call of what jax.jit gives: what was written to is
        # known then, and the function is never asked again, whatever JAX does with the program.
        program = jax.make_jaxpr(function)(*natives)
        donated = tuple(plan.donated())
        run: Any = jax.jit(jaxpr_as_fun(program), donate_argnums=donated)
        if not donated:
            return run  # type: ignore[no-any-return]  # untyped
        kept: Any = jax.jit(jaxpr_as_fun(program))

        def choose(*natives: Any) -> list[Any]:
            # JAX gives arrays up before a gradient has read them.
            traced = any(isinstance(native, Tracer) for native in natives)
            return (kept if traced else run)(*natives)  # type: ignore[no-any-return]  # untyped

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
