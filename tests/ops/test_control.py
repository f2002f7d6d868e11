"""Branches, loops, scans and batches: eager, traced, with gradients, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import Tensor, ops
from ember_ml.backend import selection
from ember_ml.errors import (
    AxisError,
    BackendMismatchError,
    DomainError,
    DTypeError,
    OutOfBoundsError,
    ShapeError,
    UnsupportedOpError,
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


def _jax(program: Program, *arrays: Any) -> Any:
    def natively(*natives: Any) -> Any:
        return [t.native for t in em.tree.leaves(program(*map(ops.asarray, natives)))]

    return jax.jit(natively)(*arrays)


def _mlx(program: Program, *arrays: Any) -> Any:
    def natively(*natives: Any) -> Any:
        return [t.native for t in em.tree.leaves(program(*map(ops.asarray, natives)))]

    return mx.compile(natively)(*map(mx.array, arrays))


def _torch(program: Program, *arrays: Any) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    def natively(*natives: Any) -> Any:
        return [t.native for t in em.tree.leaves(program(*map(ops.asarray, natives)))]

    tensors = [torch.from_numpy(np.asarray(a)) for a in arrays]
    # Traced on other values than it is run on: what is baked in would be seen.
    other = [torch.full_like(t, 1) for t in tensors]
    return make_fx(natively)(*other)(*tensors)


TRACERS: dict[str, Program] = {"jax": _jax, "mlx": _mlx, "torch": _torch}


@pytest.fixture(params=sorted(TRACERS))
def traced(request: pytest.FixtureRequest) -> Any:
    """A way to run a program of tensors as each compiler traces it."""
    with em.use_backend(request.param):
        yield lambda program, *arrays: [
            np.asarray(found).tolist() for found in TRACERS[request.param](program, *arrays)
        ]


# --- Branches -------------------------------------------------------------------------------


def test_cond_runs_the_branch_that_is_taken(backend: str) -> None:
    x = ops.asarray([1.0, 2.0])

    def never(x: Tensor) -> Tensor:
        raise AssertionError("not taken")

    for pred in (True, ops.asarray(True), x.sum() > 2, np.True_, 3, ops.asarray(0.5)):
        found = ops.cond(pred, lambda x: x * 10, never, x)
        assert values(found) == [10.0, 20.0]
        assert (found.dtype, found.backend) == (x.dtype, backend)
    assert values(ops.cond(x.sum() > 9, never, lambda x: -x, x)) == [-1.0, -2.0]


def test_cond_takes_and_gives_trees(backend: str) -> None:
    x = {"a": ops.asarray([1, 2]), "b": (ops.asarray(3.0), None)}
    found = ops.cond(False, lambda x, y: x, lambda x, y: [x["b"], y, 2], x, State(1, 2.5))
    assert values(found) == [(3.0, None), State(1, 2.5), 2]
    assert [t.dtype.name for t in em.tree.leaves(found)] == "float32 int64 float32 int64".split()
    assert {t.backend for t in em.tree.leaves(found)} == {backend}


@pytest.mark.parametrize("high", [True, False])
def test_cond_is_traced(traced: Any, high: bool) -> None:
    def program(x: Tensor, w: Tensor) -> Any:
        inner = w * 2  # closed over, and itself traced

        def low(x: Tensor) -> Any:
            return ops.cond(x[0] > 0, lambda x: (x + inner, x.sum()), lambda x: (x, w[0]), x)

        return ops.cond(x.sum() > 10, lambda x: (x * inner, x[1]), low, x)

    x = np.array([5.0, 8.0] if high else [2.0, 3.0], np.float32)
    w = np.array([3.0, 4.0], np.float32)
    assert traced(program, x, w) == ([[30.0, 64.0], 8.0] if high else [[8.0, 11.0], 5.0])
    assert traced(program, -x, w) == [(-x).tolist(), 3.0]


def test_branches_must_agree_where_both_are_traced(traced: Any) -> None:
    x = np.array([1.0, 2.0], np.float32)

    def run(false_fn: Program) -> None:
        def program(x: Tensor) -> Any:
            return ops.cond(x.sum() > 1, lambda x: {"y": (x, x)}, false_fn, x)

        traced(program, x)

    with pytest.raises(ShapeError, match=r"at result\['y'\] true_fn has a tuple of 2 and false_fn"):
        run(lambda x: {"y": x})
    with pytest.raises(ShapeError, match=r"result\['y'\]\[1\] is float32\[2\] from true_fn and f"):
        run(lambda x: {"y": (x, x[0])})
    with pytest.raises(DTypeError, match=r"result\['y'\]\[0\] is float32\[2\] .* int64\[2\] from"):
        run(lambda x: {"y": (x.astype("int64"), x)})


def test_switch(backend: str) -> None:
    branches = [lambda x: x, lambda x: x * x, lambda x: -x]
    x = ops.asarray([2.0, 3.0])
    found = [values(ops.switch(i, branches, x)) for i in (0, 1, ops.asarray(2, dtype="int32"))]
    assert found == [[2.0, 3.0], [4.0, 9.0], [-2.0, -3.0]]
    for wrong in (3, -1, ops.asarray(7)):
        with pytest.raises(OutOfBoundsError, match="3 branches"):
            ops.switch(wrong, branches, x)


@pytest.mark.parametrize("index", [0, 1, 2, 9, -4])
def test_switch_is_traced_and_takes_the_nearest(traced: Any, index: int) -> None:
    def program(index: Tensor, x: Tensor) -> Any:
        return ops.switch(index, [lambda x: x, lambda x: x + x[0], lambda x: x * index], x)

    x = np.array([2.0, 3.0], np.float32)
    wanted = [x, x + 2, x * index][min(max(index, 0), 2)]
    assert traced(program, np.array(index), x) == [wanted.tolist()]


# --- Loops ----------------------------------------------------------------------------------


def _collatz(n: Any) -> Any:
    def step(state: State) -> State:
        n, steps = state
        even = n % 2 == 0
        return State(ops.where(even, n // 2, 3 * n + 1), steps + 1)

    return ops.while_loop(lambda state: state.total != 1, step, State(n, 0))


def test_while_loop(backend: str) -> None:
    found = _collatz(ops.asarray(27))
    assert values(found) == State(1, 111)
    assert isinstance(found, State)
    x = ops.asarray([1.0])
    assert values(ops.while_loop(lambda c: False, lambda c: 1 / 0, {"x": x})) == {"x": [1.0]}
    total = ops.while_loop(lambda c: c < 10, lambda c: c + 3, 0)
    assert (total.item(), total.dtype.name, total.backend) == (12, "int64", backend)


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_while_loop_is_traced(name: str) -> None:
    def program(x: Tensor, limit: Tensor) -> Any:
        double = x * 2
        return ops.while_loop(
            lambda c: c["x"].sum() < limit, lambda c: {"x": c["x"] + double, "n": c["n"] + 1},
            {"x": x, "n": 0},
        )  # fmt: skip

    with em.use_backend(name):
        x = np.array([1.0, 2.0], np.float32)
        n, found = TRACERS[name](program, x, np.array(40.0, np.float32))
        assert (int(n), np.asarray(found).tolist()) == (7, [15.0, 30.0])
        n, found = TRACERS[name](program, x, np.array(0.0, np.float32))
        assert (int(n), np.asarray(found).tolist()) == (0, [1.0, 2.0])
        assert np.asarray(TRACERS[name](_collatz, np.array(27))[1]).item() == 111


def test_mlx_cannot_compile_a_loop_of_unknown_length() -> None:
    with em.use_backend("mlx"):
        with pytest.raises(UnsupportedOpError, match=r"while_loop on the 'mlx'.*fori_loop"):
            _mlx(_collatz, np.array(27))
        with pytest.raises(UnsupportedOpError, match=r"ops\.fori_loop on the 'mlx'"):
            _mlx(lambda n: ops.fori_loop(0, n, lambda i, c: c + i, 0), np.array(3))
        # Under mx.grad there are values, and the loop is an ordinary one.
        grad = mx.grad(lambda x: _power_until(ops.asarray(x)).native)
        assert grad(mx.array(2.0)).item() == 6 * 2.0**5


def _power_until(x: Tensor) -> Tensor:
    """The first power of x that is not below 50: x ** 6 for x = 2."""
    return ops.while_loop(lambda c: c < 50, lambda c: c * x, x)


@pytest.mark.parametrize(
    ("body", "error", "facts"),
    [
        (lambda c: {**c, "h": c["h"].astype("float64")}, DTypeError, ["carry['h']", "float64[2]"]),
        (lambda c: {**c, "h": ops.concat([c["h"], c["h"]])}, ShapeError, ["float32[4]"]),
        (lambda c: {"h": c["h"]}, ShapeError, ["keys 'h', 'n'", "with keys 'h'"]),
        (lambda c: {**c, "n": 1.5}, DTypeError, ["carry['n'] is int64[]", "float32[]"]),
        (lambda c: {**c, "n": "one"}, DTypeError, ["carry['n']"]),
        (lambda c: (c["h"], c["n"]), ShapeError, ["a dict with keys", "a tuple of 2"]),
    ],
)  # fmt: skip
def test_a_carry_keeps_what_it_is(backend: str, body: Any, error: Any, facts: list[str]) -> None:
    def loops() -> list[Program]:
        return [
            lambda: ops.while_loop(lambda c: c["n"] < 3, body, carry),
            lambda: ops.fori_loop(0, 3, lambda i, c: body(c), carry),
        ]

    carry = {"h": ops.ones(2), "n": ops.asarray(0)}
    for loop in loops():
        with pytest.raises(error) as caught:
            loop()
        for fact in facts:
            assert fact in str(caught.value)
    with pytest.raises(error) as caught:
        ops.scan(lambda c, x: (body(c), x), carry, ops.arange(3))
    for fact in facts:
        assert fact.replace("carry", "init") in str(caught.value)


def test_numbers_take_the_dtype_of_the_carry(backend: str) -> None:
    carry = {"x": ops.ones((), dtype="float64"), "n": ops.zeros((), dtype="int16")}
    found = ops.fori_loop(0, 2, lambda i, c: {"x": 3, "n": 7}, carry)
    assert [t.dtype.name for t in em.tree.leaves(found)] == ["int16", "float64"]
    assert values(found) == {"x": 3.0, "n": 7}


def test_fori_loop(backend: str) -> None:
    x = ops.asarray([3, 1, 4, 1, 5])
    found = ops.fori_loop(1, ops.asarray(4), lambda i, c: c + x[i] * i, 0)
    assert (found.item(), found.dtype.name, found.backend) == (1 + 8 + 3, "int64", backend)
    assert ops.fori_loop(3, 3, lambda i, c: 1 / 0, x) is x
    assert values(ops.fori_loop(5, 0, lambda i, c: 1 / 0, (x, 2))) == ([3, 1, 4, 1, 5], 2)

    def check(i: Tensor, c: Tensor) -> Tensor:
        assert (i.dtype.name, i.shape, i.backend) == ("int64", (), backend)
        return c

    ops.fori_loop(0, 2, check, x)


def test_fori_loop_is_traced(traced: Any) -> None:
    def program(x: Tensor) -> Any:
        return ops.fori_loop(0, 4, lambda i, c: (c[0] + x[i] * i, c[1] * 2), (x[0] * 0, 1))

    assert traced(program, np.array([3, 1, 4, 1, 5])) == [1 + 8 + 3, 16]


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_fori_loop_with_traced_bounds(name: str) -> None:
    def program(n: Tensor, x: Tensor) -> Any:
        return ops.fori_loop(1, n, lambda i, c: c + x * i, ops.zeros_like(x))

    with em.use_backend(name):
        for n in (0, 5):
            (found,) = TRACERS[name](program, np.array(n), np.array([1, 2]))
            assert np.asarray(found).tolist() == ([10, 20] if n else [0, 0])


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


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_torch_records_what_functions_close_over(mode: str) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def program(x: Any, limit: Any) -> Any:
        x, limit = ops.asarray(x), ops.asarray(limit)
        double = x * 2
        found, count = ops.while_loop(
            lambda c: c[0].sum() < limit, lambda c: (c[0] + double, c[1] + 1), (x, 0)
        )
        return ops.cond(count > 3, lambda x: x * double, lambda x: x, found).native

    with em.use_backend("torch"):
        x, limit = torch.tensor([1.0, 2.0]), torch.tensor(40.0)
        graph = make_fx(program, tracing_mode=mode, _allow_non_fake_inputs=True)(x, limit)
        assert graph(x, limit).tolist() == program(x, limit).tolist() == [30.0, 120.0]
        assert graph(x, limit * 0).tolist() == [1.0, 2.0]
        assert graph(x * 3, limit).tolist() == program(x * 3, limit).tolist()
        branches = [n for n in graph.graph.nodes if n.target is torch.ops.higher_order.cond]
        assert [len(n.args[3]) for n in branches] == [2]  # the operand and what is closed over


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


# --- Batches --------------------------------------------------------------------------------


def test_vmap(backend: str) -> None:
    x = ops.asarray(np.arange(24.0, dtype=np.float32).reshape(2, 3, 4))
    w = ops.asarray([1.0, 2.0, 3.0, 4.0])
    dot = ops.vmap(lambda x, w: ops.sum(x * w, axis=-1), in_axes=(1, None))
    found = dot(x, w)
    wanted = np.moveaxis(x.numpy(), 1, 0) @ w.numpy()
    assert values(found) == wanted.tolist()
    assert (found.dtype.name, found.backend) == ("float32", backend)
    nested = ops.vmap(ops.vmap(lambda x: ops.cumulative_sum(x)), in_axes=2, out_axes=-1)
    assert values(nested(x)) == np.cumsum(np.moveaxis(x.numpy(), 2, 0), -1).transpose(
        1, 2, 0
    ).tolist()  # fmt: skip


def test_vmap_of_trees(backend: str) -> None:
    batch = {"a": ops.asarray([[1, 2], [3, 4], [5, 6]]), "b": (ops.asarray([1.0, 2.0, 3.0]), None)}

    def fn(example: Any, scale: Any, *, bias: Any) -> Any:
        assert (example["a"].shape, example["b"][0].shape, bias.shape) == ((2,), (), ())
        return State(example["a"] * scale, [example["b"][0] + bias, 7])

    run = ops.vmap(fn, in_axes=({"a": 0, "b": 0}, None), out_axes=State(1, 0))
    found = run(batch, 10, bias=ops.asarray([0.5, 1.5, 2.5]))
    assert values(found) == State([[10, 30, 50], [20, 40, 60]], [[1.5, 3.5, 5.5], [7, 7, 7]])
    assert isinstance(found, State)


def test_vmap_of_what_is_no_batch(backend: str) -> None:
    x = ops.asarray([1.0, 2.0])
    doubled, kept = ops.vmap(lambda x, y: (x * 2, y + 1), (0, None), (0, None))(x, 3)
    assert (values(doubled), kept.item(), kept.shape) == ([2.0, 4.0], 4, ())
    with pytest.raises(DomainError, match=r"out_axes None for result\[1\]"):
        ops.vmap(lambda x: (x, x), out_axes=(0, None))(x)
    assert values(ops.vmap(lambda: ops.asarray(1), axis_size=2)()) == [1, 1]


def test_results_have_memory_of_their_own(backend: str) -> None:
    x = ops.asarray([[1.0, 2.0], [3.0, 4.0]])
    w = ops.asarray([5.0, 6.0])
    last, ys = ops.scan(lambda c, x: (x, x), ops.zeros(2), x)
    same, part, constant = ops.vmap(lambda row: (row, row[:1], w))(x)
    for found in (last, ys, same, part, constant):
        found += 10.0
    assert values(constant) == [[15.0, 16.0], [15.0, 16.0]]
    assert (values(x), values(w)) == ([[1.0, 2.0], [3.0, 4.0]], [5.0, 6.0])


def test_vmap_of_an_empty_batch(backend: str) -> None:
    found = ops.vmap(lambda x: (x.sum(), x > 0))(ops.zeros((0, 3)))
    assert [(t.shape, t.dtype.name) for t in found] == [((0,), "float32"), ((0, 3), "bool")]


def test_vmap_reads_values_in_a_loop(backend: str) -> None:
    def fn(x: Tensor) -> Tensor:
        return x * 2 if x.sum().item() > 3 else -x

    found = ops.vmap(fn)(ops.asarray([[1, 2], [3, 4]]))
    assert values(found) == [[-1, -2], [6, 8]]


def test_vmap_of_branches_and_loops(backend: str) -> None:
    x = ops.asarray([3, 27, 1, 8])
    steps = ops.vmap(lambda n: _collatz(n).count)
    assert values(steps(x)) == [7, 111, 0, 3]
    signs = ops.vmap(lambda n: ops.cond(n % 2 == 0, lambda n: n, lambda n: -n, n))
    assert values(signs(x)) == [-3, -27, -1, 8]
    chosen = ops.vmap(lambda i, n: ops.switch(i, [lambda n: n, lambda n: n * n], n))
    assert values(chosen(ops.asarray([0, 1, 1, 0]), x)) == [3, 729, 1, 8]
    picked = ops.vmap(lambda i: x[i])
    assert values(picked(ops.asarray([2, 0, 1]))) == [1, 3, 27]
    rows = ops.asarray([[1, 2, 3], [4, 5, 6]])
    sums = ops.vmap(lambda row: ops.scan(lambda c, x: (c + x, c * x), 0, row))
    assert values(sums(rows)) == ([6, 15], [[0, 2, 9], [0, 20, 54]])
    looped = ops.vmap(lambda row: ops.fori_loop(0, 3, lambda i, c: c * 2 + row[i], 0))
    assert values(looped(rows)) == [4 + 4 + 3, 16 + 10 + 6]


def test_vmap_is_traced(traced: Any) -> None:
    def program(x: Tensor, w: Tensor) -> Any:
        def fn(row: Tensor) -> Any:
            _, ys = ops.scan(lambda c, x: (c + x * w[0], c), row[0], row)
            return ops.cond(row.sum() > 4, lambda y: y, lambda y: y + w[1], ys)

        return ops.vmap(fn)(x)

    x, w = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), np.array([2.0, 0.5], np.float32)
    assert traced(program, x, w) == [[[1.5, 3.5], [3.0, 9.0]]]


def test_vmap_of_scan_under_jit_with_gradient() -> None:
    def loss(native: Any) -> Any:
        w, rows = ops.asarray(native), ops.asarray(ROWS)
        found = ops.vmap(lambda row: ops.scan(lambda c, x: (c * w + x, None), w * 0, row)[0])(rows)
        return ops.sum(found).native

    with em.use_backend("jax"):
        grad = jax.jit(jax.grad(loss))(0.3)
        np.testing.assert_allclose(grad, ROWS[:, 0].sum(), rtol=1e-12)


def test_vmap_keeps_gradients_on_torch() -> None:
    with em.use_backend("torch"):
        w = Tensor([1.0, 2.0], requires_grad=True)
        x = ops.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        found = ops.vmap(lambda x: ops.sum(x * w * w))(x)
        assert found.requires_grad
        (grad,) = torch.autograd.grad(ops.sum(found).native, w.native)
        assert grad.tolist() == [18.0, 48.0]
        assert ops.vmap(lambda w: w * 2)(w).requires_grad


def test_vmap_under_torch_func() -> None:
    with em.use_backend("torch"):
        grad = torch.func.grad(lambda x: _power_until(ops.asarray(x)).native)
        assert grad(torch.tensor(2.0)).item() == 6 * 2.0**5
        # A loop of a batch goes on for the slowest, and leaves the others as they are.
        batched = torch.func.vmap(lambda x: _power_until(ops.asarray(x)).native)
        assert batched(torch.tensor([2.0, 60.0, 8.0])).tolist() == [64.0, 60.0, 64.0]


def test_vmap_errors_name_the_arguments(backend: str) -> None:
    x, y = ops.ones((3, 2)), ops.ones((4, 2))
    with pytest.raises(ShapeError, match=r"3 of args\[0\]\['x'\], 4 of args\[1\]"):
        ops.vmap(lambda x, y: y)({"x": x}, y)
    with pytest.raises(AxisError, match=r"in_axes 2 for args\[0\] of shape \(3, 2\)"):
        ops.vmap(lambda x: x, in_axes=2)(x)
    with pytest.raises(AxisError, match=r"in_axes 0 for args\[1\] of shape \(\)"):
        ops.vmap(lambda x, y: x)(x, 1.0)
    with pytest.raises(AxisError, match="out_axes 3 for result"):
        ops.vmap(lambda x: x, out_axes=3)(x)
    with pytest.raises(ShapeError, match="in_axes for 2 arguments"):
        ops.vmap(lambda x: x, in_axes=(0, 0))(x)
    with pytest.raises(ShapeError, match="out_axes has a tuple of 2"):
        ops.vmap(lambda x: x, out_axes=(0, 0))(x)
    with pytest.raises(DomainError, match="no argument with a batch"):
        ops.vmap(lambda x: x, in_axes=None)(x)
    with pytest.raises(DTypeError, match=r"args\[0\]\[0\]"):
        ops.vmap(lambda x: x)(("text",))
    # A mistake within the function is told in the terms of one example.
    with pytest.raises(ShapeError, match=r"ops\.add got float32\[2\], float32\[5\]"):
        ops.vmap(lambda x: x + ops.ones(5))(x)


def test_vectorize(backend: str) -> None:
    a = ops.asarray(np.arange(12.0, dtype=np.float32).reshape(2, 1, 2, 3))
    b = ops.asarray(np.arange(12.0, dtype=np.float32).reshape(4, 3))
    apply = ops.vectorize(lambda m, v: (m @ v, v.sum()), signature="(m,n),(n)->(m),()")
    product, total = apply(a, b)
    assert values(product) == np.einsum("aimn,bn->abm", a.numpy(), b.numpy()).tolist()
    assert values(total) == np.broadcast_to(b.numpy().sum(-1), (2, 4)).tolist()
    assert values(apply(a[0, 0], b[1])[0]) == (a.numpy()[0, 0] @ b.numpy()[1]).tolist()
    where = ops.vectorize(lambda x, y: ops.cond(x > y, lambda: x - y, lambda: x + y))
    assert values(where([[1], [2]], [1, 0])) == [[2, 1], [1, 2]]
    with pytest.raises(ShapeError, match=r"axis n of .* has length 3, and 4 in args\[1\]"):
        apply(a, ops.ones(4))
    with pytest.raises(ShapeError, match=r"args\[0\] of shape \(3,\) has fewer axes"):
        apply(b[0], b)
    with pytest.raises(ShapeError, match="1 arguments"):
        apply(a)
    with pytest.raises(ShapeError, match=r"gave shape \(3,\) for \(\)"):
        ops.vectorize(lambda v: v, signature="(n)->()")(b)
    with pytest.raises(DomainError, match="signature"):
        ops.vectorize(lambda v: v, signature="n->")


# --- Backends and mistakes ------------------------------------------------------------------


def test_tensors_decide_where_it_runs(backend: str) -> None:
    with em.use_backend("numpy" if backend != "numpy" else "torch"):
        x = ops.asarray([1.0, 2.0]).to_backend(backend)
        found = [
            ops.cond(True, lambda x: x, lambda x: x, x),
            ops.while_loop(lambda c: c[1] < 2, lambda c: (c[0], c[1] + 1), (x, 0))[1],
            ops.scan(lambda c, x: (c + x, c), 0.0, x)[1],
            ops.fori_loop(0, 2, lambda i, c: c * 2, x),
            ops.vmap(lambda x: x)(x),
            ops.map_fn(lambda x: 1, x),
            ops.vmap(lambda x: (x * 2).native)(x),
            ops.switch(0, [lambda: x]),
            ops.cond(False, lambda: 0, lambda: x.native if backend != "numpy" else x),
            ops.vectorize(lambda x, y: x + y)([1], x),
        ]
        assert {t.backend for t in found} == {backend}


def test_two_backends_are_one_too_many() -> None:
    ours, theirs = ops.ones(2), ops.ones(2).to_backend("torch")
    for run in (
        lambda: ops.cond(True, lambda x, y: x, lambda x, y: x, ours, theirs),
        lambda: ops.cond(True, lambda x: theirs, lambda x: x, ours),
        lambda: ops.scan(lambda c, x: (c, x), ours, theirs),
        lambda: ops.scan(lambda c, x: (theirs, x), ours, ours),
        lambda: ops.while_loop(lambda c: theirs.sum() > 0, lambda c: c, ours),
        lambda: ops.vmap(lambda x, y: x)(ours, theirs),
    ):
        with pytest.raises(BackendMismatchError, match="torch"):
            run()


def test_arrays_and_numbers_are_taken(backend: str) -> None:
    native = ops.ones(3).native
    assert values(ops.scan(lambda c, x: (c + x, x), 0.0, native)[0]) == 3.0
    assert values(ops.scan(lambda c, x: (c + x, x), 0, np.arange(3))[0]) == 3
    assert values(ops.cond(True, lambda x: native, lambda x: x, 1)) == [1.0, 1.0, 1.0]
    assert values(ops.vmap(lambda x: x + 1)(np.arange(2))) == [1, 2]


def test_every_op_in_a_batch_is_its_loop() -> None:
    """Rules for batches are the engines' own; each op of the kit is compared with a loop."""
    from ember_ml import dtypes
    from ember_ml.testing import CASES

    float32 = dtypes.float32
    wrong: list[str] = []
    seen = 0
    for name in ("torch", "mlx"):
        backend = selection.load(name)
        for case in CASES:
            if float32 not in case.dtypes or case.op.startswith(("random", "linalg.eig")):
                continue
            inputs = case.inputs(float32)[0]
            if not inputs:
                continue
            with em.use_backend(name), np.errstate(all="ignore"):
                stacked = [ops.asarray(np.stack([a, a[..., ::-1]] if a.ndim else [a, a]), copy=True)
                           for a in inputs]  # fmt: skip
                try:
                    wanted = [case.run(ops, *(s[i] for s in stacked)) for i in range(2)]
                    if not all(isinstance(t, Tensor) for t in em.tree.leaves(wanted)):
                        continue
                except em.EmberError:  # these inputs are no examples of the op when turned
                    continue
                found = ops.vmap(lambda *xs, case=case: case.run(ops, *xs))(*stacked)
                seen += 1
                rows = [em.tree.leaves(w) for w in wanted]
                for i, t in enumerate(em.tree.leaves(found)):
                    for j in range(2):
                        if t[j].shape != rows[j][i].shape or not np.allclose(
                            t[j].numpy(), rows[j][i].numpy(), 1e-4, 1e-5, equal_nan=True
                        ):
                            wrong.append(f"{backend.name} {case.id}")
    assert sorted(set(wrong)) == []
    assert seen > 300
