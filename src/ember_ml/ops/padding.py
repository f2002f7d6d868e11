"""Padding: elements around a tensor, in all of NumPy's modes.

An axis is padded after the one before it, and sees what that has added, as in NumPy. Where
padding repeats elements, the host works out which, and one `take` brings them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.autodiff.tape import recorded
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.ops import creation, elementwise, indexing, manipulation, reduction, searching
from ember_ml.ops.axes import axis_of
from ember_ml.ops.fitting import beside, fitting, take_static
from ember_ml.ops.registry import op
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill
from ember_ml.typing import TensorLike

__all__: list[str] = ["pad"]

_REPEATING: Final = ("edge", "reflect", "symmetric", "wrap")
_Padder = Callable[[Tensor, int, tuple[int, int], Any], Tensor]


@op(standard=False)
def pad(
    x: TensorLike,
    /,
    pad_width: Any,
    mode: str = "constant",
    *,
    constant_values: Any = 0,
    end_values: Any = 0,
    stat_length: Any = None,
    reflect_type: str = "even",
) -> Tensor:
    """`x` with elements added before and behind each axis.

    `pad_width` is one number for all, a pair (before, behind) for all axes, a list of a pair for
    each axis, or a dict from axes to numbers or pairs; `constant_values`, `end_values` and
    `stat_length` are written in the same way. The modes are "constant", "edge", "linear_ramp",
    "maximum", "mean", "median", "minimum", "reflect", "symmetric", "wrap" and "empty".

    >>> pad([1, 2, 3], 1).tolist(), pad([1, 2, 3], (0, 2), "reflect").tolist()
    ([0, 1, 2, 3, 0], [1, 2, 3, 2, 1])
    """
    tensor = convert.to_tensor(x)
    widths = _widths(pad_width, tensor.ndim)
    if mode in ("constant", "empty"):
        values = _pairs("constant_values", constant_values, tensor.ndim)
        return _constant(tensor, widths, values if mode == "constant" else [(0, 0)] * tensor.ndim)
    if mode in _REPEATING:
        if reflect_type not in ("even", "odd"):
            raise DomainError(f"ops.pad takes reflect_type 'even' or 'odd', not {reflect_type!r}")
        odd = reflect_type == "odd" and mode in ("reflect", "symmetric")
        if odd and tensor.dtype is dtypes.bool:
            raise DTypeError("ops.pad with reflect_type='odd' takes numbers, not bool")
        options: list[Any] = [mode] * tensor.ndim
        return _each_axis(tensor, widths, _odd if odd else _repeat, options)
    if mode == "linear_ramp":
        return _each_axis(tensor, widths, _ramp, _pairs("end_values", end_values, tensor.ndim))
    statistic = _STATISTICS.get(mode)
    if statistic is None:
        known = ", ".join(("constant", "empty", "linear_ramp", *_REPEATING, *_STATISTICS))
        raise DomainError(f"ops.pad takes mode {known}, not {mode!r}")
    lengths = [(statistic, pair) for pair in _pairs("stat_length", stat_length, tensor.ndim)]
    return _each_axis(tensor, widths, _statistic, lengths)


# --- Reading what users write ---------------------------------------------------------------


def _widths(given: Any, ndim: int) -> list[tuple[int, int]]:
    if isinstance(given, dict):
        chosen = [(0, 0)] * ndim
        for axis, width in given.items():
            pair = width if isinstance(width, tuple | list) else (width, width)
            chosen[axis_of("pad", axis, ndim)] = (pair[0], pair[1])
        given = chosen if ndim else 0
    widths = _pairs("pad_width", given, ndim, whole=True)
    if any(not isinstance(n, int | np.integer) for pair in widths for n in pair):
        raise DTypeError(f"ops.pad takes integer widths, not {given!r}")
    if any(n < 0 for pair in widths for n in pair):
        raise DomainError(f"ops.pad got pad_width {given!r}; a width is not negative")
    return [(_plain(before), _plain(behind)) for before, behind in widths]


def _plain(width: Any) -> int:
    """A Python number; a size that varies, in a function that is exported, stays one."""
    return width if isinstance(width, int) and type(width) is not bool else int(width)


def _pairs(name: str, given: Any, ndim: int, *, whole: bool = False) -> list[tuple[Any, Any]]:
    """A pair for each axis: of one value, of one pair, or of a list of them."""
    if given is None:
        return [(None, None)] * ndim
    if isinstance(given, Tensor):
        given = given.numpy()
    if isinstance(given, np.ndarray | np.generic):
        given = given.tolist()
    try:
        array = np.array(given)
        if whole and array.dtype.kind in "iu":  # sizes that vary are more than their numbers
            array = np.array(given, dtype=object)
        spread = np.broadcast_to(array, (ndim, 2)).tolist()
    except ValueError:
        raise ShapeError(
            f"ops.pad got {name} {given!r} for a tensor of {ndim} axes; "
            f"give a number, a pair, or a pair for each axis"
        ) from None
    return [(before, behind) for before, behind in spread]


# --- The modes ------------------------------------------------------------------------------


def _each_axis(
    x: Tensor, widths: list[tuple[int, int]], padder: _Padder, options: list[Any]
) -> Tensor:
    for axis, (width, option) in enumerate(zip(widths, options, strict=True)):
        if width == (0, 0):
            continue
        if not x.shape[axis]:
            raise ShapeError(
                f"ops.pad got shape {x.shape}, whose axis {axis} has no element to go by; "
                f"use mode 'constant'"
            )
        x = padder(x, axis, width, option)
    return x


def _constant(x: Tensor, widths: list[tuple[int, int]], values: list[tuple[Any, Any]]) -> Tensor:
    numbers = {value for pair in values for value in pair}
    if len(numbers) <= 1:
        return _placed(x, widths, numbers.pop() if numbers else 0)
    for axis, (width, (before, behind)) in enumerate(zip(widths, values, strict=True)):
        x = _around(
            x,
            axis,
            _block(x, axis, width[0], fitting("pad", x, before)),
            _block(x, axis, width[1], fitting("pad", x, behind)),
        )
    return x


def _placed(x: Tensor, widths: list[tuple[int, int]], value: Any) -> Tensor:
    """One value all around: the tensor is written into a new one."""
    spec, backend = x._spec, x._spec.backend
    if spec.dtype is dtypes.bool and value in (0, 1):
        value = bool(value)  # the default is a number
    if dtypes.scalar_dtype(value, spec.dtype, "pad") is not spec.dtype:
        raise DTypeError(f"ops.pad got {value!r}, which does not fit a {spec.dtype} tensor")
    shape = tuple(n + sum(width) for n, width in zip(x.shape, widths, strict=True))
    if shape == x.shape:
        return x.copy()
    number = spec._checked(value)
    surround = backend.overrides.get("surround")
    if surround is not None:  # where arrays cannot be written, the engine may have a shorter way
        native = surround(x.native, tuple(widths), spec.scalar(number))
    else:
        key = tuple(slice(first, first + n) for n, (first, _) in zip(x.shape, widths, strict=True))
        native = backend.full(shape, number, spec)
        if x.size:
            native = backend.setitem(native, key, x.native)
    if type(x) is GradTensor:
        return recorded("surround", native, spec, (x,), (tuple(widths),))
    return fill(native, spec)


def _block(x: Tensor, axis: int, width: int, value: Tensor) -> Tensor:
    shape = (*x.shape[:axis], width, *x.shape[axis + 1 :])
    return manipulation.broadcast_to(value, shape)


def _around(x: Tensor, axis: int, before: Tensor, behind: Tensor) -> Tensor:
    parts = [part for part in (before, x, behind) if part.shape[axis] or part is x]
    return manipulation.concat(parts, axis=axis) if len(parts) > 1 else x


def _repeat(x: Tensor, axis: int, width: tuple[int, int], mode: str) -> Tensor:
    if type(x.shape[axis]) is not int:
        return indexing.take(x, _places(x.shape[axis], width, mode), axis=axis)
    # Padding the numbers of the elements tells which elements come.
    return take_static(x, np.pad(np.arange(x.shape[axis]), width, mode), axis)  # type: ignore[call-overload]  # a mode that is a variable


def _places(side: int, width: tuple[int, int], mode: str) -> Tensor:
    """Which elements come, of an axis whose length varies in a function that is exported."""
    places = creation.arange(-width[0], side + width[1])
    if mode == "edge":
        return elementwise.clip(places, 0, side - 1)
    if mode == "wrap":
        return elementwise.remainder(places, side)
    # There and back. A single element comes again and again.
    last = 2 * side - 2 if mode == "reflect" else 2 * side - 1
    period: Any = (
        last + 1 if mode == "symmetric" else elementwise.maximum(last, creation.asarray(1))
    )
    rest = elementwise.remainder(places, period)
    return elementwise.minimum(rest, elementwise.subtract(last, rest))


def _odd(x: Tensor, axis: int, width: tuple[int, int], mode: str) -> Tensor:
    """Reflections turned upside down: about an edge e, a value v becomes 2 e - v.

    After two reflections, values come again, moved by twice the difference of the edges.
    """
    side = x.shape[axis]
    if side == 1:
        return _repeat(x, axis, width, "edge")
    period = side - 1 if mode == "reflect" else side
    places = np.arange(-width[0], side + width[1])
    rounds, rest = np.divmod(places, 2 * period)
    turned = rest >= side
    mirror = 2 * period - rest - (mode == "symmetric")
    values = take_static(x, np.where(turned, mirror, rest), axis)
    first, last = (take_static(x, np.array([i]), axis) for i in (0, side - 1))
    shape = tuple(-1 if i == axis else 1 for i in range(x.ndim))
    flipped = searching.where(
        beside(x, turned.reshape(shape)),
        elementwise.subtract(elementwise.add(last, last), values),
        values,
    )
    with np.errstate(all="ignore"):
        times = beside(x, (2 * rounds).astype(x.dtype.numpy).reshape(shape))
    drift = elementwise.multiply(elementwise.subtract(last, first), times)
    # Within the tensor nothing is added, so that infinities stay what they are.
    return searching.where(
        beside(x, (rounds == 0).reshape(shape)), flipped, elementwise.add(flipped, drift)
    )


def _ramp(x: Tensor, axis: int, width: tuple[int, int], ends: tuple[Any, Any]) -> Tensor:
    """A straight way from the end value to the edge; of integers, rounded down."""
    blocks: list[Tensor] = []
    for place, count, end in zip((0, x.shape[axis] - 1), width, ends, strict=True):
        edge = take_static(x, np.array([place]), axis)
        shape = tuple(count if i == axis else 1 for i in range(x.ndim))
        steps = np.arange(count)
        if blocks:  # the second way leads from the edge
            steps = steps[::-1]
        blocks.append(_line(edge, end, steps.reshape(shape), count))
    return _around(x, axis, blocks[0], blocks[1])


def _line(edge: Tensor, end: Any, steps: np.ndarray[Any, Any], count: int) -> Tensor:
    dtype = edge.dtype
    start = fitting("pad", edge, end)
    if dtype is dtypes.bool:
        raise DTypeError("ops.pad with mode 'linear_ramp' takes numbers, not bool")
    if dtype.is_integer:
        wide, first = convert.cast(edge, dtypes.int64), convert.cast(start, dtypes.int64)
        way = elementwise.multiply(elementwise.subtract(wide, first), beside(edge, steps))
        return convert.cast(
            elementwise.add(first, elementwise.floor_divide(way, max(count, 1))), dtype
        )
    run = dtypes.float32 if dtype in (dtypes.float16, dtypes.bfloat16) else dtype
    wide, first = convert.cast(edge, run), convert.cast(start, run)
    parts = beside(edge, (steps / max(count, 1)).astype(run.numpy))
    way = elementwise.multiply(elementwise.subtract(wide, first), parts)
    return convert.cast(elementwise.add(first, way), dtype)


# --- Statistics -----------------------------------------------------------------------------


def _mean(x: Tensor, axis: int) -> Tensor:
    dtype = x.dtype
    if not dtype.is_integer:
        return reduction.mean(x, axis=axis, keepdims=True)
    wide = reduction.mean(convert.cast(x, dtypes.float64), axis=axis, keepdims=True)
    return convert.cast(elementwise.round(wide), dtype)


def _median(x: Tensor, axis: int) -> Tensor:
    dtype, side = x.dtype, x.shape[axis]
    ordered = searching.sort(x, axis=axis)
    half = dtype in (dtypes.float16, dtypes.bfloat16)
    run = dtypes.float64 if dtype.is_integer else dtypes.float32 if half else dtype
    middle = [take_static(ordered, np.array([i]), axis) for i in ((side - 1) // 2, side // 2)]
    low, high = (convert.cast(value, run) for value in middle)
    # NaN comes last, and makes the median NaN.
    last = convert.cast(take_static(ordered, np.array([side - 1]), axis), run)
    mean = elementwise.add(low, elementwise.divide(elementwise.subtract(high, low), 2))
    found = searching.where(elementwise.equal(low, high), low, mean)
    found = searching.where(elementwise.isnan(last), last, found)
    return convert.cast(elementwise.round(found) if dtype.is_integer else found, dtype)


def _largest(x: Tensor, axis: int) -> Tensor:
    return reduction.max(x, axis=axis, keepdims=True)


def _smallest(x: Tensor, axis: int) -> Tensor:
    return reduction.min(x, axis=axis, keepdims=True)


_STATISTICS: Final[dict[str, Callable[[Tensor, int], Tensor]]] = {
    "maximum": _largest,
    "mean": _mean,
    "median": _median,
    "minimum": _smallest,
}


def _statistic(x: Tensor, axis: int, width: tuple[int, int], option: Any) -> Tensor:
    statistic, lengths = option
    if x.dtype is dtypes.bool and statistic in (_mean, _median):
        raise DTypeError("ops.pad with mode 'mean' or 'median' takes numbers, not bool")
    side = x.shape[axis]
    before = (slice(None),) * axis
    blocks = []
    for count, length, ends in zip(width, lengths, (False, True), strict=True):
        kept = side if length is None else min(_length(length), side)
        part = x[(*before, slice(side - kept, side) if ends else slice(kept))]
        blocks.append(_block(x, axis, count, statistic(part, axis)))
    return _around(x, axis, blocks[0], blocks[1])


def _length(value: Any) -> int:
    if not isinstance(value, int) or value < 1:
        raise DomainError(f"ops.pad takes a stat_length of at least 1, not {value!r}")
    return value
