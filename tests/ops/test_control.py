"""Branches and loops: eager, traced, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import ember_ml as em
from ember_ml import Tensor, ops
from ember_ml.errors import (
    BackendMismatchError,
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
def test_while_loop_is_traced(trace: Program, name: str) -> None:
    def program(x: Tensor, limit: Tensor) -> Any:
        double = x * 2
        return ops.while_loop(
            lambda c: c["x"].sum() < limit, lambda c: {"x": c["x"] + double, "n": c["n"] + 1},
            {"x": x, "n": 0},
        )  # fmt: skip

    with em.use_backend(name):
        x = np.array([1.0, 2.0], np.float32)
        assert trace(name, program, x, np.array(40.0, np.float32)) == [7, [15.0, 30.0]]
        assert trace(name, program, x, np.array(0.0, np.float32)) == [0, [1.0, 2.0]]
        assert trace(name, _collatz, np.array(27)) == [1, 111]


def test_mlx_cannot_compile_a_loop_of_unknown_length(trace: Program) -> None:
    with em.use_backend("mlx"):
        with pytest.raises(UnsupportedOpError, match=r"while_loop on the 'mlx'.*fori_loop"):
            trace("mlx", _collatz, np.array(27))
        with pytest.raises(UnsupportedOpError, match=r"ops\.fori_loop on the 'mlx'"):
            trace("mlx", lambda n: ops.fori_loop(0, n, lambda i, c: c + i, 0), np.array(3))
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
def test_fori_loop_with_traced_bounds(trace: Program, name: str) -> None:
    def program(n: Tensor, x: Tensor) -> Any:
        return ops.fori_loop(1, n, lambda i, c: c + x * i, ops.zeros_like(x))

    with em.use_backend(name):
        for n in (0, 5):
            wanted = [10, 20] if n else [0, 0]
            assert trace(name, program, np.array(n), np.array([1, 2])) == [wanted]


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
