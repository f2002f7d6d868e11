"""Ops that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from ember_ml.webnn.builder.base import BuilderBase, Call, Options
from ember_ml.webnn.numbers import cast_number
from ember_ml.webnn.operand import MLOperand
from ember_ml.webnn.shapes import broadcasts_to

__all__ = ["Moving"]

# By the specification: so many operands at once are the most.
_MOST_TENSORS: Final = 8192
_PAD_MODES: Final = {"constant": "constant", "edge": "edge", "reflection": "reflect"}


class Moving(BuilderBase):
    """concat, expand, pad, reshape, reverse, slice, split, tile, transpose."""

    def concat(
        self,
        inputs: Sequence[MLOperand],
        axis: int,
        options: Options = None,
        *,
        label: str = "",
    ) -> MLOperand:
        """Join operands along an axis; their other sizes are the same."""
        call = self._call("concat", options, label=label)
        given: object = inputs
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise call.fault(f"inputs is a sequence of operands, not {given!r}")
        if not 1 <= len(inputs) <= _MOST_TENSORS:
            raise call.fault(f"it takes 1 to {_MOST_TENSORS} inputs, not {len(inputs)}")
        parts = [call.operand(f"inputs[{i}]", x, "inputs") for i, x in enumerate(inputs)]
        first = parts[0]
        place = call.axis("axis", axis, len(first.shape))
        for number, part in enumerate(parts):
            call.same_type(f"inputs[{number}]", part, first)
            if _without(part.shape, place) != _without(first.shape, place):
                raise call.fault(
                    f"inputs[{number}] of {list(part.shape)} does not go beside "
                    f"{list(first.shape)}: sizes other than of axis {place} are the same"
                )
        shape = list(first.shape)
        shape[place] = sum(part.shape[place] for part in parts)
        value = call.node("Concat", parts, first.data_type, shape, axis=place)
        return call.result(value, first.data_type, shape)

    def expand(
        self,
        input: MLOperand,
        new_shape: Sequence[int],
        options: Options = None,
        *,
        label: str = "",
    ) -> MLOperand:
        """Broadcast to a shape."""
        call = self._call("expand", options, label=label)
        x = call.operand("input", input)
        shape = call.sizes("new_shape", new_shape)
        if not broadcasts_to(x.shape, shape):
            raise call.fault(f"{list(x.shape)} is not broadcastable to {list(shape)}")
        value = call.node("Expand", [x, call.int64s(shape)], x.data_type, shape)
        return call.result(value, x.data_type, shape)

    def pad(
        self,
        input: MLOperand,
        beginning_padding: Sequence[int],
        ending_padding: Sequence[int],
        options: Options = None,
        *,
        mode: str = "constant",
        value: float = 0,
        label: str = "",
    ) -> MLOperand:
        """Make each axis longer at both ends.

        `mode` is "constant" (with `value`), "edge" (the outermost element again) or
        "reflection" (the elements before it, backwards).
        """
        call = self._call("pad", options, mode=mode, value=value, label=label)
        x = call.operand("input", input)
        before = call.sizes("beginning_padding", beginning_padding)
        after = call.sizes("ending_padding", ending_padding)
        if len(before) != len(x.shape) or len(after) != len(x.shape):
            raise call.fault(
                f"the input has {len(x.shape)} axes; {len(before)} beginning and "
                f"{len(after)} ending paddings came"
            )
        how = call.choice("mode", tuple(_PAD_MODES))
        if how == "reflection" and any(
            extra >= size for size, extra in zip(x.shape * 2, before + after, strict=True)
        ):
            raise call.fault(
                "reflection pads an axis by less than its size; "
                f"{list(x.shape)} with {list(before)} before and {list(after)} after came"
            )
        shape = [n + p + q for n, p, q in zip(x.shape, before, after, strict=True)]
        filling = cast_number(_number(call, "value"), x.data_type)
        if not any(before + after):
            made = call.node("Identity", [x])
        else:
            pads = call.int64s(before + after)
            constant = call.constant(filling, x.data_type) if how == "constant" else None
            made = call.node("Pad", [x, pads, constant], x.data_type, shape, mode=_PAD_MODES[how])
        return call.result(made, x.data_type, shape)

    def reshape(
        self,
        input: MLOperand,
        new_shape: Sequence[int],
        options: Options = None,
        *,
        label: str = "",
    ) -> MLOperand:
        """The same elements in another shape."""
        call = self._call("reshape", options, label=label)
        x = call.operand("input", input)
        shape = call.sizes("new_shape", new_shape)
        if prod(shape) != prod(x.shape):
            raise call.fault(
                f"{list(x.shape)} has {prod(x.shape)} elements, and {list(shape)} has {prod(shape)}"
            )
        value = call.node("Reshape", [x, call.int64s(shape)], x.data_type, shape)
        return call.result(value, x.data_type, shape)

    def reverse(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        axes: Sequence[int] | None = None,
        label: str = "",
    ) -> MLOperand:
        """Turn axes round, or all of them."""
        call = self._call("reverse", options, axes=axes, label=label)
        x = call.operand("input", input)
        rank = len(x.shape)
        turned = tuple(range(rank)) if call["axes"] is None else distinct_axes(call, rank)
        if not turned:
            return call.result(call.node("Identity", [x]), x.data_type, x.shape)
        # An end of -(size + 1) lies before the first element, whoever reads it.
        value = call.node(
            "Slice",
            [
                x,
                call.int64s([-1] * len(turned)),
                call.int64s([-x.shape[axis] - 1 for axis in turned]),
                call.int64s(turned),
                call.int64s([-1] * len(turned)),
            ],
        )
        return call.result(value, x.data_type, x.shape)

    def slice(
        self,
        input: MLOperand,
        starts: Sequence[int],
        sizes: Sequence[int],
        options: Options = None,
        *,
        strides: Sequence[int] | None = None,
        label: str = "",
    ) -> MLOperand:
        """A part: `sizes` elements of each axis from `starts` on, every `strides`-th of them."""
        call = self._call("slice", options, strides=strides, label=label)
        x = call.operand("input", input)
        rank = len(x.shape)
        first, lengths = call.sizes("starts", starts), call.sizes("sizes", sizes)
        steps = (1,) * rank if call["strides"] is None else call.sizes("strides")
        for name, given in (("starts", first), ("sizes", lengths), ("strides", steps)):
            if len(given) != rank:
                raise call.fault(f"the input has {rank} axes, and {name} {len(given)} entries")
        if 0 in lengths or 0 in steps:
            raise call.fault(
                f"sizes and strides are 1 at least; {list(lengths)} and {list(steps)} came"
            )
        # The specification allows more, and the web platform's tests do not.
        if any(step > length for step, length in zip(steps, lengths, strict=True)):
            raise call.fault(f"strides {list(steps)} are longer than sizes {list(lengths)}")
        ends = [start + length for start, length in zip(first, lengths, strict=True)]
        if any(end > size for end, size in zip(ends, x.shape, strict=True)):
            raise call.fault(
                f"{list(lengths)} elements from {list(first)} on are not within {list(x.shape)}"
            )
        shape = [-(-length // step) for length, step in zip(lengths, steps, strict=True)]
        if rank == 0:
            return call.result(call.node("Identity", [x]), x.data_type, shape)
        value = call.node(
            "Slice",
            [x, *(call.int64s(part) for part in (first, ends, range(rank), steps))],
            x.data_type,
            shape,
        )
        return call.result(value, x.data_type, shape)

    def split(
        self,
        input: MLOperand,
        splits: int | Sequence[int],
        options: Options = None,
        *,
        axis: int = 0,
        label: str = "",
    ) -> list[MLOperand]:
        """Cut along an axis: into so many equal parts, or into parts of these sizes."""
        call = self._call("split", options, axis=axis, label=label)
        x = call.operand("input", input)
        place = call.axis("axis", call["axis"], len(x.shape))
        size = x.shape[place]
        if isinstance(splits, int | np.integer):
            count = call.unsigned("splits", splits)
            if not 1 <= count <= _MOST_TENSORS or size % count:
                raise call.fault(f"axis {place} of size {size} has no {count} equal parts")
            lengths: tuple[int, ...] = (size // count,) * count
        else:
            lengths = call.sizes("splits", splits)
            if not 1 <= len(lengths) <= _MOST_TENSORS:
                raise call.fault(f"it gives 1 to {_MOST_TENSORS} parts, not {len(lengths)}")
            if 0 in lengths or sum(lengths) != size:
                raise call.fault(
                    f"parts of {list(lengths)} do not make up axis {place} of size {size}"
                )
        shapes = [(*x.shape[:place], length, *x.shape[place + 1 :]) for length in lengths]
        values = call.nodes(
            "Split",
            [x, call.int64s(lengths)],
            [(x.data_type, shape) for shape in shapes],
            axis=place,
        )
        return [
            call.result(value, x.data_type, shape)
            for value, shape in zip(values, shapes, strict=True)
        ]

    def tile(
        self,
        input: MLOperand,
        repetitions: Sequence[int],
        options: Options = None,
        *,
        label: str = "",
    ) -> MLOperand:
        """Repeat the whole along each axis."""
        call = self._call("tile", options, label=label)
        x = call.operand("input", input)
        times = call.sizes("repetitions", repetitions)
        if len(times) != len(x.shape):
            raise call.fault(f"the input has {len(x.shape)} axes; {len(times)} repetitions came")
        if 0 in times:
            raise call.fault(f"repetitions are 1 at least; {list(times)} came")
        shape = [size * count for size, count in zip(x.shape, times, strict=True)]
        if all(count == 1 for count in times):
            return call.result(call.node("Identity", [x]), x.data_type, shape)
        value = call.node("Tile", [x, call.int64s(times)], x.data_type, shape)
        return call.result(value, x.data_type, shape)

    def transpose(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        permutation: Sequence[int] | None = None,
        label: str = "",
    ) -> MLOperand:
        """The axes in another order, or in the reverse one."""
        call = self._call("transpose", options, permutation=permutation, label=label)
        x = call.operand("input", input)
        rank = len(x.shape)
        order = tuple(reversed(range(rank)))
        if call["permutation"] is not None:
            order = call.sizes("permutation")
            if sorted(order) != list(range(rank)):
                raise call.fault(
                    f"permutation has each axis from 0 to {rank - 1} once; {list(order)} came"
                )
        shape = [x.shape[axis] for axis in order]
        if rank == 0:
            return call.result(call.node("Identity", [x]), x.data_type, shape)
        value = call.node("Transpose", [x], x.data_type, shape, perm=list(order))
        return call.result(value, x.data_type, shape)


def distinct_axes(call: Call, rank: int, name: str = "axes") -> tuple[int, ...]:
    """An option that lists axes, none of them twice."""
    given = call.sizes(name)
    if any(axis >= rank for axis in given):
        raise call.fault(f"{name} is {list(given)}, and there are {rank} axes")
    if len(set(given)) < len(given):
        raise call.fault(f"{name} has an axis twice: {list(given)}")
    return given


def _number(call: Call, name: str) -> float:
    """An option that is a number of any kind: integers stay exact, NaN and infinity are allowed."""
    given: Any = call[name]
    if isinstance(given, bool) or not isinstance(given, int | float | np.number):
        raise call.fault(f"{name} is a number, not {given!r}")
    if isinstance(given, int | np.integer):
        return int(given)
    return float(given)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], -1, *shape[axis + 1 :])
