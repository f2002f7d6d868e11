"""Statistics beyond the conformance cases: properties, gradients, tracing, selection at length."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import ember_ml as em
from ember_ml import ops
from ember_ml.ops import stats

FLOATS = st.floats(-1e3, 1e3, width=32)
LINES = hnp.arrays(np.float64, st.just(12), elements=FLOATS)


def test_stats_is_an_index() -> None:
    assert sorted(stats.__all__) == stats.__all__
    for name in stats.__all__:
        assert getattr(stats, name) is getattr(ops, name)
        assert getattr(ops.ones(1).__array_namespace__().stats, name) is getattr(ops, name)


def test_the_names_of_the_plan_exist() -> None:
    names = (
        "mean var std median percentile quantile mode max min sum prod cumsum cumprod argmax "
        "argmin sort argsort topk histogram bincount cov corrcoef gaussian reduce_mean reduce_std "
        "reduce_var reduce_sum reduce_prod reduce_max reduce_min reduce_any reduce_all"
    )
    assert set(names.split()) <= set(stats.__all__)


# --- Order ----------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(LINES, st.floats(0, 1))
def test_quantiles_are_monotone_and_within(x: np.ndarray, q: float) -> None:
    tensor = ops.asarray(x)
    low, middle, high = ops.quantile(tensor, [0.0, q, 1.0]).tolist()
    assert low == x.min()
    assert high == x.max()
    assert low <= middle <= high
    turned = ops.quantile(-tensor, 1 - q).item()
    assert turned == pytest.approx(-middle, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("q", [0.1, [0.2, 0.7], np.array([0.3])])
def test_compiled_quantiles_read_their_q_in_full(backend: str, q: Any) -> None:
    x = np.random.default_rng(0).normal(size=300)  # of float64: float32(0.1) is another place
    got = em.jit(lambda one: ops.quantile(one, q))(ops.asarray(x)).numpy()
    np.testing.assert_allclose(got, np.quantile(x, q), rtol=1e-12)


def test_quantiles_at_infinity(backend: str) -> None:
    x = ops.asarray([-math.inf, 1.0, math.inf, math.inf])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ops.quantile(x, [0.0, 0.1, 0.5, 0.9, 1.0]).tolist() == [
            -math.inf, -math.inf, math.inf, math.inf, math.inf,
        ]  # fmt: skip
        assert ops.median(x[1:]).item() == math.inf
        assert math.isnan(ops.median(x[::2]).item())


def test_selection_at_length(backend: str) -> None:
    """Long lines take other ways than short ones: selection, NumPy on JAX's memory."""
    x = np.random.default_rng(1).integers(0, 50, (3, 1001)).astype(np.float32)
    tensor = ops.asarray(x)
    np.testing.assert_array_equal(ops.median(tensor, 1).numpy(), np.median(x, 1))
    got = ops.quantile(tensor, np.linspace(0, 1, 9), 1).numpy()
    np.testing.assert_allclose(got, np.quantile(x, np.linspace(0, 1, 9), 1), rtol=1e-6)
    for largest in (True, False):
        values, indices = ops.topk(tensor, 40, largest=largest)
        order = np.argsort(-x if largest else x, axis=1, stable=True)[:, :40]
        assert indices.dtype is em.int64
        assert values.dtype is em.float32
        np.testing.assert_array_equal(indices.numpy(), order)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, order, 1))


def test_topk_of_the_smallest_integer(backend: str) -> None:
    x = ops.asarray([0, -(2**63), 2**63 - 1])
    assert ops.topk(x, 3, largest=False).indices.tolist() == [1, 0, 2]
    assert ops.topk(x, 0).values.shape == (0,)


def test_mode_as_in_scipy(backend: str) -> None:
    x = np.random.default_rng(2).integers(0, 4, (5, 9))
    wanted = scipy.stats.mode(x, axis=1)
    values, counts = ops.mode(ops.asarray(x), 1)
    np.testing.assert_array_equal(values.numpy(), wanted.mode)
    np.testing.assert_array_equal(counts.numpy(), wanted.count)
    assert counts.dtype is em.int64


