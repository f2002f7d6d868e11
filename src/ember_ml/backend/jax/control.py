"""JAX's own control flow, for what jit, grad and vmap trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ember_ml.backend.control import Control, uncounted
from ember_ml.errors import GradientError

if TYPE_CHECKING:
    from ember_ml.backend.contract import NativeArray
    from ember_ml.backend.control import Function, Natives

__all__ = ["JaxControl"]

# A loop that is compiled costs some 100 ms at each call, a step that Python runs some 100 us.
_LONG: Final = 1024


# --- Loops of unknown length ------------------------------------------------------------------
# Directions go through them, gradients do not: JAX says so in its own terms, where it is asked.

_forward: Final = Primitive("ember_ml_forward_only")
_forward.def_impl(lambda x, **_: x)
_forward.def_abstract_eval(lambda x, **_: x)
batching.defvectorized(_forward)
mlir.register_lowering(_forward, lambda _, x, **__: [x])


def _refuse(cotangent: Any, x: Any, *, name: str) -> Any:
    raise GradientError(uncounted(name))


ad.deflinear2(_forward, _refuse)


def _forward_only(x: NativeArray, name: str) -> NativeArray:
    """The same values; a gradient that comes to them raises an error."""
    return _forward.bind(x, name=name) if jnp.issubdtype(x.dtype, jnp.inexact) else x


class JaxControl(Control):
    """Loops of XLA where values are traced."""

    def number(self, native: NativeArray) -> Any:
        try:
            # Under jax.grad alone a traced value can be read, and Python may branch on it.
            return bool(native) if native.dtype == bool else int(native)
        except jax.errors.ConcretizationTypeError:
            return None

    def cond(
        self, pred: NativeArray, true_fn: Function, false_fn: Function, natives: Natives
    ) -> list[NativeArray]:
        return list(jax.lax.cond(pred, true_fn, false_fn, *natives))

    def switch(
        self, index: NativeArray, functions: Sequence[Function], natives: Natives
    ) -> list[NativeArray]:
        return list(jax.lax.switch(index, functions, *natives))

    def while_loop(
        self, cond_fn: Function, body_fn: Function, natives: Natives, name: str
    ) -> list[NativeArray]:
        found = jax.lax.while_loop(
            lambda state: cond_fn(*state)[0], lambda state: body_fn(*state), list(natives)
        )
        return [_forward_only(native, name) for native in found]

    def loops(self, natives: Natives, length: int) -> bool:
        return (
            any(isinstance(native, Tracer) for native in natives)
            or length >= _LONG
            # Under jit an op on a constant is traced, also where nothing that is given here is.
            or isinstance(jax.lax.full((), 0), Tracer)
        )

    def scan(
        self,
        body: Callable[
            [list[NativeArray], list[NativeArray]], tuple[list[NativeArray], list[NativeArray]]
        ],
        carry: Natives,
        rows: Natives,
        length: int,
        *,
        reverse: bool,
        unroll: int,
    ) -> tuple[list[NativeArray], list[NativeArray]]:
        last, stacked = jax.lax.scan(
            body, list(carry), list(rows), length=length, reverse=reverse, unroll=unroll
        )
        return list(last), list(stacked)

    def batch(
        self, function: Function, natives: Natives, axes: Sequence[int | None], size: int
    ) -> list[NativeArray] | None:
        try:
            return list(jax.vmap(function, tuple(axes), 0, axis_size=size)(*natives))
        except Exception:  # a value was read; where the mistake is the caller's, a loop says so
            return None
