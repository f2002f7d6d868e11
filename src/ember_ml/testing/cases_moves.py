"""Splitting, stacking, turning, inserting and padding: NumPy is the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import AxisError, DomainError, DTypeError, OutOfBoundsError, ShapeError
from ember_ml.testing.case import Case, Inputs, sample
from ember_ml.testing.mistake import Mistake

__all__ = ["MISTAKES", "MOVES"]

_ALL: Final = dtypes.ALL
_ONCE: Final = (dtypes.float32,)
_SOME: Final = (dtypes.bool, dtypes.uint16, dtypes.bfloat16, dtypes.complex64)


def _of(*shapes: tuple[int, ...]) -> Callable[[DType], list[Inputs]]:
    return lambda dtype: [(sample(f"every{s}", s, dtype, -9, 9),) for s in shapes]


def _pair(a: tuple[int, ...], b: tuple[int, ...]) -> Callable[[DType], list[Inputs]]:
    return lambda dtype: [(sample("first", a, dtype, -9, 9), sample("second", b, dtype, -9, 9))]


def _same(
    op: str,
    run: Callable[..., Any],
    *shapes: tuple[int, ...],
    expect: Callable[..., Any] | None = None,
    label: str = "",
    over: tuple[DType, ...] = _ALL,
) -> Case:
    """A case whose `run(xp, x)` with NumPy for xp is its own reference."""
    reference = expect or (lambda *arrays: _tupled(run(np, *arrays)))
    return Case(op, run, reference, _of(*(shapes or ((2, 3, 4),))), over, label=label)


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _both(op: str, run: Callable[..., Any], a: tuple[int, ...], b: tuple[int, ...],
          label: str = "", over: tuple[DType, ...] = _ALL) -> Case:  # fmt: skip
    return Case(op, run, lambda *arrays: _tupled(run(np, *arrays)), _pair(a, b), over, label=label)


def _nothing(dtype: DType) -> list[Inputs]:
    return [()]


_SPLITS: Final = (
    _same("split", lambda xp, x: xp.split(x, 2, axis=-1)),
    _same("split", lambda xp, x: xp.split(x, [1, 2, 2, -1, 9], 1), (2, 3, 4), (1, 0),
          label="indices", over=_ONCE),
    _same("split", lambda xp, x: xp.split(x, 2), (0, 3), (2,), label="empty", over=_ONCE),
    _same("array_split", lambda xp, x: xp.array_split(x, 3, axis=2)),
    _same("array_split", lambda xp, x: xp.array_split(x, 5), (2, 3), (0,), label="many",
          over=_ONCE),
    _same("chunk", lambda xp, x: xp.chunk(x, 3, axis=1), (2, 5),
          expect=lambda x: (x[:, :2], x[:, 2:4], x[:, 4:])),
    _same("chunk", lambda xp, x: xp.chunk(x, 4), (5,), expect=lambda x: (x[:2], x[2:4], x[4:]),
          label="fewer", over=_ONCE),
    _same("chunk", lambda xp, x: xp.chunk(x, 2), (0, 2), expect=lambda x: (x, x), label="empty",
          over=_ONCE),
    _same("hsplit", lambda xp, x: xp.hsplit(x, 2), (3, 4), (4,)),
    _same("vsplit", lambda xp, x: xp.vsplit(x, [1]), (3, 4)),
    _same("dsplit", lambda xp, x: xp.dsplit(x, 2)),
)  # fmt: skip

_STACKS: Final = (
    _both("vstack", lambda xp, x, y: xp.vstack([x, y]), (3,), (2, 3)),
    _both("vstack", lambda xp, x, y: xp.vstack([x, y]), (), (), "0d", _ONCE),
    _both("hstack", lambda xp, x, y: xp.hstack([x, y]), (2, 3), (2, 1)),
    _both("hstack", lambda xp, x, y: xp.hstack([x, y]), (3,), (0,), "vectors", _ONCE),
    _both("hstack", lambda xp, x, y: xp.hstack((x, y)), (), (), "0d", _ONCE),
    _both("dstack", lambda xp, x, y: xp.dstack([x, y]), (2, 3), (2, 3, 4)),
    _both("dstack", lambda xp, x, y: xp.dstack([x, y]), (3,), (3,), "vectors", _ONCE),
    _both("column_stack", lambda xp, x, y: xp.column_stack([x, y]), (3,), (3, 2)),
    _same("atleast_1d", lambda xp, x: xp.atleast_1d(x), (), (2, 3)),
    _same("atleast_2d", lambda xp, x: xp.atleast_2d(x), (), (3,), (2, 3)),
    _same("atleast_3d", lambda xp, x: xp.atleast_3d(x), (), (3,), (2, 3), (2, 3, 4)),
    _both("atleast_2d", lambda xp, x, y: xp.atleast_2d(x, y), (3,), (2, 3), "several", _ONCE),
)  # fmt: skip

_TURNS: Final = (
    *(
        _same("rot90", lambda xp, x, k=k: xp.rot90(x, k, axes=(2, 0)), label=str(k),
              over=_ALL if k == 1 else _ONCE)
        for k in (1, 2, 3, 4, -1)
    ),
    _same("fliplr", lambda xp, x: xp.fliplr(x)),
    _same("flipud", lambda xp, x: xp.flipud(x)),
    _same("swapaxes", lambda xp, x: xp.swapaxes(x, 0, -1)),
    _same("ravel", lambda xp, x: xp.ravel(x), (2, 3), (), (0, 2)),
    _same("flatten", lambda xp, x: xp.flatten(x, 1), expect=lambda x: x.reshape(2, 12)),
    _same("flatten", lambda xp, x: xp.flatten(x), (), (2, 3), expect=lambda x: x.reshape(-1),
          label="all", over=_ONCE),
    _same("unflatten", lambda xp, x: xp.unflatten(x, -1, (2, -1)),
          expect=lambda x: x.reshape(2, 3, 2, 2)),
    _same("unflatten", lambda xp, x: xp.unflatten(x, 0, (3, 0)), (0, 2),
          expect=lambda x: x.reshape(3, 0, 2), label="empty", over=_ONCE),
)  # fmt: skip

_CHANGES: Final = (
    _both("append", lambda xp, x, y: xp.append(x, y), (2, 3), (2,)),
    _both("append", lambda xp, x, y: xp.append(x, y, axis=1), (2, 3), (2, 1), "axis", _ONCE),
    _both("insert", lambda xp, x, y: xp.insert(x, 1, y, axis=1), (2, 3), (2,)),
    _both("insert", lambda xp, x, y: xp.insert(x, [0, 2, 2], y, axis=0), (2, 3), (3, 3), "list",
          _ONCE),
    _both("insert", lambda xp, x, y: xp.insert(x, slice(0, 3, 2), y), (2, 3), (2,), "slice", _ONCE),
    _both("insert", lambda xp, x, y: xp.insert(x, -1, y, axis=-1), (2, 3), (3, 2), "block", _ONCE),
    _both("insert", lambda xp, x, y: xp.insert(x, 0, y), (0,), (), "into-nothing", _ONCE),
    _same("insert", lambda xp, x: xp.insert(x, [1, 1], 0, axis=1), (2, 3), label="scalar",
          over=_ONCE),
    _same("delete", lambda xp, x: xp.delete(x, 1, axis=1), (2, 3)),
    _same("delete", lambda xp, x: xp.delete(x, [0, -1, 0]), (2, 3), label="list", over=_ONCE),
    _same("delete", lambda xp, x: xp.delete(x, slice(None, None, 2), 1), (2, 3), label="slice",
          over=_ONCE),
    _same("delete", lambda xp, x: xp.delete(x, np.array([True, False, True]), 1), (2, 3),
          label="mask", over=_ONCE),
    _same("delete", lambda xp, x: xp.delete(x, [], 0), (0, 2), label="nothing", over=_ONCE),
)  # fmt: skip

_GRIDS: Final = tuple(
    Case(op, run, expect, _nothing, _ONCE, lambda dtype: dtypes.float32, label=label)
    for op, label, run, expect in (
        ("tri", "", lambda xp: xp.tri(3, 4, -1), lambda: np.tri(3, 4, -1)),
        ("tri", "square", lambda xp: xp.tri(2), lambda: np.tri(2)),
        ("identity", "", lambda xp: xp.identity(3), lambda: np.identity(3)),
        ("logspace", "", lambda xp: xp.logspace(-1, 2, 7), lambda: np.logspace(-1, 2, 7)),
        ("logspace", "base", lambda xp: xp.logspace(0, 3, 3, base=2, endpoint=False),
         lambda: np.logspace(0, 3, 3, base=2, endpoint=False)),
        ("logspace", "none", lambda xp: xp.logspace(0, 1, 0), lambda: np.zeros(0)),
        ("geomspace", "", lambda xp: xp.geomspace(1, 1000, 4), lambda: np.geomspace(1, 1000, 4)),
        ("geomspace", "down", lambda xp: xp.geomspace(-8, -1, 4), lambda: np.geomspace(-8, -1, 4)),
    )
)  # fmt: skip


# --- Padding ----------------------------------------------------------------------------------


def _whole(shape: tuple[int, ...]) -> Callable[[DType], list[Inputs]]:
    """Whole numbers, which no difference rounds."""
    return lambda dtype: [(sample("whole", shape, dtypes.int8, 0, 9).astype(dtype.numpy),)]


def _padded(label: str, shape: tuple[int, ...], over: tuple[DType, ...], width: Any,
            mode: str, **options: Any) -> Case:  # fmt: skip
    return Case(
        "pad",
        lambda xp, x: xp.pad(x, width, mode, **options),
        lambda x: _numpy_pad(x, width, mode, **options),
        _whole(shape) if "odd" in label else _of(shape),
        over,
        label=label,
    )


# NumPy's annotations want a mode that is a literal.
_numpy_pad: Final[Any] = np.pad
# Of each kind of numbers the dtypes that engines serve in ways of their own.
_REAL_KINDS: Final = (
    dtypes.int8,
    dtypes.uint8,
    dtypes.uint64,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.float64,
)
_KINDS: Final = (*_REAL_KINDS, dtypes.complex64)
_EACH: Final = ((1, 2), (3, 0))


_PADS: Final = (
    _padded("constant", (2, 3), _ALL, _EACH, "constant"),
    _padded("constant-value", (2, 3), _ONCE, 1, "constant", constant_values=7),
    _padded("constant-values", (2, 3), (dtypes.float32, dtypes.int8), _EACH, "constant",
            constant_values=((1, 2), (3, 4))),
    _padded("constant-pair", (3,), _ONCE, (1, 2), "constant", constant_values=(4, 6)),
    _padded("constant-empty", (0, 2), _ONCE, ((1, 2), (0, 1)), "constant"),
    _padded("none", (2, 3), _ONCE, 0, "reflect"),
    _padded("0d", (), _ONCE, 0, "edge"),
    Case("pad", lambda xp, x: xp.pad(x, {-1: (1, 2), 0: 1}, "edge"),
         lambda x: np.pad(x, ((1, 1), (1, 2)), "edge"), _of((2, 3)), _ONCE, label="dict"),
    Case("pad", lambda xp, x: xp.pad(x, 2, "empty")[2:-2, 2:-2], lambda x: x, _of((2, 3)), _ONCE,
         label="empty"),
    _padded("edge", (2, 3), _ALL, _EACH, "edge"),
    _padded("wrap", (2, 3), (*_SOME, dtypes.float32), ((3, 5), (1, 2)), "wrap"),
    _padded("reflect", (3, 4), (*_SOME, dtypes.float32), ((7, 5), (1, 2)), "reflect"),
    _padded("symmetric", (3, 4), (*_SOME, dtypes.float32), ((7, 8), (1, 2)), "symmetric"),
    _padded("reflect-odd", (3, 4), _KINDS, ((2, 1), (3, 2)), "reflect", reflect_type="odd"),
    _padded("symmetric-odd", (3, 4), (dtypes.float32, dtypes.uint8), ((3, 1), (2, 4)), "symmetric",
            reflect_type="odd"),
    _padded("reflect-odd-one", (1, 2), _ONCE, 1, "reflect", reflect_type="odd"),
    _padded("maximum", (3, 4), (dtypes.bool, *_REAL_KINDS), _EACH, "maximum"),
    _padded("minimum-length", (3, 4), _ONCE, _EACH, "minimum", stat_length=2),
    _padded("mean", (3, 4), _KINDS, _EACH, "mean"),
    _padded("median", (3, 4), _REAL_KINDS, ((1, 2), (3, 0)), "median"),
    _padded("median-length", (3, 5), _ONCE, _EACH, "median", stat_length=((2, 1), (4, 9))),
    _padded("linear_ramp", (2, 3), _KINDS, ((1, 2), (4, 3)), "linear_ramp"),
    _padded("linear_ramp-ends", (2, 3), (dtypes.float32, dtypes.int16), _EACH, "linear_ramp",
            end_values=((5, -4), (2, 3))),
)  # fmt: skip

MOVES: Final[tuple[Case, ...]] = (*_SPLITS, *_STACKS, *_TURNS, *_CHANGES, *_GRIDS, *_PADS)

MISTAKES: Final[tuple[Mistake, ...]] = (
    Mistake("split-uneven", ShapeError, lambda xp: xp.split(xp.ones(5), 2),
            ("2 equal parts", "(5,)", "array_split")),
    Mistake("split-zero", DomainError, lambda xp: xp.split(xp.ones(4), 0)),
    Mistake("split-axis", AxisError, lambda xp: xp.split(xp.ones(4), 2, axis=1)),
    Mistake("split-float", DTypeError, lambda xp: xp.split(xp.ones(4), 2.0)),
    Mistake("chunk-zero", DomainError, lambda xp: xp.chunk(xp.ones(4), 0)),
    Mistake("vsplit-vector", ShapeError, lambda xp: xp.vsplit(xp.ones(4), 2)),
    Mistake("vstack-shapes", ShapeError, lambda xp: xp.vstack([xp.ones(2), xp.ones(3)])),
    Mistake("hstack-none", ShapeError, lambda xp: xp.hstack([])),
    Mistake("rot90-axes", AxisError, lambda xp: xp.rot90(xp.ones((2, 2)), axes=(0, 2))),
    Mistake("rot90-one-axis", AxisError, lambda xp: xp.rot90(xp.ones((2, 2)), axes=(0,))),
    Mistake("flatten-order", AxisError, lambda xp: xp.flatten(xp.ones((2, 2)), 1, 0)),
    Mistake("unflatten-shape", ShapeError, lambda xp: xp.unflatten(xp.ones(5), 0, (2, -1))),
    Mistake("rot90-axis", AxisError, lambda xp: xp.rot90(xp.ones((2, 2)), axes=0), ("rot90",)),
    Mistake("insert-truth", ShapeError, lambda xp: xp.insert(xp.ones(3), True, 1.0), ("insert",)),
    Mistake("insert-beyond", OutOfBoundsError, lambda xp: xp.insert(xp.ones(3), 5, 1.0)),
    Mistake("insert-dtype", DTypeError, lambda xp: xp.insert(xp.asarray([1]), 0, 1.5)),
    Mistake("insert-shape", ShapeError, lambda xp: xp.insert(xp.ones((2, 2)), 0, xp.ones(3), 0)),
    Mistake("delete-beyond", OutOfBoundsError, lambda xp: xp.delete(xp.ones(3), 3)),
    Mistake("delete-float", DTypeError, lambda xp: xp.delete(xp.ones(3), [0.5])),
    Mistake("pad-mode", DomainError, lambda xp: xp.pad(xp.ones(2), 1, "mirror"), ("'mirror'",)),
    Mistake("pad-width-negative", DomainError, lambda xp: xp.pad(xp.ones(2), -1)),
    Mistake("pad-width-float", DTypeError, lambda xp: xp.pad(xp.ones(2), 1.5)),
    Mistake("pad-width-shape", ShapeError, lambda xp: xp.pad(xp.ones(2), ((1, 1), (1, 1)))),
    Mistake("pad-value-dtype", DTypeError,
            lambda xp: xp.pad(xp.asarray([1]), 1, constant_values=0.5)),
    Mistake("pad-nothing", ShapeError, lambda xp: xp.pad(xp.ones((0, 2)), 1, "edge")),
    Mistake("pad-odd-bool", DTypeError,
            lambda xp: xp.pad(xp.asarray([True, False]), 1, "reflect", reflect_type="odd")),
    Mistake("pad-stat-length", DomainError,
            lambda xp: xp.pad(xp.ones(2), 1, "mean", stat_length=0)),
    Mistake("pad-axis", AxisError, lambda xp: xp.pad(xp.ones(2), {1: 1})),
    Mistake("geomspace-zero", DomainError, lambda xp: xp.geomspace(0, 1)),
    Mistake("logspace-count", DomainError, lambda xp: xp.logspace(0, 1, -1)),
)  # fmt: skip
