"""Linear algebra that the kit cannot express: SciPy's word, gradients, tracing, laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import ember_ml as em
from ember_ml import ops

linalg = ops.linalg
GRADIENTS: dict[str, Any] = {
    "solve_triangular": lambda x: linalg.solve_triangular(x, [[1.0], [2.0], [3.0]], lower=True),
    "unit": lambda x: linalg.solve_triangular(x, [1.0, 2.0, 3.0], trans="C", unit_diagonal=True),
    "expm": linalg.expm,
    "lu": lambda x: linalg.lu(x).U,
    "lu_solve": lambda x: linalg.lu_solve(*linalg.lu_factor(x), [1.0, 2.0, 3.0]),
    "cholesky_solve": lambda x: linalg.cholesky_solve([1.0, 2.0, 3.0], x),
    "cholesky_inverse": linalg.cholesky_inverse,
    "lstsq": lambda x: linalg.lstsq(x[:, :2], [1.0, 2.0, 3.0]).solution,
    "lq": lambda x: linalg.lq(x).L,
    "orthogonal": linalg.orthogonal,
    "norm": lambda x: linalg.norm(x, "nuc"),
    "cond": lambda x: linalg.cond(x, 1),
    "kron": lambda x: linalg.kron(x, x),
    "diag": lambda x: linalg.diag(linalg.diag(x), 1),
    "vander": lambda x: linalg.vander(linalg.diag(x)),
    "multi_dot": lambda x: linalg.multi_dot([x, x, x]),
}


def matrix(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape)


def differences(loss: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The gradient of a function of NumPy arrays, by central differences."""
    out = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[place] = 1e-6
        out[place] = (loss(x + step) - loss(x - step)) / 2e-6
    return out


# --- Norms of nothing, as NumPy has them --------------------------------------------------------


@pytest.mark.parametrize("ord", [np.inf, 0, 1, 2, 3, None])
def test_vector_norm_of_nothing(backend: str, ord: Any) -> None:
    for keepdims in (False, True):
        options: dict[str, Any] = {"axis": 1, "ord": ord, "keepdims": keepdims}
        got = linalg.vector_norm(ops.zeros((2, 0)), **options)
        wanted = np.linalg.vector_norm(np.zeros((2, 0), np.float32), **options)
        assert got.dtype == "float32"
        np.testing.assert_array_equal(got.numpy(), wanted, strict=True)
    assert linalg.vector_norm(ops.zeros((0,)), ord=ord).item() == 0
    assert linalg.norm(ops.zeros((0,)), ord).item() == 0


@pytest.mark.parametrize("ord", [np.inf, 1, 2, "fro", "nuc"])
def test_matrix_norm_of_nothing(backend: str, ord: Any) -> None:
    for shape in ((0, 3), (3, 0), (0, 0), (2, 0, 3), (0, 2, 3)):
        got = linalg.matrix_norm(ops.zeros(shape), ord=ord)
        wanted = np.linalg.matrix_norm(np.zeros(shape, np.float32), ord=ord)
        np.testing.assert_array_equal(got.numpy(), np.asarray(wanted), strict=True)
    assert linalg.matrix_norm(ops.zeros((3, 0)), ord=-np.inf).item() == 0
    assert linalg.matrix_norm(ops.zeros((0, 3)), ord=-1).item() == 0


def test_vector_norm_without_order_is_that_of_two(backend: str) -> None:
    assert linalg.vector_norm([3.0, 4.0], ord=None).item() == 5


# --- SciPy's word -----------------------------------------------------------------------------


def test_expm_as_scipy(backend: str) -> None:
    skew = matrix(5, 5) * 100
    for x in (matrix(6, 6), matrix(6, 6) * 20, skew - skew.T, matrix(2, 3, 4, 4) * 3):
        wanted = scipy.linalg.expm(x)
        # What is left of the digits goes down with the norm. SciPy itself is off by up to 3e-14 at
        # a norm of 14, where long doubles tell that ours are off by 3e-15.
        scale = max(np.abs(x).sum(-1).max(), 1.0)
        np.testing.assert_allclose(
            linalg.expm(x).numpy(), wanted, rtol=0, atol=5e-15 * scale * np.abs(wanted).max()
        )


