"""The walk over native arrays: gradients in memory of their own, none copied for nothing."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The shapes of what the NumPy backend copies."""
    found: list[Any] = []
    backend = ops.asarray([0.0]).to_backend("numpy")._spec.backend
    plain = backend.copy

    def copy(native: Any) -> Any:
        found.append(native.shape)  # not the array, which is then held once more
        return plain(native)

    monkeypatch.setattr(backend, "copy", copy)
    return found


def _numbers(*shape: int) -> em.Tensor:
    return ops.asarray(np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32"))


def test_a_network_has_no_gradient_copied(copies: list[Any]) -> None:
    """A gradient that nobody else holds is handed over as it is, compiled or not."""
    with em.use_backend("numpy"):
        weights = [_numbers(3, 4), _numbers(4), _numbers(4, 2), _numbers(2)]
        x, target = _numbers(5, 3), ops.asarray([0, 1, 1, 0, 1])

        def loss(p: list[em.Tensor]) -> em.Tensor:
            hidden = ops.relu(x @ p[0] + p[1])
            return ops.losses.cross_entropy(hidden @ p[2] + p[3], target)

        for _ in range(2):
            em.value_and_grad(loss)(weights)
    assert copies == []


def test_what_two_inputs_share_is_copied_for_one(copies: list[Any]) -> None:
    with em.use_backend("numpy"):
        a, b = em.grad(lambda a, b: ops.sum((a + b) * 2.0), argnums=(0, 1))(
            _numbers(3), _numbers(3)
        )
        assert len(copies) == 1
        a += 1.0
        assert (a.tolist(), b.tolist()) == ([3.0] * 3, [2.0] * 3)


def test_what_the_record_keeps_is_copied() -> None:
    """A second walk over a retained record sees what the first one saw."""
    with em.use_backend("numpy"):
        x = _numbers(4, 3).requires_grad_()
        loss = ops.losses.cross_entropy(x, ops.asarray([0, 1, 2, 1]))
        loss.backward(retain_graph=True)
        first = x.grad.numpy(copy=True)
        x.grad += 5.0
        x.grad = None
        loss.backward()
        np.testing.assert_array_equal(x.grad.numpy(), first)


def test_what_a_recorded_walk_held_is_freed_at_once(backend: str) -> None:
    slope = em.grad(lambda x: ops.sum(em.grad(lambda y: ops.sum(ops.tanh(y) * y))(x)))
    x = _numbers(3)
    slope(x)
    gc.collect()
    gc.disable()
    try:
        slope(x)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        ours = [one for one in gc.garbage if type(one).__module__ == "ember_ml.autodiff.backward"]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert ours == []


def test_chains_meet_where_they_part(backend: str) -> None:
    """A node that waits alone, one that finds others waiting, and one that is reached twice."""

    def tree(x: em.Tensor) -> em.Tensor:
        stem = x * x
        left = ops.sin(stem) * stem
        right = ops.exp(-stem)
        deep = ops.tanh(right * left + right)
        return ops.sum(deep * left + stem * right)

    def slope(v: float) -> float:
        step = 1e-6
        up, down = (tree(ops.asarray([v + d], dtype="float64")).item() for d in (step, -step))
        return (up - down) / (2 * step)

    values = [0.3, -0.7, 1.1]
    x = ops.asarray(values, dtype="float64")
    wanted = [slope(v) for v in values]
    np.testing.assert_allclose(em.grad(tree)(x).numpy(), wanted, rtol=1e-7)
    leaf = ops.asarray(values, dtype="float64").requires_grad_()
    tree(leaf).backward()
    np.testing.assert_allclose(leaf.grad.numpy(), wanted, rtol=1e-7)


@pytest.mark.parametrize("size", [float("inf"), float("nan"), 3e38, 1e20])
def test_relu_with_gradients_that_are_large(size: float) -> None:
    with em.use_backend("numpy"):
        x = ops.asarray([-1.0, 0.0, 2.0])
        (found,) = (em.vjp(ops.relu, x)[1](ops.asarray([size, size, size])),)
        got = found[0] if isinstance(found, tuple) else found
    np.testing.assert_array_equal(got.numpy(), np.float32([0.0, 0.0, size]))


# --- Memory of others, and what was written meanwhile -------------------------------------------


def test_a_gradient_is_no_part_of_what_was_given(backend: str) -> None:
    given = ops.asarray([1.0, 2.0, 3.0, 4.0])
    _, pull = em.vjp(lambda a, b: ops.concat([a, b]), ops.ones(2), ops.ones(2))
    for _ in range(2):
        first, second = pull(given)
        assert (first.tolist(), second.tolist()) == ([1.0, 2.0], [3.0, 4.0])
        first[1], second[0] = 50.0, 99.0
        assert given.tolist() == [1.0, 2.0, 3.0, 4.0]
    a, b = (ops.ones(2).requires_grad_() for _ in range(2))
    ops.concat([a, b]).backward(given)
    b.grad[0] = 99.0
    assert (a.grad.tolist(), given.tolist()) == ([1.0, 2.0], [1.0, 2.0, 3.0, 4.0])


def test_a_gradient_is_not_the_tensor_that_a_pull_gave(backend: str) -> None:
    kept = ops.asarray([10.0, 20.0])
    doubled = em.custom_gradient(lambda x: (x * 2.0, lambda g: kept))
    found = em.grad(lambda x: ops.sum(doubled(x)))(ops.ones(2))
    found[0] = -1.0
    assert kept.tolist() == [10.0, 20.0]


def test_who_asks_twice_gets_two(backend: str) -> None:
    x = ops.asarray([1.0, 2.0]).requires_grad_()
    with em.GradientTape(persistent=True) as tape:
        y = x * x
    first, second = tape.gradient(y, [x, x])
    first[0] = 99.0
    assert second.tolist() == [2.0, 4.0]


def _written(use: Any, start: Any, write: Any) -> None:
    """A gradient after its index was written to: right where arrays never change, else refused."""
    x = ops.asarray(np.arange(12.0).reshape(4, 3)).requires_grad_()
    key = ops.asarray(start)
    y = ops.sum(use(x, key))
    again = ops.asarray(np.arange(12.0).reshape(4, 3)).requires_grad_()
    ops.sum(use(again, key.copy())).backward()
    write(key)
    if key._spec.mutable:  # its memory is what the record knows it by
        with pytest.raises(em.GradientError, match="written to"):
            y.backward()
    else:
        y.backward()
        np.testing.assert_array_equal(x.grad.numpy(), again.grad.numpy())


@pytest.mark.parametrize(
    "use",
    [
        lambda x, i: ops.take(x, i, axis=0),
        lambda x, i: x[i],
        lambda x, i: x[:, i],
        lambda x, i: ops.embedding(i, x),
        lambda x, i: ops.scatter(x[:3], i, 4),
        lambda x, i: ops.losses.cross_entropy(x[:3], i, reduction="none"),
        lambda x, i: ops.losses.cross_entropy(x[:3], i),
    ],
    ids=["take", "rows", "columns", "embedding", "scatter", "losses", "loss"],
)
def test_an_index_that_was_written_to(use: Any, backend: str) -> None:
    def write(key: em.Tensor) -> None:
        key[0] = 2

    _written(use, [0, 1, 1], write)


def test_a_mask_that_was_written_to(backend: str) -> None:
    def write(key: em.Tensor) -> None:
        key[0, 0] = False

    _written(lambda x, m: x[m], np.arange(12).reshape(4, 3) % 2 == 0, write)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_loss_of_scores_in_another_order(reduction: str, backend: str) -> None:
    scores = np.random.default_rng(2).standard_normal((7, 5))
    target = ops.asarray([0, 6, 3, 3, 1])
    odds = np.exp(scores.T - scores.T.max(1, keepdims=True))
    wanted = odds / odds.sum(1, keepdims=True) - np.eye(7)[[0, 6, 3, 3, 1]]
    wanted = wanted.T / (5 if reduction == "mean" else 1)

    def loss(w: em.Tensor) -> em.Tensor:
        return ops.sum(ops.losses.cross_entropy(w.T, target, reduction=reduction))

    np.testing.assert_allclose(em.grad(loss)(ops.asarray(scores)).numpy(), wanted, rtol=1e-9)
    leaf = ops.asarray(scores).requires_grad_()
    loss(leaf).backward()
    np.testing.assert_allclose(leaf.grad.numpy(), wanted, rtol=1e-9)


@pytest.mark.parametrize("classes", [[-100, 1, -100, 2], [-100, -100, -100, -100]])
def test_ignored_rows_have_no_slope_when_compiled(classes: list[int], backend: str) -> None:
    scores = np.random.default_rng(4).standard_normal((4, 3)).astype("float32")
    target = ops.asarray(classes)
    kept = np.array(classes) >= 0
    odds = np.exp(scores)
    wanted = odds / odds.sum(1, keepdims=True) - np.eye(3)[np.maximum(classes, 0)]
    wanted = np.where(kept[:, None], wanted / max(kept.sum(), 1), 0.0)

    def by_tape(x: em.Tensor) -> em.Tensor:
        with em.GradientTape() as tape:
            tape.watch(x)
            y = ops.losses.cross_entropy(x, target)
        return tape.gradient(y, x)

    by_function = em.grad(lambda x: ops.losses.cross_entropy(x, target))
    for way in (by_tape, by_function, em.jit(by_tape), em.jit(by_function)):
        np.testing.assert_allclose(way(ops.asarray(scores)).numpy(), wanted, atol=1e-6)


def test_a_compiled_function_of_a_parameter_with_a_gradient(backend: str) -> None:
    w = ops.asarray([1.0, 2.0]).requires_grad_()
    step = em.jit(lambda x: ops.sum(x * w))
    for count in (1, 2, 3):
        step(ops.asarray([3.0, 4.0])).backward()
        assert w.grad.tolist() == [3.0 * count, 4.0 * count]


# --- What a call gives, and its arguments -----------------------------------------------------

GIVEN = {
    "vjp": lambda fn, x: em.vjp(fn, x)[0],
    "jvp": lambda fn, x: em.jvp(fn, (x,), (ops.ones(x.shape),))[0],
    "aux of grad": lambda fn, x: em.grad(lambda x: (ops.sum(x), fn(x)), has_aux=True)(x)[1],
    "aux of value_and_grad": lambda fn, x: em.value_and_grad(
        lambda x: (ops.sum(x), fn(x)), has_aux=True
    )(x)[0][1],
    "aux of jacobian": lambda fn, x: em.jacobian(lambda x: (x * x, fn(x)), has_aux=True)(x)[1],
    "custom_gradient": lambda fn, x: em.custom_gradient(lambda x: (fn(x), lambda g: g))(x),
    "stop_gradient": lambda fn, x: em.stop_gradient(fn(x)),
}


@pytest.mark.parametrize("view", [False, True], ids=["itself", "a view"])
@pytest.mark.parametrize("how", GIVEN)
def test_what_is_given_and_the_argument_are_written_to_apart(
    backend: str, how: str, view: bool
) -> None:
    x = ops.asarray([1.0, 2.0, 3.0])
    out = GIVEN[how](lambda x: x[:2] if view else x, x)
    out[0] = 9.0
    assert x.tolist() == [1.0, 2.0, 3.0]
    x[1] = 7.0
    assert out.tolist() == [9.0, 2.0, 3.0][: 2 if view else 3]


def test_a_value_that_is_the_argument_is_written_to_apart(backend: str) -> None:
    x = ops.asarray(2.0)
    value, _ = em.value_and_grad(lambda x: x)(x)
    value[...] = 5.0
    assert x.item() == 2.0
