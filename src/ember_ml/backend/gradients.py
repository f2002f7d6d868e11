"""How an engine differentiates functions of its arrays. See autodiff/gradients.py for the use.

There are two kinds. Engines with transforms (JAX, MLX) are given a function and differentiate it
themselves. Others record: torch in its own graph, which `pull_back` here asks, and every other
engine on the tape of autodiff/tape.py, for which nothing is needed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from ember_ml.backend.contract import Backend, Kernel, NativeArray, Spec

__all__ = [
    "FREED",
    "NESTING",
    "TRANSFORMING",
    "Function",
    "FunctionWithAux",
    "Gradients",
    "Natives",
    "PullBack",
    "transformed",
]

FREED = (
    "backward() got a graph whose values have been freed by an earlier backward(); "
    "give retain_graph=True to the first"
)

R = TypeVar("R")
Natives = Sequence[Any]
# A function of native arrays.
Function = Callable[[Natives], list[Any]]
# One with results that are differentiated and others.
FunctionWithAux = Callable[[Natives], tuple[list[Any], list[Any]]]
# The gradients of inputs, None for those that were not used, from those of results.
PullBack = Callable[[Natives], list[Any]]

# Kernels with an operand on which they depend by steps only, besides those of table.zero_gradient.
_LEVEL: Final = frozenset(("copysign", "floor_divide", "heaviside", "imag", "nextafter", "sign"))
# How many derivatives are being taken, one within the other; and whether the last is on our tape.
NESTING: Final[ContextVar[tuple[int, bool]]] = ContextVar("ember_ml nesting", default=(0, False))
# True while an engine's own transform runs a function.
TRANSFORMING: Final[ContextVar[bool]] = ContextVar("ember_ml transforming", default=False)


def transformed(function: Callable[[Natives], R]) -> Callable[[Natives], R]:
    """A function that knows while it runs that an engine's own transform differentiates it."""

    def run(natives: Natives) -> R:
        token = TRANSFORMING.set(True)
        try:
            return function(natives)
        finally:
            TRANSFORMING.reset(token)

    return run


class Gradients:
    """An engine without differentiation of its own."""

    # True where functions are transformed, instead of recorded.
    transforms: bool = False
    # True where `vjp` and `jvp` exist as well.
    transforms_all: bool = False
    # True where `staged` exists as well.
    stages: bool = False
    # True where an array has values, and does not tell, while a function of it is transformed.
    hides: bool = False

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.prepared = False
        self._refused: Mapping[str, str] = {}
        self._level: Set[str] = frozenset()
        # True once there was an array that needs gradients by itself, in the engine's own record.
        self.has_leaves = False
        # Kernels from floats to others that were settled before `prepare`.
        self._met: set[str] = set()

    # --- Transforms -------------------------------------------------------------------------

    def value_and_grad(self, function: Function, natives: Natives) -> tuple[list[Any], list[Any]]:
        """What a function gives, and the gradients of its first result, a number."""
        raise NotImplementedError

    def vjp(
        self, function: FunctionWithAux, natives: Natives
    ) -> tuple[list[Any], list[Any], PullBack]:
        """What a function gives, what else, and the function that pulls gradients back."""
        raise NotImplementedError

    def jvp(
        self, function: FunctionWithAux, natives: Natives, tangents: Natives
    ) -> tuple[list[Any], list[Any], list[Any]] | None:
        """What a function gives, how that changes along a direction, and what else; None where
        the engine cannot tell.
        """
        raise NotImplementedError

    def each(self, function: Function, rows: Natives) -> list[Any]:
        """What a function gives for each row of some arrays, stacked; None for what it lacks."""
        raise NotImplementedError

    def staged(self, function: Function, natives: Natives) -> Function:
        """What a function does to arrays like these, as a function that can be run and
        differentiated in its place; the function itself is run once, now.
        """
        raise NotImplementedError

    def transforming(self, natives: Natives) -> bool:
        """True where the engine's own transform is differentiating what is done to the arrays."""
        return TRANSFORMING.get()

    def custom(
        self,
        forward: Callable[[Natives], tuple[list[Any], PullBack]],
        natives: Natives,
    ) -> list[Any]:
        """What a function gives that comes with its own pull-back."""
        raise NotImplementedError

    # --- Records ----------------------------------------------------------------------------

    def is_apart(self, native: Any) -> bool:
        """True where the engine's own record tells that an array has memory that no other has."""
        return False

    def is_recording(self) -> bool:
        """True where the engine's own record is being kept."""
        return True

    def alias(self, native: NativeArray) -> NativeArray:
        """Another name for an array in the engine's own record, to differentiate by."""
        raise NotImplementedError

    def reaches_beyond(self, results: Natives, inputs: Natives) -> bool:
        """True where results depend on arrays in the engine's own record besides the inputs."""
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
        self, results: Natives, gradients: Natives, inputs: Natives, create: bool, retain: bool
    ) -> list[Any]:
        """The gradients of inputs in the engine's own record; None for those not used."""
        raise NotImplementedError

    def pull_rows(
        self, result: NativeArray, rows: NativeArray, inputs: Natives, create: bool
    ) -> list[Any] | None:
        """The gradients of inputs for each row of gradients of a result, stacked; None where the
        engine cannot do them together.
        """
        raise NotImplementedError

    def attached(
        self, outs: Natives, again: Callable[[Natives | None], PullBack], inputs: Natives
    ) -> list[Any]:
        """Arrays, put into the engine's own record as made of inputs, with a pull-back: `again`
        gives it, for inputs that are in the graph where it is to be differentiated too.
        """
        raise NotImplementedError

    # --- Kernels ----------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the engine agree with the others on ops without a gradient, before the first is
        asked for: until then no rule need be read.
        """
        if self.prepared:
            return
        self.prepared = True
        if not (self.transforms or self.backend.records):
            return  # our tape knows by itself
        from ember_ml.autodiff import rules
        from ember_ml.autodiff.rules.table import NO_GRADIENT, ZERO_GRADIENT

        rules.load_all()
        self._refused, self._level = NO_GRADIENT, ZERO_GRADIENT | _LEVEL
        self.backend.resettle({*NO_GRADIENT, *self._level, *self._met})

    def settled(self, kernel: Kernel, name: str, spec: Spec, result: Spec) -> Kernel:
        """A kernel in whose gradient the engine agrees with the others; see contract._settle."""
        if not spec.inexact:
            return kernel
        if not result.inexact:
            if not self.prepared:
                self._met.add(name)
                return kernel
            return self.whole_numbers(kernel)
        reason = self._refused.get(name)
        if reason is not None:
            return self.refusing(kernel, f"ops.{name} has no gradient: {reason}")
        return self.level(kernel) if name in self._level else kernel

    def refusing(self, kernel: Kernel, text: str) -> Kernel:
        """A kernel that raises GradientError where its gradient is asked for."""
        return kernel

    def level(self, kernel: Kernel) -> Kernel:
        """A kernel whose slope is zero for some operand, and which counts as depending on it."""
        return kernel

    def whole_numbers(self, kernel: Kernel) -> Kernel:
        """A kernel from floats to integers or truth values, through which no gradient goes."""
        return kernel

    # --- Memory -----------------------------------------------------------------------------

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
