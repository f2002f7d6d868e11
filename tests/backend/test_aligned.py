"""Host memory of ours lies where JAX takes it; that of small arrays is NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import dtypes, ops
from ember_ml.backend import aligned

COUNT = aligned.THRESHOLD // 4 + 5  # elements of four bytes, over the threshold


def at(array: Any) -> int:
    return int(array.__array_interface__["data"][0]) % 64


LARGE: dict[str, Callable[[], em.Tensor]] = {
    "zeros": lambda: ops.zeros(COUNT),
    "ones": lambda: ops.ones((COUNT,)),
    "full": lambda: ops.full(COUNT, 7.5),
    "empty": lambda: ops.empty(COUNT),
    "zeros_like": lambda: ops.zeros_like(ops.ones(COUNT)),
    "full_like": lambda: ops.full_like(ops.ones(COUNT), 3),
    "arange": lambda: ops.arange(COUNT),
    "arange float": lambda: ops.arange(COUNT, dtype="float32"),
    "linspace": lambda: ops.linspace(0, 1, COUNT),
    "eye": lambda: ops.eye(300),
    "list of floats": lambda: ops.asarray([0.5] * COUNT),
    "list of integers": lambda: ops.asarray([3] * COUNT),
    "list with dtype": lambda: ops.asarray([3] * COUNT, dtype="int32"),
    "astype": lambda: ops.ones(COUNT).astype("float64"),
    "astype same": lambda: ops.ones(COUNT).astype("float32"),
    "copy": lambda: (ops.ones(COUNT) + 1).copy(),
    "asarray copy": lambda: ops.asarray(np.ones(COUNT, "f4"), copy=True),
    "array": lambda: em.nn.tensor.array(np.ones(COUNT)),
    "from_numpy": lambda: em.from_numpy(np.ones(COUNT), copy=True),
    "byte order": lambda: em.from_numpy(np.ones(COUNT, ">f4")),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_we_allocate_goes_to_jax_as_it_is(name: str) -> None:
    kept = []
    for _ in range(4):  # by chance, one in four would be
        x = LARGE[name]()
        kept.append(x)
        assert at(x.native) == 0
        moved = x.to_backend("jax", copy=False)
        assert moved.native.unsafe_buffer_pointer() == x.native.__array_interface__["data"][0]
        assert (moved.dtype, moved.shape) == (x.dtype, x.shape)


def test_values(backend: str) -> None:
    assert (ops.zeros(COUNT) == 0).all().item()
    assert (ops.full(COUNT, -2.5) == -2.5).all().item()
    assert ops.arange(COUNT)[-1].item() == COUNT - 1
    assert ops.asarray([3] * COUNT).sum().item() == 3 * COUNT
    assert ops.zeros((COUNT, 2), dtype="bool").numpy().dtype == np.bool_


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_dtype(dtype: em.DType) -> None:
    for value in (0, 1):
        made = aligned.full((COUNT, 4), value, dtype.numpy)
        assert (made.dtype, made.shape, at(made)) == (dtype.numpy, (COUNT, 4), 0)
        assert (made == np.array(value, dtype.numpy)).all()
        assert made.flags.c_contiguous
        assert made.flags.writeable
        again = aligned.cast(made, np.dtype(np.complex128))
        assert (again == value).all()
        assert at(again) == 0


@pytest.mark.parametrize("size", [0, 1, 3, aligned.THRESHOLD // 8, aligned.THRESHOLD])
def test_layouts(size: int) -> None:
    base = np.arange(size * 2, dtype="f8").reshape(2, size)
    for array in (base, base.T, base[:, ::-1], base[:, ::2], base.astype(">f8"), base[0]):
        for made in (aligned.copy(array), aligned.settled(array)):
            assert (made == array).all()
            assert made.shape == array.shape
            assert made.nbytes < aligned.THRESHOLD or at(made) == 0
        own = aligned.copy(array)
        assert own.flags.c_contiguous
        assert own.dtype.isnative
        assert not np.shares_memory(own, array)
        cast = aligned.cast(array, np.dtype("f4"))
        assert cast.dtype == np.float32
        assert (cast == array.astype("f4")).all()
    turned = aligned.cast(base.T, np.dtype("f4"))
    assert turned.flags.f_contiguous


def test_unlocked_memory_keeps_its_owner() -> None:
    for dtype in ("f4", dtypes.bfloat16.numpy, "?", "c16"):
        array = np.ones((2, 3), dtype)
        array.flags.writeable = False
        free = aligned.unlocked(array.T)
        assert (free.dtype, free.strides, free.shape) == (array.dtype, array.T.strides, (3, 2))
        assert free.flags.writeable
        assert np.shares_memory(free, array)
        assert not array.flags.writeable
