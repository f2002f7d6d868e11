"""MLX's own transforms. Their gradients of complex numbers are in torch's convention already."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from ember_ml.backend.gradients import Function, Gradients, Natives, PullBack, transformed
from ember_ml.backend.mlx import checkpointing
from ember_ml.backend.mlx.hosting import evaluated
from ember_ml.backend.mlx.slopes import tied
from ember_ml.errors import GradientError

if TYPE_CHECKING:
    from ember_ml.backend.contract import Kernel

__all__ = ["MlxGradients"]


class MlxGradients(Gradients):
    """Functions are traced and transformed by MLX.

    mx.vjp wants the gradients of results before there are results, and would have to run the
    function once more for each: pull-backs go by our tape.
    """

    transforms = True
    hides = True

    def value_and_grad(self, function: Function, natives: Natives) -> tuple[list[Any], list[Any]]:
        reached: set[int] = set()

        others: list[Any] = []

        def run(*given: Any) -> Any:
            value, *rest = function([_noted(x, i, reached) for i, x in enumerate(given)])
            # Not as results: MLX makes constants of those, also where it differentiates all this.
            others[:] = rest
            return value

        function = transformed(function)
        places = list(range(len(natives)))
        value, grads = mx.value_and_grad(run, argnums=places)(*natives)
        found = grads if isinstance(grads, tuple | list) else (grads,)
        return [value, *others], [g if i in reached else None for i, g in enumerate(found)]

    def custom(
        self,
        forward: Callable[[Natives], tuple[list[Any], PullBack]],
        natives: Natives,
    ) -> list[Any]:
        @mx.custom_function
        def run(*given: Any) -> list[Any]:
            return forward(given)[0]

        @run.vjp
        def back(given: Any, gradients: Any, outs: Any) -> Any:
            # Run once more: what was computed the first time is a constant to MLX. What the pull
            # does not use of it is never computed.
            pull = forward(_listed(given))[1]
            grads = pull(_listed(gradients))
            return grads[0] if isinstance(given, mx.array) else grads

        return list(_listed(run(*natives)))

    def refusing(self, kernel: Kernel, text: str) -> Kernel:
        def run(*args: Any, **options: Any) -> Any:
            if not self.transforming(()):
                return kernel(*args, **options)
            places = [i for i, a in enumerate(args) if isinstance(a, mx.array)]

            @mx.custom_function
            def refused(*given: Any) -> Any:
                values = dict(zip(places, given, strict=True))
                return kernel(*[values.get(i, a) for i, a in enumerate(args)], **options)

            @refused.vjp
            def back(given: Any, gradients: Any, outs: Any) -> Any:
                raise GradientError(text)

            return refused(*[args[i] for i in places])

        return run

    def level(self, kernel: Kernel) -> Kernel:
        def run(*args: Any, **options: Any) -> Any:
            out = kernel(*args, **options)
            if not self.transforming(()):
                return out
            inputs = [a for a in args if isinstance(a, mx.array)]
            return tied(out, *[a for a in inputs if mx.issubdtype(a.dtype, mx.inexact)])

        return run

    def whole_numbers(self, kernel: Kernel) -> Kernel:
        if kernel in self.backend.whole:
            return kernel  # the table of quick reductions knows it as it is

        # MLX goes on through integers, with zeros, and would take the input for one that is used.
        def run(*args: Any, **options: Any) -> Any:
            out = kernel(*args, **options)
            if self.transforming(()) and isinstance(out, mx.array):
                return mx.stop_gradient(out)
            return out

        return run

    def checkpoint(self, function: Function, natives: Natives, offload: bool) -> list[Any]:
        return checkpointing.checkpoint(self.backend, function, natives)

    def settle(self, natives: Natives) -> None:
        evaluated(*natives)

    def offloads(self, device: str) -> bool:
        return False  # its processors share the memory of the host


def _listed(arrays: Any) -> Any:
    """MLX hands one array over as it is, and several in a list."""
    return [arrays] if isinstance(arrays, mx.array) else arrays


def _noted(native: Any, place: int, reached: set[int]) -> Any:
    """An input, and a note when a gradient reaches it: MLX gives zeros for the others."""

    @mx.custom_function
    def same(x: Any) -> Any:
        return x

    @same.vjp
    def note(primal: Any, gradient: Any, output: Any) -> Any:
        reached.add(place)
        return gradient

    return same(native)
