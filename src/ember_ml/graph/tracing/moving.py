"""Ops that move elements as nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ember_ml.graph.tracing.operand import Operand
from ember_ml.graph.tracing.sizes import Size, sizes_in
from ember_ml.graph.tracing.trace import constant, current, emit

__all__ = [
    "EMITTERS",
    "concat",
    "expanded",
    "padded",
    "permuted",
    "placed",
    "reshaped",
    "squeezed",
    "unsqueezed",
]

Shape = tuple[int, ...]


def reshaped(x: Operand, shape: Shape) -> Operand:
    """The same elements in another shape, of which one side may be -1."""
    if any(type(side) is not Size and side == -1 for side in shape):
        place = next(i for i, s in enumerate(shape) if type(s) is not Size and s == -1)
        rest = math.prod([*shape[:place], *shape[place + 1 :]])
        whole = x.size // rest if rest else 0
        shape = (*shape[:place], whole, *shape[place + 1 :])
    array = x.shadow.reshape(tuple(map(int, shape)))
    if x.known and not sizes_in(shape):
        return constant(array)
    varying = [i for i, side in enumerate(shape) if type(side) is Size]
    trace = current()
    if len(varying) == 1 and 0 not in [int(side) for side in shape]:
        # One size follows from the others, whatever it is.
        given: Any = np.array([-1 if type(s) is Size else s for s in shape], np.int64)
        return emit("Reshape", [_traced(x), given], array, shape=shape)
    return emit("Reshape", [_traced(x), trace.sides(shape)], array, shape=shape, allowzero=1)


def _traced(x: Operand) -> Operand:
    """An operand with a value in the graph, also where it is a known constant."""
    if not x.known:
        return x
    return Operand(x.shadow, x.shape, current().value(x))


def expanded(x: Operand, shape: Shape) -> Operand:
    """An operand broadcast to a shape."""
    array = np.broadcast_to(x.shadow, tuple(map(int, shape)))
    if tuple(x.shape) == tuple(shape) and not sizes_in(shape):
        return x
    if x.known and not sizes_in(shape):
        return constant(array)
    return emit("Expand", [_traced(x), current().sides(shape)], array, shape=tuple(shape))


def permuted(x: Operand, axes: Sequence[int]) -> Operand:
    """An operand with its axes in another order."""
    order = [axis % x.ndim for axis in axes]
    if order == list(range(x.ndim)):
        return x
    shape = tuple(x.shape[axis] for axis in order)
    return emit("Transpose", [x], x.shadow.transpose(order), shape=shape, perm=order)


def squeezed(x: Operand, axes: Sequence[int]) -> Operand:
    """An operand without some axes of length one."""
    if not axes:
        return x
    shape = tuple(side for axis, side in enumerate(x.shape) if axis not in axes)
    array = x.shadow.reshape(tuple(map(int, shape)))
    return emit("Squeeze", [x, np.array(list(axes), np.int64)], array, shape=shape)


def unsqueezed(x: Operand, axes: Sequence[int]) -> Operand:
    """An operand with new axes of length one at some places of the result."""
    if not axes:
        return x
    sides = iter(x.shape)
    shape = tuple(1 if i in axes else next(sides) for i in range(x.ndim + len(axes)))
    array = x.shadow.reshape(tuple(map(int, shape)))
    return emit("Unsqueeze", [x, np.array(sorted(axes), np.int64)], array, shape=shape)


def concat(parts: Sequence[Operand], axis: int) -> Operand:
    """Operands one behind the other."""
    first = parts[0]
    place = axis % first.ndim
    total = parts[0].shape[place]
    for part in parts[1:]:
        total = total + part.shape[place]
    shape = list(first.shape)
    for part in parts[1:]:  # a known size says more than one that varies
        shape = [b if type(a) is Size else a for a, b in zip(shape, part.shape, strict=True)]
    shape[place] = total
    array = np.concatenate([part.shadow for part in parts], axis=place)
    return emit("Concat", list(parts), array, shape=tuple(shape), axis=place)


def padded(x: Operand, widths: Sequence[tuple[int, int]], value: float) -> Operand:
    """An operand with a number around it."""
    if not any(low or high for low, high in widths):
        return x
    shape = tuple(low + s + high for s, (low, high) in zip(x.shape, widths, strict=True))
    number = np.array(value).astype(x.dtype)
    ends = [low for low, _ in widths] + [high for _, high in widths]
    inner = x.shadow[tuple(slice(max(-int(a), 0), -max(-int(b), 0) or None) for a, b in widths)]
    plain = [(max(int(low), 0), max(int(high), 0)) for low, high in widths]
    array = np.pad(inner, plain, constant_values=number)
    return emit("Pad", [x, current().sides(ends), number], array, shape=shape)


def placed(x: Operand, starts: Sequence[int], steps: Sequence[int], shape: Shape) -> Operand:
    """Zeros of a shape with the elements of an operand at some places along each axis."""
    widths = []
    for axis in range(x.ndim):
        count, step = x.shape[axis], steps[axis]
        if step > 1:
            # Each element in a row of its own, with the zeros that follow it.
            inner = unsqueezed(x, [axis + 1])
            room = [(0, 0)] * inner.ndim
            room[axis + 1] = (0, step - 1)
            wide = padded(inner, room, 0)
            x = reshaped(wide, (*x.shape[:axis], count * step, *x.shape[axis + 1 :]))
        # The zeros behind the last element may not fit: a negative width cuts them off.
        widths.append((starts[axis], shape[axis] - starts[axis] - x.shape[axis]))
    return padded(x, widths, 0)


# --- Emitters: the NumPy kernel on the example's values, then what the kernel gets --------------


def reshape(eager: Any, x: Operand, shape: Any) -> Operand:
    return reshaped(x, tuple(shape) if isinstance(shape, tuple | list) else (shape,))


def broadcast_to(eager: Any, x: Operand, shape: Shape) -> Operand:
    return expanded(x, shape)


def filled(eager: Any, value: Operand, shape: Shape) -> Operand:
    return expanded(value, shape)


def permute_dims(eager: Any, x: Operand, axes: Sequence[int]) -> Operand:
    return permuted(x, axes)


def matrix_transpose(eager: Any, x: Operand) -> Operand:
    return permuted(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def expand_dims(eager: Any, x: Operand, axis: Any) -> Operand:
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    ndim = x.ndim + len(axes)
    return unsqueezed(x, [one % ndim for one in axes])


def squeeze(eager: Any, x: Operand, axis: Any) -> Operand:
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    return squeezed(x, [one % x.ndim for one in axes])


def concat_(eager: Any, parts: Sequence[Operand], axis: int = 0) -> Operand:
    return concat(list(parts), axis)


def stack(eager: Any, parts: Sequence[Operand], axis: int = 0) -> Operand:
    place = axis % (parts[0].ndim + 1)
    return concat([unsqueezed(part, [place]) for part in parts], place)


def tile(eager: Any, x: Operand, counts: Sequence[int]) -> Operand:
    wide = len(counts)
    x = unsqueezed(x, list(range(max(wide - x.ndim, 0))))
    full = (*(1,) * (x.ndim - wide), *counts)
    shape = tuple(side * count for side, count in zip(x.shape, full, strict=True))
    array = np.tile(x.shadow, tuple(map(int, full)))
    return emit("Tile", [x, current().sides(full)], array, shape=shape)


def roll(eager: Any, x: Operand, shift: Any, axis: Any = None) -> Operand:
    if axis is None:
        return reshaped(roll(eager, reshaped(x, (-1,)), shift, 0), x.shape)
    shifts: Any = shift if isinstance(shift, tuple | list) else (shift,)
    axes: Any = axis if isinstance(axis, tuple | list) else (axis,)
    if len(shifts) == 1 and len(axes) > 1:
        shifts = tuple(shifts) * len(axes)
    for by, one in zip(shifts, axes, strict=True):
        place = one % x.ndim
        side = x.shape[place]
        count = by % side if side else 0
        if type(count) is not Size and not count:
            continue
        before = (slice(None),) * place
        x = concat(
            [x[(*before, slice(side - count, None))], x[(*before, slice(0, side - count))]], place
        )
    return x


def _triangle(upper: int) -> Callable[..., Operand]:
    cut: Any = np.triu if upper else np.tril

    def run(eager: Any, x: Operand, k: int) -> Operand:
        return emit(
            "Trilu", [x, np.array(k, np.int64)], cut(x.shadow, k), shape=x.shape, upper=upper
        )

    return run


def pad_with(eager: Any, x: Operand, widths: Any, value: float) -> Operand:
    return padded(x, widths, value)


def repeat(eager: Any, x: Operand, counts: Any, axis: int) -> Any:
    """As often for all elements of an axis whose length varies: copies beside each, joined."""
    side = x.shape[axis]
    if type(side) is not Size or np.size(counts) != 1:
        return NotImplemented
    times = int(np.reshape(counts, ()))
    before, behind = x.shape[:axis], x.shape[axis + 1 :]
    wide = expanded(unsqueezed(x, [axis + 1]), (*before, side, times, *behind))
    return reshaped(wide, (*before, side * times, *behind))


def accumulate_at(eager: Any, x: Operand, key: tuple[slice, ...], part: Operand) -> Operand:
    """`x[key] += part` for slices that run forwards."""
    starts, steps = [], []
    for item, side in zip(key, x.shape, strict=False):
        first, _, step = item.indices(int(side))
        starts.append(item.start if item.start is not None else first)
        steps.append(step)
    rest = x.ndim - len(key)
    made: Operand = x + placed(part, [*starts, *[0] * rest], [*steps, *[1] * rest], x.shape)
    return made


def imag(eager: Any, x: Operand) -> Operand:
    return expanded(constant(np.zeros((), x.dtype)), x.shape)


EMITTERS: Final[dict[str, Callable[..., Any]]] = {
    "reshape": reshape,
    "broadcast_to": broadcast_to,
    "filled": filled,
    "repeat": repeat,
    "permute_dims": permute_dims,
    "matrix_transpose": matrix_transpose,
    "expand_dims": expand_dims,
    "squeeze": squeeze,
    "concat": concat_,
    "stack": stack,
    "tile": tile,
    "roll": roll,
    "tril": _triangle(0),
    "triu": _triangle(1),
    "pad_with": pad_with,
    "accumulate_at": accumulate_at,
    "imag": imag,
}
