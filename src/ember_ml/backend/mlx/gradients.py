"""MLX's own transforms."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

import mlx.core as mx

from ember_ml.backend.gradients import Function, Gradients, Natives, PullBack

__all__ = ["TRANSFORMING", "MlxGradients"]

# True while a function runs that is being differentiated.
TRANSFORMING: Final[ContextVar[bool]] = ContextVar("ember_ml mlx transforming", default=False)


def _run(function: Function, given: Natives) -> list[Any]:
    token = TRANSFORMING.set(True)
    try:
        return function(given)
    finally:
        TRANSFORMING.reset(token)


class MlxGradients(Gradients):
    """Functions are traced and transformed by MLX."""

    transforms = True

    def value_and_grad(self, function: Function, natives: Natives) -> tuple[list[Any], list[Any]]:
        def run(*given: Any) -> tuple[Any, ...]:
            return tuple(_run(function, given))

        places = list(range(len(natives)))
        outs, grads = mx.value_and_grad(run, argnums=places)(*natives)
        return list(outs), list(grads) if isinstance(grads, tuple | list) else [grads]

    def vjp(self, function: Function, natives: Natives) -> tuple[list[Any], PullBack]:
        def run(*given: Any) -> list[Any]:
            return _run(function, given)

        outs = function(natives)

        def back(gradients: Natives) -> list[Any]:
            return list(mx.vjp(run, list(natives), list(gradients))[1])

        return outs, back

    def jvp(
        self, function: Function, natives: Natives, tangents: Natives
    ) -> tuple[list[Any], list[Any]]:
        def run(*given: Any) -> list[Any]:
            return _run(function, given)

        outs, moved = mx.jvp(run, list(natives), list(tangents))
        return list(outs), list(moved)
