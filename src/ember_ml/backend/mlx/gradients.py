"""MLX's own transforms."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from ember_ml.backend.gradients import Function, Gradients, Natives, PullBack, transformed
from ember_ml.backend.mlx import checkpointing
from ember_ml.backend.mlx.hosting import evaluated

__all__ = ["MlxGradients"]


class MlxGradients(Gradients):
    """Functions are traced and transformed by MLX."""

    transforms = True

    def value_and_grad(self, function: Function, natives: Natives) -> tuple[list[Any], list[Any]]:
        function = transformed(function)

        def run(*given: Any) -> tuple[Any, ...]:
            return tuple(function(given))

        places = list(range(len(natives)))
        outs, grads = mx.value_and_grad(run, argnums=places)(*natives)
        return list(outs), list(grads) if isinstance(grads, tuple | list) else [grads]

    def vjp(self, function: Function, natives: Natives) -> tuple[list[Any], PullBack]:
        function = transformed(function)

        def run(*given: Any) -> list[Any]:
            return function(given)

        outs = function(natives)

        def back(gradients: Natives) -> list[Any]:
            return list(mx.vjp(run, list(natives), list(gradients))[1])

        return outs, back

    def jvp(
        self, function: Function, natives: Natives, tangents: Natives
    ) -> tuple[list[Any], list[Any]]:
        function = transformed(function)

        def run(*given: Any) -> list[Any]:
            return function(given)

        outs, moved = mx.jvp(run, list(natives), list(tangents))
        return list(outs), list(moved)

    def checkpoint(self, function: Function, natives: Natives, offload: bool) -> list[Any]:
        return checkpointing.checkpoint(self.backend, function, natives)

    def settle(self, natives: Natives) -> None:
        evaluated(*natives)

    def offloads(self, device: str) -> bool:
        return False  # its processors share the memory of the host
