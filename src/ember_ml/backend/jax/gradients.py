"""JAX's own transforms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.core import Tracer

from ember_ml.backend.gradients import Function, Gradients, Natives, PullBack, transformed

__all__ = ["JaxGradients"]

_OFFLOADED = "ember_ml offloaded"


class JaxGradients(Gradients):
    """Functions are traced and transformed by JAX."""

    transforms = True

    def value_and_grad(self, function: Function, natives: Natives) -> tuple[list[Any], list[Any]]:
        function = transformed(function)

        def run(given: list[Any]) -> tuple[Any, list[Any]]:
            outs = function(given)
            return outs[0], outs[1:]

        (value, rest), grads = jax.value_and_grad(run, has_aux=True)(list(natives))
        return [value, *rest], [_turned(g) for g in grads]

    def vjp(self, function: Function, natives: Natives) -> tuple[list[Any], PullBack]:
        outs, pull = jax.vjp(transformed(function), list(natives))

        def back(gradients: Natives) -> list[Any]:
            (grads,) = pull([_turned(g) for g in gradients])
            return [_turned(g) for g in grads]

        return outs, back

    def jvp(
        self, function: Function, natives: Natives, tangents: Natives
    ) -> tuple[list[Any], list[Any]]:
        return jax.jvp(transformed(function), (list(natives),), (list(tangents),))

    def transforming(self, natives: Natives) -> bool:
        return super().transforming(natives) or any(isinstance(n, Tracer) for n in natives)

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


def _turned(g: Any) -> Any:
    """JAX's gradients of complex numbers are the conjugates of torch's."""
    return jnp.conj(g) if jnp.iscomplexobj(g) else g
