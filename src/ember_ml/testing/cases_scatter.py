"""Scatter and segments: references put groups together one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import AxisError, DomainError, DTypeError, OutOfBoundsError, ShapeError
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample
from ember_ml.testing.mistake import Mistake

__all__ = ["MISTAKES", "SCATTER", "SEGMENTS"]

_ONCE: Final = (dtypes.float32,)
# Group 1 has no value, and -1 is the last of six.
_PLACES: Final = [4, 0, 2, 4, -1, 4, 0]
_FULL: Final = np.array([[3, 0, 0], [1, 1, 1]])


def _values(*shapes: tuple[int, ...]) -> Callable[[DType], list[Inputs]]:
    return lambda dtype: [(sample(f"scatter{s}", s, dtype, -3, 3),) for s in shapes]


def _grouped(
    values: Array,
    indices: Any,
    size: int,
    axis: int,
    reduce: Callable[[Array], Any],
    empty: float,
    dtype: Any = None,
) -> Array:
    """What `reduce` makes of each group of values along an axis."""
    front = np.moveaxis(values, axis, 0)
    places = np.asarray(indices, dtype=int)
    if places.ndim == 1:
        each = np.broadcast_to(places.reshape(-1, *(1,) * (front.ndim - 1)), front.shape)
    else:
        each = np.moveaxis(places, axis, 0)
    out = np.full((size, *front.shape[1:]), empty, dtype or values.dtype)
    for place in np.ndindex(out.shape):
        column = (slice(None), *place[1:])
        group = front[column][each[column] % size == place[0]]
        if group.size:
            out[place] = reduce(group)
    return np.moveaxis(out, 0, axis)


def _sum(group: Array) -> Any:
    return np.add.reduce(group, dtype=int if group.dtype == bool else group.dtype)


def _product(group: Array) -> Any:
    return np.multiply.reduce(group, dtype=int if group.dtype == bool else group.dtype)


def _softmax(values: Array, indices: Any, size: int, axis: int) -> Array:
    wide = values.astype(np.float64)
    out = np.moveaxis(np.empty(wide.shape), axis, 0)
    front = np.moveaxis(wide, axis, 0)
    places = np.asarray(indices) % size
    for group in range(size):
        powers = np.exp(front[places == group])
        out[places == group] = powers / powers.sum(axis=0)
    return np.moveaxis(out, 0, axis)


# Name, reference of a group, value of an empty one, dtype of the reference where it differs.
_REDUCES: Final[tuple[tuple[str, Callable[[Array], Any], float], ...]] = (
    ("add", _sum, 0),
    ("mul", _product, 1),
    ("max", lambda group: group.max(), 0),
    ("min", lambda group: group.min(), 0),
    ("mean", lambda group: group.mean(), 0),
)


def _reference_dtype(name: str, values: Array) -> Any:
    if name == "mean" and values.dtype.kind != "c":
        return np.float64
    return np.int64 if values.dtype == bool and name in ("add", "mul") else values.dtype


def _scatter_cases(name: str, reduce: Callable[[Array], Any], empty: float) -> tuple[Case, ...]:
    op = "scatter_" + name

    def expect(indices: Any, size: int, axis: int) -> Callable[..., Any]:
        return lambda x: _grouped(x, indices, size, axis, reduce, empty, _reference_dtype(name, x))

    def case(
        run: Callable[..., Any],
        reference: Callable[..., Any],
        shape: tuple[int, ...],
        label: str,
        over: tuple[DType, ...] = _ONCE,
    ) -> Case:
        return Case(op, run, reference, _values(shape), over, law(op), label=label)  # fmt: skip

    return (
        case(lambda xp, x: getattr(xp, op)(x, xp.asarray(_PLACES), 6), expect(_PLACES, 6, 0),
             (7,), "", accepted(op)),
        case(lambda xp, x: getattr(xp, op)(x, _PLACES, 6, axis=-1), expect(_PLACES, 6, 1),
             (2, 7), "axis", (dtypes.float32, dtypes.uint16, dtypes.float16)
             if name != "mean" else _ONCE),
        case(lambda xp, x: getattr(xp, op)(x, _FULL, 4, 1), expect(_FULL, 4, 1), (2, 3), "full"),
        case(lambda xp, x: getattr(xp, op)(x, []), expect([], 0, 0), (0, 2), "empty"),
        case(lambda xp, x: getattr(xp, op)(x, xp.zeros(0, dtype="int32"), 3), expect([], 3, 0),
             (0,), "empty-places"),
        case(lambda xp, x: getattr(xp, op)(x, xp.asarray([3, 1], dtype="uint8")),
             lambda x: expect([3, 1], 4, 0)(x[:2]), (7,), "fewer-indices"),
    )  # fmt: skip


def _specials(dtype: DType) -> list[Inputs]:
    return [(np.array([1.0, np.nan, np.inf, -np.inf, np.inf, 2.0, -0.0], dtype.numpy),)]


_FLOATS: Final = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)

SCATTER: Final[tuple[Case, ...]] = (
    *(case for row in _REDUCES for case in _scatter_cases(*row)),
    *(
        Case(f"scatter_{name}", lambda xp, x, op=f"scatter_{name}": getattr(xp, op)(x, _PLACES, 6),
             lambda x, r=reduce, e=empty: _grouped(x, _PLACES, 6, 0, r, e), _specials, _FLOATS,
             label="special")
        for name, reduce, empty in _REDUCES
    ),
    *(
        Case("scatter", lambda xp, x, how=how: xp.scatter(x, _PLACES, 6, how),
             lambda x, r=reduce, e=empty, n=name: _grouped(
                 x, _PLACES, 6, 0, r, e, _reference_dtype(n, x)), _values((7, 2)),
             accepted("scatter") if how == "add" else _ONCE, law("scatter"), label=how)
        for name, reduce, empty in _REDUCES
        for how in {"add": ("add", "sum"), "mul": ("mul", "prod")}.get(name, (name,))
    ),
    Case("scatter", lambda xp, x: xp.scatter(x, xp.asarray([0, 9999])),
         lambda x: np.bincount([0, 9999], x[:2]), lambda dtype: [(np.ones(10_000, dtype.numpy),)],
         _ONCE, label="wide-and-sparse"),
    Case("scatter", lambda xp, x: xp.scatter(x, _PLACES, 6, "softmax", 1),
         lambda x: _softmax(x, _PLACES, 6, 1), _values((2, 7)), _ONCE, label="softmax"),
    Case("scatter_softmax", lambda xp, x: xp.scatter_softmax(x, _PLACES, 6),
         lambda x: _softmax(x, _PLACES, 6, 0), _values((7, 2)), accepted("scatter_softmax"),
         law("scatter_softmax")),
    Case("scatter_softmax", lambda xp, x: xp.scatter_softmax(1000 * x, [[1, 1, 0], [0, 1, 1]], 2, 1)
         , lambda x: np.array([[1, 0, 1], [1, 0.5, 0.5]]),
         lambda dtype: [(np.array([[1, 0, -1], [0, 1, 1]], dtype.numpy),)], _ONCE, label="full"),
    Case("scatter_softmax", lambda xp, x: xp.scatter_softmax(x, []), lambda x: x,
         _values((0, 2)), _ONCE, label="empty"),
)  # fmt: skip

_IDS: Final = [0, 0, 1, 1, 1, 3, 3]

SEGMENTS: Final[tuple[Case, ...]] = tuple(
    case
    for op, (name, reduce, empty) in zip(
        ("segment_sum", "segment_prod", "segment_max", "segment_min", "segment_mean"), _REDUCES,
        strict=True)
    for case in (
        Case(op, lambda xp, x, op=op: getattr(xp, op)(x, xp.asarray(_IDS)),
             lambda x, r=reduce, e=empty, n=name: _grouped(
                 x, _IDS, 4, 0, r, e, _reference_dtype(n, x)), _values((7,)), accepted(op),
             law(op)),
        Case(op, lambda xp, x, op=op: getattr(xp, op)(x, _IDS, 5),
             lambda x, r=reduce, e=empty, n=name: _grouped(
                 x, _IDS, 5, 0, r, e, _reference_dtype(n, x)), _values((7, 2)), _ONCE, law(op),
             label="rows"),
        Case(op, lambda xp, x, op=op: getattr(xp, op)(x, []), lambda x: np.zeros((0, 2)),
             _values((0, 2)), _ONCE, law(op), label="empty"),
    )
)  # fmt: skip


def _beyond_nothing(aggr: str, shape: tuple[int, int], size: int) -> Mistake:
    """An index that is wrong where there is nothing to write to."""
    return Mistake(f"scatter-{aggr}-{shape}-into-{size}", OutOfBoundsError,
                   lambda xp: xp.scatter(xp.ones(shape), [0, 2, 1], size, aggr),
                   ("index 2",))  # fmt: skip


MISTAKES: Final[tuple[Mistake, ...]] = (
    Mistake("scatter-beyond", OutOfBoundsError, lambda xp: xp.scatter(xp.ones(2), [0, 3], 3),
            ("index 3", "3 places", "dim_size")),
    Mistake("scatter-before", OutOfBoundsError, lambda xp: xp.scatter(xp.ones(2), [0, -4], 3),
            ("index -4",)),
    Mistake("scatter-max-beyond", OutOfBoundsError,
            lambda xp: xp.scatter_max(xp.ones((2, 2)), [0, 3], 3)),
    Mistake("scatter-mul-beyond", OutOfBoundsError,
            lambda xp: xp.scatter_mul(xp.ones((2, 2)), [[0, 3], [0, 0]], 3, 1)),
    Mistake("scatter-add-beyond-rows", OutOfBoundsError,
            lambda xp: xp.scatter_add(xp.ones((2, 2)), [0, 3], 3)),
    Mistake("scatter-softmax-beyond", OutOfBoundsError,
            lambda xp: xp.scatter_softmax(xp.ones(2), [0, 3], 3)),
    Mistake("scatter-negative-open", OutOfBoundsError, lambda xp: xp.scatter(xp.ones(2), [0, -1]),
            ("-1", "dim_size")),
    Mistake("scatter-into-nothing", OutOfBoundsError, lambda xp: xp.scatter(xp.ones(1), [0], 0)),
    *(_beyond_nothing(aggr, shape, size) for aggr in ("add", "mean", "max", "min", "mul")
      for shape, size in (((3, 2), 0), ((3, 0), 1))),
    Mistake("scatter-more-indices", ShapeError, lambda xp: xp.scatter(xp.ones(2), [0, 1, 2]),
            ("(3,)", "(2,)")),
    Mistake("scatter-index-shape", ShapeError,
            lambda xp: xp.scatter(xp.ones((2, 3)), xp.zeros((2, 2), dtype="int64"))),
    Mistake("scatter-0d-index", ShapeError, lambda xp: xp.scatter(xp.ones(2), 0)),
    Mistake("scatter-0d", AxisError, lambda xp: xp.scatter(xp.ones(()), [0])),
    Mistake("scatter-axis", AxisError, lambda xp: xp.scatter(xp.ones(2), [0, 1], axis=1)),
    Mistake("scatter-float-index", DTypeError, lambda xp: xp.scatter(xp.ones(2), [0.0, 1.0]),
            ("integer", "float32")),
    Mistake("scatter-aggr", DomainError, lambda xp: xp.scatter(xp.ones(2), [0, 1], aggr="median"),
            ("'median'", "'softmax'")),
    Mistake("scatter-size", ShapeError, lambda xp: xp.scatter(xp.ones(2), [0, 1], -1)),
    Mistake("scatter-size-float", DTypeError, lambda xp: xp.scatter(xp.ones(2), [0, 1], 2.5)),
    Mistake("segment-rows", ShapeError, lambda xp: xp.segment_sum(xp.ones(3), [0, 1]),
            ("(2,)", "(3,)")),
    Mistake("segment-float", DTypeError, lambda xp: xp.segment_sum(xp.ones(2), xp.ones(2))),
)  # fmt: skip
