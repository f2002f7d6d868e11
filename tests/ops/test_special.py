"""Special functions against mpmath-grade references: scipy in float64, the last places counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

import ember_ml as em
from ember_ml import ops

# Arguments over which scipy itself is right to a few units in the last place.
RANGES = {
    "erf": (special.erf, -6.0, 6.0),
    "erfc": (special.erfc, -3.0, 3.0),
    "erfinv": (special.erfinv, -0.999, 0.999),
    "lgamma": (special.gammaln, 2.2, 40.0),
    "digamma": (special.digamma, 2.0, 40.0),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", RANGES)
def test_last_places(backend: str, name: str, dtype: str) -> None:
    function, low, high = RANGES[name]
    x = np.linspace(low, high, 20_011).astype(dtype)
    got = getattr(ops, name)(ops.asarray(x)).numpy().astype(np.float64)
    wanted = function(x.astype(np.float64))
    places = np.abs(got - wanted) / np.spacing(np.abs(wanted.astype(dtype))).astype(np.float64)
    places[wanted == 0] = np.abs(got[wanted == 0])
    # erfc in float32 carries the rounding of exp on MLX; the others stay within a few places.
    assert places.max() <= 16


def test_around_roots(backend: str) -> None:
    """Relative digits survive where the function passes zero; exact by series to first order."""
    step = 1e-7
    x = ops.asarray([1 + step, 1 - step, 2 + step, 2 - step], dtype="float64")
    at = x.numpy()
    near_one, near_two = at[:2] - 1, at[2:] - 2
    gamma = float(np.euler_gamma)
    first = -gamma * near_one + (math.pi**2 / 12) * near_one**2
    second = (1 - gamma) * near_two + (math.pi**2 / 12 - 0.5) * near_two**2
    np.testing.assert_allclose(ops.lgamma(x).numpy(), np.concatenate([first, second]), rtol=1e-12)
    root = 1.4616321449683622
    slope = float(special.polygamma(1, root))
    got = ops.digamma(ops.asarray([root + step], dtype="float64")).item()
    distance = (root + step) - root - 9.549995429965697e-17
    assert got == pytest.approx(slope * distance, rel=1e-6)


def test_tails(backend: str) -> None:
    """erfc where erf is one, in float64: exact values by 40-digit arithmetic."""
    x = ops.asarray([6.0, 10.0, 20.0, 26.0], dtype="float64")
    wanted = [
        2.1519736712498913e-17, 2.088487583762545e-45,
        5.395865611607901e-176, 5.663192408856143e-296,
    ]  # fmt: skip
    np.testing.assert_allclose(ops.erfc(x).numpy(), wanted, rtol=2e-14)
    one = ops.asarray([1 - 2.0**-53], dtype="float64")
    assert ops.erfc(ops.erfinv(one)).item() == pytest.approx(2.0**-53, rel=1e-13)


def test_signs_of_zero(backend: str) -> None:
    x = ops.asarray([0.0, -0.0])
    for name in ("erf", "erfinv", "cbrt"):
        assert np.signbit(getattr(ops, name)(x).numpy()).tolist() == [False, True]


@pytest.mark.parametrize("backend", ["torch", "jax", "mlx"])  # engines with gradients of their own
def test_gradients(backend: str) -> None:
    x = np.array([-1.5, -0.3, 0.2, 0.8])
    slopes = {
        "erf": 2 / math.sqrt(math.pi) * np.exp(-(x**2)),
        "erfc": -2 / math.sqrt(math.pi) * np.exp(-(x**2)),
        "lgamma": special.digamma(x),
    }
    for name, wanted in slopes.items():
        np.testing.assert_allclose(_slope(backend, name, x), wanted, rtol=1e-9)
    inner = np.array([-0.9, -0.2, 0.1, 0.7])
    wanted = math.sqrt(math.pi) / 2 * np.exp(special.erfinv(inner) ** 2)
    np.testing.assert_allclose(_slope(backend, "erfinv", inner), wanted, rtol=1e-9)


def _slope(backend: str, name: str, x: np.ndarray) -> np.ndarray:
    with em.use_backend(backend):
        native = ops.asarray(x).native
    function = getattr(ops, name)
    if backend == "torch":
        import torch

        native.requires_grad_()
        (slope,) = torch.autograd.grad(ops.sum(function(native)).native, native)
        return np.asarray(slope)
    if backend == "jax":
        import jax

        return np.asarray(jax.grad(lambda v: ops.sum(function(v)).native)(native))
    import mlx.core as mx

    return np.asarray(mx.grad(lambda v: ops.sum(function(v)).native)(native))


def test_many_at_once() -> None:
    """Blocks join without seams, whatever the strides."""
    x = np.linspace(-3, 3, 100_000).reshape(100, 1000).T
    with em.use_backend("numpy"):
        got = ops.erf(ops.asarray(x))
    np.testing.assert_allclose(got.numpy(), special.erf(x), rtol=1e-14)
