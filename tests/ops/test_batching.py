"""Batches: vmap and vectorize, eager, traced, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import ember_ml as em
from ember_ml import Tensor, dtypes, ops
from ember_ml.errors import (
    AxisError,
    DomainError,
    DTypeError,
    ShapeError,
)
from ember_ml.testing import CASES

jax = pytest.importorskip("jax")
mx = pytest.importorskip("mlx.core")
torch = pytest.importorskip("torch")

Program = Callable[..., Any]


class State(NamedTuple):
    total: Any
    count: Any


def values(tree: Any) -> Any:
    return em.tree.map(lambda t: t.tolist(), tree)


def _collatz(n: Any) -> Any:
    def step(state: State) -> State:
        n, steps = state
        even = n % 2 == 0
        return State(ops.where(even, n // 2, 3 * n + 1), steps + 1)

    return ops.while_loop(lambda state: state.total != 1, step, State(n, 0))


def _power_until(x: Tensor) -> Tensor:
    """The first power of x that is not below 50: x ** 6 for x = 2."""
    return ops.while_loop(lambda c: c < 50, lambda c: c * x, x)


ROWS = np.array([[0.3, -0.2], [0.5, 0.8], [-0.6, 0.1]])


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


def test_every_op_in_a_batch_is_its_loop() -> None:
    """Rules for batches are the engines' own; each op of the kit is compared with a loop."""
    float32 = dtypes.float32
    wrong: list[str] = []
    seen = 0
    for name in ("torch", "mlx"):
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
                            wrong.append(f"{name} {case.id}")
    assert sorted(set(wrong)) == []
    assert seen > 300


@pytest.mark.parametrize("name", ["torch", "mlx"])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int32], ids=str)
def test_every_op_with_one_operand_in_a_batch(name: str, dtype: dtypes.DType) -> None:
    """Engines have other rules for those; mx.vmap reads beyond memory in some of them."""
    wrong: list[str] = []
    seen = 0
    for case in CASES:
        if dtype not in case.dtypes or case.op.startswith(("random", "linalg.eig")):
            continue
        inputs = case.inputs(dtype)[0]
        for place, chosen in enumerate(inputs if len(inputs) > 1 else ()):
            with em.use_backend(name), np.errstate(all="ignore"):
                turned = chosen[..., ::-1] if chosen.ndim else chosen
                batch = ops.asarray(np.stack([chosen, turned]), copy=True)
                rest = [ops.asarray(a, copy=True) for a in inputs]

                def run(x: Tensor, case: Any = case, place: int = place, rest: Any = rest) -> Any:
                    return case.run(ops, *rest[:place], x, *rest[place + 1 :])

                try:
                    wanted = [em.tree.leaves(run(batch[i])) for i in range(2)]
                except em.EmberError:  # these inputs are no examples of the op when turned
                    continue
                if not all(isinstance(t, Tensor) for t in em.tree.leaves(wanted)):
                    continue
                found = em.tree.leaves(ops.vmap(run)(batch))
                seen += 1
                for i, t in enumerate(found):
                    for j in range(2):
                        if t[j].shape != wanted[j][i].shape or not np.allclose(
                            t[j].numpy(), wanted[j][i].numpy(), 1e-4, 1e-5, equal_nan=True
                        ):
                            wrong.append(f"{case.id} of operand {place}")
    assert sorted(set(wrong)) == []
    assert seen > 100
