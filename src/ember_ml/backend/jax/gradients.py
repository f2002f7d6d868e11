"""JAX's own transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.core import Tracer
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import jaxpr_as_fun

from ember_ml.backend.gradients import (
    Function,
    FunctionWithAux,
    Gradients,
    Natives,
    PullBack,
    transformed,
)
from ember_ml.errors import GradientError

if TYPE_CHECKING:
    from ember_ml.backend.contract import Kernel

__all__ = ["JaxGradients"]

_OFFLOADED = "ember_ml offloaded"


class JaxGradients(Gradients):
    """Functions are traced and transformed by JAX."""

    transforms = True
    transforms_all = True
    stages = True

    def value_and_grad(self, function: Function, natives: Natives) -> tuple[list[Any], list[Any]]:
        notes = _Notes(len(natives))
        function = transformed(function)

        def run(given: list[Any]) -> tuple[Any, list[Any]]:
            outs = function(_noted(notes, given))
            return outs[0], outs[1:]

        (value, rest), grads = jax.value_and_grad(run, has_aux=True)(list(natives))
        return [value, *rest], notes.used(grads)

    def vjp(
        self, function: FunctionWithAux, natives: Natives
    ) -> tuple[list[Any], list[Any], PullBack]:
        notes = _Notes(len(natives))
        function = transformed(function)

        def run(given: list[Any]) -> tuple[list[Any], list[Any]]:
            return function(_noted(notes, given))

        outs, pull, others = jax.vjp(run, list(natives), has_aux=True)

        def back(gradients: Natives) -> list[Any]:
            notes.reached = [False] * len(natives)
            (grads,) = pull([_turned(g) for g in gradients])
            return notes.used(grads)

        return outs, others, back

    def jvp(
        self, function: FunctionWithAux, natives: Natives, tangents: Natives
    ) -> tuple[list[Any], list[Any], list[Any]] | None:
        try:
            outs, moved, others = jax.jvp(
                transformed(function), (list(natives),), (list(tangents),), has_aux=True
            )
        except TypeError as error:
            if "custom_vjp" in str(error):
                return None  # a function whose gradient is written for the reverse only
            raise
        return outs, moved, others

    def each(self, function: Function, rows: Natives) -> list[Any]:
        return list(jax.vmap(function)(list(rows)))

    def staged(self, function: Function, natives: Natives) -> Function:
        run = jaxpr_as_fun(jax.make_jaxpr(lambda *given: function(given))(*natives))
        return lambda given: list(run(*given))

    def transforming(self, natives: Natives) -> bool:
        return super().transforming(natives) or any(isinstance(n, Tracer) for n in natives)

    def custom(
        self,
        forward: Callable[[Natives], tuple[list[Any], PullBack]],
        natives: Natives,
    ) -> list[Any]:
        if not any(isinstance(n, Tracer) for n in natives):
            return forward(natives)[0]

        def run(*given: Any) -> tuple[list[Any], Callable[[list[Any]], tuple[Any, ...]]]:
            outs, pull = forward(given)

            def back(gradients: list[Any]) -> tuple[Any, ...]:
                return tuple(_turned(g) for g in pull([_turned(g) for g in gradients]))

            return outs, back

        return list(jax.custom_gradient(run)(*natives))

    def refusing(self, kernel: Kernel, text: str) -> Kernel:
        def run(*args: Any, **options: Any) -> Any:
            places = [i for i, a in enumerate(args) if isinstance(a, Tracer)]
            if not places:
                return kernel(*args, **options)

            @jax.custom_vjp
            def refused(traced: list[Any]) -> Any:
                return kernel(*_with(args, places, traced), **options)

            def forward(traced: list[Any]) -> Any:
                return refused([x.value for x in traced]), None

            def backward(_: None, gradients: Any) -> Any:
                if all(type(g) is SymbolicZero for g in jax.tree.leaves(gradients, is_leaf=_zero)):
                    return ([None] * len(places),)
                raise GradientError(text)

            refused.defvjp(forward, backward, symbolic_zeros=True)
            return refused([args[i] for i in places])

        return run

    def level(self, kernel: Kernel) -> Kernel:
        # JAX knows that there is no slope, and would take the input for one that is not used.
        def run(*args: Any, **options: Any) -> Any:
            out = kernel(*args, **options)
            inputs = [a for a in args if isinstance(a, Tracer) and _is_inexact(a)]
            return _tied(out, inputs) if inputs else out

        return run

    def checkpoint(self, function: Function, natives: Natives, offload: bool) -> list[Any]:
        if not offload:
            return list(jax.checkpoint(function)(list(natives)))

        def named(given: list[Any]) -> list[Any]:
            return function(
                [
                    checkpoint_name(n, _OFFLOADED) if jnp.issubdtype(n.dtype, jnp.inexact) else n
                    for n in given
                ]
            )

        policy = jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=[_OFFLOADED],
            offload_src="device",
            offload_dst="pinned_host",
        )
        return list(jax.checkpoint(named, policy=policy)(list(natives)))


def _is_inexact(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


@jax.custom_jvp
def _tied(out: Any, inputs: list[Any]) -> Any:
    """A result that counts as one of all inputs, also of those whose slope is zero."""
    return out


@_tied.defjvp
def _tied_slope(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    (out, _), (moved, others) = primals, tangents
    for t in others:
        zero = jnp.sum(jax.lax.select(jnp.zeros(t.shape, bool), t, jnp.zeros_like(t)))
        moved = moved + (zero if jnp.iscomplexobj(moved) else jnp.real(zero)).astype(moved.dtype)
    return out, moved


def _with(args: tuple[Any, ...], places: list[int], values: Sequence[Any]) -> list[Any]:
    given = list(args)
    for place, value in zip(places, values, strict=True):
        given[place] = value
    return given


def _zero(x: Any) -> bool:
    return type(x) is SymbolicZero


class _Notes:
    """Which inputs a gradient has reached: JAX gives zeros for the others, in silence."""

    __slots__ = ("reached",)

    def __init__(self, count: int) -> None:
        self.reached = [False] * count

    def used(self, grads: list[Any]) -> list[Any]:
        """The gradients in our convention, None where there are none."""
        return [
            _turned(g) if reached else None for g, reached in zip(grads, self.reached, strict=True)
        ]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _noted(notes: _Notes, natives: list[Any]) -> list[Any]:
    return natives


def _noted_forward(notes: _Notes, natives: list[Any]) -> tuple[list[Any], None]:
    return [x.value for x in natives], None


def _noted_backward(notes: _Notes, _: None, gradients: list[Any]) -> tuple[list[Any]]:
    zeros = [type(g) is SymbolicZero for g in gradients]
    notes.reached = [before or not zero for before, zero in zip(notes.reached, zeros, strict=True)]
    return ([None if zero else g for g, zero in zip(gradients, zeros, strict=True)],)


_noted.defvjp(_noted_forward, _noted_backward, symbolic_zeros=True)


def _turned(g: Any) -> Any:
    """JAX's gradients of complex numbers are the conjugates of torch's."""
    return jnp.conj(g) if jnp.iscomplexobj(g) else g
