"""Indexing means what NumPy means, on every backend, for reading and for writing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import ember_ml as em
from ember_ml import ops

BACKENDS = ("numpy", "torch", "jax", "mlx")
BASE = np.arange(120.0).reshape(4, 5, 6)

KEYS: dict[str, Any] = {
    "integer": 2,
    "negative": -1,
    "full": (1, 2, 3),
    "slice": slice(1, 3),
    "steps": (slice(None, None, 2), slice(4, None, -2)),
    "reversed": slice(None, None, -1),
    "empty-slice": slice(3, 3),
    "ellipsis": (..., 1),
    "middle": (1, ..., 2),
    "newaxis": (None, slice(None), None, 1),
    "mixed": (0, slice(None, None, -1), None, slice(1, 5, 2)),
    "list": [0, 2],
    "empty-list": [],
    "array": np.array([[0, 1], [3, -1]]),
    "unsigned": np.array([0, 3], np.uint8),
    "array-and-slice": (slice(1, 3), np.array([0, -1, 2])),
    "two-arrays": (np.array([0, 1]), np.array([2, 3])),
    "broadcast-arrays": (np.array([[0], [1]]), np.array([2, 3])),
    "apart": (np.array([0, 1]), slice(None), np.array([2, 3])),
    "apart-with-integer": (np.array([0, 1]), slice(1, 3), 2),
    "after-slice": (slice(None), np.array([0, 1]), np.array([2, 3])),
    "array-and-newaxis": (np.array([0, 1]), None, 1),
    "mask": BASE > 50,
    "mask-first": np.array([True, False, True, False]),
    "mask-two": BASE[:, :, 0] > 40,
    "mask-and-slice": (slice(None), np.array([True, False, True, True, False])),
    "mask-nothing": BASE < -1,
    "mask-and-integer": (np.array([True, False, True, False]), 1),
    "true": True,
    "everything": (),
    "just-ellipsis": ...,
    "tensor-bounds": (slice(np.int64(1), np.int64(3)),),
}


def for_tensor(key: Any) -> Any:
    """The key as a user writes it: arrays as tensors."""
    if isinstance(key, tuple):
        return tuple(for_tensor(k) for k in key)
    return ops.asarray(key) if isinstance(key, np.ndarray) else key


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("as_tensor", [True, False])
def test_reading(backend: str, key: Any, as_tensor: bool) -> None:
    x = ops.asarray(BASE)
    got = x[for_tensor(key) if as_tensor else key]
    assert (got.backend, got.dtype) == (backend, em.float64)
    np.testing.assert_array_equal(got.numpy(), BASE[key])
    assert got.shape == BASE[key].shape


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_writing(backend: str, key: Any) -> None:
    for value in (7.0, np.full(BASE[key].shape, 3.0), np.full(BASE[key].shape[-1:], 2.0)):
        x, copy, wanted = ops.asarray(BASE, copy=True), ops.asarray(BASE, copy=True), BASE.copy()
        kept = ops.positive(copy)
        x[for_tensor(key)] = value if np.ndim(value) == 0 else ops.asarray(value)
        wanted[key] = value
        np.testing.assert_array_equal(x.numpy(), wanted)
        np.testing.assert_array_equal(kept.numpy(), BASE)


@pytest.mark.parametrize("key", [2, -1, slice(1, 3), (slice(None), -2), (..., slice(2)), (None, 1)])
def test_reading_with_gradients(backend: str, key: Any) -> None:
    """A slice of what is trained passes gradients on, and has none where nothing is recorded."""
    host = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    x = em.Tensor(host, requires_grad=True)
    part = x[key]
    np.testing.assert_array_equal(part.detach().numpy(), host[key])
    assert part.requires_grad
    ops.sum(part * part).backward()
    expected = np.zeros_like(host)
    expected[key] = 2 * host[key]
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), expected)
    with em.no_grad():
        assert not x[key].requires_grad
    for wrong in (3, -4, (0, 4), (0, 0, 0)):
        with pytest.raises(IndexError, match=r"\(3, 4\)"):
            x[wrong]


def test_writing_reaches_no_other_tensor(backend: str) -> None:
    x = ops.asarray([1.0, 2.0, 3.0])
    y = x + 0
    z = ops.asarray(x, copy=True)
    x[1] = 9.0
    x[ops.asarray([True, False, False])] = 5.0
    assert x.tolist() == [5.0, 9.0, 3.0]
    assert y.tolist() == z.tolist() == [1.0, 2.0, 3.0]


def test_0d(backend: str) -> None:
    x = ops.asarray(3.0)
    assert x[()].shape == ()
    assert x[...].item() == 3.0
    assert x[None].shape == (1,)
    assert x[ops.asarray(True)].tolist() == [3.0]
    assert x[ops.asarray(False)].shape == (0,)
    x[()] = 4.0
    assert x.item() == 4.0
    x[ops.asarray(True)] = 5.0
    assert x.item() == 5.0


def test_dtypes_of_values(backend: str) -> None:
    x = ops.zeros(3, dtype="float64")
    x[0] = 1
    x[1] = ops.asarray(2.5)
    x[2] = True
    assert x.tolist() == [1.0, 2.5, 1.0]
    i = ops.zeros(2, dtype="int32")
    i[0] = ops.asarray(3, dtype="int8")
    with pytest.raises(em.DTypeError):
        i[1] = 2.5
    assert i.tolist() == [3, 0]


def test_failed_writes_change_nothing(backend: str) -> None:
    x = ops.ones((2, 3))
    for key, value in ((5, 0.0), (0, ops.ones(2)), (0, 1j), ((0, 0, 0), 1.0)):
        with pytest.raises(em.EmberError):
            x[key] = value
    assert x.tolist() == [[1.0] * 3] * 2


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_basic_keys(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    key = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    array = np.arange(float(np.prod(shape))).reshape(shape)
    wanted = array[key]
    written = array.copy()
    written[key] = -1.0
    for name in BACKENDS:
        with em.use_backend(name):
            x = ops.asarray(array, copy=True)
            np.testing.assert_array_equal(x[key].numpy(), wanted)
            x[key] = -1.0
            np.testing.assert_array_equal(x.numpy(), written)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_advanced_keys(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4))
    result = data.draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=3))
    items: list[Any] = []
    for side in shape:
        kind = data.draw(st.sampled_from(["array", "slice", "integer"]))
        if kind == "array":
            items.append(
                data.draw(hnp.arrays(np.int64, result, elements=st.integers(-side, side - 1)))
            )
        elif kind == "slice":
            items.append(data.draw(st.slices(side)))
        else:
            items.append(data.draw(st.integers(-side, side - 1)))
    key = tuple(items)
    array = np.arange(float(np.prod(shape))).reshape(shape)
    for name in BACKENDS:
        with em.use_backend(name):
            x = ops.asarray(array)
            np.testing.assert_array_equal(x[for_tensor(key)].numpy(), array[key])
