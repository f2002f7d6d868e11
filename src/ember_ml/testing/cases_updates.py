"""Updates by index, points, masks and tables: references write into copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import AxisError, DomainError, DTypeError, OutOfBoundsError, ShapeError
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample
from ember_ml.testing.mistake import Mistake

__all__ = ["MISTAKES", "UPDATES"]

_ALL: Final = dtypes.ALL
_ONCE: Final = (dtypes.float32,)
_INTEGERS: Final = tuple(d for d in _ALL if d.is_integer)


def _of(*shapes: tuple[int, ...]) -> Callable[[DType], list[Inputs]]:
    """One run, with an input of each shape."""
    return lambda dtype: [
        tuple(sample(f"update{i}{s}", s, dtype, -3, 3) for i, s in enumerate(shapes))
    ]


def _set(x: Array, key: Any, value: Any) -> Array:
    out = x.copy()
    out[key] = value
    return out


def _at(ufunc: np.ufunc, x: Array, key: Any, value: Any) -> Array:
    out = x.copy()
    ufunc.at(out, key, value)
    return out


def _case(
    op: str,
    run: Callable[..., Any],
    expect: Callable[..., Any],
    inputs: Callable[[DType], list[Inputs]],
    label: str = "",
    over: tuple[DType, ...] | None = None,
) -> Case:
    return Case(
        op, run, expect, inputs, accepted(op) if over is None else over, law(op), label=label
    )


_MASK: Final = np.array([[True, False, True], [False, False, True]])
_POINTS: Final = np.array([[0, 2], [-1, 0], [1, 1]])

_KEYS: Final = (
    _case("index_update", lambda xp, x, v: xp.index_update(x, (slice(None), [0, -1]), v),
          lambda x, v: _set(x, (slice(None), [0, -1]), v), _of((2, 3), (2, 2))),
    _case("index_update", lambda xp, x, v: xp.index_update(x, (1, slice(None, None, -2)), v),
          lambda x, v: _set(x, (1, slice(None, None, -2)), v), _of((2, 3), (2,)), "slices", _ONCE),
    _case("index_update", lambda xp, x: xp.index_update(x, xp.asarray(_MASK), 0),
          lambda x: _set(x, _MASK, 0), _of((2, 3)), "mask", _ONCE),
    _case("index_update", lambda xp, x: xp.index_update(x, [], 5), lambda x: x, _of((0, 3)),
          "nothing", _ONCE),
    _case("index_update", lambda xp, x, v: xp.index_update(x, (), v), lambda x, v: v, _of((), ()),
          "0d", _ONCE),
    _case("index_add", lambda xp, x, v: xp.index_add(x, [0, 1, 0], v),
          lambda x, v: _at(np.add, x, [0, 1, 0], v), _of((2, 3), (3, 3))),
    _case("index_add", lambda xp, x, v: xp.index_add(x, (slice(None), xp.asarray([2, 2])), v),
          lambda x, v: _at(np.add, x, (slice(None), [2, 2]), v), _of((2, 3), (2, 1)), "spread",
          _ONCE),
    _case("index_add", lambda xp, x, v: xp.index_add(x, slice(1), v),
          lambda x, v: _at(np.add, x, slice(1), v), _of((2, 3), (3,)), "slice", _ONCE),
    _case("index_add", lambda xp, x: xp.index_add(x, _MASK, 1),
          lambda x: _at(np.add, x, _MASK, 1), _of((2, 3)), "mask", _ONCE),
    _case("slice_update", lambda xp, x, v: xp.slice_update(x, (1, 1), v),
          lambda x, v: _set(x, (slice(1, 2), slice(1, 3)), v), _of((2, 3), (1, 2))),
    _case("slice_update", lambda xp, x, v: xp.slice_update(x, xp.asarray([0, 2]), v),
          lambda x, v: _set(x, (slice(2), slice(2, 3)), v), _of((2, 3), (2, 1)), "tensor", _ONCE),
    _case("slice_update", lambda xp, x, v: xp.slice_update(x, (slice(None), slice(0, 3, 2)), v),
          lambda x, v: _set(x, (slice(None), slice(0, 3, 2)), v), _of((2, 3), (2, 2)), "slices",
          _ONCE),
    _case("dynamic_slice", lambda xp, x: xp.dynamic_slice(x, (0, 1), (2, 2)), lambda x: x[:, 1:],
          _of((2, 3))),
    _case("dynamic_slice", lambda xp, x: xp.dynamic_slice(x, xp.asarray([1, 0]), (1, 0)),
          lambda x: x[1:, :0], _of((2, 3)), "empty", _ONCE),
    _case("fill_diagonal", lambda xp, x, v: xp.fill_diagonal(x, v),
          lambda x, v: _set(x, (range(3), range(3)), v), _of((4, 3), (3,))),
    _case("fill_diagonal", lambda xp, x: xp.fill_diagonal(x, 1, wrap=True),
          lambda x: _wrapped(x, 1), _of((9, 3)), "wrap", _ONCE),
    _case("fill_diagonal", lambda xp, x: xp.fill_diagonal(x, 7),
          lambda x: _set(x, (range(2),) * 3, 7), _of((2, 2, 2)), "cube", _ONCE),
    _case("fill_diagonal", lambda xp, x: xp.fill_diagonal(x, 7), lambda x: x, _of((0, 3)), "empty",
          _ONCE),
)  # fmt: skip


def _wrapped(x: Array, value: Any) -> Array:
    out = x.copy()
    np.fill_diagonal(out, value, wrap=True)
    return out


_ROWS: Final = np.array([[2, 0, 1, 1], [0, -1, 0, 2]])

_ALONG: Final = (
    _case("gather", lambda xp, x: xp.gather(x, xp.asarray(_ROWS), axis=1),
          lambda x: np.take_along_axis(x, _ROWS, 1), _of((2, 3))),
    _case("gather", lambda xp, x: xp.gather(x, [[1, 0]]), lambda x: np.array([[x[1, 0], x[0, 1]]]),
          _of((2, 3)), "smaller", _ONCE),
    _case("gather", lambda xp, x: xp.gather(x, [2, 2, 0]), lambda x: x[[2, 2, 0]], _of((3,)),
          "vector", _ONCE),
    _case("put_along_axis", lambda xp, x, v: xp.put_along_axis(x, xp.asarray([[2, 0], [1, -1]]), v),
          lambda x, v: _put_along(x, [[2, 0], [1, -1]], v, -1), _of((2, 3), (2, 2))),
    _case("put_along_axis", lambda xp, x: xp.put_along_axis(x, [[1, 0, 1]], 8, axis=0),
          lambda x: _put_along(x, [[1, 0, 1]], 8, 0), _of((2, 3)), "axis", _ONCE),
    _case("masked_fill", lambda xp, x: xp.masked_fill(x, xp.asarray(_MASK[0]), True),
          lambda x: np.where(_MASK[0], True, x).astype(x.dtype), _of((2, 3))),
    _case("masked_fill", lambda xp, x, v: xp.masked_fill(x, _MASK, v),
          lambda x, v: np.where(_MASK, v, x), _of((2, 3), ()), "tensor", _ONCE),
    _case("masked_select", lambda xp, x: xp.masked_select(x, xp.asarray(_MASK)),
          lambda x: x[_MASK], _of((2, 3))),
    _case("masked_select", lambda xp, x: xp.masked_select(x, _MASK),
          lambda x: np.broadcast_to(x, (2, 3))[_MASK], _of((3,)), "broadcast", _ONCE),
)  # fmt: skip


def _put_along(x: Array, indices: Any, values: Any, axis: int) -> Array:
    out = x.copy()
    np.put_along_axis(out, np.array(indices), values, axis)
    return out


def _keys(points: Array) -> tuple[Array, ...]:
    return tuple(points[..., i] for i in range(points.shape[-1]))


_ND: Final = (
    _case("gather_nd", lambda xp, x: xp.gather_nd(x, xp.asarray(_POINTS)),
          lambda x: x[_keys(_POINTS)], _of((2, 3))),
    _case("gather_nd", lambda xp, x: xp.gather_nd(x, [[[1], [0]]]), lambda x: x[[[1, 0]]],
          _of((2, 3)), "rows", _ONCE),
    _case("gather_nd", lambda xp, x: xp.gather_nd(x, np.zeros((2, 0), int)),
          lambda x: np.stack([x, x]), _of((2, 3)), "whole", _ONCE),
    _case("tensor_scatter_nd_update",
          lambda xp, x, v: xp.tensor_scatter_nd_update(x, xp.asarray(_POINTS), v),
          lambda x, v: _set(x, _keys(_POINTS), v), _of((2, 3), (3,))),
    _case("tensor_scatter_nd_update",
          lambda xp, x, v: xp.tensor_scatter_nd_update(x, [[[1]], [[0]]], v),
          lambda x, v: v[::-1, 0], _of((2, 3), (2, 1, 3)), "rows", _ONCE),
    *(
        _case(f"tensor_scatter_nd_{name}",
              lambda xp, x, v, op=f"tensor_scatter_nd_{name}": getattr(xp, op)(
                  x, [[1, 0], [0, 2], [1, 0]], v),
              lambda x, v, ufunc=ufunc: _at(ufunc, x, ([1, 0, 1], [0, 2, 0]), v),
              _of((2, 3), (3,)))
        for name, ufunc in (("add", np.add), ("max", np.maximum), ("min", np.minimum))
    ),
    _case("tensor_scatter_nd_max", lambda xp, x, v: xp.tensor_scatter_nd_max(x, [[1]], v),
          lambda x, v: _at(np.maximum, x, [1], v), _of((2, 3), (1, 3)), "rows", _ONCE),
    _case("scatter_nd", lambda xp, v: xp.scatter_nd([[1, 0], [0, 2], [1, 0]], v, (2, 3)),
          lambda v: _at(np.add, np.zeros((2, 3), v.dtype), ([1, 0, 1], [0, 2, 0]), v), _of((3,))),
    _case("scatter_nd", lambda xp, v: xp.scatter_nd(np.zeros((0, 1), int), v, [2, 3]),
          lambda v: np.zeros((2, 3)), _of((0, 3)), "empty", _ONCE),
)  # fmt: skip


# --- Tables and positions ---------------------------------------------------------------------


def _classes(*shapes: tuple[int, ...]) -> Callable[[DType], list[Inputs]]:
    return lambda dtype: [(sample(f"class{s}", s, dtype, 0, 3),) for s in shapes]


def _flags(dtype: DType) -> list[Inputs]:
    return [((sample(f"flag{s}", s, dtype, -1, 1) * _MASK[0]).astype(dtype.numpy),)
            for s in ((2, 3), (0, 3))]  # fmt: skip


def _hot(x: Array, count: int = 4) -> Array:
    rows: Array = np.eye(count)[x.astype(int)]
    return rows


def _float32(dtype: DType) -> DType:
    return dtypes.float32


_TABLES: Final = (
    Case("one_hot", lambda xp, x: xp.one_hot(x, 4), _hot, _classes((2, 3), (), (0,)), _INTEGERS,
         _float32),
    Case("one_hot", lambda xp, x: xp.one_hot(x), lambda x: _hot(x, int(x.max()) + 1),
         _classes((5,)), (dtypes.int64,), _float32, label="open"),
    Case("one_hot", lambda xp, x: xp.one_hot(x, 4, axis=0, dtype="int32"),
         lambda x: np.moveaxis(_hot(x), -1, 0), _classes((2, 3)), (dtypes.int64,),
         lambda dtype: dtypes.int32, label="axis"),
    Case("one_hot", lambda xp, x: xp.one_hot(x, 4, on_value=0.5, off_value=-1),
         lambda x: 1.5 * _hot(x) - 1, _classes((2, 3)), (dtypes.int64,), _float32, label="values"),
    Case("one_hot", lambda xp, x: xp.one_hot(x, 4, dtype=bool), lambda x: _hot(x).astype(bool),
         _classes((2, 3)), (dtypes.int64,), lambda dtype: dtypes.bool, label="truth"),
    Case("one_hot", lambda xp, x: xp.one_hot(x, 4, on_value=xp.asarray(2.0)),
         lambda x: 2 * _hot(x), _classes((2, 3)), (dtypes.int64,), _float32, label="tensor-value"),
    _case("embedding", lambda xp, w: xp.embedding(xp.asarray([[1, 0], [2, -1]]), w),
          lambda w: w[[[1, 0], [2, -1]]], _of((3, 2))),
    _case("embedding", lambda xp, w: xp.embedding([1, 0, 2, -1], w, padding_idx=-1),
          lambda w: w[[1, 0, 2, -1]], _of((3, 2)), "padding", _ONCE),
    _case("argwhere", lambda xp, x: xp.argwhere(x), np.argwhere, _flags),
    _case("flatnonzero", lambda xp, x: xp.flatnonzero(x), np.flatnonzero, _flags),
    _case("unravel_index", lambda xp, x: xp.unravel_index(x, (2, 1, 2)),
          lambda x: np.unravel_index(x.astype(int), (2, 1, 2)), _classes((2, 3), (0,))),
    _case("ravel_multi_index", lambda xp, x: xp.ravel_multi_index((x, x), (4, 5)),
          lambda x: np.ravel_multi_index((x.astype(int), x.astype(int)), (4, 5)), _classes((5,))),
    _case("ravel_multi_index", lambda xp, x: xp.ravel_multi_index([x - 2, x], (3, 2), "wrap"),
          lambda x: np.ravel_multi_index((x - 2, x), (3, 2), "wrap"), _classes((5,)), "wrap",
          (dtypes.int64,)),
    _case("ravel_multi_index", lambda xp, x: xp.ravel_multi_index([x - 2, x], (3, 2), mode="clip"),
          lambda x: np.ravel_multi_index((x - 2, x), (3, 2), "clip"), _classes((5,)), "clip",
          (dtypes.int64,)),
    *(
        Case(op, run, expect, lambda dtype: [()], _ONCE, lambda dtype: dtypes.int64, label=label)
        for op, label, run, expect in (
            ("tril_indices", "", lambda xp: xp.tril_indices(3, 1, 4),
             lambda: np.tril_indices(3, 1, 4)),
            ("triu_indices", "", lambda xp: xp.triu_indices(3, -1, 4),
             lambda: np.triu_indices(3, -1, 4)),
            ("triu_indices", "none", lambda xp: xp.triu_indices(0), lambda: np.triu_indices(0)),
            ("diag_indices", "", lambda xp: xp.diag_indices(3, 3), lambda: np.diag_indices(3, 3)),
        )
    ),
)  # fmt: skip

UPDATES: Final[tuple[Case, ...]] = (*_KEYS, *_ALONG, *_ND, *_TABLES)

MISTAKES: Final[tuple[Mistake, ...]] = (
    Mistake("index-update-beyond", OutOfBoundsError,
            lambda xp: xp.index_update(xp.ones(3), xp.asarray([3]), 0.0)),
    Mistake("index-update-shape", ShapeError,
            lambda xp: xp.index_update(xp.ones(3), [0, 1], xp.ones(3)), ("(3,)", "(2,)")),
    Mistake("index-update-dtype", DTypeError,
            lambda xp: xp.index_update(xp.asarray([1, 2]), 0, 0.5), ("0.5", "int64")),
    Mistake("index-add-shape", ShapeError,
            lambda xp: xp.index_add(xp.ones(3), xp.asarray([0, 0]), xp.ones(3))),
    Mistake("index-add-slice-shape", ShapeError,
            lambda xp: xp.index_add(xp.ones(3), slice(2), xp.ones(3))),
    Mistake("index-add-beyond", OutOfBoundsError, lambda xp: xp.index_add(xp.ones(3), [4], 1.0)),
    Mistake("slice-update-beyond", OutOfBoundsError,
            lambda xp: xp.slice_update(xp.ones(3), (2,), xp.ones(2)), ("2 to 4", "(3,)")),
    Mistake("slice-update-axes", ShapeError,
            lambda xp: xp.slice_update(xp.ones((2, 3)), (0, 0), xp.ones(2))),
    Mistake("dynamic-slice-beyond", OutOfBoundsError,
            lambda xp: xp.dynamic_slice(xp.ones(3), [-1], [1])),
    Mistake("dynamic-slice-starts", ShapeError,
            lambda xp: xp.dynamic_slice(xp.ones((2, 3)), [0], [1, 1])),
    Mistake("gather-axes", ShapeError, lambda xp: xp.gather(xp.ones((2, 3)), [0, 1]),
            ("ops.take",)),
    Mistake("gather-longer", ShapeError,
            lambda xp: xp.gather(xp.ones((2, 3)), xp.zeros((3, 1), dtype="int64"), axis=1)),
    Mistake("gather-beyond", OutOfBoundsError, lambda xp: xp.gather(xp.ones(3), [3])),
    Mistake("gather-float", DTypeError, lambda xp: xp.gather(xp.ones(3), xp.ones(3))),
    Mistake("gather-axis", AxisError, lambda xp: xp.gather(xp.ones(3), [0], axis=1)),
    Mistake("put-along-beyond", OutOfBoundsError,
            lambda xp: xp.put_along_axis(xp.ones((2, 2)), [[2], [0]], 1.0)),
    Mistake("masked-fill-mask", DTypeError, lambda xp: xp.masked_fill(xp.ones(2), [0, 1], 0.0)),
    Mistake("masked-fill-shape", ShapeError,
            lambda xp: xp.masked_fill(xp.ones(2), xp.ones((2, 2), dtype="bool"), 0.0)),
    Mistake("masked-fill-dtype", DTypeError,
            lambda xp: xp.masked_fill(xp.asarray([1, 2]), [True, False], 0.5)),
    Mistake("masked-select-shape", ShapeError,
            lambda xp: xp.masked_select(xp.ones(2), [True, False, True])),
    Mistake("gather-nd-depth", ShapeError, lambda xp: xp.gather_nd(xp.ones(2), [[0, 0]])),
    Mistake("gather-nd-beyond", OutOfBoundsError,
            lambda xp: xp.gather_nd(xp.ones((2, 3)), [[0, 3]]), ("index 3", "axis 1", "(2, 3)")),
    Mistake("scatter-nd-updates", ShapeError,
            lambda xp: xp.scatter_nd([[0], [1]], xp.ones(3), (4,)), ("(3,)", "(2,)")),
    Mistake("scatter-nd-beyond", OutOfBoundsError,
            lambda xp: xp.scatter_nd([[4]], xp.ones(1), (4,))),
    Mistake("tensor-scatter-dtype", DTypeError,
            lambda xp: xp.tensor_scatter_nd_update(xp.asarray([1]), [[0]], [0.5])),
    Mistake("fill-diagonal-vector", ShapeError, lambda xp: xp.fill_diagonal(xp.ones(2), 0.0)),
    Mistake("one-hot-beyond", OutOfBoundsError, lambda xp: xp.one_hot([0, 3], 3), ("index 3",)),
    Mistake("one-hot-negative", OutOfBoundsError, lambda xp: xp.one_hot([-1], 3)),
    Mistake("one-hot-float", DTypeError, lambda xp: xp.one_hot(xp.ones(2), 3)),
    Mistake("one-hot-count", DomainError, lambda xp: xp.one_hot([0], -1)),
    Mistake("one-hot-value", DTypeError,
            lambda xp: xp.one_hot([0], 2, dtype="int32", on_value=0.5), ("0.5", "int32")),
    Mistake("one-hot-axis", AxisError, lambda xp: xp.one_hot([0], 2, axis=2)),
    Mistake("embedding-beyond", OutOfBoundsError, lambda xp: xp.embedding([2], xp.ones((2, 3))),
            ("ops.", "index 2")),
    Mistake("embedding-padding", OutOfBoundsError,
            lambda xp: xp.embedding([0], xp.ones((2, 3)), padding_idx=2)),
    Mistake("embedding-table", ShapeError, lambda xp: xp.embedding([0], xp.ones(2))),
    Mistake("embedding-float", DTypeError, lambda xp: xp.embedding([0.0], xp.ones((2, 3)))),
    Mistake("unravel-beyond", OutOfBoundsError, lambda xp: xp.unravel_index([6], (2, 3))),
    Mistake("ravel-multi-beyond", OutOfBoundsError,
            lambda xp: xp.ravel_multi_index(([0], [3]), (2, 3))),
    Mistake("ravel-multi-count", ShapeError, lambda xp: xp.ravel_multi_index(([0],), (2, 3))),
    Mistake("ravel-multi-mode", DomainError,
            lambda xp: xp.ravel_multi_index(([0], [0]), (2, 3), "drop")),
    Mistake("argwhere-0d", ShapeError, lambda xp: xp.argwhere(xp.ones(()))),
)  # fmt: skip
