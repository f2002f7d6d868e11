"""where, concat, stack and axes of length one: plain tensors take a short way, to the same end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.errors import AxisError, DomainError, EmberError, ShapeError

HOST = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(params=["numpy", "torch", "jax", "mlx"], autouse=True)
def backend(request: pytest.FixtureRequest) -> Any:
    pytest.importorskip({"mlx": "mlx.core"}.get(request.param, request.param))
    with em.use_backend(request.param):
        yield request.param


def ways(host: Any) -> list[Any]:
    """A plain tensor, a view, one that needs gradients, and data."""
    plain = ops.asarray(host, copy=True)
    view = ops.asarray(np.concatenate([host, host]), copy=True)[: len(host)]
    return [plain, view, em.Tensor(host, requires_grad=True), host]


def same(got: Any, expected: Any, dtype: str = "float32") -> None:
    assert (got.dtype.name, got.shape, got.device) == (dtype, expected.shape, "cpu")
    np.testing.assert_array_equal(got.detach().numpy(), expected)


def test_where_of_all_kinds() -> None:
    mask = HOST % 3 == 0
    for first in ways(HOST):
        for second in ways(-HOST):
            for chosen in (ops.asarray(mask), mask.tolist(), ops.asarray(mask.astype(np.int64))):
                same(ops.where(chosen, first, second), np.where(mask, HOST, -HOST))
        for number in (0, 1.5, True):
            expected = np.where(mask, HOST, np.float32(number))
            same(ops.where(ops.asarray(mask), first, number), expected)
            expected = np.where(mask, np.float32(number), HOST)
            same(ops.where(ops.asarray(mask), number, first), expected)
    # A row beside all, a column, and one number of each; 0-d tensors stay tensors.
    x = ops.asarray(HOST)
    same(ops.where(ops.asarray(mask), x, x[0]), np.where(mask, HOST, HOST[0]))
    same(ops.where(ops.asarray(mask[:, :1]), x, 7.0), np.where(mask[:, :1], HOST, np.float32(7)))
    got = ops.where(ops.asarray(True), ops.asarray(1), ops.asarray(2))
    assert (type(got), got.shape, got.item()) == (em.Tensor, (), 1)
    # An integer with a float, and a number that does not fit the integers, give floats.
    assert ops.where(ops.asarray(mask), ops.asarray([1, 2, 3, 4]), x).dtype == "float32"
    assert ops.where(ops.asarray(mask), ops.asarray([1, 2, 3, 4]), 0.5).dtype == "float32"


def test_where_tells_what_is_wrong() -> None:
    mask = ops.asarray([True, False])
    with pytest.raises(DomainError, match="out of the range of uint8"):
        ops.where(mask, ops.asarray([1, 2], dtype="uint8"), 300)
    with pytest.raises(ShapeError, match="where"):
        ops.where(mask, ops.zeros((3,)), ops.zeros((3,)))
    with pytest.raises(EmberError, match="where"):
        ops.where(mask, ops.zeros((2,), dtype="float16"), ops.zeros((2,), dtype="float32"))


@pytest.mark.parametrize("axis", [0, 1, -1, -2, np.int64(1)])
def test_joining_of_all_kinds(axis: int) -> None:
    for first in ways(HOST):
        for second in ways(-HOST):
            expected = np.concatenate([HOST, -HOST, HOST], axis)
            same(ops.concat([first, second, ops.asarray(HOST)], axis=axis), expected)
            same(ops.concat((first, second, first), axis=axis), expected)
            same(ops.stack([first, second], axis=axis), np.stack([HOST, -HOST], axis))
    same(ops.stack([ops.asarray(HOST)], axis=-3), HOST[None])
    with pytest.raises(AxisError, match="got axis 2"):
        ops.concat([ops.asarray(HOST)] * 2, axis=2)
    with pytest.raises(AxisError, match="got axis -4"):
        ops.stack([ops.asarray(HOST)] * 2, axis=-4)


def test_joining_tells_what_does_not_fit() -> None:
    x, row, none = ops.asarray(HOST), ops.zeros((4,)), ops.zeros((0,))
    for other in (row, none, ops.zeros((3, 5))):
        with pytest.raises(ShapeError, match=r"ops.stack got shapes \(3, 4\)"):
            ops.stack([x, other])
        with pytest.raises(ShapeError, match=r"ops.concat got shapes \(3, 4\)"):
            ops.concat([x, other])
    with pytest.raises(ShapeError, match="at least one tensor"):
        ops.concat([])
    with pytest.raises(AxisError):
        ops.concat([ops.asarray(1.0), ops.asarray(2.0)])
    same(ops.concat([none, row, none]), np.zeros(4, np.float32))


def test_results_own_their_memory() -> None:
    x = ops.asarray(HOST, copy=True)
    made = [ops.concat([x]), ops.stack([x]), ops.where(ops.asarray(True), x, 0.0)]
    x[...] = 99.0
    for one in made:
        np.testing.assert_array_equal(one.numpy().reshape(3, 4), HOST)


def test_axes_of_length_one_are_views() -> None:
    for x in ways(HOST)[:2]:
        wide = ops.expand_dims(x, axis=1)
        assert wide.shape == (3, 1, 4)
        assert ops.expand_dims(x, axis=-1).shape == (3, 4, 1)
        assert ops.squeeze(wide, axis=-2).shape == (3, 4)
        ops.squeeze(wide, axis=1)[0, 0] = 50.0
        assert x[0, 0].item() == 50.0
    with pytest.raises(AxisError, match="expand_dims"):
        ops.expand_dims(ops.asarray(HOST), axis=3)
    with pytest.raises(ShapeError, match="squeeze got axis 1 of shape"):
        ops.squeeze(ops.asarray(HOST), axis=1)