# --- Counts ---------------------------------------------------------------------------------


def test_histogram_dtypes(backend: str) -> None:
    x = ops.asarray([0.0, 1.0, 1.0, 4.0], dtype="float64")
    counts, edges = ops.histogram(x, 2)
    assert (counts.dtype, edges.dtype) == (em.int64, em.float64)
    assert ops.histogram(x, 2, weights=[1, 2, 3, 4]).counts.tolist() == [6, 4]
    assert ops.histogram(x, 2, weights=[1, 2, 3, 4]).counts.dtype is em.int64
    assert ops.histogram(x, 2, density=True).counts.dtype is em.float64
    assert ops.histogram(ops.asarray([math.nan, 1.0]), 2, range=(0, 2)).counts.tolist() == [0, 1]


@settings(max_examples=20, deadline=None)
@given(hnp.arrays(np.int64, st.integers(0, 20), elements=st.integers(0, 30)))
def test_bincount_counts_all(x: np.ndarray) -> None:
    counts = ops.bincount(x)
    assert ops.sum(counts).item() == x.size
    np.testing.assert_array_equal(counts.numpy(), np.bincount(x))


@settings(max_examples=20, deadline=None)
@given(LINES)
def test_a_histogram_counts_all(x: np.ndarray) -> None:
    counts, edges = ops.histogram(x, 5)
    assert ops.sum(counts).item() == x.size
    np.testing.assert_array_equal(counts.numpy(), np.histogram(x, 5)[0])
    np.testing.assert_array_equal(edges.numpy(), np.histogram(x, 5)[1])


# --- Laws -----------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(LINES, st.floats(-500, 500))
def test_logsumexp_moves_with_its_argument(x: np.ndarray, by: float) -> None:
    here = ops.logsumexp(x).item()
    assert ops.logsumexp(x + by).item() == pytest.approx(here + by, rel=1e-9, abs=1e-9)
    assert here >= x.max()
    assert ops.cumulative_logsumexp(x)[-1].item() == pytest.approx(here, rel=1e-12)


def test_correlation_is_within_one(backend: str) -> None:
    x = np.random.default_rng(3).normal(size=(4, 6))
    x[1] = 3 * x[0] + 1
    out = ops.corrcoef(ops.asarray(x)).numpy()
    assert (np.abs(out) <= 1).all()
    np.testing.assert_allclose(out, np.corrcoef(x), atol=1e-12)


def test_gaussian_is_a_density(backend: str) -> None:
    x = ops.linspace(-12, 16, 2001, dtype="float64")
    area = ops.trapezoid(ops.gaussian(x, mean=2.0, std=1.5), x).item()
    assert area == pytest.approx(1, abs=1e-12)
    by_scipy = scipy.stats.norm.pdf(x.numpy(), 2.0, 1.5)
    got = ops.gaussian(x, ops.asarray(2.0, dtype="float64"), ops.asarray(1.5, dtype="float64"))
    np.testing.assert_allclose(got.numpy(), by_scipy, rtol=1e-12)


def test_logsumexp_of_one_number_is_that_number(backend: str) -> None:
    for keepdims in (False, True):
        found = ops.logsumexp(ops.asarray(3.0), keepdims=keepdims)
        assert (found.shape, found.item()) == ((), 3.0)


