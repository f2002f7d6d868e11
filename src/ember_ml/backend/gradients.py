"""How an engine differentiates functions of its arrays. See autodiff/gradients.py for the use.

There are two kinds. Engines with transforms (JAX, MLX) are given a function and differentiate it
themselves. Others record: torch in its own graph, which `pull_back` here asks, and every other
engine on the tape of autodiff/tape.py, for which nothing is needed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ember_ml.backend.contract import Backend, NativeArray

__all__ = ["Gradients", "transformed"]

Natives = Sequence[Any]
# A function of native arrays.
Function = Callable[[Natives], list[Any]]
# The gradients of inputs, None for those that were not used, from those of results.
PullBack = Callable[[Natives], list[Any]]

# True while an engine's own transform runs a function.
_TRANSFORMING: Final[ContextVar[bool]] = ContextVar("ember_ml transforming", default=False)


def transformed(function: Function) -> Function:
    """A function that knows while it runs that an engine's own transform differentiates it."""

    def run(natives: Natives) -> list[Any]:
        token = _TRANSFORMING.set(True)
        try:
            return function(natives)
        finally:
            _TRANSFORMING.reset(token)

    return run


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

    def pull_back(
        self, results: Natives, gradients: Natives, inputs: Natives, create: bool
    ) -> list[Any]:
        """The gradients of inputs in the engine's own record; None for those not used."""
        raise NotImplementedError

    # --- Memory -----------------------------------------------------------------------------

    def transforming(self, natives: Natives) -> bool:
        """True where the engine's own transform is differentiating what is done to the arrays."""
        return _TRANSFORMING.get()

    def checkpoint(self, function: Function, natives: Natives, offload: bool) -> list[Any]:
        """What a function gives, which is run again for its gradient instead of kept.

        For engines that transform or record by themselves. With `offload`, the arrays that are
        kept, those given, wait in host memory.
        """
        raise NotImplementedError

    def settle(self, natives: Natives) -> None:
        """Compute the gradients that a walk has come to, where the engine would put it off.

        What they were made of can then be freed.
        """

    def offloads(self, device: str) -> bool:
        """True where the memory of a device is another than that of the host."""
        return not device.startswith("cpu")

    def keeping(
        self, pack: Callable[[NativeArray], Any], unpack: Callable[[Any], NativeArray]
    ) -> AbstractContextManager[Any]:
        """A block in which what the engine's own record keeps goes through two functions."""
        return nullcontext()
