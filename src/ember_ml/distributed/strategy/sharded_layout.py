"""Layout: how the numbers of a tensor are divided among ranks, and brought together again.

A tensor is taken as one long row of numbers, which is cut into parts of one length; the last ones
are filled up with zeros. So every shape can be divided, numbers without an axis included.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from ember_ml import ops
from ember_ml.autodiff.custom import custom_gradient
from ember_ml.distributed.communicator import Communicator, _is_differentiated
from ember_ml.tensor.core import Tensor, fill

__all__ = ["Layout", "gathered", "plain"]


class Layout(NamedTuple):
    """The shape of a tensor that `ranks` processes keep together.

    >>> layout = Layout((3,), 2)
    >>> layout.length, [layout.span(rank) for rank in range(2)]
    (2, [(0, 2), (2, 3)])
    >>> layout.part(ops.asarray([1.0, 2.0, 3.0]), 1).tolist()
    [3.0, 0.0]

    With `by_rows`, as FSDP of torch has it, parts are rows of the tensor, not filled up.

    >>> Layout((3, 2), 2, by_rows=True).part(ops.ones((3, 2)), 1).shape
    (1, 2)
    """

    shape: tuple[int, ...]
    ranks: int
    by_rows: bool = False

    @property
    def size(self) -> int:
        """How many numbers the tensor has."""
        return prod(self.shape)

    @property
    def length(self) -> int:
        """How many numbers each rank keeps, those that fill up included."""
        if self.by_rows:
            return -(-prod(self.shape[:1]) // self.ranks) * prod(self.shape[1:])
        return -(-self.size // self.ranks)

    def span(self, rank: int) -> tuple[int, int]:
        """Where the part of a rank begins and ends in the long row, without what fills up."""
        length, size = self.length, self.size
        return min(rank * length, size), min((rank + 1) * length, size)

    def part_shape(self, rank: int) -> tuple[int, ...]:
        """The shape of what a rank keeps."""
        if not self.by_rows:
            return (self.length,)
        rows, ranks = prod(self.shape[:1]), self.ranks
        chunk = -(-rows // ranks)
        return (max(0, min(rows - rank * chunk, chunk)), *self.shape[1:])

    def part(self, x: Tensor, rank: int) -> Tensor:
        """The part of a rank, in memory of its own."""
        first, last = self.span(rank)
        return self.filled(ops.reshape(x, (-1,))[first:last].copy(), rank)

    def filled(self, own: Tensor, rank: int) -> Tensor:
        """The part of a rank of the numbers in its span."""
        shape = self.part_shape(rank)
        return _free(ops.reshape(_filled(own, prod(shape)), shape))

    def row(self, part: Tensor) -> Tensor:
        """A part as it is exchanged: one row of the same length on all ranks."""
        return _filled(ops.reshape(part, (-1,)), self.length) if self.by_rows else part

    def rows(self, x: Tensor) -> Tensor:
        """The parts of all ranks, one in each row."""
        flat = ops.reshape(x, (-1,))
        return ops.reshape(_filled(flat, self.ranks * self.length), (self.ranks, self.length))

    def whole(self, rows: Tensor) -> Tensor:
        """The tensor of which these are the parts."""
        flat = ops.reshape(rows, (-1,))
        if self.size < self.ranks * self.length:
            flat = flat[: self.size]
        return _free(ops.reshape(flat, self.shape))


def _free(x: Tensor) -> Tensor:
    # Where arrays cannot be written to, a new shape is a view that follows its base.
    return fill(x.native, x._spec)


def _filled(flat: Tensor, length: int) -> Tensor:
    missing = length - flat.shape[0]
    if not missing:
        return flat
    spec = flat._spec
    return ops.concat([flat, fill(spec.backend.full((missing,), 0, spec), spec)])


def plain(x: Tensor) -> Tensor:
    """The same array in a tensor of which no record and no view knows."""
    return fill(x._spec.backend.detach(x.native), x._spec)


def gathered(
    communicator: Communicator, parts: Sequence[Tensor], layouts: Sequence[Layout]
) -> list[Tensor]:
    """Whole tensors of the parts of all ranks, by one exchange; all parts have one dtype.

    The gradient of a part is the sum over ranks of that of the whole tensor, at its place.
    """
    if not any(_is_differentiated(part) for part in parts):
        return _gathered(communicator, parts, layouts)

    def forward(*own: Tensor) -> Any:
        def pull(grads: list[Tensor]) -> tuple[Tensor, ...]:
            return tuple(_scattered(communicator, grads, layouts))

        return _gathered(communicator, own, layouts), pull

    made: list[Tensor] = custom_gradient(forward)(*parts)
    return made


def _gathered(
    communicator: Communicator, parts: Sequence[Tensor], layouts: Sequence[Layout]
) -> list[Tensor]:
    own = [layout.row(part) for layout, part in zip(layouts, parts, strict=True)]
    if len(own) == 1:
        return [layouts[0].whole(communicator._stacked(own[0]))]
    rows = communicator._stacked(ops.concat(own))
    backend = rows._spec.backend
    made, first = [], 0
    for layout in layouts:
        columns = rows.native[:, first : first + layout.length]
        if backend.mutable:  # memory of its own, so that each can be let go by itself
            columns = backend.copy(columns)
        made.append(layout.whole(fill(columns, rows._spec)))
        first += layout.length
    return made


def _scattered(
    communicator: Communicator, grads: Sequence[Tensor], layouts: Sequence[Layout]
) -> list[Tensor]:
    """The sums over ranks of gradients, of which each rank gets its parts, by one exchange."""
    rows = [layout.rows(g) for g, layout in zip(grads, layouts, strict=True)]
    joined = rows[0] if len(rows) == 1 else ops.concat(rows, axis=1)
    own = ops.reshape(communicator._reduced(joined, "sum", communicator._part), (-1,))
    made, first = [], 0
    for layout in layouts:
        shape = layout.part_shape(communicator.rank)
        part = fill(own.native[first : first + prod(shape)], own._spec)
        made.append(_free(ops.reshape(part, shape)) if layout.by_rows else part)
        first += layout.length
    return made
