"""Two-operand ops by number: the numbers, and when the kernels behind them are found anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.backend import pairs, selection
from ember_ml.backend.spec import CLOSED
from ember_ml.errors import ShapeError
from ember_ml.ops.registry import REGISTRY


def test_each_constant_is_the_number_of_its_name() -> None:
    constants = {name: value for name, value in vars(pairs).items() if type(value) is int}
    assert constants == {name.upper(): number for number, name in enumerate(pairs.NAMES)}
    assert {pairs.NAMES[number]: number for number in pairs.NUMBERS.values()} == pairs.NUMBERS


def test_each_name_is_an_op_of_two_operands() -> None:
    assert {REGISTRY[name].arity for name in pairs.NAMES} == {2}


def called(x: Any) -> Callable[..., Any]:
    """A kernel that gives what no op would."""
    return lambda a, b: x


def test_a_number_finds_what_its_name_finds(backend: str) -> None:
    x = ops.asarray([1.0, 2.0])
    spec = x._spec
    ops.add(x, x)
    found = spec.pairs[pairs.ADD]
    assert found is not None
    assert (found.kernel, found.result) == spec.backend.entry(spec, "add")


def test_what_is_found_anew_by_name_is_so_by_number(backend: str) -> None:
    x = ops.asarray([1.0, 2.0])
    engine = selection.load(backend)
    assert ops.add(x, x).tolist() == [2.0, 4.0]
    engine.resettle(["add"])
    try:
        assert x._spec.pairs[pairs.ADD] is None
        x._spec.kernels["add"] = called(x.native), x._spec
        assert [(x + x).tolist(), (x + 1.0).tolist(), ops.add(2.0, x).tolist()] == [[1.0, 2.0]] * 3
    finally:
        engine.resettle(["add"])
    assert (x + x).tolist() == [2.0, 4.0]


def test_nothing_is_kept_where_a_trace_looks_on() -> None:
    x = em.Tensor([1.0, 2.0])
    spec = x._spec
    before = spec.pairs
    spec.pairs = CLOSED
    try:
        assert (x * x).tolist() == [1.0, 4.0]
        assert all(one is None for one in CLOSED)
    finally:
        spec.pairs = before


@pytest.mark.parametrize("name", pairs.NAMES)
def test_errors_name_the_op(backend: str, name: str) -> None:
    kind = "int32" if name.startswith("bitwise") else "bool" if name.startswith("logic") else None
    a = ops.asarray(np.ones((2, 3)), dtype=kind or "float32")
    b = ops.asarray(np.ones((4, 5)), dtype=kind or "float32")
    with pytest.raises(ShapeError, match=name):
        getattr(ops, name)(a, b)


# Floating values for all, but for the ops of whole numbers and of truth.
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")
_TRUTH = ("logical_and", "logical_or", "logical_xor")


@pytest.mark.parametrize("name", pairs.NAMES)
def test_views_give_what_copies_of_them_give(backend: str, name: str) -> None:
    dtype = "int64" if name in _BITS else "bool" if name in _TRUTH else "float32"
    values = np.arange(1, 10).reshape(3, 3) % (2 if dtype == "bool" else 10)
    whole = ops.asarray(values.astype(dtype))
    op = getattr(ops, name)
    numbers = {"int64": 2, "bool": True, "float32": 2.0}
    view, plain = whole.T, ops.asarray(values.T.astype(dtype))
    assert ops.all(view == plain)
    wanted = op(plain, whole)
    for got, want in [
        (op(view, whole), wanted),
        (op(view, whole[:]), wanted),
        (op(whole, view), op(whole, plain)),
        *(
            [(op(view, numbers[dtype]), op(plain, numbers[dtype])),
             (op(numbers[dtype], view), op(numbers[dtype], plain))]
            if name != "matmul" else []
        ),
    ]:  # fmt: skip
        assert (got.dtype, got.shape, got.backend) == (want.dtype, want.shape, backend)
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    assert type(op(view, view)) is em.Tensor


@pytest.mark.parametrize("name", pairs.NAMES)
def test_views_are_read_when_they_are_used(backend: str, name: str) -> None:
    dtype = "int64" if name in _BITS else "bool" if name in _TRUTH else "float32"
    x = ops.asarray(np.ones((2, 2), dtype))
    view, op = x.T, getattr(ops, name)
    before = op(view, view).numpy().copy()
    x[0, 1] = False if dtype == "bool" else 0
    after = np.asarray([[1, 1], [0, 1]], dtype).T
    plain = ops.asarray(after.T.copy())
    np.testing.assert_array_equal(op(view, view).numpy(), op(plain, plain).numpy())
    np.testing.assert_array_equal(before, op(ops.ones_like(x), ops.ones_like(x)).numpy())


def test_views_of_other_dtypes_are_promoted_and_wrong_shapes_named(backend: str) -> None:
    ints, floats = ops.asarray([[1, 2], [3, 4]]).T, ops.asarray([[0.5, 1.0], [1.5, 2.0]]).T
    assert (ints + floats).dtype == (floats + ints).dtype == ops.float32
    assert (ints + floats).tolist() == [[1.5, 4.5], [3.0, 6.0]]
    with pytest.raises(ShapeError, match=r"ops\.add got float32\[2, 2\], float32\[3\]"):
        floats + ops.ones(3)
    small = ops.asarray([[1, 2]], dtype="uint8").T
    for wrong in (lambda: small + -1, lambda: -1 + small):
        with pytest.raises(em.EmberError, match=r"ops\.add: -1 is out of the range of uint8"):
            wrong()
    half = ops.asarray([[1.0]], dtype="float16").T
    with pytest.raises(TypeError, match="float16"):
        half + floats[:1, :1]


def test_views_of_two_backends_do_not_mix() -> None:
    with em.use_backend("jax"):
        x = ops.ones((2, 2)).T
    with em.use_backend("mlx"):
        y = ops.ones((2, 2)).T
    with pytest.raises(em.BackendMismatchError, match=r"ops\.add.*'jax' and 'mlx'"):
        x + y
