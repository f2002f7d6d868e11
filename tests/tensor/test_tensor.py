"""Tensor: making, metadata, conversions, operators, showing, pickling, moving."""

from __future__ import annotations

import copy
import math
import operator
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import dtypes, ops
from ember_ml.nn import tensor

BACKENDS = ("numpy", "torch", "jax", "mlx")


def have(backend: str, dtype: em.DType) -> bool:
    return em.backend.selection.load(backend).supports(dtype, "cpu")


def test_what_a_user_gets(backend: str) -> None:
    x = tensor.convert_to_tensor([[1.0, 2.0], [3.0, 4.0]])
    y = ops.matmul(x, ops.matrix_transpose(x))
    assert (y.backend, y.shape, y.dtype) == (backend, (2, 2), em.float32)
    assert y.tolist() == [[5.0, 11.0], [11.0, 25.0]]
    with em.use_backend("torch"):
        t = tensor.ones((10,), dtype=tensor.float32)
    assert type(t.native).__module__ == "torch"
    assert x.to_backend("jax").backend == "jax"
    assert x.to_device("cpu").device == "cpu"


@pytest.mark.parametrize("dtype", ["int16", em.int16, np.int16, lambda: "int16"])
def test_constructor(backend: str, dtype: Any) -> None:
    x = em.Tensor([[1, 2, 3]], dtype=dtype, device="cpu")
    assert (x.dtype, x.shape, x.ndim, x.size) == ("int16", (1, 3), 2, 3)
    assert (x.nbytes, x.itemsize) == (6, 2)
    assert (x.device, x.backend, x.requires_grad) == ("cpu", backend, False)
    assert type(x) is em.Tensor
    assert em.Tensor().shape == (0,)
    assert em.Tensor(3.5).shape == ()
    assert em.Tensor(x) is not x
    assert em.Tensor(x, dtype="float32").tolist() == [[1.0, 2.0, 3.0]]


def test_sources(backend: str) -> None:
    import array

    expected = [1.0, 2.0, 3.0]
    for source in (
        [1.0, 2.0, 3.0],
        (1.0, 2.0, 3.0),
        np.array([1.0, 2.0, 3.0]),
        np.array([3.0, 2.0, 1.0])[::-1],
        np.array([1, 9, 2, 9, 3, 9], "float32")[::2],
        np.array([1.0, 2.0, 3.0], ">f8"),
        memoryview(np.array([1.0, 2.0, 3.0])),
        array.array("d", [1.0, 2.0, 3.0]),
        [np.float64(1), np.float64(2), np.float64(3)],
        [ops.asarray(1.0), ops.asarray(2.0), ops.asarray(3.0)],
        range(1, 4),
    ):
        made = ops.asarray(source)
        assert made.backend == backend
        assert made.tolist() == expected
    frozen = np.ones(3)
    frozen.flags.writeable = False
    assert (ops.asarray(frozen) + 1).tolist() == [2.0, 2.0, 2.0]


def test_asarray_copies_when_told(backend: str) -> None:
    source = np.zeros(64, np.float32)
    made = ops.asarray(source, copy=True)
    source[:] = 7
    assert made.sum().item() == 0
    x = ops.ones(3)
    assert ops.asarray(x) is x
    assert ops.asarray(x, copy=False) is x
    y = ops.asarray(x, copy=True)
    y += 1
    assert x.tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(em.DomainError):
        ops.asarray(x, dtype="float64", copy=False)


