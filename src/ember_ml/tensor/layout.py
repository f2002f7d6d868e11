"""Which elements of an array a view shows: shape, strides and offset, counted in elements.

Layouts speak of the elements of a whole array in C order, however its engine stores them. All
views of one array are layouts over it, and a view of a view is one layout again.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Layout", "Plan", "arranged", "contiguous", "plan_of", "reshaped", "strides_of"]

Shape = tuple[int, ...]


class Layout(NamedTuple):
    """The elements `offset + sum(i * strides)` of an array, for the indices i of `shape`."""

    shape: Shape
    strides: Shape
    offset: int

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """True where the elements follow one another in C order."""
        if 0 in self.shape:
            return True
        expected = 1
        for side, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if side != 1 and stride != expected:
                return False
            expected *= side
        return True

    @property
    def repeats(self) -> bool:
        """True where several indices show one element, as in a broadcast view."""
        sides = zip(self.shape, self.strides, strict=True)
        return 0 not in self.shape and any(side > 1 and not stride for side, stride in sides)

    def at(self, key: tuple[Any, ...]) -> Layout:
        """The layout of `view[key]` for a key of ints, slices, None and an ellipsis."""
        found = self.quick(key)
        if found is not None:
            return found
        shape: list[int] = []
        strides: list[int] = []
        offset, axis = self.offset, 0
        for item in key:
            if item is None:
                shape.append(1)
                strides.append(0)
            elif item is Ellipsis:
                rest = len(self.shape) - sum(k is not None and k is not Ellipsis for k in key)
                shape += self.shape[axis : axis + rest]
                strides += self.strides[axis : axis + rest]
                axis += rest
            elif type(item) is slice:
                start, stop, step = item.indices(self.shape[axis])
                count = len(range(start, stop, step))
                shape.append(count)
                strides.append(self.strides[axis] * step)
                offset += self.strides[axis] * start if count else 0
                axis += 1
            else:
                place = item if item >= 0 else item + self.shape[axis]
                if not 0 <= place < self.shape[axis]:
                    raise IndexError(item)
                offset += self.strides[axis] * place
                axis += 1
        if key.count(...) > 1:
            raise IndexError(key)
        return Layout((*shape, *self.shape[axis:]), (*strides, *self.strides[axis:]), offset)

    def quick(self, key: Sequence[Any]) -> Layout | None:
        """The same for nothing but ints and slices, what is written most; else None."""
        sides, steps, offset = self
        used = len(key)
        if used == 1 and sides and type(key[0]) is slice:
            start, stop, step = key[0].indices(sides[0])
            count = len(range(start, stop, step))
            inner = steps[0]
            if count:
                offset += inner * start
            return Layout((count, *sides[1:]), (inner * step, *steps[1:]), offset)
        if used > len(sides):
            return None
        shape: list[int] = []
        strides: list[int] = []
        for axis, item in enumerate(key):
            side, inner = sides[axis], steps[axis]
            if type(item) is slice:
                start, stop, step = item.indices(side)
                count = len(range(start, stop, step))
                if count:
                    offset += inner * start
                shape.append(count)
                strides.append(inner * step)
            elif type(item) is int and -side <= item < side:
                offset += inner * (item if item >= 0 else item + side)
            else:
                return None
        return Layout((*shape, *sides[used:]), (*strides, *steps[used:]), offset)

    def permute_dims(self, axes: Sequence[int]) -> Layout:
        """The layout with its axes in another order."""
        return Layout(
            tuple(self.shape[a] for a in axes), tuple(self.strides[a] for a in axes), self.offset
        )

    def matrix_transpose(self) -> Layout:
        """The layout with its last two axes swapped."""
        last = len(self.shape) - 1
        return self.permute_dims((*range(last - 1), last, last - 1))

    def flip(self, axes: Sequence[int]) -> Layout:
        """The layout with some axes in reverse order."""
        if 0 in self.shape:
            return self
        offset, strides = self.offset, list(self.strides)
        for axis in axes:
            offset += strides[axis] * (self.shape[axis] - 1)
            strides[axis] = -strides[axis]
        return Layout(self.shape, tuple(strides), offset)

    def broadcast_to(self, shape: Shape) -> Layout:
        """The layout repeated to a larger shape, to which it must broadcast."""
        new = len(shape) - len(self.shape)
        strides = (
            stride if side == wanted else 0
            for side, stride, wanted in zip(self.shape, self.strides, shape[new:], strict=True)
        )
        return Layout(shape, (*(0,) * new, *strides), self.offset)

    def reshape(self, shape: Shape) -> Layout | None:
        """The layout in another shape of the same size; None where no strides describe it."""
        if 0 in shape:
            return Layout(shape, strides_of(shape), self.offset)
        old = [
            (side, stride)
            for side, stride in zip(self.shape, self.strides, strict=True)
            if side != 1
        ]
        strides = [0] * len(shape)
        at = 0
        new = 0
        # Runs of old axes and of new axes that hold equally many elements are matched.
        while at < len(old):
            while shape[new] == 1:
                new += 1
            have, want = old[at][0], shape[new]
            first_new = new
            last = at
            while have != want:
                if have < want:
                    last += 1
                    have *= old[last][0]
                else:
                    new += 1
                    want *= shape[new]
            for (_, outer), (side, inner) in zip(old[at:last], old[at + 1 : last + 1], strict=True):
                if outer != inner * side:
                    return None
            stride = old[last][1]
            for axis in range(new, first_new - 1, -1):
                strides[axis] = stride
                stride *= shape[axis]
            at = last + 1
            new += 1
        return Layout(shape, tuple(strides), self.offset)

    def indices(self) -> np.ndarray[Any, Any]:
        """The positions of the elements, in the shape of the view."""
        out: np.ndarray[Any, Any] = np.full(self.shape, self.offset, dtype=np.int64)
        for axis, (side, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            line: np.ndarray[Any, Any] = np.arange(side, dtype=np.int64) * stride
            out += line.reshape(-1, *(1,) * (len(self.shape) - axis - 1))
        return out


def strides_of(shape: Shape) -> Shape:
    """The strides of a C-contiguous array."""
    strides: list[int] = []
    step = 1
    for side in reversed(shape):
        strides.append(step)
        step *= max(side, 1)
    return tuple(reversed(strides))


@lru_cache(maxsize=4096)
def contiguous(shape: Shape) -> Layout:
    """The layout of a whole array."""
    return Layout(shape, strides_of(shape), 0)


@lru_cache(maxsize=4096)
def arranged(layout: Layout, name: str, options: tuple[Any, ...]) -> Layout | None:
    """The layout after an op that rearranges; None where no strides describe it."""
    found: Layout | None = getattr(layout, name)(*options)
    return found


@lru_cache(maxsize=4096)
def reshaped(layout: Layout, shape: Shape) -> Layout | None:
    """The layout in another shape, of which one length may be -1; None where there is none."""
    if min(shape, default=0) < -1:
        return None
    size = layout.size
    known = math.prod(side for side in shape if side != -1)
    gaps = shape.count(-1)
    if gaps == 1 and known and size % known == 0:
        shape = tuple(size // known if side == -1 else side for side in shape)
    elif gaps or known != size:
        return None
    return layout.reshape(shape)


class Plan(NamedTuple):
    """A layout as steps that every engine has: slice the array along its axes, then rearrange.

    The array is taken in shape `root`; of each axis, `counts` elements are taken, each `steps`
    from the last. Axes in `turned` are reversed, those in `order` kept, in that order, and what
    comes out is reshaped to `core` and broadcast to `shape`. Where the slices start is apart, so
    that one compiled program serves all of them.
    """

    root: Shape
    counts: Shape
    steps: Shape
    turned: Shape
    order: Shape
    core: Shape
    shape: Shape

    @property
    def extents(self) -> Shape:
        """How far the slice of each axis reaches."""
        return tuple((c - 1) * s + 1 for c, s in zip(self.counts, self.steps, strict=True))

    @property
    def permutation(self) -> Shape:
        """The kept axes in order, then those of length one that fall away."""
        return (*self.order, *(a for a in range(len(self.root)) if a not in self.order))

    @property
    def inverse(self) -> Shape:
        """The permutation back."""
        forward = self.permutation
        return tuple(forward.index(a) for a in range(len(forward)))

    def key(self, starts: Shape) -> tuple[slice, ...]:
        """The slices as a key."""
        bounds = zip(starts, self.extents, self.steps, strict=True)
        return tuple(slice(low, low + extent, step) for low, extent, step in bounds)


def plan_of(root: Shape, layout: Layout) -> tuple[Plan, Shape] | None:
    """The plan of a layout that has elements, and where its slices start; None where none fits."""
    strides = strides_of(root)
    low = layout.offset + sum(
        (side - 1) * stride
        for side, stride in zip(layout.shape, layout.strides, strict=True)
        if stride < 0
    )
    starts = [(low // stride) % side for side, stride in zip(root, strides, strict=True)]
    counts, steps = [1] * len(root), [1] * len(root)
    turned: list[int] = []
    order: list[int] = []
    for side, stride in zip(layout.shape, layout.strides, strict=True):
        if side == 1 or not stride:
            continue
        axis = _axis_of(root, strides, starts, order, side, abs(stride))
        if axis is None:
            return _run(root, layout)
        order.append(axis)
        counts[axis], steps[axis] = side, abs(stride) // strides[axis]
        if stride < 0:
            turned.append(axis)
    core = tuple(
        side if stride else 1 for side, stride in zip(layout.shape, layout.strides, strict=True)
    )
    plan = Plan(root, tuple(counts), tuple(steps), tuple(turned), tuple(order), core, layout.shape)
    return plan, tuple(starts)


def _axis_of(
    root: Shape, strides: Shape, starts: list[int], used: list[int], side: int, stride: int
) -> int | None:
    for axis, (length, step) in enumerate(zip(root, strides, strict=True)):
        if axis in used or stride % step:
            continue
        if starts[axis] + (stride // step) * (side - 1) < length:
            return axis
    return None


def _run(root: Shape, layout: Layout) -> tuple[Plan, Shape] | None:
    """The plan of elements that follow one another: a slice of the flat array."""
    if not layout.is_contiguous:
        return None
    whole = (math.prod(root),)
    plan = Plan(whole, (layout.size,), (1,), (), (0,), layout.shape, layout.shape)
    return plan, (layout.offset,)
