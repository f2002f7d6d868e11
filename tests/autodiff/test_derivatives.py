"""vjp, jvp, jacobian, hessian and hvp, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import ember_ml as em
from ember_ml import ops, tree

BACKENDS = ("numpy", "torch", "jax", "mlx")


def near(got: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(got.numpy(), np.asarray(wanted), rtol=tolerance, atol=tolerance)


def wide(*values: float) -> em.Tensor:
    return ops.asarray(list(values), dtype=em.float64)


def matrix() -> em.Tensor:
    return ops.asarray(np.arange(6.0).reshape(2, 3) / 4)


def branches(p: Any) -> Any:
    """A function of a tree that gives a tree."""
    return {"h": ops.tanh(p["w"] * p["x"]), "s": [ops.sum(p["x"] * p["x"])]}


def inputs() -> Any:
    return {"w": matrix(), "x": wide(0.5, -1, 2)}


# --- vjp and jvp ----------------------------------------------------------------------------


def test_vjp_pulls_back_as_often_as_asked(backend: str) -> None:
    value, pull = em.vjp(branches, inputs())
    assert not value["h"].requires_grad
    assert value["s"][0].shape == ()
    ones = {"h": ops.ones((2, 3), dtype=em.float64), "s": [2.0]}
    (first,) = pull(ones)
    (again,) = pull(ones)
    near(first["x"], again["x"].numpy())
    slope = 1 - np.tanh(matrix().numpy() * [0.5, -1, 2]) ** 2
    near(first["w"], slope * [0.5, -1, 2])
    near(first["x"], (slope * matrix().numpy()).sum(0) + 4 * np.array([0.5, -1, 2]))
    assert type(first["x"]) is em.Tensor
    doubled = tree.map(lambda g: ops.asarray(g, dtype=em.float64) * 2.0, ones)
    near(pull(doubled)[0]["w"], 2 * first["w"].numpy())


def test_vjp_of_several_arguments_and_aux(backend: str) -> None:
    value, pull, aux = em.vjp(lambda a, b: (a * b, {"sum": a + b}), 2.0, wide(3, 4), has_aux=True)
    near(value, [6, 8])
    near(aux["sum"], [5, 6])
    a, b = pull(wide(1, 10))
    assert (a.item(), a.dtype) == (43, em.float32)
    near(b, [2, 20])
    with pytest.raises(em.GradientError, match=r"vjp: .* depend on args\[1\]"):
        em.vjp(lambda a, b: a * a, wide(1), wide(2))[1](wide(1))
    zeros = em.vjp(lambda a, b: a * a, wide(1), wide(2), allow_unused=True)[1](wide(1))[1]
    assert zeros.tolist() == [0]


def test_the_pull_is_differentiable(backend: str) -> None:
    x = wide(1, 2)
    _, pull = em.vjp(lambda x: x * x * x, x)
    near(em.grad(lambda g: ops.sum(pull(g)[0] * g))(wide(1, 1)), [6, 24])
    slopes = em.grad(lambda x: ops.sum(em.vjp(lambda y: y * y * y, x)[1](wide(1, 1))[0]))(x)
    near(slopes, [6, 12])


def test_jvp_moves_forward(backend: str) -> None:
    directions = {"w": ops.ones((2, 3), dtype=em.float64), "x": wide(1, 0, -1)}
    value, along = em.jvp(branches, (inputs(),), (directions,))
    w, x = matrix().numpy(), np.array([0.5, -1, 2])
    near(value["h"], np.tanh(w * x))
    near(along["h"], (1 - np.tanh(w * x) ** 2) * (x + w * [1, 0, -1]))
    near(along["s"][0], 2 * (0.5 - 2))
    assert type(along["h"]) is em.Tensor


def test_jvp_of_what_does_not_depend_is_zero(backend: str) -> None:
    value, along, aux = em.jvp(
        lambda x: ((x * 2.0, wide(7)), 5), (wide(1, 2),), (wide(1, 1),), has_aux=True
    )
    near(along[0], [2, 2])
    assert (along[1].tolist(), along[1].dtype, value[1].tolist(), aux) == ([0], em.float64, [7], 5)
    near(em.jvp(ops.floor, (wide(1.5),), (wide(1),))[1], [0])


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: em.vjp(lambda x: x > 0, wide(1)), em.DTypeError, "not bool at the result"),
        (lambda: em.vjp(lambda x: {"a": 1}, wide(1)), em.DTypeError, r"int64 at the result\['a'\]"),
        (lambda: em.vjp(lambda x: x, 1), em.DTypeError, r"int64 at args\[0\]"),
        (lambda: em.vjp(lambda: 1.0), em.DomainError, "no argnums"),
        (lambda: em.vjp(lambda x: x, wide(1))[1](wide(1, 2)), em.ShapeError, r"\(2,\) for \(1,\)"),
        (lambda: em.vjp(lambda x: x, wide(1))[1]([wide(1)]), em.ShapeError, "trees that differ"),
        (lambda: em.vjp(lambda x: x, wide(1))[1](ops.ones(1) * 1j), em.DTypeError, "complex"),
        (lambda: em.jvp(lambda x: x, wide(1), (wide(1),)), em.DTypeError, "primals as a tuple"),
        (lambda: em.jvp(lambda x: x, (wide(1),), (wide(1, 2),)), em.ShapeError, r"tangents\[0\]"),
        (lambda: em.jvp(lambda x: x, (wide(1),), ()), em.ShapeError, "trees that differ"),
        (lambda: em.jacobian(lambda x: x * 1j)(ops.ones(1)), em.DTypeError, "complex64 at the res"),
        (lambda: em.jacobian(lambda x: x)(ops.ones(1) * 1j), em.DTypeError, "two derivatives"),
        (lambda: em.jacobian(lambda x: wide(1))(wide(1)), em.GradientError, r"args\[0\]"),
    ],
)
def test_mistakes_are_named(backend: str, make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_complex_vjp_and_jvp(backend: str) -> None:
    z = ops.asarray(np.array([1 + 2j, 3 - 1j], "complex64"))
    value, pull = em.vjp(lambda z: z * z * (1 + 1j), z)
    slope = 2 * z.numpy() * (1 + 1j)
    near(pull(value)[0], value.numpy() * np.conj(slope), 1e-5)
    near(em.jvp(lambda z: z * z * (1 + 1j), (z,), (z,))[1], slope * z.numpy(), 1e-5)


# --- jacobian and hessian -------------------------------------------------------------------


def test_a_jacobian_has_the_shapes_of_result_and_argument(backend: str) -> None:
    found = em.jacobian(branches)(inputs())
    shapes = tree.map(lambda x: x.shape, found)
    assert shapes == {"h": {"w": (2, 3, 2, 3), "x": (2, 3, 3)}, "s": [{"w": (2, 3), "x": (3,)}]}
    w, x = matrix().numpy(), np.array([0.5, -1, 2])
    slope = 1 - np.tanh(w * x) ** 2
    near(found["h"]["x"], (slope * w)[:, :, None] * np.eye(3))
    near(found["s"][0]["x"], 2 * x)
    near(found["s"][0]["w"], np.zeros((2, 3)))


def test_argnums_and_aux_of_a_jacobian(backend: str) -> None:
    def fn(x: Any, y: Any) -> Any:
        return x * y, {"kept": x}

    (a, b), aux = em.jacobian(fn, argnums=(-1, 0), has_aux=True)(wide(1, 2), wide(3, 4))
    near(a, np.diag([1, 2]))
    near(b, np.diag([3, 4]))
    near(aux["kept"], [1, 2])


@pytest.mark.parametrize("many", [1, 7])
def test_rows_and_columns_agree(backend: str, many: int) -> None:
    """A tall jacobian is computed by columns, a wide one by rows."""
    w = np.linspace(-1, 1, 3 * many).reshape(many, 3)
    tall = em.jacobian(lambda x: ops.tanh(x * ops.asarray(w[:, 0])))(wide(0.5))
    near(tall, ((1 - np.tanh(0.5 * w[:, 0]) ** 2) * w[:, 0])[:, None])
    whole = em.jacobian(lambda x: ops.sum(ops.tanh(x * ops.asarray(w)), axis=-1))(wide(1, 2, 3))
    near(whole, (1 - np.tanh(w * [1, 2, 3]) ** 2) * w)


def test_jacobians_of_nothing(backend: str) -> None:
    empty = ops.zeros((0, 2), dtype=em.float64)
    assert em.jacobian(lambda x: x * 2.0)(empty).shape == (0, 2, 0, 2)
    assert em.jacobian(lambda x: ops.sum(x * 2.0))(empty).shape == (0, 2)


def test_a_hessian_of_a_tree(backend: str) -> None:
    found = em.hessian(lambda p: ops.sum(p[0] * p[0] * p[1]))([wide(1, 2), wide(3, 4)])
    near(found[0][0], np.diag([6, 8]))
    near(found[0][1], np.diag([2, 4]))
    near(found[1][0], np.diag([2, 4]))
    near(found[1][1], np.zeros((2, 2)))
    near(em.hessian(lambda x: ops.sum(x * 3.0))(wide(1, 2)), np.zeros((2, 2)))


def test_hvp_is_hessian_times_direction(backend: str) -> None:
    def fn(x: Any) -> Any:
        return ops.sum(ops.tanh(x) * x * ops.sum(x))

    x, v = wide(0.5, -1, 2), wide(1, 2, 3)
    (product,) = em.hvp(fn, (x,), (v,))
    near(product, em.hessian(fn)(x).numpy() @ v.numpy())


def test_derivatives_within_derivatives(backend: str) -> None:
    x = wide(0.5, 2)
    inner = em.grad(lambda x: ops.sum(em.jvp(lambda x: x * x * x, (x,), (x,))[1]))(x)
    near(inner, 9 * x.numpy() ** 2)
    near(em.jvp(em.grad(lambda x: ops.sum(x * x * x)), (x,), (x,))[1], 6 * x.numpy() ** 2)
    twice = em.hessian(lambda x: ops.sum(em.grad(lambda y: ops.sum(y * y * y))(x) * x))(x)
    near(twice, np.diag(18 * x.numpy()))
    third = em.jacobian(em.hessian(lambda x: ops.sum(x * x * x)))(x)
    near(third, 6 * np.einsum("ij,jk->ijk", np.eye(2), np.eye(2)))
    near(em.grad(lambda x: ops.sum(em.jacobian(lambda y: y * y * x)(x)))(x), 4 * x.numpy())


def test_tensors_from_outside_stay_connected(backend: str) -> None:
    w = em.Tensor(wide(2, 3), requires_grad=True)
    x = wide(1, 2)
    for make in (
        lambda: em.jacobian(lambda x: x * x * w)(x),
        lambda: em.vjp(lambda x: x * x * w, x)[1](wide(1, 1))[0],
        lambda: em.jvp(lambda x: x * x * w, (x,), (wide(1, 1),))[1],
    ):
        w.grad = None
        ops.sum(make()).backward()
        assert w.grad is not None
        near(w.grad, [2, 4])


def test_a_record_of_seeds_is_kept(backend: str) -> None:
    seed = em.Tensor(wide(1, 2), requires_grad=True)
    _, pull = em.vjp(lambda x: x * x, wide(3, 4))
    ops.sum(pull(seed)[0]).backward()
    assert seed.grad is not None
    near(seed.grad, [6, 8])


# --- Properties -----------------------------------------------------------------------------

arrays = hnp.arrays(np.float64, 3, elements=st.floats(-2, 2, width=16))


def field(x: Any) -> Any:
    return ops.tanh(x) * ops.sum(x) + ops.exp(x * 0.5)


@pytest.mark.parametrize("name", BACKENDS)
@settings(max_examples=15, deadline=None)
@given(arrays, arrays, arrays)
def test_vjp_is_the_transpose_of_jvp(name: str, values: Any, u: Any, v: Any) -> None:
    with em.use_backend(name):
        x, left, right = ops.asarray(values), ops.asarray(u), ops.asarray(v)
        _, along = em.jvp(field, (x,), (right,))
        (back,) = em.vjp(field, x)[1](left)
        near(ops.sum(left * along), ops.sum(back * right).numpy(), 1e-8)


@pytest.mark.parametrize("name", BACKENDS)
@settings(max_examples=8, deadline=None)
@given(arrays)
def test_hessians_are_symmetric(name: str, values: Any) -> None:
    with em.use_backend(name):
        found = em.hessian(lambda x: ops.sum(field(x) * x))(ops.asarray(values)).numpy()
        np.testing.assert_allclose(found, found.T, rtol=1e-9, atol=1e-9)
