"""Scans: eager, traced; and the gradients of all control flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import Tensor, ops
from ember_ml.errors import (
    DTypeError,
    ShapeError,
)

jax = pytest.importorskip("jax")
mx = pytest.importorskip("mlx.core")
torch = pytest.importorskip("torch")

Program = Callable[..., Any]


class State(NamedTuple):
    total: Any
    count: Any


def values(tree: Any) -> Any:
    return em.tree.map(lambda t: t.tolist(), tree)


def _power_until(x: Tensor) -> Tensor:
    """The first power of x that is not below 50: x ** 6 for x = 2."""
    return ops.while_loop(lambda c: c < 50, lambda c: c * x, x)


# --- Scans ----------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(backend: str, reverse: bool) -> None:
    xs = {"a": ops.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), "b": ops.asarray([1, 2, 3])}

    def step(carry: State, x: Any) -> Any:
        total = carry.total * 0.5 + x["a"]
        return State(total, carry.count + x["b"]), (total, [x["b"] * 10, None])

    last, (totals, (tens, nothing)) = ops.scan(
        step, State(ops.zeros(2), 0), xs, reverse=reverse, unroll=2
    )
    rows = [np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0])]
    total, wanted = np.zeros(2), []
    for row in rows[::-1] if reverse else rows:
        total = total * 0.5 + row
        wanted.append(total.tolist())
    assert values(last) == State(wanted[-1], 6)
    assert values(totals) == (wanted[::-1] if reverse else wanted)
    assert values(tens) == [10, 20, 30]
    assert nothing is None
    assert (totals.dtype.name, tens.dtype.name, totals.backend) == ("float32", "int64", backend)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_traced(traced: Any, reverse: bool) -> None:
    w = np.array([[0.5, 1.0], [-1.0, 0.25]], np.float32)
    xs = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)

    def program(w: Tensor, xs: Tensor) -> Any:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            h = w @ h + x
            return h, ops.cond(h[0] > 0, lambda h: h.sum(), lambda h: h[0], h)

        return ops.scan(step, ops.zeros(2), xs, reverse=reverse)

    h, ys = np.zeros(2, np.float32), []
    for x in xs[::-1] if reverse else xs:
        h = w @ h + x
        ys.append(h.sum() if h[0] > 0 else h[0])
    assert traced(program, w, xs) == [h.tolist(), [float(y) for y in (ys[::-1] if reverse else ys)]]


def test_scan_without_xs(backend: str) -> None:
    last, ys = ops.scan(lambda c, x: (c * 2, (c, x)), ops.asarray(1), None, 4)
    assert (last.item(), values(ys)) == (16, ([1, 2, 4, 8], None))
    assert values(ops.scan(lambda c, _: (c + 1, None), 0, length=3)) == (3, None)


def test_scan_of_nothing_knows_its_dtypes(backend: str) -> None:
    xs = ops.zeros((0, 2), dtype="int32")
    init = ops.asarray([1.0, 2.0])
    last, (y, z) = ops.scan(lambda c, x: (c, (c[0] > x[0], x)), init, xs)
    assert values(last) == [1.0, 2.0]
    assert (y.shape, y.dtype.name) == ((0,), "bool")
    assert (z.shape, z.dtype.name, z.backend) == ((0, 2), "int32", backend)
    assert ops.map_fn(lambda x: x.sum() * 0.5, xs).shape == (0,)


def test_a_long_scan_is_quick_on_jax() -> None:
    with em.use_backend("jax"):
        calls: list[int] = []

        def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            calls.append(1)
            return c + x, c

        last, ys = ops.scan(step, 0, ops.arange(5000))
        assert last.item() == ys[-1].item() + 4999 == 4999 * 5000 // 2
        assert len(calls) < 10
        total = ops.fori_loop(0, 5000, lambda i, c: c + i, 0)
        assert total.item() == last.item()


@settings(max_examples=20, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(-3, 3), st.integers(-5, 5)), min_size=1, max_size=4
    ),
    start=st.integers(-5, 5),
    reverse=st.booleans(),
)  # fmt: skip
@pytest.mark.parametrize("name", ["numpy", "torch", "mlx", "jax"])
def test_a_scan_of_affine_maps_is_their_loop(
    name: str, steps: list[tuple[int, int]], start: int, reverse: bool
) -> None:
    with em.use_backend(name):
        a, b = ops.asarray([s[0] for s in steps]), ops.asarray([s[1] for s in steps])
        step: Any = lambda c, x: (c * x[0] + x[1], c - x[1])  # noqa: E731 - one line of algebra
        last, ys = ops.scan(step, start, (a, b), reverse=reverse)
        carry, wanted = start, []
        for p, q in steps[::-1] if reverse else steps:
            wanted.append(carry - q)
            carry = carry * p + q
        assert (last.item(), values(ys)) == (carry, wanted[::-1] if reverse else wanted)

        # The same maps joined in pairs: composition is associative.
        def compose(f: Any, g: Any) -> Any:
            return f[0] * g[0], f[1] * g[0] + g[1]

        slopes, offsets = ops.associative_scan(compose, (a, b), reverse=reverse)
        ends = (slopes * start + offsets)[0 if reverse else -1]
        assert ends.item() == carry


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(backend: str, count: int, reverse: bool) -> None:
    rows = np.arange(2 * count * 3.0, dtype=np.float32).reshape(2, count, 3)
    found = ops.associative_scan(lambda a, b: a + b, ops.asarray(rows), axis=1, reverse=reverse)
    turned = rows[:, ::-1] if reverse else rows
    wanted = np.cumsum(turned, axis=1)
    assert values(found) == (wanted[:, ::-1] if reverse else wanted).tolist()
    # Matrices do not commute: the order of joining is kept.
    m = np.array([[[1, k], [k % 2, 1]] for k in range(count)])
    found = ops.associative_scan(lambda a, b: a @ b, ops.asarray(m), axis=0)
    product, products = np.eye(2, dtype=int), []
    for one in m:
        product = product @ one
        products.append(product.tolist())
    assert values(found) == products


def test_associative_scan_is_traced(traced: Any) -> None:
    x = np.array([3, 1, 4, 1, 5])
    wanted = [3, 4, 8, 9, 14]
    assert traced(lambda x: ops.associative_scan(lambda a, b: a + b, x), x) == [wanted]


def test_map_fn_calls_one_after_the_other(backend: str) -> None:
    seen: list[int] = []

    def fn(row: Tensor) -> dict[str, Any]:
        seen.append(1)
        return {"sum": row.sum(), "one": 1}

    found = ops.map_fn(fn, ops.asarray([[1, 2], [3, 4], [5, 6]]))
    assert values(found) == {"sum": [3, 7, 11], "one": [1, 1, 1]}
    assert len(seen) == 3


def test_results_of_steps_must_be_alike(backend: str) -> None:
    x = ops.arange(3)
    shapes = iter([1, 1, 2])
    with pytest.raises(ShapeError, match=r"ops.map_fn: result\['y'\] of fn is"):
        ops.map_fn(lambda _: {"y": ops.ones(next(shapes))}, x)
    kinds = iter(["int32", "int64", "int64"])
    with pytest.raises(DTypeError, match=r"ops.map_fn: result of fn is int32\[\] in one step and"):
        ops.map_fn(lambda x: x.astype(next(kinds)), x)
    trees = iter([(1,), (1, 2), ()])
    with pytest.raises(ShapeError, match="one step has a tuple of 1 and another a tuple of 2"):
        ops.map_fn(lambda _: next(trees), x)


# --- Gradients ------------------------------------------------------------------------------


def _network(w: Tensor, xs: Tensor) -> Tensor:
    """A scan, a branch and a loop after each other, of which w decides."""
    init = ops.zeros(2, dtype="float64")
    last, ys = ops.scan(lambda h, x: (ops.tanh(w * h + x), w * h * x), init, xs)
    taken = ops.cond(last.sum() > -9, lambda h: h * w, lambda h: h, last)
    looped = ops.fori_loop(0, 3, lambda i, c: c * w + i, taken)
    return ops.sum(looped * looped) + ops.sum(ys)


def _network_gradient(w: np.ndarray[Any, Any], xs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Central differences of the same in float64."""

    def value(w: np.ndarray[Any, Any]) -> float:
        h, total = np.zeros(2), 0.0
        for x in xs:
            total += (w * h * x).sum()
            h = np.tanh(w * h + x)
        c = h * w
        for i in range(3):
            c = c * w + i
        return float((c * c).sum() + total)

    step = np.eye(2) * 1e-5
    return np.array([(value(w + d) - value(w - d)) / 2e-5 for d in step])


