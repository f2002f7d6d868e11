"""MLX's own transforms."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from ember_ml.backend.gradients import Function, Gradients, Natives, PullBack
from ember_ml.backend.mlx.slopes import differentiated

__all__ = ["MlxGradients"]


class MlxGradients(Gradients):
    """Functions are traced and transformed by MLX."""

    transforms = True

    def value_and_grad(self, function: Function, natives: Natives) -> tuple[list[Any], list[Any]]:
        def run(*given: Any) -> tuple[Any, ...]:
            return tuple(differentiated(function)(given))

        places = list(range(len(natives)))
        outs, grads = mx.value_and_grad(run, argnums=places)(*natives)
        return list(outs), list(grads) if isinstance(grads, tuple | list) else [grads]

    def vjp(self, function: Function, natives: Natives) -> tuple[list[Any], PullBack]:
        def run(*given: Any) -> list[Any]:
            return differentiated(function)(given)  # type: ignore[no-any-return]  # a list

        outs = function(natives)

        def back(gradients: Natives) -> list[Any]:
            return list(mx.vjp(run, list(natives), list(gradients))[1])

        return outs, back

    def jvp(
        self, function: Function, natives: Natives, tangents: Natives
    ) -> tuple[list[Any], list[Any]]:
        def run(*given: Any) -> list[Any]:
            return differentiated(function)(given)  # type: ignore[no-any-return]  # a list

        outs, moved = mx.jvp(run, list(natives), list(tangents))
        return list(outs), list(moved)
