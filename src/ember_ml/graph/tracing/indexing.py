"""`x[key]` and `x[key] = value` as nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ember_ml.errors import TraceError
from ember_ml.graph.tracing.elementwise import choose
from ember_ml.graph.tracing.lines import user_line
from ember_ml.graph.tracing.moving import (
    concat,
    expanded,
    permuted,
    reshaped,
    squeezed,
    unsqueezed,
)
from ember_ml.graph.tracing.operand import Operand
from ember_ml.graph.tracing.sizes import Size, never_negative, sizes_in
from ember_ml.graph.tracing.trace import constant, current, dims, emit, size_operand

__all__ = ["get", "put", "ranged"]

_END: Final = np.iinfo(np.int64).max
_ALL: Final = slice(None)
Key = tuple[Any, ...]


def get(x: Operand, key: Key) -> Operand:
    """The elements at a key of ints, slices, None, ... and operands."""
    items = _spread(x, key)
    advanced = any(isinstance(item, Operand) for item in items)
    if all(_is_known(one) for one in (x, *items)) and not _varies(items):
        return constant(x.shadow[_plain(key)])
    return _advanced(x, items, _stand_apart(key)) if advanced else _basic(x, items)


def _plain(key: Key) -> Key:
    """A key of known operands with their values, as NumPy takes it."""
    return tuple(item.shadow if isinstance(item, Operand) else item for item in key)


def _stand_apart(key: Key) -> bool:
    """True where something stands between arrays and ints, be it an ellipsis of no axes."""
    places = [
        i for i, item in enumerate(key) if isinstance(item, int | Operand | np.ndarray | list)
    ]
    return places[-1] - places[0] + 1 != len(places)


def _varies(items: Sequence[Any]) -> bool:
    return any(
        type(item) is Size
        or (isinstance(item, slice) and sizes_in((item.start, item.stop, item.step)))
        for item in items
    )


def _spread(x: Operand, key: Key) -> list[Any]:
    """A key with one item for each axis."""
    used = sum(_span(item) for item in key if item is not Ellipsis)
    items: list[Any] = []
    seen = False
    for item in key:
        if item is Ellipsis:
            seen = True
            items.extend([_ALL] * (x.ndim - used))
        elif isinstance(item, np.ndarray | list):
            items.append(constant(np.asarray(item)))
        elif type(item) is Size:
            # Which may be negative in one run and not in the other, as an index of a slice may not.
            items.append(size_operand(item))
        else:
            items.append(item)
    if not seen:
        items.extend([_ALL] * (x.ndim - used))
    return items


def _span(item: Any) -> int:
    if item is None:
        return 0
    if isinstance(item, Operand | np.ndarray) and item.dtype == np.bool_:
        return int(item.ndim)
    return 1


# --- Ints and slices ----------------------------------------------------------------------------


def _trimmed(x: Operand, items: Sequence[Any]) -> tuple[Operand, list[Any]]:
    """Cut off what lies behind the start of a slice that runs backwards.

    NumPy picks nothing where some run has no such place; ONNX would begin at the first element.
    """
    made: list[Any] = []
    for item in items:
        axis = sum(one is not None for one in made)
        if (
            isinstance(item, slice)
            and type(x.shape[axis]) is Size
            and type(item.start) is int
            and item.start < -1
            and (item.step or 1) < 0
        ):
            past, stop = item.start + 1, item.stop
            x = get(x, (*[_ALL] * axis, slice(None, past)))
            if type(stop) is int and stop < 0:
                item = slice(None, stop - past, item.step) if stop < past else slice(0, 0)
            else:
                item = slice(None, stop, item.step)
        made.append(item)
    return x, made


def _basic(x: Operand, items: Sequence[Any]) -> Operand:
    x, items = _trimmed(x, items)
    starts: list[int] = []
    ends: list[int] = []
    steps: list[int] = []
    axes: list[int] = []
    sides: list[int | None] = []
    dropped: list[int] = []
    added: list[int] = []
    axis = place = 0
    for item in items:
        if item is None:
            added.append(place)
            place += 1
            continue
        side = x.shape[axis]
        if isinstance(item, slice):
            if item != _ALL:
                length = _cut(item, side, starts, ends, steps)
                if length is not _KEPT:
                    axes.append(axis)
                    sides.append(length)
                    side = length
                    axis += 1
                    place += 1
                    continue
            sides.append(side)
            place += 1
        else:
            starts.append(item)
            ends.append(item + 1 if int(item) != -1 else _END)
            steps.append(1)
            axes.append(axis)
            sides.append(1)
            dropped.append(axis)
        axis += 1
    out = _sliced(x, starts, ends, steps, axes, sides) if axes else x
    out = squeezed(out, dropped)
    return unsqueezed(out, added)


_KEPT: Final[Any] = object()


def _cut(item: slice, side: int, starts: list[int], ends: list[int], steps: list[int]) -> Any:
    """Take a slice; gives the length that it leaves, None where only the node can tell."""
    step = 1 if item.step is None else item.step
    first, last, _ = item.indices(int(side))
    length = len(range(first, last, step))
    varying = type(side) is Size or sizes_in((item.start, item.stop))
    if not varying:
        if length == side and step == 1:
            return _KEPT
        if not length:  # where NumPy stops before the first, ONNX would read -1 as the last
            first, last, step = 0, 0, 1
        starts.append(first)
        ends.append(last if last >= 0 else -_END)
        steps.append(step)
        return length
    if step > 0:
        low = 0 if item.start is None else item.start
        high: Any = _END if item.stop is None else item.stop
    else:
        low = _END if item.start is None else item.start
        high = -_END if item.stop is None else item.stop
    starts.append(low)
    ends.append(high)
    steps.append(step)
    if step > 0:
        begin = low if int(low) >= 0 else side + low
        stop = side if item.stop is None else (high if int(high) >= 0 else side + high)
        # `x[:3]` has fewer than three where there are fewer: then only the node can tell.
        if all(map(never_negative, (begin, stop - begin, side - stop))):
            return (stop - begin + step - 1) // step
    elif step == -1 and item.start is None and item.stop is None:
        return side
    return None


def _sliced(
    x: Operand,
    starts: list[int],
    ends: list[int],
    steps: list[int],
    axes: list[int],
    sides: list[int | None],
) -> Operand:
    trace = current()
    key: list[Any] = [_ALL] * x.ndim
    for axis, first, last, step in zip(axes, starts, ends, steps, strict=True):
        stop = None if int(last) in (_END, -_END) else int(last)
        start = None if int(first) == _END else int(first)
        key[axis] = slice(start, stop, int(step))
    array = x.shadow[tuple(key)]
    known = None if any(side is None for side in sides) else tuple(sides)
    inputs = [x, *(trace.sides(part) for part in (starts, ends, axes, steps))]
    if x.known:
        inputs[0] = Operand(x.shadow, x.shape, trace.value(x))
    made = emit("Slice", inputs, array, shape=known)  # type: ignore[arg-type]  # no None is left
    if known is None:
        shape = tuple(
            Size.named(("shape", made.value, axis), int(n)) if side is None else side
            for axis, (side, n) in enumerate(zip(sides, array.shape, strict=True))
        )
        if made.value is not None:
            made.value.shape = dims(shape)
        return Operand(made.shadow, shape, made.value)
    return made


# --- Arrays of indices --------------------------------------------------------------------------


def _integers(item: Operand) -> list[Operand]:
    if item.dtype != np.bool_:
        return [item]
    if not item.known:
        raise TraceError(
            "em.export: a traced mask picks a number of elements that no graph of known shapes "
            f"has; use ops.where{user_line()}"
        )
    found = np.nonzero(item.shadow) if item.ndim else (np.zeros(int(item.shadow), np.int64),)
    return [constant(indices) for indices in found]


def _advanced(x: Operand, items: Sequence[Any], apart: bool) -> Operand:
    """Slices and new axes first, then all arrays at once, as NumPy orders them."""
    basic: list[Any] = []
    axes: list[int] = []
    arrays: list[Operand] = []
    axis = 0
    for item in items:
        if isinstance(item, int):  # beside arrays it is one of them, of no axes
            arrays.append(constant(np.array(int(item))))
            axes.append(axis)
            basic.append(_ALL)
            axis += 1
        elif isinstance(item, Operand):
            for array in _integers(item):
                arrays.append(array)
                axes.append(axis)
                axis += 1
            basic.extend([_ALL] * _span(item) or [None])
        else:
            basic.append(item)
            axis += 1
    inner = _basic(x, basic)
    if len(arrays) == 1:
        made = taken(inner, arrays[0], axes[0])
        return _moved(made, arrays[0].ndim, axes[0], 0) if apart else made
    made = _gathered(inner, axes, arrays)
    count = max(a.ndim for a in arrays)
    return made if apart else _moved(made, count, 0, axes[0])


def taken(x: Operand, indices: Operand, axis: int) -> Operand:
    """Elements at indices along an axis."""
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    array = np.take(x.shadow, indices.shadow, axis=axis, mode=_mode(x, indices, axis))
    return emit("Gather", [x, indices], array, shape=shape, axis=axis)


def _mode(x: Operand, indices: Operand, axis: int) -> Any:
    # Indices of the example are no mistake of the function, but shapes are.
    if indices.known or not x.shadow.shape[axis]:
        return "raise"
    return "wrap"


def _gathered(x: Operand, axes: Sequence[int], arrays: Sequence[Operand]) -> Operand:
    """Elements at several arrays of indices; their axes come first."""
    from ember_ml.graph.tracing.trace import broadcast

    shape = broadcast([a.shape for a in arrays])
    if shape is None:
        raise IndexError("the arrays of a key do not broadcast")
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    sides = (*shape, *(x.shape[axis] for axis in rest))
    if any(type(side) is not Size and not side for side in shape):
        # Of indices that pick nothing ONNX Runtime reads some all the same.
        return expanded(constant(np.zeros((), x.dtype)), sides)
    columns = [unsqueezed(expanded(a, shape), [len(shape)]) for a in arrays]
    places = columns[0] if len(columns) == 1 else concat(columns, len(shape))
    front = permuted(x, (*axes, *rest))
    modes = [np.mod(a.shadow, max(x.shadow.shape[i], 1)) for a, i in zip(arrays, axes, strict=True)]
    array = front.shadow[tuple(np.broadcast_arrays(*modes))]
    return emit("GatherND", [front, places], array, shape=sides)


def _moved(x: Operand, count: int, source: int, target: int) -> Operand:
    """`count` neighbouring axes moved from one place to another."""
    if source == target or not count:
        return x
    rest = [i for i in range(x.ndim) if not source <= i < source + count]
    return permuted(x, [*rest[:target], *range(source, source + count), *rest[target:]])


# --- Writing ------------------------------------------------------------------------------------


def ranged(shape: Sequence[int]) -> Operand:
    """0, 1, 2 ... in a shape."""
    count = math.prod(shape)
    if not sizes_in(shape):
        return constant(np.arange(count, dtype=np.int64).reshape(tuple(shape)))
    trace = current()
    limit = Operand(np.array([int(count)]), (1,), trace.size(count))
    scalar = emit("Squeeze", [limit, np.array([0])], np.array(int(count)), shape=())
    numbers = np.arange(int(count), dtype=np.int64)
    made = emit("Range", [np.int64(0), scalar, np.int64(1)], numbers, shape=(count,), like=1)
    return reshaped(made, tuple(shape))


def put(x: Operand, key: Key, value: Operand) -> Operand:
    """The operand with a value at a key."""
    items = _spread(x, key)
    if all(_is_known(one) for one in (x, value, *items)) and not _varies(items):
        whole = x.shadow.copy()
        whole[_plain(key)] = value.shadow
        return constant(whole)
    masks = [i for i in items if isinstance(i, Operand) and i.dtype == np.bool_ and not i.known]
    if masks:
        return _masked(x, items, masks, value)
    if not any(item is None or isinstance(item, Operand) for item in items):
        value = _fitted(value, x.ndim)
        joined = _joined(x, items, value)
        if joined is not None:
            return joined
    places = get(ranged(x.shape), key)
    value = _fitted(value, places.ndim)
    flat, count = reshaped(places, (-1,)), math.prod(places.shape)
    values = reshaped(expanded(value, places.shape), (count,))
    array = x.shadow.reshape(-1).copy()
    array[flat.shadow] = values.shadow
    made = emit(
        "ScatterElements", [reshaped(x, (-1,)), flat, values], array, shape=(x.size,), axis=0
    )
    return reshaped(made, x.shape)


def _is_known(item: Any) -> bool:
    return not isinstance(item, Operand) or item.known


def _fitted(value: Operand, ndim: int) -> Operand:
    """A value without leading axes of length one that its place has not."""
    excess = value.ndim - ndim
    return squeezed(value, list(range(excess))) if excess > 0 else value


def _masked(x: Operand, items: Sequence[Any], masks: Sequence[Operand], value: Operand) -> Operand:
    rest = [i for i in items if not (isinstance(i, slice) and i == _ALL)]
    if len(rest) != 1 or value.ndim > x.ndim - masks[0].ndim:
        raise TraceError(
            "em.export: x[mask] = value with a traced mask takes one value for all places, and no "
            f"other index; use ops.where{user_line()}"
        )
    mask = masks[0]
    before = next(i for i, item in enumerate(items) if item is mask)
    mask = unsqueezed(mask, list(range(before + mask.ndim, x.ndim)))
    return choose(mask, value, x)


def _joined(x: Operand, items: Sequence[Any], value: Operand) -> Operand | None:
    """The parts before and behind a slice around the value; None where the key is another."""
    odd = [i for i, item in enumerate(items) if not (isinstance(item, slice) and item == _ALL)]
    if len(odd) > 1:
        return None
    if not odd:
        return expanded(value, x.shape)
    axis, item = odd[0], items[odd[0]]
    if type(x.shape[axis]) is Size:
        # Places beyond a size of some run must not become part of the result.
        ends = (item.start, item.stop) if isinstance(item, slice) else (item,)
        if any(type(end) is not Size and end not in (None, 0, -1) for end in ends):
            return None
    if isinstance(item, slice):
        if item.step not in (None, 1):
            return None
        first, last = item.start or 0, item.stop
        if int(first) < 0:
            first = x.shape[axis] + first
        if last is None or int(last) > int(x.shape[axis]):
            last = x.shape[axis]
        elif int(last) < 0:
            last = x.shape[axis] + last
        if not 0 <= int(first) < int(last):
            return None
        shape = (*x.shape[:axis], last - first, *x.shape[axis + 1 :])
        part = expanded(value, shape)
    else:
        first = item if int(item) >= 0 else x.shape[axis] + item
        last = first + 1
        part = expanded(value, (*x.shape[:axis], *x.shape[axis + 1 :]))
        part = unsqueezed(part, [axis])
    before = (_ALL,) * axis
    parts = [part]
    if int(first) > 0:
        parts.insert(0, get(x, (*before, slice(0, first))))
    if int(last) < int(x.shape[axis]):
        parts.append(get(x, (*before, slice(last, None))))
    return parts[0] if len(parts) == 1 else concat(parts, axis)
