"""Compilation and differentiation, one within the other; random numbers of compiled functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import Tensor, ops
from ember_ml.errors import TraceError
from ember_ml.nn import tensor
from ember_ml.ops import random

COMPILED = ("torch", "jax", "mlx")


def loss(params: Any, x: Tensor) -> Tensor:
    return ops.sum(ops.tanh(x * params["w"] + params["b"]))


def near(a: Any, b: Any) -> None:
    first, one = em.tree.flatten(a)
    second, other = em.tree.flatten(b)
    assert one == other
    for x, y in zip(first, second, strict=True):
        assert (x.dtype, x.shape, x.backend) == (y.dtype, y.shape, y.backend)
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=2e-6, atol=1e-7)


@pytest.fixture
def params(backend: str) -> Any:
    return {"w": ops.asarray([0.5, -1.0]), "b": ops.asarray(0.25)}


@pytest.fixture
def x(backend: str) -> Tensor:
    return ops.asarray([[1.0, 2.0], [3.0, -1.0]])


def test_gradients_within_and_around(backend: str, params: Any, x: Tensor) -> None:
    expected = em.value_and_grad(loss)(params, x)
    jitted = em.jit(loss)
    within = em.jit(em.value_and_grad(loss))
    for _ in range(2):
        near(within(params, x), expected)
        near(em.value_and_grad(jitted)(params, x), expected)
        near(em.jit(em.value_and_grad(jitted))(params, x), expected)
    assert within.traces == 1
    for value, grads in (within(params, x), em.value_and_grad(jitted)(params, x)):
        assert not value.requires_grad
        assert not grads["w"].requires_grad


def test_second_derivatives(backend: str) -> None:
    def cube(x: Tensor) -> Tensor:
        return ops.sum(x * x * x)

    def twice(f: Any) -> Any:
        return em.grad(lambda x: ops.sum(em.grad(f)(x) * em.grad(f)(x)))

    x = ops.asarray([0.5, -2.0])
    expected = twice(cube)(x)
    assert expected.tolist() == [36 * 0.125, 36 * -8.0]
    jitted = em.jit(cube)
    near(twice(jitted)(x), expected)
    near(em.jit(twice(cube))(x), expected)
    near(em.jit(twice(jitted))(x), expected)
    near(em.grad(lambda x: ops.sum(em.jit(em.grad(cube))(x) * x))(x), ops.asarray([4.5, 72.0]) / 2)
    third = em.grad(lambda x: em.grad(lambda x: em.grad(jitted)(x).sum())(x).sum())(x)
    near(third, ops.asarray([6.0, 6.0]))


def test_backward_through_a_compiled_function(backend: str) -> None:
    a = tensor.array([1.0, 2.0], requires_grad=True)
    b = tensor.array([3.0, 4.0], requires_grad=True)
    jitted = em.jit(lambda a, b, n: (ops.sum(a * b * n), a.detach() * 2, ops.asarray([1, 2])))
    value, cut, whole = jitted(a, b, ops.asarray([1.0, 10.0]))
    assert value.requires_grad
    assert not cut.requires_grad
    assert not whole.requires_grad
    (value * 2).backward()
    assert a.grad.tolist() == [6.0, 80.0]
    assert b.grad.tolist() == [2.0, 40.0]
    again, _, _ = jitted(a, b.detach(), ops.ones(2))
    again.backward()
    assert a.grad.tolist() == [9.0, 84.0]
    assert b.grad.tolist() == [2.0, 40.0]
    with em.no_grad():
        assert not jitted(a, b, ops.ones(2))[0].requires_grad


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph:UserWarning")
def test_backward_of_a_backward(backend: str) -> None:
    x = tensor.array([1.0, 2.0], requires_grad=True)
    y = em.jit(lambda x: ops.sum(x * x * x))(x)
    y.backward(create_graph=True)
    g = x.grad
    assert g.tolist() == [3.0, 12.0]
    x.grad = None
    ops.sum(g * g).backward()
    assert x.grad.tolist() == [36.0, 288.0]


def test_several_results_with_gradients(backend: str) -> None:
    x = tensor.array([1.0, 2.0], requires_grad=True)
    parts = em.jit(lambda x: {"a": x * 2, "b": [ops.sum(x), x.shape[0]]})(x)
    assert parts["b"][1] == 2
    (ops.sum(parts["a"] * 3) + parts["b"][0]).backward()
    assert x.grad.tolist() == [7.0, 7.0]


def test_gradients_of_a_function_with_a_buffer(backend: str) -> None:
    seen, state = ops.zeros(()), {"mean": ops.ones(2)}

    @em.jit(state=[seen, state])
    def function(x: Tensor) -> Tensor:
        nonlocal seen
        seen += 1.0
        result = ops.sum(x * x * state["mean"])
        state["mean"] = state["mean"] + x.detach()
        return result

    expected = [1.0, 1.0]
    for count in (1.0, 2.0, 3.0):
        value, g = em.value_and_grad(function)(ops.asarray([1.0, 3.0]))
        assert value.item() == expected[0] + 9 * expected[1]
        assert g.tolist() == [2 * expected[0], 6 * expected[1]]
        expected = [expected[0] + 1, expected[1] + 3]
        assert seen.item() == count
        assert state["mean"].tolist() == expected
    assert type(seen) is Tensor
    assert type(state["mean"]) is Tensor


def test_training(backend: str) -> None:
    # The whole of a small training, compiled and not, on all backends.
    shapes = {"w1": (2,), "w2": (2,)}

    def start() -> Any:
        with random.use_seed(1):
            return {name: random.normal(shape) * 0.5 for name, shape in shapes.items()}

    def mse(params: Any, x: Tensor, y: Tensor) -> Tensor:
        wrong = ops.tanh(x * params["w1"]) * params["w2"] - y
        return ops.sum(wrong * wrong)

    def update(params: Any, x: Tensor, y: Tensor) -> Tensor:
        value, g = em.value_and_grad(mse)(params, x, y)
        for name in params:
            params[name] = params[name] - 0.05 * g[name]
        return value

    with random.use_seed(2):
        x = random.normal((8, 2))
    y = x * 2
    plain, state = start(), start()
    step = em.jit(lambda x, y: update(state, x, y), state=state)
    for _ in range(4):
        expected = update(plain, x, y)
        near(step(x, y), expected)
    near(state, plain)
    assert step.traces == 1


@pytest.mark.parametrize("name", ["checkpoint", "jacobian", "vjp", "jvp", "hessian"])
def test_every_derivative_within_and_around(backend: str, name: str) -> None:
    def function(x: Tensor) -> Tensor:
        return ops.sum(ops.tanh(x @ x.T) * x)

    ways: dict[str, Any] = {
        "checkpoint": lambda f: em.grad(em.checkpoint(f)),
        "jacobian": em.jacobian,
        "vjp": lambda f: lambda x: em.vjp(f, x)[1](ops.asarray(2.0)),
        "jvp": lambda f: lambda x: em.jvp(f, (x,), (x * 2,)),
        "hessian": em.hessian,
    }
    way = ways[name]
    x = ops.asarray([[0.5, -0.25], [0.125, 1.0]])
    expected = em.tree.leaves(way(function)(x))
    for made in (em.jit(way(function)), way(em.jit(function)), em.jit(way(em.jit(function)))):
        for _ in range(2):
            for found, want in zip(em.tree.leaves(made(x)), expected, strict=True):
                assert (found.dtype, found.shape) == (want.dtype, want.shape)
                np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)


def test_a_checkpoint_inside(backend: str) -> None:
    inner = em.checkpoint(lambda x: ops.tanh(x) * x)
    x = ops.asarray([0.5, -1.0])
    expected = em.grad(lambda x: ops.sum(ops.tanh(x) * x))(x)
    near(em.grad(em.jit(lambda x: ops.sum(inner(x))))(x), expected)
    near(em.jit(em.grad(lambda x: ops.sum(inner(x))))(x), expected)


# --- Random numbers ---------------------------------------------------------------------------


def test_each_call_draws_anew(backend: str) -> None:
    jitted = em.jit(lambda x: (random.normal((3,)) * x, random.uniform((2,))))
    with random.use_seed(7):
        first = [[t.tolist() for t in jitted(ops.ones(()))] for _ in range(3)]
        after = random.get_state()["counter"]
    with random.use_seed(7):
        again = [[t.tolist() for t in jitted(ops.ones(()))] for _ in range(3)]
    assert first == again
    assert after == 3  # a call counts as one draw
    assert len({str(one) for one in first}) == 3
    assert jitted.traces == 1


def test_the_same_numbers_on_every_backend() -> None:
    jitted = em.jit(lambda: (random.uniform((5,)), random.randint(0, 100, (4,)), random.normal(6)))
    found = {}
    for name in ("numpy", *COMPILED):
        with em.use_backend(name), random.use_seed(3):
            jitted()
            found[name] = jitted()
    for name in COMPILED:
        for place in (0, 1):
            assert found[name][place].tolist() == found["numpy"][place].tolist()
        np.testing.assert_allclose(found[name][2].numpy(), found["numpy"][2].numpy(), rtol=2e-5)


def test_functions_that_draw_nothing_take_nothing(backend: str) -> None:
    jitted = em.jit(lambda x: x + 1)
    with random.use_seed(5):
        jitted(ops.ones(2)), jitted(ops.ones(2))
        assert random.get_state()["counter"] == 0


def test_generators_are_state(backend: str) -> None:
    generator = random.Generator(11)
    jitted = em.jit(lambda: random.uniform((2,), generator=generator), state=[generator])
    first = [jitted().tolist() for _ in range(3)]
    assert generator.counter == 3
    assert len({str(one) for one in first}) == 3
    generator.set_state({"seed": 11, "counter": 0, "children": 0})
    assert [jitted().tolist() for _ in range(3)] == first
    with pytest.raises(TraceError, match=r"Generator.*state="):
        em.jit(lambda: random.uniform((2,), generator=generator))()


@pytest.mark.parametrize(
    ("function", "slopes"),
    [
        (lambda x, y: ops.sum(ops.reshape(x + y, (-1,))), [1.0, 1.0]),
        (lambda x, y: ops.sum(ops.exp(x + y)), [1.0, 1.0]),
        (lambda x, y: ops.reshape(x, (2,))[0] + ops.mean(y), [1.0, 0.5]),
        (lambda x, y: ops.reshape(x[:1], ()) - ops.reshape(y[1:], ()), [1.0, -1.0]),
    ],
    ids=["broadcast", "the same", "mean", "a number"],
)
def test_compiled_gradients_have_memory_of_their_own(
    backend: str, function: Any, slopes: list[float]
) -> None:
    step = em.jit(em.grad(function, argnums=(0, 1)))
    x = ops.zeros(2)
    for _ in range(2):
        found = step(x, x)
        assert [ops.max(ops.abs(g)).item() for g in found] == [abs(s) for s in slopes]
        for g in found:
            g *= 3
        assert [ops.max(ops.abs(g)).item() for g in found] == [3 * abs(s) for s in slopes]


def test_compiled_views_of_constants_have_memory_of_their_own(backend: str) -> None:
    table = [[1.0, 2.0], [3.0, 4.0]]
    rows = em.jit(lambda: list(ops.unstack(ops.asarray(table))))
    one = em.jit(em.grad(lambda x: ops.reshape(x, ())))
    for _ in range(2):
        found = rows()
        assert [row.tolist() for row in found] == table
        slope = one(ops.ones(1))
        assert slope.tolist() == [1.0]
        for written in (*found, slope):
            written *= 5
    assert (ops.ones(2) * 1.0).tolist() == [1.0, 1.0]


def test_a_key_as_an_argument(backend: str) -> None:
    jitted = em.jit(lambda key: random.uniform((2,), generator=key))
    key = random.key(4)
    assert jitted(key).tolist() == random.uniform((2,), generator=key).tolist()


def test_draws_of_one_within_another(backend: str) -> None:
    inner = em.jit(lambda: random.uniform((2,)))
    outer = em.jit(lambda: (inner(), inner()))
    with random.use_seed(1):
        a, b = outer()
        c, _ = outer()
    assert len({str(t.tolist()) for t in (a, b, c)}) == 3
