"""Processors with roles: what a part of a network does to the signals that pass it."""

from __future__ import annotations

from typing import Any

from ember_ml import ops
from ember_ml.errors import DomainError, DTypeError, UnknownKeyError
from ember_ml.nn.module import Module
from ember_ml.registry import default, register
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["Inhibition", "Memory", "Processor", "SpecializedProcessor"]

_KIND = "processors/"


@register("processors/default")
class Processor(Module):
    """The signal as it is; what other roles derive from.

    A role of one's own is a subclass with a method `process`, registered as `processors/<role>`.

    >>> from ember_ml.models import Processor
    >>> Processor().process([1.0, 2.0]).tolist()
    [1.0, 2.0]
    """

    def process(self, x: TensorLike) -> Tensor:
        """The signal after this processor."""
        return convert.to_tensor(x)

    def forward(self, x: TensorLike) -> Tensor:
        """The same as `process`."""
        return self.process(x)


class _Scaled(Processor):
    """A signal times a factor that is not trained."""

    factor: float

    def process(self, x: TensorLike) -> Tensor:
        """The signal times the factor."""
        return ops.multiply(x, self.factor)


@register("processors/memory")
class Memory(_Scaled):
    """A signal that fades slowly: `decay · x`.

    >>> from ember_ml.models import Memory
    >>> round(Memory()([1.0]).item(), 4)
    0.95
    """

    def __init__(self, decay: float = 0.95) -> None:
        if not 0.0 <= decay <= 1.0:
            raise DomainError(f"Memory got decay={decay}; it lies between 0 and 1")
        self.factor = decay


@register("processors/inhibition")
class Inhibition(_Scaled):
    """A signal that is dampened and turned: `-strength · x`.

    >>> from ember_ml.models import Inhibition
    >>> Inhibition().process([2.0]).item()
    -1.0
    """

    def __init__(self, strength: float = 0.5) -> None:
        if strength < 0.0:
            raise DomainError(f"Inhibition got strength={strength}; it is 0 or more")
        self.factor = -strength


class SpecializedProcessor(Module):
    """The processor of a role: "default", "memory", "inhibition", or one that is registered.

    Options go to the role: `SpecializedProcessor("memory", decay=0.9)`.

    >>> from ember_ml.models import SpecializedProcessor
    >>> SpecializedProcessor("inhibition").process([1.0, -2.0]).tolist()
    [-0.5, 1.0]
    >>> SpecializedProcessor().process([1.0]).tolist()
    [1.0]
    """

    def __init__(self, role: str = "default", **options: Any) -> None:
        try:
            made = default.create(f"{_KIND}{role}", **options)
        except UnknownKeyError:
            roles = [name.removeprefix(_KIND) for name in default.names(_KIND)]
            raise DomainError(
                f"SpecializedProcessor got the role {role!r}; there are {', '.join(roles)}; "
                f"register your own as @register('{_KIND}{role}')"
            ) from None
        if not callable(getattr(made, "process", None)):
            raise DTypeError(
                f"SpecializedProcessor: {_KIND}{role} gives {type(made).__name__}, which has no "
                f"method process(x)"
            )
        self.role = role
        self.processor = made

    def process(self, x: TensorLike) -> Tensor:
        """The signal after the processor of the role."""
        y: Tensor = self.processor.process(x)
        return y

    def forward(self, x: TensorLike) -> Tensor:
        """The same as `process`."""
        return self.process(x)
