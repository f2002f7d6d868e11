"""JAX's own control flow, for what jit, grad and vmap trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import jax
from jax.core import Tracer

from ember_ml.backend.control import Control

if TYPE_CHECKING:
    from ember_ml.backend.contract import NativeArray
    from ember_ml.backend.control import Function, Natives

__all__ = ["JaxControl"]

# A loop that is compiled costs some 100 ms at each call, a step that Python runs some 100 us.
_LONG: Final = 1024


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
        return list(
            jax.lax.while_loop(
                lambda state: cond_fn(*state)[0], lambda state: body_fn(*state), list(natives)
            )
        )

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
