"""Reductions as nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.graph.tracing.elementwise import choose, number
from ember_ml.graph.tracing.moving import concat, expanded, reshaped
from ember_ml.graph.tracing.operand import Operand
from ember_ml.graph.tracing.sizes import Size
from ember_ml.graph.tracing.trace import cast, constant, emit

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


def _simple(op: str) -> Callable[..., Any]:
    def run(eager: Any, x: Operand, *, axis: Any = None, keepdims: bool = False) -> Any:
        return _reduced(op, x, axis, keepdims, eager(x, axis=axis, keepdims=keepdims))

    return run


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
        made = _reduced(op, inner, axis, keepdims, out)
        if turned:
            return unordered(made)
        if x.dtype.kind == "f" and _axes(x, axis):
            # ONNX Runtime passes over NaN; a sum does not.
            mask = emit("IsNaN", [x], np.isnan(x.shadow))
            lost = any_of(mask, axis, keepdims)
            return choose(lost, number(math.nan, x), made)
        return made

    return run


def any_of(mask: Operand, axis: Any, keepdims: bool) -> Operand:
    """True where some element is."""
    out = np.any(mask.shadow, axis=_axes(mask, axis), keepdims=keepdims)
    return _reduced("ReduceMax", mask, axis, keepdims, out)


def _truth(op: str) -> Callable[..., Any]:
    def run(eager: Any, x: Operand, *, axis: Any = None, keepdims: bool = False) -> Any:
        if x.dtype != np.bool_:
            x = x != 0
        return _reduced(op, x, axis, keepdims, eager(x, axis=axis, keepdims=keepdims))

    return run


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
    out = eager(x, axis, keepdims)
    return _reduced("ReduceLogSumExp", x, axis, keepdims, out)


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
        if x.dtype.kind == "f":
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


def _running(join: Callable[[Operand, Operand], Operand]) -> Callable[..., Any]:
    """Each step takes in what twice as many places give."""

    def run(eager: Any, x: Operand, axis: int) -> Any:
        place = axis % x.ndim
        before = (slice(None),) * place
        step = 1
        while step < x.shape[place]:
            late = x[(*before, slice(step, None))]
            early = x[(*before, slice(0, x.shape[place] - step))]
            x = concat([x[(*before, slice(0, step))], join(late, early)], place)
            step *= 2
        return x

    return run


def _larger(a: Operand, b: Operand) -> Operand:
    return emit("Max", [a, b], np.maximum(a.shadow, b.shadow))


def cumulative_logsumexp(eager: Any, x: Operand, axis: int) -> Any:
    from ember_ml.graph.tracing.elementwise import logaddexp

    return _running(lambda a, b: logaddexp(None, a, b))(eager, x, axis)


def mean(eager: Any, x: Operand, *, axis: Any = None, keepdims: bool = False) -> Any:
    if any(type(x.shape[i]) is not Size and not x.shape[i] for i in _axes(x, axis)):
        return _reduced("ReduceMean", x, axis, keepdims, eager(x, axis=axis, keepdims=keepdims))
    return _reduced("ReduceMean", x, axis, keepdims, eager(x, axis=axis, keepdims=keepdims))


EMITTERS: Final[dict[str, Callable[..., Any]]] = {
    "sum": _simple("ReduceSum"),
    "prod": _simple("ReduceProd"),
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
    "cumulative_prod": _running(lambda a, b: a * b),
    "cumulative_logsumexp": cumulative_logsumexp,
    "running_maximum": _running(_larger),
}