@pytest.mark.parametrize("name", ["numpy", "jax"])
def test_expm_scales_by_powers_and_not_by_the_norm(name: str) -> None:
    with em.use_backend(name):
        x = np.array([[-1.0, 1e6], [0.0, -2.0]])
        np.testing.assert_allclose(linalg.expm(x).numpy(), scipy.linalg.expm(x), rtol=1e-14)


def test_expm_of_very_negative_matrices_is_zero(backend: str) -> None:
    assert linalg.expm([[-1e30]]).tolist() == [[0.0]]


@pytest.mark.parametrize("shape", [(80, 80), (70, 40), (40, 70)])
def test_lu_as_scipy(backend: str, shape: tuple[int, int]) -> None:
    x = matrix(*shape)
    p, lower, upper = scipy.linalg.lu(x)
    found = linalg.lu(x)
    np.testing.assert_array_equal(found.P.numpy(), p)
    np.testing.assert_allclose(found.L.numpy(), lower, atol=1e-12)
    np.testing.assert_allclose(found.U.numpy(), upper, atol=1e-12)
    if shape[0] == shape[1]:
        both, pivots = scipy.linalg.lu_factor(x)
        np.testing.assert_array_equal(linalg.lu_factor(x).pivots.numpy(), pivots)
        right = matrix(shape[0], 2, seed=1)
        wanted = scipy.linalg.lu_solve((both, pivots), right)
        np.testing.assert_allclose(linalg.lu_solve(both, pivots, right).numpy(), wanted, rtol=1e-9)


@pytest.mark.parametrize("lower", [False, True])
def test_triangular_systems_of_many_blocks(backend: str, lower: bool) -> None:
    x, y = matrix(100, 100) + 20 * np.eye(100), matrix(100, 3)
    found = linalg.solve_triangular(x, y, lower=lower).numpy()
    np.testing.assert_allclose(found, scipy.linalg.solve_triangular(x, y, lower=lower), rtol=1e-11)


# --- Laws -------------------------------------------------------------------------------------

SQUARE = arrays(np.float64, (3, 3), elements=st.floats(-4, 4, width=32))


@settings(max_examples=40, deadline=None)
@given(SQUARE)
def test_lu_puts_any_matrix_together_again(x: np.ndarray[Any, Any]) -> None:
    p, lower, upper = linalg.lu(x)
    np.testing.assert_allclose((p @ lower @ upper).numpy(), x, atol=1e-13)
    assert np.abs(lower.numpy()).max() <= 1  # pivots are the largest of their columns


@settings(max_examples=40, deadline=None)
@given(SQUARE)
def test_the_determinant_of_the_exponential_is_that_of_the_trace(
    x: np.ndarray[Any, Any],
) -> None:
    found = linalg.expm(x)
    inverse = linalg.expm(-x)
    size = np.abs(found.numpy()).max() * np.abs(inverse.numpy()).max()
    np.testing.assert_allclose((found @ inverse).numpy(), np.eye(3), atol=1e-14 * max(size, 1))


@settings(max_examples=40, deadline=None)
@given(arrays(np.float64, (4, 2), elements=st.integers(-3, 3).map(float)))
def test_least_squares_is_the_pseudo_inverse(x: np.ndarray[Any, Any]) -> None:
    right = np.array([1.0, -2.0, 3.0, 4.0])
    fit = linalg.lstsq(x, right)
    wanted = np.linalg.lstsq(x, right)
    for found, reference in zip(fit, wanted, strict=True):
        np.testing.assert_allclose(found.numpy(), reference, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(arrays(np.float64, (2, 3), elements=st.floats(-4, 4, width=32)))
def test_rows_of_wide_matrices_become_orthonormal(x: np.ndarray[Any, Any]) -> None:
    q = linalg.orthogonal(x).numpy()
    np.testing.assert_allclose(q @ q.T, np.eye(2), atol=1e-13)


# --- Gradients and tracing --------------------------------------------------------------------


@pytest.mark.parametrize("name", list(GRADIENTS))
def test_gradients(name: str) -> None:
    import torch

    x = matrix(3, 3, seed=4) + 3 * np.eye(3)

    def loss(values: Any) -> Any:
        return ops.sum(GRADIENTS[name](values) ** 2)

    wanted = differences(lambda values: loss(values).item(), x)
    with em.use_backend("torch"):
        leaf = em.Tensor(x, requires_grad=True)
        (found,) = torch.autograd.grad(loss(leaf).native, leaf.native)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["lu_solve", "expm", "lstsq", "orthogonal", "unit"])
