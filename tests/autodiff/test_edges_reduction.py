"""Gradients where reductions and orders have corners: the same slopes on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import autodiff, ops
from ember_ml.errors import EmberError
from ember_ml.ops.dispatch import call
from ember_ml.tensor.core import Tensor

INF, NAN = float("inf"), float("nan")

# By the functional way, and by backward() where that is another: on our tape.
WAYS = [
    pytest.param(backend, taped, id=f"{backend}{'-tape' if taped else ''}")
    for backend in ("numpy", "torch", "jax", "mlx")
    for taped in (False, True)
    if not (backend == "torch" and taped)
]
Function = Callable[[Any], Any]


def _grad(fn: Function, values: Any, backend: str, taped: bool, dtype: str = "float32") -> Any:
    """The gradient of the sum of a function's result."""
    with em.use_backend(backend):
        x = ops.asarray(np.array(values, dtype=dtype), copy=True)
        if taped:
            x = Tensor(x, requires_grad=True)
            ops.sum(fn(x)).backward()
            g = x.grad
            assert g is not None
        else:
            g = autodiff.grad(lambda t: ops.sum(fn(t)))(x)
    assert g.shape == np.shape(values)
    assert g.dtype == dtype
    return g.numpy()


def _check(
    fn: Function, values: Any, wanted: Any, backend: str, taped: bool, **options: Any
) -> None:
    got = _grad(fn, values, backend, taped, **options)
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=1e-6)


def _weighted(fn: Function, weights: list[float]) -> Function:
    return lambda x: fn(x) * ops.astype(ops.asarray(weights), x.dtype)


NO_ROWS = np.zeros((0, 2))

