"""How an engine differentiates functions of its arrays. See autodiff/gradients.py for the use.

There are two kinds. Engines with transforms (JAX, MLX) are given a function and differentiate it
themselves. Others record: torch in its own graph, which `pull_back` here asks, and every other
engine on the tape of autodiff/tape.py, for which nothing is needed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ember_ml.backend.contract import Backend, NativeArray

__all__ = ["FREED", "Gradients"]

FREED = (
    "backward() got a graph whose values have been freed by an earlier backward(); "
    "give retain_graph=True to the first"
)

Natives = Sequence[Any]
# A function of native arrays.
Function = Callable[[Natives], list[Any]]
# The gradients of inputs, None for those that were not used, from those of results.
PullBack = Callable[[Natives], list[Any]]


class Gradients:
    """An engine without differentiation of its own."""

    # True where functions are transformed, instead of recorded.
    transforms: bool = False

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def value_and_grad(self, function: Function, natives: Natives) -> tuple[list[Any], list[Any]]:
        """What a function gives, and the gradients of its first result, a number."""
        raise NotImplementedError

    def vjp(self, function: Function, natives: Natives) -> tuple[list[Any], PullBack]:
        """What a function gives, and the function that pulls gradients back through it."""
        raise NotImplementedError

    def jvp(
        self, function: Function, natives: Natives, tangents: Natives
    ) -> tuple[list[Any], list[Any]]:
        """What a function gives, and how that changes along a direction."""
        raise NotImplementedError

    def alias(self, native: NativeArray) -> NativeArray:
        """Another name for an array in the engine's own record, to differentiate by."""
        raise NotImplementedError

    def backward(
        self,
        result: NativeArray,
        gradient: NativeArray,
        inputs: Natives | None,
        retain: bool,
        create: bool,
    ) -> None:
        """Add the gradients of a result to those that the arrays of the engine carry."""
        raise NotImplementedError

    def explained(self, error: Exception) -> Exception | None:
        """The error to raise for a complaint about the engine's own record; None for others."""
        return None

    def pull_back(
        self, results: Natives, gradients: Natives, inputs: Natives, create: bool
    ) -> list[Any]:
        """The gradients of inputs in the engine's own record; None for those not used."""
        raise NotImplementedError
