"""Values that the standard fixes and engines get wrong, each found by a failure once."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops

INF, NAN = math.inf, math.nan


def same(got: em.Tensor, wanted: list[float]) -> None:
    """Equal with the sign of zeros, NaN to NaN."""
    values = got.numpy()
    np.testing.assert_array_equal(values, np.array(wanted, values.dtype))
    known = ~np.isnan(values)
    np.testing.assert_array_equal(
        np.signbit(values)[known], np.signbit(np.array(wanted, values.dtype))[known]
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floor_division_with_infinities(backend: str, dtype: str) -> None:
    x = ops.asarray([INF, -INF, INF, 1.0, -1.0, 1.0, INF, 0.0], dtype=dtype)
    y = ops.asarray([2.0, 2.0, -2.0, -INF, INF, INF, INF, -2.0], dtype=dtype)
    same(ops.floor_divide(x, y), [INF, -INF, -INF, -0.0, -0.0, 0.0, NAN, -0.0])


def test_remainder_has_the_sign_of_the_divisor(backend: str) -> None:
    x = ops.asarray([4.0, -4.0, 5.0, -5.0])
    y = ops.asarray([-2.0, 2.0, -3.0, 3.0])
    same(ops.remainder(x, y), [-0.0, 0.0, -1.0, 1.0])


def test_complex_expm1(backend: str) -> None:
    x = ops.asarray([complex(-0.0, 0.0), complex(-INF, INF), complex(INF, NAN)], dtype="complex64")
    out = ops.expm1(x)
    same(ops.real(out), [0.0, -1.0, INF])
    same(ops.imag(out), [0.0, 0.0, NAN])


def test_complex_tanh_at_infinity(backend: str) -> None:
    out = ops.tanh(ops.asarray([complex(INF, 1.0), complex(INF, 2.0)], dtype="complex64"))
    same(ops.real(out), [1.0, 1.0])
    same(ops.imag(out), [0.0, 0.0])


def test_signs_of_zero(backend: str) -> None:
    x = ops.asarray([0.0, -0.0])
    same(ops.sin(x), [0.0, -0.0])
    same(ops.sqrt(x), [0.0, -0.0])
    same(ops.copysign(ops.asarray([1.0, 1.0]), x), [1.0, -1.0])
    assert ops.signbit(x).tolist() == [False, True]
    same(x * -1.0, [-0.0, 0.0])
    same(ops.add(x, -0.0), [0.0, -0.0])


def test_extreme_integers(backend: str) -> None:
    low = ops.asarray([-(2**63)])
    assert (low // 1).tolist() == [-(2**63)]
    assert (ops.asarray([2**63 - 1]) + 0).tolist() == [2**63 - 1]
    top = ops.asarray([2**64 - 1, 2**63], dtype="uint64")
    assert ops.sort(top).tolist() == [2**63, 2**64 - 1]
    assert ops.max(top).item() == 2**64 - 1
    assert (top > 5).tolist() == [True, True]
    assert (top // 2).tolist() == [2**63 - 1, 2**62]


@pytest.mark.parametrize("wide", [[2**63], [2**63, 1], [[1], [2**63]], [-1, 2**63], [2**64, 1]])
def test_integers_beyond_int64_become_floats_only_when_asked(backend: str, wide: list[int]) -> None:
    with pytest.raises(em.DomainError, match=r"got .* with integers beyond int64; give"):
        ops.asarray(wide)
    found = ops.asarray(wide, dtype="float32")
    np.testing.assert_array_equal(found.numpy(), np.array(wide, np.float32))
    with pytest.raises(em.DomainError, match="too large"):
        ops.asarray([10**400, 1], dtype="float32")
    same(ops.asarray([1, 0.5, 2**63]), [1.0, 0.5, 2.0**63])


def test_numpy_is_silent_where_others_are(backend: str) -> None:
    zero = ops.zeros(2)
    with np.errstate(all="warn"):
        for out in (ops.log(zero), 1 / zero, zero / zero, ops.sqrt(zero - 1), ops.pow(zero, -1.0)):
            assert out.shape == (2,)
