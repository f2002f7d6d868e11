"""Edges of the gradients of linear algebra and transforms: the same on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import autodiff, ops
from ember_ml.nn import tensor

BACKENDS = ["numpy", "torch", "jax", "mlx"]
Array = np.ndarray[Any, Any]


def _grad(backend: str, fn: Callable[..., Any], *arrays: Any) -> list[Array]:
    with em.use_backend(backend), np.errstate(all="ignore"):
        given = [ops.asarray(np.asarray(a)) for a in arrays]
        found = autodiff.grad(fn, argnums=tuple(range(len(given))))(*given)
        for g, x in zip(found, given, strict=True):
            assert g.dtype is x.dtype
            assert g.shape == x.shape
        return [g.numpy() for g in found]


def _draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


# --- Norms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", [2, 1, 3, 1.5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_norm_at_zero_has_gradient_zero(backend: str, order: float, dtype: str) -> None:
    x = np.array([[0.0, 0.0], [3.0, -4.0]], dtype)
    (g,) = _grad(backend, lambda x: ops.sum(ops.linalg.vector_norm(x, axis=1, ord=order)), x)
    size = np.abs(x[1]) ** (order - 1) * np.sign(x[1])
    expected = size / np.sum(np.abs(x[1]) ** order) ** (1 - 1 / order)
    np.testing.assert_array_equal(g[0], 0)
    np.testing.assert_allclose(g[1], expected, rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("norm", [
    lambda x: ops.linalg.norm(x),
    lambda x: ops.linalg.matrix_norm(x),
    lambda x: ops.linalg.norm(x, axis=0)[0],
])  # fmt: skip
def test_every_way_to_the_norm_at_zero(backend: str, norm: Callable[..., Any]) -> None:
    (g,) = _grad(backend, norm, np.zeros((2, 2)))
    np.testing.assert_array_equal(g, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_norm_of_complex_zeros(backend: str) -> None:
    (g,) = _grad(backend, lambda x: ops.linalg.norm(x), np.zeros(3, np.complex64))
    np.testing.assert_array_equal(g, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_norm_of_nothing(backend: str) -> None:
    (g,) = _grad(backend, lambda x: ops.linalg.norm(x), np.zeros((0,)))
    assert g.shape == (0,)


# --- Determinants -----------------------------------------------------------------------------


def _cofactors(x: Array) -> Array:
    side = len(x)
    out = np.empty_like(x)
    for i in range(side):
        for j in range(side):
            minor = np.delete(np.delete(x, i, 0), j, 1)
            out[i, j] = (-1) ** (i + j) * np.linalg.det(minor)
    return out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("matrix", [
    [[1.0, 2.0], [2.0, 4.0]],
    [[0.0, 0.0], [0.0, 0.0]],
    [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 1.0, 5.0]],
    [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 6.0, 9.0]],
    [[2.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [4.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 3.0]],
    [[2.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [4.0, 0.0, 2.0, 0.0], [0.0, 2.0, 0.0, 0.0]],
])  # fmt: skip
def test_the_gradient_of_a_determinant_is_the_cofactors(backend: str, matrix: Any) -> None:
    x = np.array(matrix)
    (g,) = _grad(backend, lambda x: ops.linalg.det(x), x)
    np.testing.assert_allclose(g, _cofactors(x), atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gradient_of_a_complex_determinant(backend: str) -> None:
    x = np.array([[1, 2j, 0], [2, 4j, 0], [0, 1, 1 - 1j]], np.complex64)
    (g,) = _grad(backend, lambda x: ops.real(ops.linalg.det(x)), x)
    np.testing.assert_allclose(g, np.conj(_cofactors(x)), atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_singular_matrix_among_others(backend: str) -> None:
    x = np.stack([_draw(3, 3) + 3 * np.eye(3), np.ones((3, 3)), np.diag([1.0, 0.0, 2.0])])
    (g,) = _grad(backend, lambda x: ops.sum(ops.linalg.det(x)), x)
    np.testing.assert_allclose(g, np.stack([_cofactors(m) for m in x]), atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_determinants_of_nothing(backend: str) -> None:
    (g,) = _grad(backend, lambda x: ops.sum(ops.linalg.det(x)), np.zeros((0, 2, 2)))
    assert g.shape == (0, 2, 2)


# --- Symmetric matrices -----------------------------------------------------------------------


def _low(low: Any) -> Any:
    return ops.sum(low * ops.tril(ops.ones(low.shape, dtype="float64")) * 1.5)


_SYMMETRIC: dict[str, Callable[[Any], Any]] = {
    "cholesky": lambda x: _low(ops.linalg.cholesky(x)),
    "cholesky-upper": lambda x: ops.sum(ops.linalg.cholesky(x, upper=True)),
    "eigvalsh": lambda x: ops.sum(ops.linalg.eigvalsh(x) ** 3),
    "eigh": lambda x: ops.sum(ops.square(ops.linalg.eigh(x).eigenvectors)[0] * ops.asarray(
        np.array([1.0, 2.0, 3.0]))),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", _SYMMETRIC)
def test_gradients_by_symmetric_matrices_are_symmetric(backend: str, name: str) -> None:
    """One triangle is read; a step along the gradient leaves the matrix symmetric."""
    a = _draw(3, 3)
    x = a @ a.T + np.diag([1.0, 2.0, 3.0])
    (g,) = _grad(backend, _SYMMETRIC[name], x)
    np.testing.assert_allclose(g, g.T, atol=1e-12)
    assert np.abs(g).max() > 1e-3
    # Along any symmetric direction it is the slope.
    d = _draw(3, 3, seed=1)
    d = (d + d.T) * 1e-5
    with em.use_backend("numpy"):
        ahead, behind = (_SYMMETRIC[name](ops.asarray(x + s * d)).item() for s in (1, -1))
    np.testing.assert_allclose(np.sum(g * d), (ahead - behind) / 2, rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [
    lambda x: ops.sum(ops.linalg.eigvalsh(x)),
    lambda x: ops.sum(ops.linalg.eigh(x).eigenvalues),
    lambda x: ops.sum(ops.linalg.svdvals(x)),
    lambda x: ops.sum(ops.linalg.svd(x).S),
    lambda x: ops.sum(ops.linalg.svd(x, full_matrices=False).S),
])  # fmt: skip
def test_equal_values_have_gradients(backend: str, fn: Callable[..., Any]) -> None:
    """No basis is determined there, and the sum of values needs none."""
    (g,) = _grad(backend, fn, 2 * np.eye(3))
    np.testing.assert_allclose(g, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_values_of_matrices_without_full_rank(backend: str, dtype: str) -> None:
    x = np.array([[3.0, 0.0], [0.0, 0.0], [4.0, 0.0]], dtype)
    (g,) = _grad(backend, lambda x: ops.linalg.svd(x).S[0], x)
    np.testing.assert_allclose(g, x / 5, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [
    lambda x: ops.sum(ops.linalg.eigh(x).eigenvectors * ops.asarray(np.arange(9.0).reshape(3, 3))),
    lambda x: ops.sum(ops.linalg.svd(x).U * ops.asarray(np.arange(9.0).reshape(3, 3))),
])  # fmt: skip
def test_vectors_of_equal_values_have_none(backend: str, fn: Callable[..., Any]) -> None:
    """Not zeros in silence: the loss depends on a basis that nothing determines."""
    (g,) = _grad(backend, fn, 2 * np.eye(3))
    assert not np.isfinite(g).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_pseudo_inverse_of_equal_values(backend: str) -> None:
    weights = _draw(3, 3)
    (g,) = _grad(backend, lambda x: ops.sum(ops.linalg.pinv(x) * ops.asarray(weights)),
                 2 * np.eye(3))  # fmt: skip
    np.testing.assert_allclose(g, -weights / 4, atol=1e-12)


# --- Wide and complete factors ------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (3, 3)])
def test_projections_on_complete_bases(backend: str, shape: tuple[int, int]) -> None:
    """Complete bases have right gradients for what depends on the space that they span."""
    x, weights = _draw(*shape), _draw(shape[0], shape[0], seed=1)
    side = min(shape)

    def loss(x: Any) -> Any:
        rest = ops.linalg.qr(x, mode="complete").Q[:, side:]
        more = ops.linalg.svd(x).U[:, side:]
        both = rest @ rest.T + more @ more.T
        return ops.sum(both * ops.asarray(weights)) + ops.sum(x) * 0.0

    def direct(x: Array) -> float:
        q = np.linalg.qr(x)[0]
        return float(2 * np.sum((np.eye(shape[0]) - q @ q.T) * weights))

    (g,) = _grad(backend, loss, x)
    step = 1e-6
    expected = np.zeros(shape)
    for place in np.ndindex(shape):
        moved = np.zeros(shape)
        moved[place] = step
        expected[place] = (direct(x + moved) - direct(x - moved)) / (2 * step)
    np.testing.assert_allclose(g, expected, atol=1e-7)


# --- Products and transforms ----------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shapes", [
    ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((3,), (3, 0)), ((0, 2, 3), (3, 2)), ((2, 3), (0, 3, 2)),
])  # fmt: skip
def test_products_of_nothing(backend: str, shapes: Any) -> None:
    a, b = (np.ones(s) for s in shapes)
    for_a, for_b = _grad(backend, lambda a, b: ops.sum(ops.matmul(a, b)), a, b)
    np.testing.assert_array_equal(for_a, np.zeros(shapes[0]))
    np.testing.assert_array_equal(for_b, np.zeros(shapes[1]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_products_of_half_precision_keep_their_dtype(backend: str) -> None:
    a, b = _draw(2, 3).astype("float16"), _draw(3, 2).astype("float16")
    for_a, for_b = _grad(backend, lambda a, b: ops.sum(ops.matmul(a, b)), a, b)
    np.testing.assert_allclose(for_a, np.broadcast_to(b.sum(1), (2, 3)), rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(for_b, np.broadcast_to(a.sum(0)[:, None], (3, 2)), rtol=1e-2,
                               atol=1e-2)  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("points", [1, 2, 5, 6])
def test_doubled_bins_of_real_transforms(backend: str, points: int) -> None:
    """A bin of irfft that stands for two counts twice; the first and the middle one do not."""
    bins = (_draw(points // 2 + 1) + 1j * _draw(points // 2 + 1, seed=1)).astype(np.complex64)
    weights = _draw(points, seed=2).astype("float32")
    (g,) = _grad(backend, lambda x: ops.sum(ops.fft.irfft(x, n=points) * ops.asarray(weights)),
                 bins)  # fmt: skip
    factors = np.full(points // 2 + 1, 2.0)
    factors[0] = 1
    if points % 2 == 0:
        factors[-1] = 1
    expected = np.fft.rfft(weights) * factors / points
    np.testing.assert_allclose(g, expected, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_parseval(backend: str) -> None:
    """The energy of a signal is that of its spectrum: its gradient is twice the signal."""
    x = _draw(7).astype("float32")

    def energy(x: Any) -> Any:
        return ops.sum(ops.square(ops.abs(ops.fft.fft(x, norm="ortho"))))

    (g,) = _grad(backend, energy, x)
    np.testing.assert_allclose(g, 2 * x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_backward_through_a_solution(backend: str) -> None:
    with em.use_backend(backend):
        a = tensor.array([[2.0, 0.0], [0.0, 4.0]], requires_grad=True)
        b = tensor.array([2.0, 4.0], requires_grad=True)
        ops.sum(ops.linalg.solve(a, b)).backward()
        np.testing.assert_allclose(b.grad.numpy(), [0.5, 0.25])
        np.testing.assert_allclose(a.grad.numpy(), [[-0.5, -0.5], [-0.25, -0.25]])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["inv", "solve", "cholesky", "svd", "eigh", "qr", "pinv", "det"])
def test_second_derivatives(backend: str, name: str) -> None:
    """Gradients of gradients on every backend, not on our tape alone."""
    run: dict[str, Callable[[Any], Any]] = {
        "inv": lambda x: ops.sum(ops.linalg.inv(x)),
        "solve": lambda x: ops.sum(ops.linalg.solve(x, ops.asarray(np.ones((3, 1))))),
        "cholesky": lambda x: ops.sum(ops.linalg.cholesky(x @ x.T)),
        "svd": lambda x: ops.sum(ops.square(ops.linalg.svd(x).U[:, 0]) * 0.5 * ops.asarray(
            np.array([1.0, 2.0, 3.0]))),
        "eigh": lambda x: ops.sum(ops.square(ops.linalg.eigh(x + x.T).eigenvectors[:, 0]) * (
            ops.asarray(np.array([1.0, 2.0, 3.0])))),
        "qr": lambda x: ops.sum(ops.square(ops.linalg.qr(x).R)[0]),
        "pinv": lambda x: ops.sum(ops.linalg.pinv(x[:, :2])),
        "det": lambda x: ops.linalg.det(x),
    }  # fmt: skip
    loss = run[name]
    x, d = _draw(3, 3) + 3 * np.diag([1.0, 2.0, 3.0]), _draw(3, 3, seed=5)

    def slope(x: Any) -> Any:
        return ops.sum(autodiff.grad(loss)(x) * ops.asarray(d))

    (g,) = _grad(backend, slope, x)
    step = 1e-5
    ahead, behind = (_grad("numpy", loss, x + s * step * d)[0] for s in (1, -1))
    np.testing.assert_allclose(g, (ahead - behind) / (2 * step), atol=1e-6)