def test_gradients_of_compiled_code_on_jax(name: str) -> None:
    import jax
    import jax.numpy as jnp

    x = matrix(3, 3, seed=4) + 3 * np.eye(3)

    def loss(values: Any) -> Any:
        return ops.sum(GRADIENTS[name](values) ** 2)

    wanted = differences(lambda values: loss(values).item(), x)
    with em.use_backend("jax"):
        found = jax.jit(jax.grad(lambda values: loss(values).native))(jnp.asarray(x))
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["solve_triangular", "unit", "expm", "cholesky_solve"])
def test_gradients_of_hosted_kernels_on_mlx(name: str) -> None:
    import mlx.core as mx

    x = matrix(3, 3, seed=4) + 3 * np.eye(3)

    def loss(values: Any) -> Any:
        return ops.sum(GRADIENTS[name](values) ** 2)

    wanted = differences(lambda values: loss(values).item(), x)
    with em.use_backend("mlx"):
        native = mx.array(x, dtype=mx.float64)
        found = mx.grad(lambda values: loss(values).native)(native)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5, atol=1e-6)


def test_lu_has_a_gradient_on_mlx() -> None:
    import mlx.core as mx

    x = mx.array([[1.0, 2.0], [4.0, 3.0]])
    with em.use_backend("mlx"):
        # The last pivot is 2 - 3 / 4, the product of a pivot and a factor taken off.
        found = mx.grad(lambda x: linalg.lu(x).U[1, 1].native)(x)
    np.testing.assert_allclose(np.asarray(found), [[-0.75, 1.0], [3 / 16, -0.25]])


def test_checks_of_values_are_left_out_while_tracing() -> None:
    import jax
    import jax.numpy as jnp

    solve = jax.jit(lambda a: linalg.solve_triangular(a, jnp.ones(2)).native)
    assert np.isinf(np.asarray(solve(jnp.zeros((2, 2))))).any()
    # The rank of what is traced is not known: residuals are there by shape.
    fit = jax.jit(lambda a: linalg.lstsq(a, jnp.ones((3, 1))).residuals.native)
    np.testing.assert_allclose(np.asarray(fit(jnp.zeros((3, 2)))), [3.0])
    assert linalg.lstsq(ops.zeros((3, 2)), ops.ones((3, 1))).residuals.shape == (0,)


def test_pivots_need_no_gradient() -> None:
    with em.use_backend("torch"):
        found = linalg.lu_factor(em.Tensor(np.eye(2), requires_grad=True))
    assert found.LU.requires_grad
    assert not found.pivots.requires_grad


# --- Names and inputs -------------------------------------------------------------------------


def test_names_beside_those_of_the_chapter() -> None:
    for name in ("cross", "diag", "diagonal", "kron", "trace"):
        assert getattr(ops, name) is getattr(linalg, name)
        assert name in ops.__all__
    assert linalg.matrix_exp is linalg.expm
    assert linalg.triangular_solve is linalg.solve_triangular


def test_inputs_are_promoted_and_stay_on_their_backend(backend: str) -> None:
    x = ops.asarray([[2.0, 0.0], [1.0, 1.0]], dtype="float32")
    out = linalg.solve_triangular(x, np.ones(2), lower=True)
    assert (out.dtype, out.backend) == (em.float64, backend)
    assert linalg.kron(ops.asarray([1], dtype="int8"), [1.5]).dtype is em.float32
    assert linalg.multi_dot([[[1, 2]], [[1], [1]]]).tolist() == [[3]]
    assert linalg.expm([[0, 0], [0, 0]]).dtype is em.float32


def test_two_backends_do_not_mix() -> None:
    with em.use_backend("torch"):
        x = ops.eye(2)
    with em.use_backend("numpy"):
        y = ops.ones((2,))
    for call in (
        lambda: linalg.solve_triangular(x, y),
        lambda: linalg.lstsq(x, y),
        lambda: linalg.cholesky_solve(y, x),
        lambda: linalg.kron(x, y),
        lambda: linalg.multi_dot([x, y]),
        lambda: linalg.lu_solve(x, ops.asarray([0, 1]), ops.ones((2,))),
    ):
        with pytest.raises(em.BackendMismatchError):
            call()