def test_nothing_warns(backend: str) -> None:
    nothing = ops.full((2, 3), math.nan)
    mixed = ops.asarray([math.inf, -math.inf, math.nan, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in "nanmean nanvar nanstd nanmax nanmin nanmedian".split():
            assert np.isnan(getattr(ops, name)(nothing, axis=1).numpy()).all()
        assert ops.nanquantile(nothing, [0.1, 0.2], 0).shape == (2, 3)
        assert ops.isclose(mixed, mixed).tolist() == [True, True, False, True]
        assert ops.logsumexp(mixed[:2]).item() == math.inf
        assert ops.nan_to_num(mixed).tolist()[2:] == [0.0, 1.0]
        assert ops.median(ops.zeros((0,))).shape == ()
        for name in "erf erfc erfinv lgamma digamma exp2 cbrt sinc".split():
            getattr(ops, name)(mixed)


# --- Gradients and compilers ----------------------------------------------------------------


def test_gradients_on_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([3.0, 1.0, 2.0, 5.0], requires_grad=True)
    runs = {
        "median": [0.5, 0.0, 0.5, 0.0],
        "ptp": [0.0, -1.0, 0.0, 1.0],
        "nanmean": [0.25] * 4,
    }
    for name, wanted in runs.items():
        (slope,) = torch.autograd.grad(getattr(ops, name)(x).native, x)
        np.testing.assert_allclose(slope.numpy(), wanted)
    (slope,) = torch.autograd.grad(ops.sum(ops.topk(x, 2).values).native, x)
    assert slope.tolist() == [1.0, 0.0, 0.0, 1.0]
    (slope,) = torch.autograd.grad(ops.logsumexp(x).native, x)
    np.testing.assert_allclose(slope.numpy(), torch.softmax(x, 0).detach().numpy(), rtol=1e-6)
    points, levels = [0.0, 2.0, 9.0], torch.tensor([0.0, 4.0, 9.0], requires_grad=True)
    found = ops.sum(ops.interp(x, points, levels)).native
    along, across = torch.autograd.grad(found, (x, levels))
    np.testing.assert_allclose(along.numpy(), [5 / 7, 2.0, 5 / 7, 5 / 7], rtol=1e-6)
    assert float(across.sum()) == pytest.approx(4)


def test_under_jit_and_grad_on_jax() -> None:
    jax = pytest.importorskip("jax")
    x = ops.asarray(np.array([3.0, 1.0, 2.0, 5.0, 5.0])).to_jax()

    def run(f):  # type: ignore[no-untyped-def]
        return jax.jit(lambda v: f(v).native)(x)

    assert run(ops.median) == 3.0
    assert run(ops.nanmedian) == 3.0
    assert run(lambda v: ops.topk(v, 2).indices).tolist() == [3, 4]
    assert run(lambda v: ops.mode(v).values) == 5.0
    assert run(lambda v: ops.histogram(v, 2).counts).tolist() == [2, 3]
    assert run(lambda v: ops.bincount(ops.astype(v, "int64"), minlength=4)).tolist() == [0, 1, 1, 1]
    assert run(lambda v: ops.nanargmax(v)) == 3
    assert bool(run(lambda v: ops.allclose(v, v)))
    with pytest.raises(em.UnsupportedOpError):
        run(lambda v: ops.bincount(ops.astype(v, "int64")))
    traced = jax.jit(lambda q: ops.quantile(x, ops.asarray(q)).native)(np.array([0.25, 0.5]))
    assert traced.tolist() == [2.0, 3.0]
    slope = jax.grad(lambda v: ops.median(v).native)(x)
    assert slope.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    for name, wanted in (
        ("erf", 2 / math.sqrt(math.pi) * math.exp(-0.49)),
        ("lgamma", -1.2200235536979349),
        ("digamma", 2.8340491566946104),
    ):
        slope = jax.grad(lambda v, name=name: getattr(ops, name)(v).native)(0.7)
        assert float(slope) == pytest.approx(wanted, rel=1e-6)


def test_histograms_at_length(backend: str) -> None:
    """Even bins of long lines are found by arithmetic on NumPy: to the last value at an edge."""
    x = np.random.default_rng(4).integers(-30, 130, 5000) / 10
    x[::500] = math.nan
    for bins, limits in ((100, (0.0, 10.0)), (7, (-0.7, 11.3)), (13, (0.1, 0.2))):
        counts, edges = ops.histogram(ops.asarray(x), bins, range=limits)
        wanted = np.histogram(x[~np.isnan(x)], bins, range=limits)
        np.testing.assert_array_equal(counts.numpy(), wanted[0])
        np.testing.assert_array_equal(edges.numpy(), wanted[1])
    single = x.astype(np.float32)
    counts = ops.histogram(ops.asarray(single), 100, range=(0.0, 10.0)).counts
    np.testing.assert_array_equal(
        counts.numpy(), np.histogram(single[~np.isnan(x)], 100, range=(0.0, 10.0))[0]
    )
