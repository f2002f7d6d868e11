"""Reductions as nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.graph.tracing import looping
from ember_ml.graph.tracing.elementwise import choose, maximum, number
from ember_ml.graph.tracing.moving import concat, expanded, permuted, reshaped
from ember_ml.graph.tracing.operand import Operand
from ember_ml.graph.tracing.sizes import Size, never_negative
from ember_ml.graph.tracing.trace import cast, constant, emit, emit_many

__all__ = ["EMITTERS", "any_of", "count_of", "ordered", "summed", "unordered"]

_FLIP: Final = np.int64(-(2**63))
_LONG: Final = 4096


def _axes(x: Operand, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    given = axis if isinstance(axis, tuple | list) else (axis,)
    return tuple(one % x.ndim for one in given)


def _shape(x: Operand, axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if i in axes else side for i, side in enumerate(x.shape))
    return tuple(side for i, side in enumerate(x.shape) if i not in axes)


def _may_be_empty(x: Operand, axis: Any) -> bool:
    """True where a size of some run may leave nothing to reduce, as in x[1:]."""
    sides = [x.shape[i] for i in _axes(x, axis)]
    return any(type(side) is Size and not never_negative(side - 1) for side in sides)


def _reduced(op: str, x: Operand, axis: Any, keepdims: bool, out: Any) -> Operand:
    axes = _axes(x, axis)
    array = np.asarray(out)
    shape = _shape(x, axes, keepdims)
    if any(type(x.shape[i]) is not Size and not x.shape[i] for i in axes):
        # Nothing to reduce: the result is the same whatever runs.
        unit = array.reshape(-1)[:1].reshape(()) if array.size else np.zeros((), array.dtype)
        return expanded(constant(unit), shape)
    if not axes:
        return emit("Identity", [x], array, shape=x.shape)
    if op in ("ReduceSum", "ReduceMean") and x.dtype == np.float32:
        count = math.prod(int(x.shape[axis]) for axis in axes)
        if count >= _LONG and not any(type(x.shape[axis]) is Size for axis in axes):
            # (Over a size that varies, the nodes cannot depend on how long it is.)
            # ONNX Runtime adds one after the other in float32: the error grows with their number.
            wide = cast(x, dtypes.float64)
            exact = array.astype(np.float64)
            return cast(_reduced(op, wide, axes, keepdims, exact), dtypes.float32)
    return emit(
        op,
        [x, np.array(axes, np.int64)],
        array,
        shape=shape,
        keepdims=int(keepdims),
    )


def ordered(x: Operand) -> tuple[Operand, bool]:
    """uint64 as int64 in the same order, for operators that do not take it."""
    if x.dtype != np.uint64:
        return x, False
    return cast(x, dtypes.int64) + int(_FLIP), True


def unordered(x: Operand) -> Operand:
    return cast(x + int(_FLIP), dtypes.uint64)


def _extreme(op: str) -> Callable[..., Any]:
    join: Any = np.max if op == "ReduceMax" else np.min

    def run(eager: Any, x: Operand, *, axis: Any = None, keepdims: bool = False) -> Any:
        eager(x, axis=axis, keepdims=keepdims)  # which says what is wrong
        inner, turned = ordered(x)
        out = join(inner.shadow, axis=_axes(x, axis), keepdims=keepdims)
        if inner.dtype in (np.int64, np.uint32) and _axes(x, axis) and x.shadow.size:
            made = _first_in_order(inner, _axes(x, axis), keepdims, out, op == "ReduceMax")
        else:
            made = _reduced(op, inner, axis, keepdims, out)
        return unordered(made) if turned else _with_nan(made, x, axis, keepdims)

    return run


def _with_nan(made: Operand, x: Operand, axis: Any, keepdims: bool) -> Operand:
    """NaN where one was reduced, over which ONNX Runtime passes."""
    if x.dtype.kind in "iub" or not _axes(x, axis):
        return made
    mask = emit("IsNaN", [x], np.isnan(x.shadow))
    return choose(any_of(mask, axis, keepdims), number(math.nan, x), made)


def _rows(x: Operand, axes: tuple[int, ...]) -> Operand:
    """An operand with some axes joined behind the others."""
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    sides = tuple(x.shape[axis] for axis in rest)
    return reshaped(permuted(x, (*rest, *axes)), (*sides, math.prod(x.shape[a] for a in axes)))


def _first_in_order(
    x: Operand, axes: tuple[int, ...], keepdims: bool, out: Any, largest: bool
) -> Operand:
    """An extreme of integers by TopK: ONNX Runtime reduces int64 wrongly, as its Max does."""
    rows = _rows(x, axes)
    shape = (*rows.shape[:-1], 1)
    values = np.reshape(out, tuple(map(int, shape)))
    found = emit_many(
        "TopK",
        [rows, np.array([1], np.int64)],
        [values, np.zeros(values.shape, np.int64)],
        shapes=[shape, shape],
        axis=rows.ndim - 1,
        largest=int(largest),
        sorted=1,
    )
    return reshaped(found[0], _shape(x, axes, keepdims))


def any_of(mask: Operand, axis: Any, keepdims: bool) -> Operand:
    """True where some element is."""
    if _may_be_empty(mask, axis):  # of which ONNX Runtime knows no largest
        some: Operand = summed(cast_to_int(mask), axis, keepdims) > 0
        return some
    out = np.any(mask.shadow, axis=_axes(mask, axis), keepdims=keepdims)
    return _reduced("ReduceMax", mask, axis, keepdims, out)


def _truth(op: str) -> Callable[..., Any]:
    def run(eager: Any, x: Operand, *, axis: Any = None, keepdims: bool = False) -> Any:
        if x.dtype != np.bool_:
            x = x != 0
        if _may_be_empty(x, axis):
            return any_of(x, axis, keepdims) if op == "ReduceMax" else ~any_of(~x, axis, keepdims)
        return _reduced(op, x, axis, keepdims, eager(x, axis=axis, keepdims=keepdims))

    return run


def total(eager: Any, x: Operand, *, axis: Any = None, keepdims: bool = False) -> Any:
    out, axes = eager(x, axis=axis, keepdims=keepdims), _axes(x, axis)
    if x.dtype not in (np.int64, np.uint64) or not axes or not x.shadow.size:
        return _reduced("ReduceSum", x, axis, keepdims, out)
    # ONNX Runtime adds int64 in float64, but for products of matrices.
    rows = _rows(x, axes)
    ones = expanded(constant(np.ones((), x.dtype)), rows.shape[-1:])
    left = rows.shape[:-1]
    made = emit("MatMul", [rows, ones], np.reshape(out, tuple(map(int, left))), shape=left)
    return reshaped(made, _shape(x, axes, True)) if keepdims else made


def prod(eager: Any, x: Operand, *, axis: Any = None, keepdims: bool = False) -> Any:
    out, axes = eager(x, axis=axis, keepdims=keepdims), _axes(x, axis)
    varies = any(type(x.shape[i]) is Size for i in axes)
    if x.dtype.kind not in "iu" or not axes or (not x.shadow.size and not varies):
        return _reduced("ReduceProd", x, axis, keepdims, out)
    # ONNX Runtime multiplies int64 in float64; halves are multiplied as they are.
    rows = _rows(x, axes)
    if varies:
        return reshaped(looping.last(_times, rows, 1), _shape(x, axes, keepdims))
    while rows.shape[-1] > 1:
        half, odd = divmod(rows.shape[-1], 2)
        made = rows[..., :half] * rows[..., half : 2 * half]
        rows = concat([made, rows[..., 2 * half :]], -1) if odd else made
    return reshaped(rows, _shape(x, axes, keepdims))


def summed(x: Operand, axis: Any, keepdims: bool = False) -> Operand:
    """The sum over some axes, in the dtype of the operand."""
    out = np.sum(x.shadow, axis=_axes(x, axis), keepdims=keepdims, dtype=x.dtype)
    return _reduced("ReduceSum", x, axis, keepdims, out)


def count_of(x: Operand, axes: tuple[int, ...]) -> Any:
    """How many elements are reduced: a number, or an operand where sizes vary."""
    count: int = 1
    for axis in axes:
        count = count * x.shape[axis]
    if type(count) is not Size:
        return count
    from ember_ml.graph.tracing.backend import graph_backend

    return graph_backend().spec_of(x).scalar(count)


def var(eager: Any, x: Operand, axes: tuple[int, ...], correction: float, keepdims: bool) -> Any:
    count = count_of(x, axes)
    mean = summed(x, axes, True) / count if axes else x
    centred = x - mean
    total = summed(centred * centred, axes, keepdims)
    if isinstance(count, Operand):
        less = count - float(correction)
        return total / emit("Max", [less, number(0, x)], np.maximum(less.shadow, 0))
    return total / float(max(count - correction, 0))


def logsumexp(eager: Any, x: Operand, axis: Any, keepdims: bool) -> Any:
    out = eager(x, axis, keepdims) if _axes(x, axis) else x.shadow
    made = _reduced("ReduceLogSumExp", x, axis, keepdims, out)
    return _with_nan(made, x, axis, keepdims)


def _position(op: str) -> Callable[..., Any]:
    find: Any = np.argmax if op == "ArgMax" else np.argmin

    def run(eager: Any, x: Operand, axis: int | None, keepdims: bool) -> Any:
        eager(x, axis, keepdims)
        if not x.ndim:
            return expanded(constant(np.zeros((), np.int64)), ())
        ndim = x.ndim
        inner = reshaped(x, (-1,)) if axis is None else x
        place = 0 if axis is None else axis % ndim
        inner, _ = ordered(inner)
        if x.dtype.kind not in "iub":
            # The first NaN counts as the largest, and as the smallest.
            mask = emit("IsNaN", [inner], np.isnan(inner.shadow))
            limit = math.inf if op == "ArgMax" else -math.inf
            clear = choose(mask, number(limit, x), inner)
            lost = any_of(mask, place, True)
            first = _found("ArgMax", cast_to_int(mask), np.argmax, place)
            made = choose(lost, first, _found(op, clear, find, place))
        else:
            made = _found(op, inner, find, place)
        if axis is None:
            return reshaped(made, (1,) * ndim if keepdims else ())
        if keepdims:
            return made
        from ember_ml.graph.tracing.moving import squeezed

        return squeezed(made, [place])

    return run


def cast_to_int(mask: Operand) -> Operand:
    """Truth values as int32."""
    return cast(mask, dtypes.int32)


def _found(op: str, x: Operand, find: Any, axis: int) -> Operand:
    shape = tuple(1 if i == axis else side for i, side in enumerate(x.shape))
    return emit(
        op, [x], find(x.shadow, axis=axis, keepdims=True), shape=shape, axis=axis, keepdims=1
    )


def cumulative_sum(eager: Any, x: Operand, axis: int) -> Any:
    return emit("CumSum", [x, np.array(axis, np.int64)], eager(x, axis), shape=x.shape)


def _running(
    join: Callable[[Operand, Operand], Operand], neutral: float = -math.inf
) -> Callable[..., Any]:
    """Each step takes in what twice as many places give; `neutral` is what changes nothing."""

    def run(eager: Any, x: Operand, axis: int) -> Any:
        place = axis % x.ndim
        if type(x.shape[place]) is Size:
            first = np.iinfo(x.dtype).min if neutral < 0 and x.dtype.kind in "iu" else neutral
            return looping.running(join, x, place, first)
        before = (slice(None),) * place
        step = 1
        while step < x.shape[place]:
            late = x[(*before, slice(step, None))]
            early = x[(*before, slice(0, x.shape[place] - step))]
            x = concat([x[(*before, slice(0, step))], join(late, early)], place)
            step *= 2
        return x

    return run


def _times(a: Operand, b: Operand) -> Operand:
    made: Operand = a * b
    return made


def _larger(a: Operand, b: Operand) -> Operand:
    made: Operand = maximum(None, a, b)
    return made


def cumulative_logsumexp(eager: Any, x: Operand, axis: int) -> Any:
    from ember_ml.graph.tracing.elementwise import logaddexp

    return _running(lambda a, b: logaddexp(None, a, b))(eager, x, axis)


def mean(eager: Any, x: Operand, *, axis: Any = None, keepdims: bool = False) -> Any:
    if _may_be_empty(x, axis):  # of which ONNX Runtime's mean is zero
        return summed(x, axis, keepdims) / count_of(x, _axes(x, axis))
    return _reduced("ReduceMean", x, axis, keepdims, eager(x, axis=axis, keepdims=keepdims))


EMITTERS: Final[dict[str, Callable[..., Any]]] = {
    "sum": total,
    "prod": prod,
    "mean": mean,
    "max": _extreme("ReduceMax"),
    "min": _extreme("ReduceMin"),
    "all": _truth("ReduceMin"),
    "any": _truth("ReduceMax"),
    "var": var,
    "logsumexp": logsumexp,
    "argmax": _position("ArgMax"),
    "argmin": _position("ArgMin"),
    "cumulative_sum": cumulative_sum,
    "cumulative_prod": _running(_times, 1),
    "cumulative_logsumexp": cumulative_logsumexp,
    "running_maximum": _running(_larger),
}