@pytest.mark.parametrize("other", BACKENDS)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_moving_between_backends_keeps_bits(backend: str, other: str, dtype: em.DType) -> None:
    if not (have(backend, dtype) and have(other, dtype)):
        return
    values = np.array([[0, 1, 2], [3, 100, 1]]).astype(dtype.numpy)
    if dtype.is_floating:
        values[0, 0] = np.float64(1) / 3
    for array in (values, values.T, values[::-1], values[:, ::2], values[0, 0], values[:0]):
        x = ops.asarray(array)
        moved = x.to_backend(other)
        assert (moved.backend, moved.dtype, moved.shape) == (other, dtype, array.shape)
        np.testing.assert_array_equal(np.asarray(moved.numpy()).tobytes(), array.tobytes())
        back = moved.to_backend(backend)
        assert back.numpy().tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_pickle(backend: str, dtype: em.DType) -> None:
    if not have(backend, dtype):
        return
    for shape in ((2, 3), (), (0, 2)):
        x = ops.ones(shape, dtype=dtype)
        with em.use_backend("numpy"):
            y = pickle.loads(pickle.dumps(x))
        assert (y.backend, y.dtype, y.shape, y.device) == (backend, dtype, shape, x.device)
        assert y.numpy().tobytes() == x.numpy().tobytes()


def test_requires_grad_is_kept(backend: str) -> None:
    x = em.Tensor([1.0, 2.0], requires_grad=True)
    assert x.requires_grad
    assert isinstance(x, em.Tensor)
    assert (x + 1).requires_grad
    assert (2 * x).sum().requires_grad
    assert x[0].requires_grad
    assert not (x > 1).requires_grad
    assert not x.detach().requires_grad
    assert (x + 1).detach().tolist() == [2.0, 3.0]
    assert pickle.loads(pickle.dumps(x)).requires_grad
    assert x.numpy().tolist() == [1.0, 2.0]
    assert "requires_grad=True" in repr(x)
    assert tensor.array([1.0], requires_grad=True).requires_grad
    with pytest.raises(em.DTypeError, match="int64"):
        em.Tensor([1], requires_grad=True)