WEIGHTS = np.array([0.7, -0.4])
ROWS = np.array([[0.3, -0.2], [0.5, 0.8], [-0.6, 0.1]])


def test_gradients_on_torch() -> None:
    with em.use_backend("torch"):
        w = Tensor(WEIGHTS, requires_grad=True)
        loss = _network(w, ops.asarray(ROWS))
        assert loss.requires_grad
        (grad,) = torch.autograd.grad(loss.native, w.native)
        np.testing.assert_allclose(grad.numpy(), _network_gradient(WEIGHTS, ROWS), rtol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_on_jax(compiled: bool) -> None:
    with em.use_backend("jax"):

        def loss(native: Any) -> Any:
            return _network(ops.asarray(native), ops.asarray(ROWS)).native

        grad = jax.grad(loss)
        found = (jax.jit(grad) if compiled else grad)(jax.numpy.asarray(WEIGHTS))
        np.testing.assert_allclose(found, _network_gradient(WEIGHTS, ROWS), rtol=1e-6)
        # Under jax.grad alone conditions can be read, so even this loop has a gradient.
        power = jax.grad(lambda x: _power_until(ops.asarray(x)).native)(2.0)
        assert power == 6 * 2.0**5


def test_gradients_on_mlx() -> None:
    with em.use_backend("mlx"):
        at = mx.array(WEIGHTS, dtype=mx.float64)

        def loss(native: Any) -> Any:
            return _network(ops.asarray(native), ops.asarray(ROWS)).native

        wanted = _network_gradient(WEIGHTS, ROWS)
        np.testing.assert_allclose(mx.grad(loss)(at), wanted, rtol=1e-6)
        np.testing.assert_allclose(mx.compile(mx.grad(loss))(at), wanted, rtol=1e-6)


def test_gradients_are_traced_on_torch() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def gradient(at: Any) -> Any:
        w = at.detach().requires_grad_()
        return torch.autograd.grad(_network(ops.asarray(w), ops.asarray(ROWS)).native, w)[0]

    with em.use_backend("torch"):
        graph = make_fx(gradient)(torch.ones(2, dtype=torch.float64))
        found = graph(torch.from_numpy(WEIGHTS))
        wanted = _network_gradient(WEIGHTS, ROWS)
        np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-6)


def test_gradients_of_a_first_row_that_needs_none() -> None:
    """The rows before gradients come up are stacked with those after."""
    with em.use_backend("torch"):
        w = Tensor(2.0, requires_grad=True)
        _, ys = ops.scan(lambda c, _: (c * w, c), 1.0, length=4)
        assert ys.requires_grad
        assert ys.detach().tolist() == [1.0, 2.0, 4.0, 8.0]
        (grad,) = torch.autograd.grad(ops.sum(ys).native, w.native)
        assert grad.item() == 1 + 2 * 2 + 3 * 4
