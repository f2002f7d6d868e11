"""What comes into layers: a first input that tells sizes, and an input that does not fit."""

from __future__ import annotations

from typing import Any

from ember_ml.backend.selection import use_backend
from ember_ml.devices import use_device
from ember_ml.errors import EmberError, ShapeError, TraceError
from ember_ml.nn.module import Module
from ember_ml.ops import layouts
from ember_ml.ops.random import seeding
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

__all__ = ["Sized", "named", "pairs", "refused", "sides", "told"]


def named(layer: Module) -> str:
    """A layer with its arguments, for messages."""
    return f"{type(layer).__name__}({layer.extra_repr()})"


def refused(layer: Module, x: Any, wants: str) -> ShapeError:
    """The error of an input whose shape a layer does not take."""
    return ShapeError(f"{named(layer)} got shape {convert.to_tensor(x).shape}; {wants}")


def told(layer: Module, x: Any, error: EmberError) -> EmberError:
    """The error of an op with the layer in which it arose, and what came into it."""
    came = convert.to_tensor(x)
    return type(error)(f"{named(layer)} got shape {came.shape}, {came.dtype}: {error}")


def sides(layer: Module, value: Any, count: int, what: str, least: int = 1) -> tuple[int, ...]:
    """An argument that is one integer for all spatial axes, or one for each."""
    name = type(layer).__name__
    try:
        return layouts.sides_of(name, value, count, what, least)
    except EmberError as error:
        raise type(error)(str(error).replace("ops.", "", 1)) from None


def pairs(layer: Module, value: Any, count: int) -> Any:
    """An argument that is "same", "valid", or padding: as (before, behind) for each axis."""
    if value in ("same", "valid"):
        return value
    try:
        return layouts.pairs_of(type(layer).__name__, value, count)
    except EmberError as error:
        raise type(error)(str(error).replace("ops.", "", 1)) from None


class Sized(Module):
    """A layer that takes a size from its first input where it was made without one."""

    def _create(self, size: int) -> None:
        """Make the parameters."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its parameters are")

    def _size(self, x: Any, axis: int) -> Tensor:
        """Take the size of a first input, and its backend, device and dtype."""
        first = convert.to_tensor(x)
        if not -first.ndim <= axis < first.ndim:
            raise refused(self, first, f"it takes its size from axis {axis}, which is not there")
        if seeding.compiled() is not None:
            raise TraceError(
                f"{named(self)} waits for its size in a compiled function; call build(x) of the "
                f"model with an example input first"
            )
        with use_backend(first.backend), use_device(first.device):
            self._create(first.shape[axis])
        self.is_lazy = False
        if first.dtype.is_floating:
            self.to(dtype=first.dtype)
        return first
