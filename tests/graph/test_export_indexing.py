"""`x[key]` and `x[key] = value` in graphs: the elements, and their axes, that NumPy would give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.graph import export

pytest.importorskip("onnxruntime")

_X: Final = np.arange(36, dtype=np.float32).reshape(4, 3, 3)
_PAIR: Final = np.array([[0], [-1]])


@pytest.fixture(autouse=True)
def numpy_backend() -> Iterator[None]:
    with em.use_backend("numpy"):
        yield


# An ellipsis of no axes keeps arrays apart all the same.
_KEYS: Final[dict[str, tuple[Any, ...]]] = {
    "ellipsis-int": (slice(None), _PAIR, ..., 0),
    "ellipsis-array": (slice(None), _PAIR, ..., _PAIR),
    "beside": (slice(None), _PAIR, 0),
    "before-the-first": (slice(-6, None, -1), 0),
    "before-the-first-and-arrays": (slice(-6, None, -2), _PAIR),
    "mask-of-nothing": (np.zeros(4, bool), _PAIR),
    "nothing-behind-arrays": (_PAIR, slice(2, 1)),
}


@pytest.mark.parametrize("name", _KEYS)
def test_keys(name: str) -> None:
    key = _KEYS[name]
    wanted = _X[key]
    for executor in (None, "numpy"):
        got: Any = export(lambda x: x[key], _X).run({"x": _X}, backend=executor)["output"]
        np.testing.assert_array_equal(np.asarray(got), wanted, strict=True)


@pytest.mark.parametrize("name", _KEYS)
def test_keys_of_traced_indices(name: str) -> None:
    def picked(x: Any, pair: Any) -> Any:
        return x[tuple(pair if item is _PAIR else item for item in _KEYS[name])]

    got = export(picked, _X, _PAIR).run({"x": _X, "pair": _PAIR})["output"]
    np.testing.assert_array_equal(got, _X[_KEYS[name]], strict=True)


@pytest.mark.parametrize("name", _KEYS)
def test_values_of_the_shape_of_the_key(name: str) -> None:
    def written(x: Any, value: Any) -> Any:
        y = x.copy()
        y[_KEYS[name]] = value
        return y

    wanted = _X.copy()
    value = -wanted[_KEYS[name]]
    wanted[_KEYS[name]] = value
    got = export(written, _X, value).run({"x": _X, "value": value})["output"]
    np.testing.assert_array_equal(got, wanted, strict=True)


def test_a_value_of_more_axes_than_the_tensor() -> None:
    def written(x: Any, value: Any) -> Any:
        y = x.copy()
        y[:, :, _PAIR] = value
        return y

    value = -np.arange(24, dtype=np.float32).reshape(4, 3, 2, 1)
    wanted = _X.copy()
    wanted[:, :, _PAIR] = value
    got = export(written, _X, value).run({"x": _X, "value": value})["output"]
    np.testing.assert_array_equal(got, wanted, strict=True)


@pytest.mark.parametrize("step", [1, 2, -1, -3])
@pytest.mark.parametrize("stop", [None, -5, -3, -1, 0, 2])
@pytest.mark.parametrize("start", [None, -5, -3, -1, 0, 2])
def test_slices_of_all_sizes(start: int | None, stop: int | None, step: int) -> None:
    graph = export(lambda x: x[start:stop:step], _X[:, 0], dynamic_axes={"x": {0: "n"}})
    for count in (1, 2, 4, 7):
        x = np.arange(3 * count, dtype=np.float32).reshape(count, 3)
        got = graph.run({"x": x})["output"]
        np.testing.assert_array_equal(got, x[start:stop:step], strict=True)


def test_indices_that_stand_apart_on_every_backend(backend: str) -> None:
    with em.use_backend(backend):
        assert ops.asarray(_X)[:, _PAIR, ..., 0].shape == (2, 1, 4)


def test_indices_that_pick_nothing_are_not_read() -> None:
    x, mask = np.ones((1, 2, 4, 2), np.float32), np.zeros(1, bool)
    indices = np.array([[2], [-4], [3]], np.int32)
    graph = export(lambda x, indices: x[mask, :, indices, :], x, indices)
    assert graph.run({"x": x, "indices": indices})["output"].shape == (3, 0, 2, 2)
