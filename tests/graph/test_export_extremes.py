"""Exported ops at the ends of their dtypes: where ONNX Runtime's own kernels are inexact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.graph import export

pytest.importorskip("onnxruntime")

Op = Callable[..., Any]


def _require_same(op: Op, *arrays: Any, backends: Any = (None, "numpy"), **options: Any) -> None:
    """Values, dtypes and shapes of a graph are those of the function on NumPy."""
    with em.use_backend("numpy"), np.errstate(all="ignore"):
        wanted = op(*map(ops.asarray, arrays)).numpy()
        graph = export(op, *(array[:4] if options else array for array in arrays), **options)
    feeds = dict(zip([x.name for x in graph.inputs], arrays, strict=True))
    for executor in backends:
        with np.errstate(all="ignore"):
            (got,) = graph.run(feeds, backend=executor).values()
        found: Any = got if executor is None else got.numpy()
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        if wanted.dtype.kind in "iub":
            assert found.tolist() == wanted.tolist()
        else:
            np.testing.assert_allclose(found.astype(float), wanted.astype(float), 1e-6)


# --- Integers -----------------------------------------------------------------------------------

_SIGNED: Final = ("int8", "int16", "int32", "int64")
_INTEGERS: Final = (*_SIGNED, "uint8", "uint16", "uint32", "uint64")
# ONNX Runtime compares the lower halves of int64 as signed numbers.
_HALVES: Final = np.array([2**31 - 9, 2**31 + 9, 2**40 + 2**31, 2**40 + 1, 5, -1, -(2**31) - 1])


def _ends(dtype: str, *more: int) -> np.ndarray[Any, Any]:
    limits = np.iinfo(dtype)
    return np.array([limits.min, limits.min + 1, 1, 2, 7, limits.max - 1, limits.max, *more], dtype)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_the_larger_of_64_bits(backend: str, name: str) -> None:
    a, b = np.meshgrid(_HALVES, _HALVES)
    _require_same(getattr(ops, name), a, b, backends=(None, backend))


@pytest.mark.parametrize(
    "op",
    [
        ops.sign,
        lambda x: ops.clip(x, 1, 2**31),
        lambda x: ops.clip(x, max=5),
    ],
    ids=["sign", "clip", "clip_above"],
)
def test_comparisons_within_64_bits(op: Op) -> None:
    _require_same(op, _HALVES)


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("name", ["max", "min", "sum", "prod"])
@pytest.mark.parametrize("dtype", ["int64", "uint64", "uint32"])
def test_reductions_are_exact(backend: str, dtype: str, name: str, axis: Any) -> None:
    rng = np.random.default_rng(3)
    kinds = rng.integers(2**31 - 50, 2**31 + 50, (3, 5, 40)), rng.integers(1, 2**62, (3, 5, 40))
    for array in kinds:
        for keepdims in (False, True):
            _require_same(
                lambda x, keepdims=keepdims: getattr(ops, name)(x, axis=axis, keepdims=keepdims),
                array.astype(dtype),
                backends=(None, backend),
            )


@pytest.mark.parametrize("name", ["max", "min", "sum"])
def test_reductions_over_a_size_that_varies_are_exact(name: str) -> None:
    for array in (_HALVES, _HALVES * 2**23 + 1):
        _require_same(lambda x: getattr(ops, name)(x), array, dynamic_axes={0: {0: "n"}})


@pytest.mark.parametrize("dtype", _INTEGERS)
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_division_does_not_overflow(name: str, dtype: str) -> None:
    ends = _ends(dtype) if dtype.startswith("u") else _ends(dtype, -1, -2, -7)
    x, y = (one.reshape(-1) for one in np.meshgrid(ends, ends))
    _require_same(getattr(ops, name), x[y != 0], y[y != 0])


@pytest.mark.parametrize("dtype", _INTEGERS)
def test_powers_of_integers_wrap(backend: str, dtype: str) -> None:
    exponents = np.array([0, 1, 2, 3, 35, 100, 127], dtype)
    x, y = (one.reshape(-1) for one in np.meshgrid(_ends(dtype), exponents))
    _require_same(ops.pow, x, y, backends=(None, backend))
    for exponent in (0, 1, 2, 35):
        _require_same(lambda x, exponent=exponent: x**exponent, _ends(dtype))


# --- Floats -------------------------------------------------------------------------------------

_FLOATS: Final = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32,
    "float64": np.float64,
}  # fmt: skip
_ROWS: Final = [
    [1.0, np.nan, 2.0, 0.5],
    [np.nan, np.inf, -np.inf, 1.0],
    [1.0, np.inf, 2.0, -np.inf],
    [0.0, -1.0, -0.5, -2.0],
]


@pytest.mark.parametrize("dtype", _FLOATS)
@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "logsumexp", "log_softmax"])
def test_nan_is_not_passed_over(name: str, dtype: str) -> None:
    _require_same(lambda x: getattr(ops, name)(x, axis=1), np.array(_ROWS, _FLOATS[dtype]))


@pytest.mark.parametrize("dtype", _FLOATS)
@pytest.mark.parametrize("name", ["sign", "log1p", "asinh", "acosh"])
def test_functions_at_the_ends(name: str, dtype: str) -> None:
    with np.errstate(over="ignore"):
        array = np.array([*_ROWS, [1e300, 3e154, 1.0, 1e9]]).astype(_FLOATS[dtype])
    _require_same(getattr(ops, name), array)


def test_a_slope_that_is_nan_has_no_angle() -> None:
    y, x = np.meshgrid(np.array(_ROWS[1], ml_dtypes.bfloat16), np.array([1.0, np.inf, -np.inf]))
    _require_same(ops.atan2, y, x.astype(y.dtype))


@pytest.mark.parametrize("dtype", _FLOATS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_nan_stands_behind_all_numbers(side: str, dtype: str) -> None:
    kind = _FLOATS[dtype]
    row = np.array([-np.inf, 0.0, 1.0, 1.0, np.inf, np.nan, np.nan], kind)
    sought = np.array([*_ROWS[1], 0.5], kind)
    _require_same(lambda x, y: ops.searchsorted(x, y, side=side), row, sought)


def test_logsumexp_of_one_number() -> None:
    _require_same(ops.logsumexp, np.array(3, np.float32))


# --- Nothing to reduce --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bool", "int64", "float32", "float64"])
@pytest.mark.parametrize("name", ["any", "all", "sum", "mean", "logsumexp", "log_softmax"])
def test_a_slice_that_is_empty_in_some_run(name: str, dtype: str) -> None:
    with em.use_backend("numpy"):

        def late(x: Any) -> Any:
            return getattr(ops, name)(x[1:], axis=0)

        graph = export(late, np.ones((4, 2), dtype), dynamic_axes={"x": {0: "n"}})
        for count in (1, 2, 3):
            array = (np.arange(2 * count).reshape(count, 2) % 3).astype(dtype)
            with np.errstate(all="ignore"):
                wanted = late(ops.asarray(array)).numpy()
            found: Any = graph.run({"x": array})["output"]
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, 1e-6)
