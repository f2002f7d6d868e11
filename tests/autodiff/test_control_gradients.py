"""Gradients through branches, loops and batches: long ones, closed over, compiled, on the tape."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import autodiff, ops
from ember_ml.autodiff import tape
from ember_ml.errors import GradientError
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

BACKENDS = ["numpy", "torch", "jax", "mlx"]
every = pytest.mark.parametrize("backend", BACKENDS)


def _needed(value: Any) -> Tensor:
    return Tensor(ops.asarray(value, dtype="float64"), requires_grad=True)


def _logistic(x: float, steps: int) -> tuple[float, float]:
    """A state that goes round, and its slope, in plain Python."""
    state, slope = 0.25, 0.0
    for _ in range(steps):
        state, slope = math.sin(state) + 0.01 * x, math.cos(state) * slope + 0.01
    return state, slope


@every
@pytest.mark.parametrize("steps", [3, 1100])
def test_a_loop_over_what_it_closes_over(backend: str, steps: int) -> None:
    """JAX compiles long loops: not where our tape must see each step."""
    with em.use_backend(backend):
        x = _needed(0.5)
        start = ops.asarray(0.25, dtype="float64")
        y = ops.fori_loop(0, steps, lambda i, c: ops.sin(c) + x * 0.01, start)
        y.backward()
        assert x.grad is not None
        value, slope = _logistic(0.5, steps)
        assert y.item() == pytest.approx(value, rel=1e-9)
        assert x.grad.item() == pytest.approx(slope, rel=1e-9)


@every
@pytest.mark.parametrize("steps", [4, 1100])
def test_a_scan_on_the_tape(backend: str, steps: int) -> None:
    """The rows, the carry and what is closed over all have gradients."""
    with em.use_backend(backend):
        x, w, rows = _needed(0.25), _needed(0.5), _needed(np.full(steps, 0.01))
        last, _ = ops.scan(lambda c, row: (ops.sin(c) + w * row, c), x, rows)
        last.backward()
        value, slope = _logistic(0.5, steps)
        assert last.item() == pytest.approx(value, rel=1e-9)
        assert w.grad is not None
        assert w.grad.item() == pytest.approx(slope, rel=1e-9)
        assert rows.grad is not None
        assert rows.grad.shape == (steps,)
        assert rows.grad[-1].item() == pytest.approx(0.5)


@every
def test_long_loops_in_a_function(backend: str) -> None:
    """Where JAX compiles, by its scan; second derivatives go through it as well."""
    with em.use_backend(backend):
        start = ops.asarray(0.25, dtype="float64")

        def run(x: Any) -> Any:
            return ops.fori_loop(0, 40, lambda i, c: ops.sin(c) + x * x * 0.01, start)

        x = ops.asarray(0.5, dtype="float64")
        first, second = autodiff.grad(run)(x).item(), autodiff.grad(autodiff.grad(run))(x).item()
        step = 1e-5
        above, below = (autodiff.grad(run)(x + d).item() for d in (step, -step))
        assert second == pytest.approx((above - below) / (2 * step), rel=1e-6)
        around = [run(x + d).item() for d in (step, -step)]
        assert first == pytest.approx((around[0] - around[1]) / (2 * step), rel=1e-6)


@every
def test_a_condition_that_can_be_read(backend: str) -> None:
    """A loop of unknown length has its gradient where values can be read."""
    with em.use_backend(backend):

        def power(x: Any) -> Any:
            return ops.while_loop(lambda c: c < 100.0, lambda c: c * x, x)

        assert autodiff.grad(power)(ops.asarray(2.0)).item() == 7 * 2.0**6
        x = _needed(2.0)
        power(x).backward()
        assert x.grad is not None
        assert x.grad.item() == 7 * 2.0**6


@every
def test_rows_that_were_not_used(backend: str) -> None:
    """Their gradients are zeros."""
    with em.use_backend(backend):
        x = _needed([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        firsts = ops.map_fn(lambda row: row[0] * row[0], x)
        firsts[1].backward()
        assert x.grad is not None
        assert x.grad.tolist() == [[0, 0], [6, 0], [0, 0]]


@every
def test_a_batch_over_what_it_closes_over(backend: str) -> None:
    """By a loop on the tape, and by the engine's own batches in a function."""
    with em.use_backend(backend):
        rows = np.array([[1.0, 2.0], [3.0, 4.0]])
        w = _needed([0.5, -1.0])
        y = ops.vmap(lambda row: ops.sum(ops.sin(row * w)))(ops.asarray(rows))
        ops.sum(y).backward()
        expected = (np.cos(rows * [0.5, -1.0]) * rows).sum(0)
        assert w.grad is not None
        np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-12)
        got = autodiff.grad(
            lambda w: ops.sum(ops.vmap(lambda row: ops.sum(ops.sin(row * w)))(ops.asarray(rows)))
        )(ops.asarray([0.5, -1.0], dtype="float64"))
        # In a batch of MLX, the sine of float64 is that of float32.
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6 if backend == "mlx" else 1e-12)


