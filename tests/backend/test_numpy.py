"""What is NumPy's own: its BLAS, and warnings, which values like infinity are not worth here."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.backend.numpy import blas


@pytest.fixture(autouse=True)
def _numpy() -> Iterator[None]:
    with em.use_backend("numpy"), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_values_do_not_warn_and_what_users_set_stays() -> None:
    x = ops.asarray([0.0, -1.0, 1e30])
    with np.errstate(all="raise"):
        before = np.geterr()
        assert ops.log(x).tolist()[:1] == [-np.inf]
        assert ops.exp(ops.asarray([1000.0])).tolist() == [np.inf]
        assert np.isnan((x / x).tolist()[0])
        assert np.geterr() == before
        with pytest.raises(FloatingPointError):
            np.log(np.zeros(1))


def test_it_is_quiet_in_many_threads_at_once() -> None:
    x = ops.asarray(np.full(100_000, -1.0, np.float32))  # NumPy lets others run meanwhile

    def work(_: int) -> bool:
        with em.use_backend("numpy"):
            return bool(np.isnan(ops.log(x).numpy()).all() and np.isnan((x**0.5).numpy()).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(200)))


def test_a_finalizer_within_a_kernel_may_compute() -> None:
    seen: list[Any] = []
    nothing = ops.asarray([0.0])

    class Last:
        def __init__(self) -> None:
            self.itself = self  # the collector ends it, whenever that runs

        def __del__(self) -> None:
            seen.append(ops.log(nothing).tolist())

    x = ops.asarray([0.0, 1.0])
    threshold = gc.get_threshold()
    try:
        gc.set_threshold(1)  # at every allocation, also those within NumPy
        for _ in range(50):
            Last()
            assert ops.log(x).tolist() == [-np.inf, 0.0]
    finally:
        gc.set_threshold(*threshold)
        gc.collect()
    assert seen == [[-np.inf]] * 50


def test_variables_of_the_caller_are_its_own() -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)
    x = ops.asarray([1000.0])

    def change() -> int:
        variable.set(7)
        ops.exp(x)
        return variable.get()

    assert copy_context().run(change) == 7
    assert variable.get() == 0


def test_an_error_in_a_kernel_leaves_nothing_behind() -> None:
    with pytest.raises(em.EmberError):
        ops.divide(ops.ones((2,)), ops.ones((3,)))
    assert ops.divide(ops.ones((2,)), ops.zeros((2,))).tolist() == [np.inf, np.inf]
    with pytest.raises(RuntimeWarning, match="divide by zero"):
        np.log(np.zeros(1))


@pytest.mark.skipif(not blas.kernels(), reason="this NumPy has another BLAS than OpenBLAS")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the names are those of x86")
def test_the_kernels_of_openblas_are_told() -> None:
    program = "from ember_ml.backend.numpy import blas; print(blas.kernels())"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "OPENBLAS_CORETYPE": "Nehalem"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "Nehalem"


@pytest.mark.parametrize(
    ("kernels", "avx512", "better"),
    [
        ("Haswell", True, "SkylakeX"),
        ("Zen", True, "SkylakeX"),
        ("Haswell", False, ""),
        ("SkylakeX", True, ""),
        ("Cooperlake", True, ""),
        ("", True, ""),
    ],
)
def test_kernels_that_leave_half_of_the_processor_idle_are_noticed(
    monkeypatch: pytest.MonkeyPatch, kernels: str, avx512: bool, better: str
) -> None:
    umath = np._core._multiarray_umath  # type: ignore[attr-defined]  # where the features are
    monkeypatch.setattr(umath, "__cpu_features__", {"AVX512_SKX": avx512})
    monkeypatch.setattr(blas, "kernels", lambda: kernels)
    assert blas.faster_kernels() == better


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "complex64"])
@pytest.mark.parametrize(
    "shape", [(300, 1, 300), (300, 2, 300), (1, 300, 1), (1, 1, 20_000), (20_000, 1, 1), (9, 0, 7)]
)
def test_products_of_any_shape(shape: tuple[int, int, int], dtype: str) -> None:
    """Small ones, columns by rows and others go different ways; whole numbers are exact."""
    rows, inner, columns = shape
    generator = np.random.default_rng(1)
    a, b = generator.integers(-9, 9, (rows, inner)), generator.integers(-9, 9, (inner, columns))
    for left in (ops.asarray(a, dtype=dtype), ops.asarray(np.asfortranarray(a), dtype=dtype)):
        got = ops.matmul(left, ops.asarray(b, dtype=dtype))
        assert (got.dtype.name, got.shape) == (dtype, (rows, columns))
        np.testing.assert_array_equal(got.numpy(), np.einsum("ik,kj->ij", a, b))


@pytest.mark.parametrize(
    "op", [lambda x: x * x, lambda x: x @ x, lambda x: ops.add(x, x), lambda x: 3.0 * x]
)
def test_overflow_is_what_errstate_asks_for(op: Any) -> None:
    x = ops.asarray([3e38, 3e38])
    with np.errstate(over="ignore"):
        assert np.isinf(op(x).numpy()).all()
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
        op(x)
