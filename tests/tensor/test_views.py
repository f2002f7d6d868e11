"""Views mean the same on every backend: random programs are played beside NumPy."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import ops
from ember_ml.errors import OutOfBoundsError, ReadOnlyError, ShapeError, UnsupportedOpError
from ember_ml.nn import tensor
from ember_ml.tensor import TensorView, TensorViewMut, views

BACKENDS = ("numpy", "torch", "jax", "mlx")
# Few shapes: JAX compiles a program for each part of each.
SHAPES = ((4,), (2, 3), (2, 1, 4))
BOUNDS = st.sampled_from([None, 0, 1, 2, -1, -2])
STEPS = st.sampled_from([None, 1, 2, -1, -2])


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Any:
    with em.use_backend(request.param):
        yield request.param


# --- Random programs ------------------------------------------------------------------------------


def draw_key(data: st.DataObject, shape: tuple[int, ...]) -> tuple[Any, ...]:
    key: list[Any] = []
    for side in shape:
        kind = data.draw(st.sampled_from(["slice", "slice", "all", "int", "new", "rest"]))
        if kind == "int" and side:
            key.append(data.draw(st.integers(-side, side - 1)))
        elif kind == "slice":
            key.append(slice(data.draw(BOUNDS), data.draw(BOUNDS), data.draw(STEPS)))
        elif kind == "new":
            key += [None, slice(None)]
        elif kind == "rest":
            key.append(...)
            break
        else:
            key.append(slice(None))
    return tuple(key)


def with_ellipsis(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key under which NumPy gives a view also of one element."""
    return key if ... in key else (*key, ...)


def draw_view(data: st.DataObject, x: em.Tensor, a: np.ndarray) -> tuple[em.Tensor, np.ndarray]:
    """One of the ways to make a view, for us and for NumPy."""
    kind = data.draw(
        st.sampled_from(["key", "key", "permute", "flip", "reshape", "broadcast", "narrow", "T"])
    )
    if kind == "permute":
        axes = data.draw(st.permutations(range(a.ndim)))
        return x.permute(axes), a.transpose(axes)
    if kind == "flip":
        axis = data.draw(st.sampled_from([None, *range(a.ndim)]))
        return x.flip(axis), np.flip(a, axis) if a.ndim else a
    if kind == "reshape":
        shape = data.draw(st.sampled_from([(-1,), (1, -1), (-1, 2)]))
        if a.size and (shape != (-1, 2) or a.size % 2 == 0):
            return x.reshape(shape), a.reshape(shape)
    if kind == "broadcast":
        shape = (2, *a.shape)
        return x.broadcast_to(shape), np.broadcast_to(a, shape)
    if kind == "narrow" and a.ndim and a.shape[0] > 1:
        return x.narrow(0, 1, a.shape[0] - 1), a[1:]
    if kind == "T" and a.ndim == 2:
        return x.T, a.T
    key = draw_key(data, a.shape)
    return x[key], a[with_ellipsis(key)]


def write(data: st.DataObject, x: em.Tensor, a: np.ndarray, value: int) -> None:
    """One of the ways to write, for us and for NumPy; both refuse or neither."""
    kind = data.draw(st.sampled_from(["scalar", "array", "add", "mask", "own"]))
    if not a.flags.writeable:
        with pytest.raises(ReadOnlyError):
            x[...] = value
        with pytest.raises(ReadOnlyError):
            x += 1
        return
    if kind == "add":
        x *= 2
        a *= 2
        return
    if kind == "mask":
        x[x > 5] = value
        a[a > 5] = value
        return
    key = draw_key(data, a.shape)
    target = a[with_ellipsis(key)]
    if kind == "own" and a.ndim and a.shape[0] > 1:  # memory that overlaps what is written
        x[1:] = x[:-1]
        a[1:] = a[:-1].copy()
    elif kind == "array":
        values = np.arange(target.size, dtype=np.int64).reshape(target.shape) + value
        x[key] = values
        target[...] = values
    else:
        x[key] = value
        target[...] = value


def play(backend: str, data: st.DataObject) -> None:
    with em.use_backend(backend):
        shape = data.draw(st.sampled_from(SHAPES))
        start = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
        x, a = ops.asarray(start, copy=True), start.copy()
        family: list[tuple[em.Tensor, np.ndarray]] = [(x, a)]
        for step in range(data.draw(st.integers(2, 7))):
            one, two = family[data.draw(st.integers(0, len(family) - 1))]
            kind = data.draw(st.sampled_from(["view", "view", "write", "write", "clone", "alias"]))
            if kind == "view":
                family.append(draw_view(data, one, two))
            elif kind == "write":
                write(data, one, two, 100 + step)
            elif kind == "clone":
                family.append((one.clone(), two.copy()))
            else:
                family.append((one.alias(), two))
            for mine, theirs in family:
                assert mine.shape == theirs.shape
                np.testing.assert_array_equal(mine.numpy(), theirs)
                assert mine.dtype == "int64"


@settings(max_examples=150, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("backend", ["numpy", "torch", "mlx"])
def test_random_programs_of_views_and_writes(backend: str, data: st.DataObject) -> None:
    play(backend, data)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_programs_of_views_and_writes_on_jax(data: st.DataObject) -> None:
    play("jax", data)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("backend", ["jax", "mlx"])
def test_random_programs_where_old_arrays_are_given_up(backend: str, data: st.DataObject) -> None:
    """As with large tensors, whose storage owns its array and writes in place."""
    with mock.patch.object(views, "_SMALL", 0):
        play(backend, data)