@every
def test_gradients_of_each_example(backend: str) -> None:
    """vmap of grad."""
    with em.use_backend(backend):
        slope = ops.vmap(autodiff.grad(lambda x: ops.sum(x**3)))
        x = ops.asarray([[1.0, 2.0], [3.0, 4.0]])
        np.testing.assert_allclose(slope(x).numpy(), 3 * x.numpy() ** 2, rtol=1e-6)


@every
def test_nothing_is_recorded_without_gradients(backend: str) -> None:
    """Within no_grad, long loops are compiled again, and results need no gradients."""
    with em.use_backend(backend):
        x = _needed(0.5)
        with em.no_grad():
            y = ops.fori_loop(0, 1100, lambda i, c: ops.sin(c) + x * 0.01, x)
            batch = ops.vmap(lambda a: a * x)(ops.ones(3, dtype="float64"))
        assert not y.requires_grad
        assert not batch.requires_grad
        start = _needed(0.25).detach()
        assert not ops.fori_loop(0, 2, lambda i, c: c * 2, start).requires_grad


# --- JAX compiles ------------------------------------------------------------------------------


def _jitted(function: Any, *values: Any) -> Any:
    """A function of tensors under jax.jit."""
    jax = pytest.importorskip("jax")
    backend = em.backend.selection.load("jax")
    program = jax.jit(lambda *n: function(*(convert.wrap(x, backend) for x in n)).native)
    return program(*values)


def test_branches_that_cannot_be_read() -> None:
    """On the tape both run, and the gradient is that of the one that was taken."""

    def run(x: Tensor, chosen: Tensor) -> Tensor:
        leaf = tape.leaf(x.native, x._spec)
        one = ops.cond(chosen, lambda a: ops.sin(a) * leaf, lambda a: a * a, leaf)
        place = ops.astype(chosen, "int64") + 1
        branches = [lambda a: a, lambda a: a * leaf, lambda a: ops.exp(a)]
        (one + ops.switch(place, branches, leaf)).backward()
        assert leaf.grad is not None
        return leaf.grad

    taken = _jitted(run, np.float64(2.0), np.bool_(True))
    assert float(taken) == pytest.approx(2 * math.cos(2) + math.sin(2) + math.exp(2))
    assert float(_jitted(run, np.float64(2.0), np.bool_(False))) == 8.0


def _power(x: Tensor) -> Tensor:
    return ops.while_loop(lambda c: c < 100.0, lambda c: c * x, x)


def test_a_loop_of_unknown_length_says_so() -> None:
    """Reverse differentiation cannot go through it; the error names the op and the way out."""
    with pytest.raises(GradientError, match=r"ops\.while_loop.*fori_loop.*scan"):
        _jitted(autodiff.grad(_power), np.float32(2.0))

    def compiled_inside(x: Tensor) -> Tensor:
        made: Tensor = convert.wrap(_jitted(_power, x.native), x._spec.backend)
        return made

    with (
        em.use_backend("jax"),
        pytest.raises(GradientError, match=r"ops\.while_loop.*fori_loop.*scan"),
    ):
        autodiff.grad(compiled_inside)(ops.asarray(2.0))

    def on_the_tape(x: Tensor) -> Tensor:
        leaf = tape.leaf(x.native, x._spec)
        ops.while_loop(lambda c: c < 100.0, lambda c: c * leaf, x * 1.0).backward()
        assert leaf.grad is not None
        return leaf.grad

    with pytest.raises(GradientError, match=r"ops\.while_loop.*fori_loop.*scan"):
        _jitted(on_the_tape, np.float32(2.0))


def test_directions_go_through_a_loop_of_unknown_length() -> None:
    """Forward differentiation, once and twice, alone and in a batch, is JAX's own."""
    jax = pytest.importorskip("jax")

    def run(native: Any) -> Any:
        return _jitted(_power, native)

    assert float(jax.jacfwd(run)(np.float32(2.0))) == 448.0
    assert float(jax.jacfwd(jax.jacfwd(run))(np.float32(2.0))) == 1344.0
    assert jax.vmap(run)(np.array([2.0, 3.0], np.float32)).tolist() == [128.0, 243.0]