CASES: list[tuple[str, Function, Any, Any]] = [
    # Extremes that several values have are shared by them.
    ("max-ties", ops.max, [1.0, 3.0, 3.0, 2.0], [0, 0.5, 0.5, 0]),
    ("min-ties", lambda x: ops.min(x, axis=1), [[1.0, 1.0], [2.0, 5.0]], [[0.5, 0.5], [1, 0]]),
    ("max-all-equal", lambda x: ops.max(x, axis=(0, 1)), [[2.0, 2.0], [2.0, 2.0]],
     np.full((2, 2), 0.25)),
    ("max-infinite", ops.max, [INF, 1.0, INF], [0.5, 0, 0.5]),
    ("max-nan", ops.max, [1.0, NAN, 3.0], [NAN, NAN, NAN]),
    ("max-number", ops.max, 3.0, 1.0),
    ("ptp-constant", ops.ptp, [2.0, 2.0], [0, 0]),
    ("nanmax-ties", ops.nanmax, [NAN, 3.0, 3.0], [0, 0.5, 0.5]),
    # Products are exact where values are zero.
    ("prod-one-zero", ops.prod, [2.0, 0.0, 3.0], [0, 6, 0]),
    ("prod-two-zeros", ops.prod, [0.0, 0.0, 3.0], [0, 0, 0]),
    ("prod-axes", lambda x: ops.prod(x, axis=(0, 1)), [[0.0, 2.0], [3.0, 4.0]], [[24, 0], [0, 0]]),
    ("prod-one", ops.prod, [5.0], [1]),
    ("cumprod-zero", ops.cumulative_prod, [2.0, 0.0, 3.0, 4.0], [1, 32, 0, 0]),
    ("cumprod-two-zeros", ops.cumulative_prod, [2.0, 0.0, 0.0, 4.0], [1, 2, 0, 0]),
    ("nanprod", ops.nanprod, [2.0, NAN, 0.0], [0, 0, 2]),
    # Spread.
    ("var-constant", ops.var, [2.0, 2.0, 2.0], [0, 0, 0]),
    ("var-one", ops.var, [2.0], [0]),
    ("var-one-corrected", lambda x: ops.var(x, correction=1), [2.0], [NAN]),
    ("var-overcorrected", lambda x: ops.var(x, correction=3), [1.0, 2.0], [NAN, NAN]),
    ("var-number", ops.var, 2.0, 0.0),
    ("std-constant", ops.std, [2.0, 2.0, 2.0], [0, 0, 0]),
    ("std-rows", lambda x: ops.std(x, axis=1), [[2.0, 2.0], [1.0, 3.0]], [[0, 0], [-0.5, 0.5]]),
    ("std-one", ops.std, [2.0], [0]),
    ("nanstd-constant", ops.nanstd, [2.0, NAN, 2.0], [0, 0, 0]),
    # Sums of exponentials.
    ("logsumexp-some", ops.logsumexp, [-INF, 0.0, 0.0], [0, 0.5, 0.5]),
    ("logsumexp-nothing", ops.logsumexp, [-INF, -INF], [NAN, NAN]),
    ("logsumexp-none-of-them", lambda x: ops.logsumexp(x, axis=()), [1.0, -3.0], [1, 1]),
    ("logsumexp-zero-weight", lambda x: ops.logsumexp(x, b=ops.asarray([0.0, 1.0, 1.0])),
     [INF, 0.0, 0.0], [0, 0.5, 0.5]),
    ("cumulative-logsumexp-late", ops.cumulative_logsumexp,
     [-INF, -INF, 0.0, 0.0], [0, 0, 1.5, 0.5]),
    ("cumulative-logsumexp-hole", ops.cumulative_logsumexp, [0.0, -INF, 0.0], [2.5, 0, 0.5]),
    # Order: equal values keep theirs, and NaN is the last.
    ("sort-ties", _weighted(ops.sort, [1, 2, 4, 8]), [2.0, 1.0, 2.0, 1.0], [4, 1, 8, 2]),
    ("sort-falling-ties", _weighted(lambda x: ops.sort(x, descending=True), [1, 2, 4, 8]),
     [2.0, 1.0, 2.0, 1.0], [1, 4, 2, 8]),
    ("sort-nan", _weighted(ops.sort, [1, 2, 4, 8]), [NAN, 1.0, NAN, 1.0], [4, 1, 8, 2]),
    ("topk-ties", _weighted(lambda x: ops.topk(x, 2)[0], [1, 2]),
     [3.0, 9.0, 1.0, 9.0], [0, 1, 0, 2]),
    ("topk-nan", _weighted(lambda x: ops.topk(x, 2)[0], [1, 2]),
     [3.0, NAN, 1.0, 9.0], [0, 1, 0, 2]),
    ("topk-all-equal", lambda x: ops.topk(x, 1)[0], [5.0, 5.0, 5.0], [1, 0, 0]),
    ("median-ties", ops.median, [2.0, 1.0, 2.0, 2.0], [1, 0, 0, 0]),
    ("median-odd", ops.median, [2.0, 1.0, 2.0], [1, 0, 0]),
    ("median-nan", ops.median, [2.0, NAN, 2.0], [0, 1, 0]),
    ("nanmedian", ops.nanmedian, [2.0, NAN, 4.0], [0.5, 0, 0.5]),
    ("quantile-top", lambda x: ops.quantile(x, 1.0), [7.0, 7.0, 1.0], [0, 1, 0]),
    ("mode-ties", lambda x: ops.mode(x)[0], [3.0, 1.0, 3.0, 2.0], [0, 0, 1, 0]),
    ("unique-ties", _weighted(ops.unique_values, [1, 2]), [3.0, 1.0, 3.0], [2, 1, 0]),
    ("running-maximum", lambda x: call("running_maximum", x, 0),
     [2.0, 1.0, 3.0, 0.0], [2, 0, 2, 0]),
    # Numbers in the place of others have no slope.
    ("nan_to_num", ops.nan_to_num, [NAN, 1.0, INF, -INF], [0, 1, 0, 0]),
    ("nansum", ops.nansum, [NAN, 1.0], [0, 1]),
    ("nanmean", ops.nanmean, [NAN, 1.0, 5.0], [0, 0.5, 0.5]),
    # Nothing, and numbers.
    ("sum-empty", ops.sum, np.zeros((0, 3)), np.zeros((0, 3))),
    ("sum-empty-axis", lambda x: ops.sum(x, axis=0), np.zeros((0, 3)), np.zeros((0, 3))),
    ("sum-number", ops.sum, 2.0, 1.0),
    ("sum-no-axes", lambda x: ops.sum(x, axis=()), [1.0, 2.0], [1, 1]),
    ("mean-empty", ops.mean, np.zeros((2, 0)), np.zeros((2, 0))),
    ("mean-number", ops.mean, 2.0, 1.0),
    ("prod-empty", ops.prod, NO_ROWS, NO_ROWS),
    ("prod-empty-rows", lambda x: ops.prod(x, axis=1), NO_ROWS, NO_ROWS),
    ("max-empty-rows", lambda x: ops.max(x, axis=1), NO_ROWS, NO_ROWS),
    ("var-empty-rows", lambda x: ops.var(x, axis=1), NO_ROWS, NO_ROWS),
    ("std-empty-rows", lambda x: ops.std(x, axis=1), NO_ROWS, NO_ROWS),
    ("logsumexp-empty-rows", lambda x: ops.logsumexp(x, axis=1), NO_ROWS, NO_ROWS),
    ("logsumexp-empty", ops.logsumexp, NO_ROWS, NO_ROWS),
    ("median-empty", lambda x: ops.median(x, axis=0), NO_ROWS, NO_ROWS),
    ("cumsum-empty", ops.cumulative_sum, np.zeros(0), np.zeros(0)),
    ("cumprod-empty", ops.cumulative_prod, np.zeros(0), np.zeros(0)),
    ("cumulative-logsumexp-empty", ops.cumulative_logsumexp, np.zeros(0), np.zeros(0)),
    ("sort-empty", ops.sort, np.zeros((2, 0)), np.zeros((2, 0))),
    ("topk-empty", lambda x: ops.topk(x, 0)[0], np.zeros((2, 3)), np.zeros((2, 3))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fn", "values", "wanted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
@pytest.mark.parametrize(("backend", "taped"), WAYS)
def test_slopes(fn: Function, values: Any, wanted: Any, backend: str, taped: bool) -> None:
    _check(fn, values, wanted, backend, taped)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize(("backend", "taped"), WAYS)
def test_dtypes_stay(backend: str, taped: bool, dtype: str) -> None:
    """Rules keep the dtype, also where counts are beyond float16."""
    x = [[1.0, 2.0, 4.0], [0.5, 3.0, 1.0]]
    for fn in (
        ops.sum, ops.mean, ops.max, ops.prod, ops.var, ops.std, ops.logsumexp, ops.sort, ops.median,
        lambda t: ops.cumulative_sum(t, axis=0), lambda t: ops.cumulative_prod(t, axis=1),
        lambda t: ops.cumulative_logsumexp(t, axis=1),
    ):  # fmt: skip
        wide = _grad(fn, x, backend, taped, "float64")
        np.testing.assert_allclose(_grad(fn, x, backend, taped, dtype), wide, rtol=4e-3, atol=1e-3)
    many = _grad(ops.mean, np.ones(70_000), backend, taped, dtype)
    np.testing.assert_allclose(many.astype(float), 1 / 70_000, rtol=5e-3)


@pytest.mark.parametrize(("backend", "taped"), WAYS)
def test_complex(backend: str, taped: bool) -> None:
    """Of products, the others' conjugates; a zero among them leaves them exact."""
    z = np.array([1 + 2j, 0, 3 - 1j], np.complex64)
    weight = 2 - 1j

    def loss(fn: Function) -> Function:
        return lambda t: ops.real(fn(t)) * weight.real + ops.imag(fn(t)) * weight.imag

    others = np.array([z[1] * z[2], z[0] * z[2], z[0] * z[1]])
    for fn, slopes in (
        (ops.sum, np.ones(3)),
        (ops.mean, np.full(3, 1 / 3)),
        (ops.prod, others),
        (lambda t: ops.cumulative_sum(t)[-1], np.ones(3)),
        (lambda t: ops.cumulative_prod(t)[-1], others),
    ):
        _check(loss(fn), z, weight * slopes.conj(), backend, taped, dtype="complex64")


def _curvature(fn: Function, values: list[float], backend: str) -> Any:
    with em.use_backend(backend):
        x = ops.asarray(np.array(values))
        along = ops.asarray(np.arange(1.0, len(values) + 1))
        slope = autodiff.grad(lambda t: ops.sum(autodiff.grad(lambda u: ops.sum(fn(u)))(t) * along))
        return slope(x).numpy()


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "mlx"])
def test_second_derivatives_of_products_with_zeros(backend: str) -> None:
    # Mixed derivatives are the products of all but two; along (1, 2, 3).
    got = _curvature(ops.prod, [2.0, 0.0, 3.0], backend)
    np.testing.assert_allclose(got, [2 * 3 + 3 * 0, 1 * 3 + 3 * 2, 1 * 0 + 2 * 2])
    got = _curvature(ops.prod, [0.0, 0.0, 3.0], backend)
    np.testing.assert_allclose(got, [2 * 3, 1 * 3, 0])
    got = _curvature(lambda x: ops.cumulative_prod(x)[-1], [0.0, 0.0, 3.0], backend)
    np.testing.assert_allclose(got, [2 * 3, 1 * 3, 0])


@pytest.mark.parametrize(("backend", "taped"), WAYS)
def test_long_axes(backend: str, taped: bool) -> None:
    """Beyond the lengths at which engines go another way."""
    x = np.random.default_rng(0).permutation(700).astype(float)
    for fn, wanted in (
        (lambda t: ops.topk(t, 2)[0], x >= 698),
        (ops.median, ((x == 349) | (x == 350)) * 0.5),
        (ops.sum, np.ones(700)),
        (ops.max, x == 699),
    ):
        _check(fn, x, wanted, backend, taped)


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "mlx"])
def test_what_counts_has_no_gradient(backend: str) -> None:
    with em.use_backend(backend):
        x = Tensor(ops.asarray([1.0, 0.0, 2.0]), requires_grad=True)
        assert not ops.count_nonzero(x).requires_grad
        assert not ops.histogram(x, 2).edges.requires_grad
        (index,) = ops.nonzero(x)
        assert not index.requires_grad
        with pytest.raises(EmberError):
            ops.max(x[:0]).backward()