def test_conversions(backend: str) -> None:
    assert int(ops.asarray(3)) == 3
    assert float(ops.asarray([2.5])) == 2.5
    assert complex(ops.asarray(1.5)) == 1.5
    assert complex(ops.asarray(1j)) == 1j
    assert bool(ops.asarray(0)) is False
    assert [10, 20, 30][ops.asarray(1)] == 20
    assert operator.index(ops.asarray(2, dtype="uint8")) == 2
    assert type(ops.asarray(1.5).item()) is float
    assert type(ops.asarray(1.5, dtype="bfloat16").item()) is float
    assert ops.asarray([1.5], dtype="bfloat16").tolist() == [1.5]
    assert type(ops.asarray([1.5], dtype="bfloat16").tolist()[0]) is float
    assert np.asarray(ops.ones((2,))).dtype == np.float32
    assert np.array(ops.ones((2,)), dtype="float64").dtype == np.float64
    assert len(ops.ones((4, 2))) == 4
    assert [t.tolist() for t in ops.asarray([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    assert 2 in ops.asarray([1, 2])
    assert 5 not in ops.asarray([1, 2])


def test_hash_equality_and_weak_references(backend: str) -> None:
    x, y = ops.ones(2), ops.ones(2)
    assert len({x, y}) == 2
    assert (x == y).tolist() == [True, True]
    assert (x != y).tolist() == [False, False]
    assert weakref.ref(x)() is x


def test_showing(backend: str) -> None:
    x = ops.asarray([[1.0, 2.0]], dtype="float64")
    text = repr(x)
    for fact in ("[[1., 2.]]", "(1, 2)", "float64", backend, "cpu"):
        assert fact in text
        assert fact in x._repr_html_()
    assert str(x) == "[[1., 2.]]"
    assert f"{ops.asarray(2.5):.2f}" == "2.50"
    assert f"{x}" == str(x)
    with pytest.raises(em.ShapeError):
        format(x, ".2f")
    assert "1.5" in repr(ops.asarray([1.5], dtype="bfloat16"))
    assert len(repr(ops.zeros(100_000))) < 400


def test_copies(backend: str) -> None:
    x = ops.asarray([1.0, 2.0])
    for twin in (x.copy(), copy.copy(x), copy.deepcopy(x)):
        twin[0] = 9.0
        assert x.tolist() == [1.0, 2.0]
        assert twin.tolist() == [9.0, 2.0]


def test_moving(backend: str) -> None:
    x = ops.asarray([1.5, 2.5])
    assert x.to("float64").dtype is em.float64
    assert x.to("cpu").device == "cpu"
    assert x.to(dtype=em.int32, device="cpu", backend="numpy").tolist() == [1, 2]
    assert x.cast("float64").dtype is em.float64
    assert x.astype("float32", copy=False) is x
    assert x.to_backend(backend) is x
    with pytest.raises(em.DeviceError, match="quantum"):
        x.to("quantum")


OPERATORS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "@": operator.matmul,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
BITS = {"&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift,
        ">>": operator.rshift}  # fmt: skip


@pytest.mark.parametrize("sign", OPERATORS)
def test_operators(backend: str, sign: str) -> None:
    a, b = np.array([[5.0, 2.0], [1.0, 4.0]]), np.array([[2.0, 2.0], [3.0, 0.5]])
    run = OPERATORS[sign]
    np.testing.assert_allclose(run(ops.asarray(a), ops.asarray(b)).numpy(), run(a, b))
    if sign != "@":
        np.testing.assert_allclose(run(ops.asarray(a), 2).numpy(), run(a, 2))
        np.testing.assert_allclose(run(2, ops.asarray(a)).numpy(), run(2, a))
    np.testing.assert_allclose(run(a, ops.asarray(b)).numpy(), run(a, b))
    assert isinstance(run(a, ops.asarray(b)), em.Tensor)


@pytest.mark.parametrize("sign", BITS)
def test_bit_operators(backend: str, sign: str) -> None:
    a, b = np.array([5, 2, 7]), np.array([1, 2, 3])
    run = BITS[sign]
    assert run(ops.asarray(a), ops.asarray(b)).tolist() == run(a, b).tolist()
    assert run(ops.asarray(a), 2).tolist() == run(a, 2).tolist()
    assert run(6, ops.asarray(b)).tolist() == run(6, b).tolist()


def test_in_place_operators(backend: str) -> None:
    x = kept = ops.asarray([8.0, 6.0])
    for run, other, wanted in (
        (operator.iadd, 1, [9.0, 7.0]),
        (operator.isub, ops.asarray([1.0, 3.0]), [8.0, 4.0]),
        (operator.imul, 2, [16.0, 8.0]),
        (operator.itruediv, 4, [4.0, 2.0]),
        (operator.ipow, 2, [16.0, 4.0]),
        (operator.ifloordiv, 3, [5.0, 1.0]),
        (operator.imod, 3, [2.0, 1.0]),
    ):
        x = run(x, other)
        assert x is kept
        assert x.tolist() == wanted
        assert x.dtype is em.float32
    i = ops.asarray([6, 1])
    for run, wanted in ((operator.iand, [2, 0]), (operator.ior, [2, 2]), (operator.ixor, [0, 0])):
        i = run(i, 2)
        assert i.tolist() == wanted
    m = kept = ops.eye(2) * 2
    m @= m
    assert m is kept
    assert m.tolist() == [[4.0, 0.0], [0.0, 4.0]]
    before = ops.ones(2)
    with pytest.raises(em.DTypeError):
        before += ops.ones(2, dtype="float64")
    assert before.tolist() == [1.0, 1.0]


def test_unary_operators(backend: str) -> None:
    x = ops.asarray([-1.5, 2.5])
    assert (-x).tolist() == [1.5, -2.5]
    assert (+x).tolist() == [-1.5, 2.5]
    assert abs(x).tolist() == [1.5, 2.5]
    assert round(x).tolist() == [-2.0, 2.0]
    assert (~ops.asarray([0, 5])).tolist() == [-1, -6]
    assert (~ops.asarray([True])).tolist() == [False]
    quotient, rest = divmod(ops.asarray([7]), 2)
    assert (quotient.tolist(), rest.tolist()) == ([3], [1])


def test_methods(backend: str) -> None:
    array = np.array([[3.0, 1.0, 2.0], [6.0, 5.0, 4.0]])
    x = ops.asarray(array)
    for got, wanted in (
        (x.sum(axis=0), array.sum(0)), (x.mean(), array.mean()), (x.prod(1), array.prod(1)),
        (x.max(axis=1, keepdims=True), array.max(1, keepdims=True)), (x.min(), array.min()),
        (x.std(), array.std()), (x.var(0, correction=1), array.var(0, ddof=1)),
        (x.argmax(1), array.argmax(1)), (x.argmin(), array.argmin()),
        ((x > 1).all(), False), ((x > 1).any(0), (array > 1).any(0)),
        (x.cumsum(1), array.cumsum(1)), (x.cumprod(1), array.cumprod(1)),
        (x.reshape(3, -1), array.reshape(3, -1)), (x.reshape((6,)), array.reshape(6)),
        (x.flatten(), array.flatten()), (x.transpose(), array.T), (x.transpose(1, 0), array.T),
        (x.swapaxes(0, 1), array.T), (x.T, array.T), (x.mT, array.T),
        (x.reshape(1, 2, 3, 1).squeeze(), array), (x.expand_dims(1), array[:, None]),
        (x.broadcast_to((2, 2, 3)), np.broadcast_to(array, (2, 2, 3))),
        (x.repeat(2, axis=0), array.repeat(2, 0)), (x.clip(2, 4), array.clip(2, 4)),
        (x.take([1, 0], axis=1), array.take([1, 0], 1)), (x.sort(), np.sort(array)),
        (x.sort(0, descending=True), np.sort(array, 0)[::-1]),
        (x.argsort(), array.argsort()), (x.matmul(x.T), array @ array.T),
        (x.abs(), array), (x.exp(), np.exp(array)), (x.log(), np.log(array)),
        (x.sqrt(), np.sqrt(array)), (x.square(), array**2), (x.sin(), np.sin(array)),
        (x.cos(), np.cos(array)), (x.tanh(), np.tanh(array)), (x.round(), array),
        (x.floor(), array), (x.ceil(), array), (x.sign(), np.sign(array)), (x.conj(), array),
        (x.real, array), (x.imag, array * 0),
    ):  # fmt: skip
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-12)
        assert got.shape == np.shape(wanted)
    assert [t.tolist() for t in (x > 4).nonzero()] == [[1, 1], [0, 1]]


def test_dlpack(backend: str) -> None:
    import torch

    x = ops.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert x.__dlpack_device__() == (1, 0)
    assert torch.from_dlpack(x).tolist() == x.tolist()
    assert np.from_dlpack(x).tolist() == x.tolist()
    assert ops.from_dlpack(torch.arange(3)).backend == "torch"
    assert ops.from_dlpack(np.arange(3.0)).backend == backend
    assert ops.from_dlpack(np.arange(3.0)).dtype is em.float64
    assert torch.from_dlpack(x.T).tolist() == x.T.tolist()
    assert torch.from_dlpack(ops.flip(x)).tolist() == [[4.0, 3.0], [2.0, 1.0]]
    with pytest.raises(em.DTypeError):
        ops.from_dlpack([1, 2])


NUMBERS = st.floats(width=32, allow_nan=True, allow_infinity=True)


@settings(max_examples=50, deadline=None)
@given(st.lists(NUMBERS, max_size=8))
def test_lists_come_back(values: list[float]) -> None:
    for name in BACKENDS:
        with em.use_backend(name):
            back = ops.asarray(values).tolist()
        assert len(back) == len(values)
        for got, wanted in zip(back, values, strict=True):
            assert got == wanted or (math.isnan(got) and math.isnan(wanted))
            assert math.copysign(1, got) == math.copysign(1, wanted) or math.isnan(wanted)
