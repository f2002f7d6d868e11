"""stop_gradient and custom_gradient, in the functional and in the imperative API."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops


def near(got: Any, wanted: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(got.numpy(), np.asarray(wanted), rtol=tolerance, atol=tolerance)


def wide(*values: float) -> em.Tensor:
    return ops.asarray(list(values), dtype=em.float64)


# --- stop_gradient --------------------------------------------------------------------------


def test_stopped_values_are_constants(backend: str) -> None:
    near(em.grad(lambda x: ops.sum(x * em.stop_gradient(x)))(wide(3, 4)), [3, 4])
    near(em.grad(em.grad(lambda x: x * x * em.stop_gradient(x)))(wide(3)[0]), 6)
    near(em.jvp(lambda x: x * em.stop_gradient(x), (wide(3),), (wide(1),))[1], [3])
    x = em.Tensor(wide(3, 4), requires_grad=True)
    stopped = em.stop_gradient(x)
    assert not stopped.requires_grad
    assert stopped.dtype is em.float64
    ops.sum(x * stopped).backward()
    assert x.grad is not None
    near(x.grad, [3, 4])


def test_trees_and_numbers_go_through(backend: str) -> None:
    x = em.Tensor(wide(1, 2), requires_grad=True)
    got = em.stop_gradient({"x": [x], "n": 3, "none": None, "i": ops.asarray([1])})
    assert not got["x"][0].requires_grad
    assert (got["n"], got["none"], got["i"].tolist()) == (3, None, [1])
    assert em.stop_gradient(2.5) == 2.5


# --- custom_gradient ------------------------------------------------------------------------


@em.custom_gradient
def cube(x: Any) -> Any:
    """A cube whose slope is told to be 7 x^2, so that it is seen whose slope is taken."""
    return x * x * x, lambda g: g * 7.0 * x * x


def test_the_pull_is_used(backend: str) -> None:
    x = wide(0.5, 1.5)
    near(cube(x), x.numpy() ** 3)
    near(em.grad(lambda x: ops.sum(cube(x)))(x), 7 * x.numpy() ** 2)
    near(em.vjp(cube, x)[1](wide(1, 2))[0], 7 * x.numpy() ** 2 * [1, 2])
    near(em.jvp(cube, (x,), (wide(1, 2),))[1], 7 * x.numpy() ** 2 * [1, 2])
    near(em.jacobian(cube)(x), np.diag(7 * x.numpy() ** 2))


def test_the_pull_is_differentiated(backend: str) -> None:
    x = wide(0.5, 1.5)
    near(em.hessian(lambda x: ops.sum(cube(x)))(x), np.diag(14 * x.numpy()))
    near(em.grad(lambda x: ops.sum(em.grad(lambda y: ops.sum(cube(y)))(x)))(x), 14 * x.numpy())
    third = em.grad(em.grad(em.grad(cube)))(x[0])
    near(third, 14)


def test_backward_and_tapes_use_the_pull(backend: str) -> None:
    x = em.Tensor(wide(0.5, 1.5), requires_grad=True)
    y = cube(x)
    assert y.requires_grad
    ops.sum(y * 2.0).backward()
    assert x.grad is not None
    near(x.grad, 14 * x.detach().numpy() ** 2)
    plain = wide(0.5, 1.5)
    with em.GradientTape(persistent=True) as tape:
        tape.watch(plain)
        z = ops.sum(cube(plain))
        slope = tape.gradient(z, plain)
    near(slope.detach(), 7 * plain.numpy() ** 2)
    near(tape.gradient(slope, plain), 14 * plain.numpy())
    with em.no_grad():
        assert not cube(x).requires_grad


@em.custom_gradient
def scaled(p: Any, count: Any, *, scale: float) -> Any:
    def pull(g: Any) -> Any:
        assert g["n"] is None
        assert g["i"] is None
        return {"a": g["s"] * p["b"] * scale, "b": None}, None

    return {"s": p["a"] * p["b"], "n": count, "i": ops.asarray([1, 2])}, pull


def test_trees_of_arguments_and_results(backend: str) -> None:
    p = {"a": wide(1, 2), "b": wide(3, 4)}
    value = scaled(p, 5, scale=3.0)
    assert value["n"] == 5
    assert value["i"].tolist() == [1, 2]
    g = em.grad(lambda p: ops.sum(scaled(p, 5, scale=3.0)["s"]))(p)
    near(g["a"], [9, 12])
    near(g["b"], [0, 0])  # None is the word of the pull that there is none
    watched = {"a": em.Tensor(p["a"], requires_grad=True), "b": p["b"]}
    ops.sum(scaled(watched, 5, scale=3.0)["s"]).backward()
    assert watched["a"].grad is not None
    near(watched["a"].grad, [9, 12])


def test_several_arguments_and_results(backend: str) -> None:
    @em.custom_gradient
    def both(a: Any, b: Any) -> Any:
        return (a + b, a * b), lambda g: (g[0] * 2.0, g[1] * 3.0)

    a, b = em.grad(lambda a, b: ops.sum(both(a, b)[0]) + ops.sum(both(a, b)[1]), argnums=(0, 1))(
        wide(1, 2), wide(3, 4)
    )
    near(a, [2, 2])
    near(b, [3, 3])
    # One result that is not used has a gradient of zeros.
    a = em.grad(lambda a: ops.sum(both(a, wide(3, 4))[0]))(wide(1, 2))
    near(a, [2, 2])


def test_complex_pulls_are_in_one_convention(backend: str) -> None:
    z = ops.asarray(np.array([1 + 2j], "complex64"))
    square = em.custom_gradient(lambda z: (z * z, lambda g: g * ops.conj(2.0 * z)))

    def loss(f: Any) -> Any:
        return em.grad(lambda z: ops.sum(ops.real(f(z) * (3 + 1j))))(z)

    near(loss(square), loss(lambda z: z * z).numpy(), 1e-5)


def test_a_straight_through_step(backend: str) -> None:
    step = em.custom_gradient(lambda x: (ops.round(x), lambda g: g))
    near(em.grad(lambda x: ops.sum(step(x) * 3.0))(wide(0.4, 1.7)), [3, 3])


def test_a_gradient_that_is_an_argument_has_its_own_memory(backend: str) -> None:
    half = em.custom_gradient(lambda x: (x * x * 0.5, lambda g: x))
    x = wide(1, 2)
    g = em.grad(lambda x: ops.sum(half(x)))(x)
    g += 10
    assert x.tolist() == [1, 2]


def test_a_pull_writes_to_a_gradient_of_its_own(backend: str) -> None:
    @em.custom_gradient
    def total(x: em.Tensor) -> Any:
        def pull(g: em.Tensor) -> em.Tensor:
            g *= 3.0
            return g * ops.ones_like(x)

        return ops.sum(x), pull

    # The gradient of a result is a constant, and that of a sum goes to all of its terms.
    for function, slope in ((total, 3.0), (lambda x: total(x) + ops.sum(x), 4.0)):
        for _ in range(2):
            near(em.grad(function)(wide(1, 2)), [slope, slope])
            x = wide(1, 2).requires_grad_()
            function(x).backward()
            near(x.grad, [slope, slope])
    near(wide(1, 2) * 1.0, [1, 2])


def test_in_loops_and_batches(backend: str) -> None:
    x = wide(0.5, 1.5)
    near(ops.vmap(em.grad(cube))(x), 7 * x.numpy() ** 2)
    last = em.grad(lambda c: ops.scan(lambda c, row: (cube(c) * row, c), c, x)[0])(wide(0.5)[0])
    inner = 0.5**3 * 0.5
    near(last, 7 * inner**2 * 1.5 * 7 * 0.25 * 0.5)


def test_under_the_compilers_of_the_engines(backend: str) -> None:
    def through(native: Any) -> Any:
        return em.grad(lambda x: ops.sum(cube(x)))(ops.asarray(native)).native

    native = ops.asarray([0.5, 1.5], dtype=em.float32).native
    if backend == "jax":
        import jax

        got = jax.jit(through)(native)
    elif backend == "mlx":
        import mlx.core as mx

        got = mx.compile(through)(native)
    elif backend == "torch":
        from torch.fx.experimental.proxy_tensor import make_fx

        got = make_fx(through)(native)(native)
    else:
        got = through(native)
    near(ops.asarray(got), [1.75, 15.75])


def test_mistakes_are_named(backend: str) -> None:
    x = wide(1, 2)

    def grad_of(fn: Any) -> Any:
        return em.grad(lambda x: ops.sum(em.custom_gradient(fn)(x)))(x)

    with pytest.raises(em.ShapeError, match="gives \\(value, pull\\)"):
        grad_of(lambda x: x)
    with pytest.raises(em.ShapeError, match="a tuple of 2"):
        grad_of(lambda x: (x * x, lambda g: (g, g)))
    with pytest.raises(em.ShapeError, match=r"shape \(\) for \(2,\)"):
        grad_of(lambda x: (x * x, lambda g: ops.sum(g)))
    with pytest.raises(em.DTypeError, match="complex"):
        grad_of(lambda x: (x * x, lambda g: ops.astype(g, em.float32) * 1j))
    w = em.Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(em.GradientError, match="make it an argument"):
        em.custom_gradient(lambda x: (x * w, lambda g: g))(ops.ones(2))
