"""Creation, manipulation, indexing, order, sets: ops that move values rather than compute them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.testing.case import Array, Case, Inputs, sample

__all__ = ["ARRAYS"]

_ALL: Final = dtypes.ALL
_REAL: Final = tuple(d for d in dtypes.ALL if not d.is_complex)
_NUMERIC_REAL: Final = tuple(d for d in _REAL if d is not dtypes.bool)


def _of(*shapes: tuple[int, ...]) -> Callable[[DType], list[Inputs]]:
    """One run for each shape, with one input of it."""
    return lambda dtype: [(sample(f"move{s}", s, dtype, -9, 9),) for s in shapes]


def _pair(a: tuple[int, ...], b: tuple[int, ...]) -> Callable[[DType], list[Inputs]]:
    return lambda dtype: [(sample("a", a, dtype, -9, 9), sample("b", b, dtype, -9, 9))]


def _move(
    op: str,
    run: Callable[..., Any],
    expect: Callable[..., Any],
    inputs: Callable[[DType], list[Inputs]] | None = None,
    label: str = "",
    over: tuple[DType, ...] = _ALL,
    result: Callable[[DType], DType | None] = lambda dtype: dtype,
) -> Case:
    return Case(op, run, expect, inputs or _of((2, 3, 4)), over, result, label=label)


def _index(dtype: DType) -> DType:
    return dtypes.int64


def _float(dtype: DType) -> DType:
    return dtypes.float32


def _nothing(dtype: DType) -> list[Inputs]:
    return [()]


_ONCE: Final = (dtypes.float32,)
_LINE: Final = np.linspace(0, 1, 5)

_CREATION: Final = (
    _move("asarray", lambda xp, x: xp.asarray(x), lambda x: x),
    _move("asarray", lambda xp: xp.asarray([[1, 2], [3, 4]]), lambda: np.array([[1, 2], [3, 4]]),
          _nothing, "list", _ONCE, _index),
    _move("asarray", lambda xp, x: xp.asarray([x, x]), lambda x: np.stack([x, x]), None, "tensors"),
    _move("from_dlpack", lambda xp, x: xp.from_dlpack(x), lambda x: x),
    _move("from_numpy", lambda xp, x: xp.from_numpy(x.numpy(copy=True)), lambda x: x),
    _move("empty", lambda xp: xp.empty((2, 3)) * 0 == 0, lambda: np.ones((2, 3), bool), _nothing,
          "", _ONCE, lambda dtype: dtypes.bool),
    _move("empty_like", lambda xp, x: xp.zeros_like(xp.empty_like(x)), np.zeros_like),
    _move("zeros", lambda xp: xp.zeros((2, 3)), lambda: np.zeros((2, 3)), _nothing, "", _ONCE),
    _move("zeros", lambda xp: xp.zeros(()), lambda: np.zeros(()), _nothing, "0d", _ONCE),
    _move("ones", lambda xp: xp.ones([2, 0]), lambda: np.ones((2, 0)), _nothing, "", _ONCE),
    _move("full", lambda xp: xp.full(3, 7), lambda: np.full(3, 7), _nothing, "", _ONCE, _index),
    _move("full", lambda xp, x: xp.full((2,), x), lambda x: np.full((2,), x), _of(()), "tensor"),
    _move("zeros_like", lambda xp, x: xp.zeros_like(x), np.zeros_like),
    _move("ones_like", lambda xp, x: xp.ones_like(x), np.ones_like),
    _move("full_like", lambda xp, x: xp.full_like(x, 3), lambda x: np.full_like(x, 3)),
    _move("arange", lambda xp: xp.arange(2, 11, 3), lambda: np.arange(2, 11, 3), _nothing, "",
          _ONCE, _index),
    _move("arange", lambda xp: xp.arange(5, 1, -0.5), lambda: np.arange(5, 1, -0.5), _nothing,
          "float", _ONCE, _float),
    _move("linspace", lambda xp: xp.linspace(0, 1, 5), lambda: _LINE, _nothing, "", _ONCE),
    _move("linspace", lambda xp: xp.linspace(0, 1, 4, endpoint=False), lambda: _LINE[:4] * 1.0,
          _nothing, "open", _ONCE),
    _move("eye", lambda xp: xp.eye(2, 3, k=1), lambda: np.eye(2, 3, k=1), _nothing, "", _ONCE),
    _move("meshgrid", lambda xp, x, y: xp.meshgrid(x, y), lambda x, y: tuple(np.meshgrid(x, y)),
          _pair((3,), (4,))),
    _move("meshgrid", lambda xp, x, y: xp.meshgrid(x, y, indexing="ij"),
          lambda x, y: tuple(np.meshgrid(x, y, indexing="ij")), _pair((3,), (4,)), "ij"),
    _move("tril", lambda xp, x: xp.tril(x, k=1), lambda x: np.tril(x, 1)),
    _move("triu", lambda xp, x: xp.triu(x, k=-1), lambda x: np.triu(x, -1)),
)  # fmt: skip

_CASTS: Final = tuple(
    _move(
        "astype",
        lambda xp, x, to=to: xp.astype(x, to),
        lambda x, to=to: x.astype(to.numpy),
        lambda dtype: [(sample("astype", s, dtype, 0, 9),) for s in ((2, 3), (), (0, 3))],
        to.name,
        _REAL if not to.is_complex else _ALL,
        lambda dtype, to=to: to,  # type: ignore[misc]  # a default binds the loop variable
    )
    for to in dtypes.ALL
)

_MANIPULATION: Final = (
    _move("broadcast_to", lambda xp, x: xp.broadcast_to(x, (2, 3, 4)),
          lambda x: np.broadcast_to(x, (2, 3, 4)), _of((3, 1), (), (4,))),
    _move("broadcast_arrays", lambda xp, x, y: xp.broadcast_arrays(x, y),
          lambda x, y: tuple(np.broadcast_arrays(x, y)), _pair((3, 1), (4,))),
    _move("concat", lambda xp, x, y: xp.concat([x, y], axis=1),
          lambda x, y: np.concatenate([x, y], axis=1), _pair((2, 3), (2, 4))),
    _move("concat", lambda xp, x, y: xp.concat([x, y], axis=None),
          lambda x, y: np.concatenate([x, y], axis=None), _pair((2, 3), (0, 4)), "flat"),
    _move("stack", lambda xp, x, y: xp.stack([x, y], axis=-1),
          lambda x, y: np.stack([x, y], axis=-1), _pair((2, 3), (2, 3))),
    _move("expand_dims", lambda xp, x: xp.expand_dims(x, (0, -1)),
          lambda x: np.expand_dims(x, (0, -1)), _of((2, 3), (), (0, 2))),
    _move("squeeze", lambda xp, x: xp.squeeze(x, (0, 2)), lambda x: np.squeeze(x, (0, 2)),
          _of((1, 3, 1), (1, 0, 1))),
    _move("flip", lambda xp, x: xp.flip(x), np.flip, _of((2, 3), (), (0, 2))),
    _move("flip", lambda xp, x: xp.flip(x, axis=(0, -1)), lambda x: np.flip(x, (0, -1)), None,
          "axes"),
    _move("moveaxis", lambda xp, x: xp.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, 0, -1)),
    _move("moveaxis", lambda xp, x: xp.moveaxis(x, (0, 1), (2, 0)),
          lambda x: np.moveaxis(x, (0, 1), (2, 0)), None, "several"),
    _move("permute_dims", lambda xp, x: xp.permute_dims(x, (2, 0, 1)),
          lambda x: np.transpose(x, (2, 0, 1)), _of((2, 3, 4), (2, 0, 1))),
    _move("repeat", lambda xp, x: xp.repeat(x, 2, axis=1), lambda x: np.repeat(x, 2, axis=1)),
    _move("repeat", lambda xp, x: xp.repeat(x, xp.asarray([1, 0, 2]), axis=1),
          lambda x: np.repeat(x, [1, 0, 2], axis=1), None, "each"),
    _move("repeat", lambda xp, x: xp.repeat(x, 3), lambda x: np.repeat(x, 3), None, "flat"),
    _move("reshape", lambda xp, x: xp.reshape(x, (4, -1)), lambda x: np.reshape(x, (4, -1)),
          _of((2, 3, 4), (4,), (0, 2))),
    _move("reshape", lambda xp, x: xp.reshape(xp.matrix_transpose(x), (24,), copy=True),
          lambda x: np.swapaxes(x, -1, -2).reshape(24), None, "of-view"),
    _move("roll", lambda xp, x: xp.roll(x, 5), lambda x: np.roll(x, 5), _of((2, 3), (), (0,))),
    _move("roll", lambda xp, x: xp.roll(x, (1, -2), axis=(0, 2)),
          lambda x: np.roll(x, (1, -2), axis=(0, 2)), None, "axes"),
    _move("roll", lambda xp, x: xp.roll(x, (), axis=()), lambda x: x, None, "no-axes"),
    _move("tile", lambda xp, x: xp.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3)),
          _of((2, 3), (), (2, 2, 2, 2))),
    _move("unstack", lambda xp, x: xp.unstack(x, axis=1), lambda x: tuple(np.unstack(x, axis=1))),
)  # fmt: skip


def _ties(dtype: DType) -> list[Inputs]:
    """Values with repeats, among them NaN for floats."""
    return [(sample("ties", s, dtype, -2, 2),) for s in ((4, 5), (7,), (0,))] + (
        [(np.array([2, np.nan, 1, 2, np.inf, -np.inf, 1], dtype.numpy),)]
        if dtype.is_floating
        else []
    )


def _sorted_pair(dtype: DType) -> list[Inputs]:
    first = np.sort(sample("sorted", (6,), dtype, -4, 4))
    return [(first, sample("find", s, dtype, -5, 5)) for s in ((2, 3), (), (0,))]


def _descending(x: Array) -> Array:
    """The order of a stable descending sort: NaN counts as the largest, as it does ascending."""
    order: Array = np.argsort(x[..., ::-1], axis=-1, stable=True)[..., ::-1]
    return np.asarray(x.shape[-1] - 1 - order)


def _unique(x: Array) -> tuple[Array, ...]:
    return tuple(np.unique_all(x))


def _whole_ties(dtype: DType) -> list[Inputs]:
    return [(a.round(),) if dtype.is_floating else (a,) for (a,) in _ties(dtype)]


_SEARCHING: Final = (
    _move("sort", lambda xp, x: xp.sort(x), np.sort, _ties, "", _REAL),
    _move("sort", lambda xp, x: xp.sort(x, axis=0, descending=True),
          lambda x: np.flip(np.sort(x, axis=0), axis=0), _ties, "descending", _REAL),
    _move("argsort", lambda xp, x: xp.argsort(x), lambda x: np.argsort(x, stable=True), _ties,
          "", _REAL, _index),
    _move("argsort", lambda xp, x: xp.argsort(x, descending=True), _descending, _ties,
          "descending", _REAL, _index),
    _move("nonzero", lambda xp, x: xp.nonzero(x), np.nonzero, _ties, "", _ALL, _index),
    _move("searchsorted", lambda xp, x, y: xp.searchsorted(x, y), np.searchsorted, _sorted_pair,
          "", _NUMERIC_REAL, _index),
    _move("searchsorted", lambda xp, x, y: xp.searchsorted(x, y, side="right"),
          lambda x, y: np.searchsorted(x, y, side="right"), _sorted_pair, "right", _NUMERIC_REAL,
          _index),
    _move("where", lambda xp, x, y: xp.where(x == y, x, y), lambda x, y: np.where(x == y, x, y),
          _pair((2, 3), (3,))),
    _move("where", lambda xp, x: xp.where(xp.asarray([True, False, True]), x, 1),
          lambda x: np.where([True, False, True], x, np.asarray(1, x.dtype)), _of((2, 3), ()),
          "scalar",
        _ALL[1:]),
    _move("isin", lambda xp, x: xp.isin(x, x[:2]), lambda x: np.isin(x, x[:2]), _of((5,), (3, 4)),
          "", _ALL, lambda dtype: dtypes.bool),
    _move("isin", lambda xp, x: xp.isin(x, 1, invert=True),
          lambda x: np.isin(x, np.asarray(1, x.dtype), invert=True), _of((5,)), "invert", _ALL,
          lambda dtype: dtypes.bool),
    _move("unique_values", lambda xp, x: xp.unique_values(x), lambda x: _unique(x)[0],
          _whole_ties, "", _REAL),
    _move("unique_counts", lambda xp, x: tuple(xp.unique_counts(x)),
          lambda x: (_unique(x)[0], _unique(x)[3]), _whole_ties, "", _REAL, lambda dtype: None),
    _move("unique_inverse", lambda xp, x: tuple(xp.unique_inverse(x)),
          lambda x: (_unique(x)[0], _unique(x)[2]), _whole_ties, "", _REAL, lambda dtype: None),
    _move("unique_all", lambda xp, x: tuple(xp.unique_all(x)), _unique, _whole_ties, "", _REAL,
          lambda dtype: None),
)  # fmt: skip

_INDEXING: Final = (
    _move("take", lambda xp, x: xp.take(x, xp.asarray([2, 0, -1, 2]), axis=1),
          lambda x: np.take(x, [2, 0, -1, 2], axis=1)),
    _move("take", lambda xp, x: xp.take(x, xp.asarray([[1], [0]], dtype="int32"), axis=0),
          lambda x: np.take(x, [[1], [0]], axis=0), None, "matrix"),
    _move("take", lambda xp, x: xp.take(x, []), lambda x: x[:0], _of((3,)), "none"),
    _move("take_along_axis",
          lambda xp, x: xp.take_along_axis(x, xp.argsort(xp.real(x), axis=1), axis=1)
          if x.dtype.is_complex else xp.take_along_axis(x, xp.argsort(x, axis=1), axis=1),
          lambda x: np.take_along_axis(x, np.argsort(np.real(x), axis=1, stable=True), axis=1)),
    _move("take_along_axis", lambda xp, x: xp.take_along_axis(x, xp.asarray([[-1, 0]])),
          lambda x: np.take_along_axis(x, np.array([[-1, 0], [-1, 0]]), axis=-1), _of((2, 3)),
          "broadcast"),
)  # fmt: skip

ARRAYS: Final[tuple[Case, ...]] = (
    *_CREATION,
    *_CASTS,
    *_MANIPULATION,
    *_SEARCHING,
    *_INDEXING,
)
