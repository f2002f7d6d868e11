"""JAX's own transforms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ember_ml.backend.gradients import Function, Gradients, Natives, PullBack

__all__ = ["JaxGradients"]


class JaxGradients(Gradients):
    """Functions are traced and transformed by JAX."""

    transforms = True

    def value_and_grad(self, function: Function, natives: Natives) -> tuple[list[Any], list[Any]]:
        def run(given: list[Any]) -> tuple[Any, list[Any]]:
            outs = function(given)
            return outs[0], outs[1:]

        (value, rest), grads = jax.value_and_grad(run, has_aux=True)(list(natives))
        return [value, *rest], [_turned(g) for g in grads]

    def vjp(self, function: Function, natives: Natives) -> tuple[list[Any], PullBack]:
        outs, pull = jax.vjp(function, list(natives))

        def back(gradients: Natives) -> list[Any]:
            (grads,) = pull([_turned(g) for g in gradients])
            return [_turned(g) for g in grads]

        return outs, back

    def jvp(
        self, function: Function, natives: Natives, tangents: Natives
    ) -> tuple[list[Any], list[Any]]:
        return jax.jvp(function, (list(natives),), (list(tangents),))


def _turned(g: Any) -> Any:
    """JAX's gradients of complex numbers are the conjugates of torch's."""
    return jnp.conj(g) if jnp.iscomplexobj(g) else g
