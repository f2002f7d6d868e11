"""Part: what one rank has of a tensor that ranks have between them.

For a strategy whose ranks hold parts of tensors (ShardedDataParallelStrategy):

- to save, put a `Part` where a tensor would be in the tree that a checkpoint holds: the rows, or
  columns, or elements in the order of memory (`axis=None`), that this rank has of a tensor;
- to load, give `io.loading.load_parts` a function from the name and shape of a tensor to the
  `Range(axis, start, stop)` that this rank wants, or None for all of it: those tensors come as
  that range alone, and only what overlaps with it is read. Names are the keys on the way to a
  tensor, as in "optimizer.state.0.weight.m".

The ranges of all ranks together are the tensor, each element once. They may be empty and of
different lengths, and those of loading need not be those of saving.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ember_ml.errors import AxisError, ShapeError
from ember_ml.tensor import Tensor

__all__ = ["Array", "Part", "Range", "take"]

Array = np.ndarray[Any, Any]


class Range(NamedTuple):
    """From `start` up to `stop` along an axis; along all elements where the axis is None."""

    axis: int | None
    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What one rank has of a tensor of `shape`: from `start` on along `axis`.

    With `axis=None`, `x` has one axis: the elements from `start` on, in the order of memory.

    >>> from ember_ml.io.parts import Part
    >>> Part(ops.ones((2, 3)), (4, 3), start=2).range
    Range(axis=0, start=2, stop=4)
    """

    x: Tensor
    shape: tuple[int, ...]
    axis: int | None = 0
    start: int = 0

    def __post_init__(self) -> None:
        shape, axis = self.shape, self.axis
        if axis is None:
            fits, limit = self.x.ndim == 1, prod(shape)
        elif not 0 <= axis < len(shape):
            raise AxisError(f"Part got axis={axis} for a tensor of shape {shape}")
        else:
            own = self.x.shape
            fits = len(own) == len(shape) and all(
                a == b for i, (a, b) in enumerate(zip(own, shape, strict=True)) if i != axis
            )
            limit = shape[axis]
        if not fits or not 0 <= self.start <= self.range.stop <= limit:
            raise ShapeError(
                f"Part got shape {self.x.shape} from {self.start} on along axis {axis}, "
                f"which is no part of shape {shape}"
            )

    @property
    def range(self) -> Range:
        """Where it is in the tensor."""
        count = self.x.shape[0 if self.axis is None else self.axis]
        return Range(self.axis, self.start, self.start + count)

    @property
    def is_whole(self) -> bool:
        """True where it is all of the tensor."""
        return self.x.size == prod(self.shape)


def take(array: Array, wanted: Range) -> Array:
    """A range of an array, as a view where that can be."""
    if wanted.axis is None:
        return array.reshape(-1)[wanted.start : wanted.stop]
    found: Array = array[(slice(None),) * wanted.axis + (slice(wanted.start, wanted.stop),)]
    return found
