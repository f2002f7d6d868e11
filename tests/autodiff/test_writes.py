"""Writes, views and copies of tensors that need gradients: right, or refused, as in torch."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import ops
from ember_ml.errors import (
    DomainError,
    DTypeError,
    GradientError,
    ReadOnlyError,
    ShapeError,
    UnsupportedOpError,
)
from ember_ml.nn import tensor
from ember_ml.tensor.core import GradTensor

# Above the size from which JAX and MLX write to the memory of an array that nobody else holds.
LARGE = 1 << 15


@pytest.fixture(params=["numpy", "torch", "jax", "mlx"], autouse=True)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    with em.use_backend(request.param):
        yield request.param


def leaf(*values: Any) -> Any:
    return tensor.array(list(values), requires_grad=True)


def grads(*tensors: Any) -> list[Any]:
    return [None if t.grad is None else t.grad.tolist() for t in tensors]


# --- Writes that are recorded ---------------------------------------------------------------


@pytest.mark.parametrize("large", [False, True])
def test_an_item_takes_the_gradient_from_what_it_replaces(large: bool) -> None:
    x, v = leaf(1.0, 2.0, 3.0), leaf(5.0)
    y = ops.tile(x * x, (LARGE,)) if large else x * x
    y[1:2] = v * v
    assert type(y) is GradTensor
    assert not y.is_leaf
    y[:3].sum().backward()
    assert grads(x, v) == [[2.0, 0.0, 6.0], [10.0]]


def test_items_by_arrays_masks_and_numbers() -> None:
    x, v = leaf(1.0, 2.0, 3.0, 4.0), leaf(5.0, 6.0)
    y = x * 2.0
    y[[0, 3]] = v * 3.0
    y[ops.asarray([False, True, False, False])] = 7.0
    (y * y).sum().backward()
    assert grads(x, v) == [[0.0, 0.0, 24.0, 0.0], [90.0, 108.0]]


def test_rows_written_one_after_another() -> None:
    """How recurrent networks are often written: results into a plain tensor."""
    w = leaf(2.0, 3.0)
    out = ops.zeros((3, 2))
    h = ops.ones(2)
    for i in range(3):
        h = h * w
        out[i] = h
    assert out.requires_grad
    out.sum().backward()
    assert grads(w) == [[1 + 4 + 12, 1 + 6 + 27]]


def test_a_plain_tensor_that_was_written_before_takes_gradients() -> None:
    w = leaf(2.0)
    for size in (4, LARGE):
        out = ops.zeros(size)
        out[0] = 1.0
        part = out[1:3]
        part[:] = 2.0
        del part
        w.grad = None
        out[1:2] = w * w
        (out[:4] * out[:4]).sum().backward()
        assert grads(w) == [[32.0]]
        assert out[:4].tolist() == [1.0, 4.0, 2.0, 0.0]


def test_a_plain_tensor_that_shares_memory_does_not() -> None:
    w = leaf(2.0)
    out = ops.zeros(4)
    part = out[1:3]
    with pytest.raises(UnsupportedOpError, match="view"):
        out[0:1] = w
    with pytest.raises(UnsupportedOpError, match="view"):
        part[0:1] = w
    other = ops.zeros(4)
    same = other.detach()
    with pytest.raises(UnsupportedOpError, match="view"):
        other += w
    assert (out.tolist(), same.tolist()) == ([0.0] * 4, [0.0] * 4)


def test_clones_part_before_they_need_gradients() -> None:
    w = leaf(2.0)
    x = ops.ones(2)
    y = x.clone()
    y[0:1] = w
    x[1:2] = w * w
    assert (x.tolist(), y.tolist()) == ([1.0, 4.0], [2.0, 1.0])
    (x + y).sum().backward()
    assert grads(w) == [[5.0]]


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv", "ipow"])
def test_operators_in_place(name: str) -> None:
    import operator

    run: Callable[[Any, Any], Any] = getattr(operator, name)
    plain = getattr(operator, name[1:])
    x, v = leaf(1.5, 2.0), leaf(3.0, 0.5)
    y = x * 2.0
    same = y
    y = run(y, v)
    assert y is same
    (y * y).sum().backward()
    a, b = leaf(1.5, 2.0), leaf(3.0, 0.5)
    z = plain(a * 2.0, b)
    (z * z).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), a.grad.numpy(), rtol=1e-6)
    np.testing.assert_allclose(v.grad.numpy(), b.grad.numpy(), rtol=1e-6)


def test_a_sum_that_begins_as_a_plain_tensor() -> None:
    w = leaf(2.0)
    total = ops.zeros(1)
    for i in range(1, 4):
        total += w * float(i)
    total.sum().backward()
    assert (total.tolist(), grads(w)) == ([12.0], [[6.0]])


def test_values_that_do_not_fit() -> None:
    y = leaf(1.0, 2.0) * 1.0
    with pytest.raises(ShapeError):
        y[:1] = ops.ones(3)
    with pytest.raises(ShapeError):
        y += ops.ones((2, 2))
    with pytest.raises(DTypeError):
        y[0] = ops.asarray(1.0, dtype="float64")
    with pytest.raises(DTypeError):
        y += ops.ones(2, dtype="float64")
    whole = ops.zeros(2, dtype="int64")
    with pytest.raises(DTypeError):
        whole[0] = y[0]
    assert y.tolist() == [1.0, 2.0]


# --- Leaves ---------------------------------------------------------------------------------


def test_a_leaf_is_not_written_to_where_gradients_are_recorded() -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(GradientError, match="no_grad"):
        x[0] = 5.0
    with pytest.raises(GradientError, match="no_grad"):
        x += 1.0
    with pytest.raises(GradientError, match="no_grad"):
        x[[0, 1]] = 0.0
    assert x.tolist() == [1.0, 2.0]
    assert x.is_leaf


@pytest.mark.parametrize("size", [2, LARGE])
def test_a_leaf_is_written_to_within_no_grad(size: int) -> None:
    x = tensor.array(np.ones(size, np.float32), requires_grad=True)
    (x * x).sum().backward()
    same = x
    with em.no_grad():
        x -= 0.25 * x.grad
        x[1] = 7.0
        x[[0]] *= 2.0
    assert x is same
    assert x.is_leaf
    assert x.requires_grad
    assert x[:2].tolist() == [1.0, 7.0]
    assert x.grad[:2].tolist() == [2.0, 2.0]
    x.grad = None
    (x * x).sum().backward()
    assert x.grad[:2].tolist() == [2.0, 14.0]


def test_training_goes_on_while_views_of_the_weights_live() -> None:
    w = tensor.array([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    for _ in range(2):
        turned, row, flat = w.T, w[0], w.reshape(4)
        last = w[:, 1:][1]
        (turned.sum() + row.sum() + flat.sum() + last.sum()).backward()
        with em.no_grad():
            w -= w.grad
        expected = w.tolist()
        assert turned.tolist() == [list(c) for c in zip(*expected, strict=True)]
        assert (row.tolist(), flat.tolist()) == (expected[0], expected[0] + expected[1])
        assert last.tolist() == [expected[1][1]]
        w.grad = None
    assert w.tolist() == [[-5.0, -4.0], [-1.0, -2.0]]


def test_views_show_what_is_written_to_an_inner_result() -> None:
    x = leaf(1.0, 2.0, 3.0)
    y = x * 2.0
    part, turned = y[1:], y.reshape(3, 1)
    inner = part[1:]
    y[2:] = x[:1] * 10.0
    y *= 2.0
    assert (y.tolist(), part.tolist(), inner.tolist()) == ([4.0, 8.0, 20.0], [8.0, 20.0], [20.0])
    assert turned.tolist() == [[4.0], [8.0], [20.0]]
    (part.sum() + inner.sum() + turned.sum()).backward()
    assert grads(x) == [[4.0 + 60.0, 8.0, 0.0]]


def test_a_view_is_written_to_or_refuses(backend: str) -> None:
    x = leaf(1.0, 2.0, 3.0)
    y = x * 2.0
    part = y[1:]
    if backend == "torch":
        part += x[:2]
        assert y.tolist() == [2.0, 5.0, 8.0]
        y.sum().backward()
        assert grads(x) == [[3.0, 3.0, 2.0]]
    else:
        with pytest.raises(UnsupportedOpError, match="copy"):
            part += 1.0
        with pytest.raises(UnsupportedOpError, match="copy"):
            part[0] = 1.0
        assert (y.tolist(), part.tolist()) == ([2.0, 4.0, 6.0], [4.0, 6.0])
        del y
        part += x[:2]  # nobody else can see it now
        part.sum().backward()
        assert grads(x) == [[1.0, 3.0, 2.0]]
    view = x[1:]
    with pytest.raises((GradientError, UnsupportedOpError)):
        view += 1.0
    with pytest.raises((GradientError, ReadOnlyError, UnsupportedOpError)):
        ops.broadcast_to(part, (2, *part.shape))[0] = 1.0


def test_views_made_within_no_grad_write_through() -> None:
    for size in (3, LARGE):
        x = tensor.array(np.arange(size, dtype=np.float32), requires_grad=True)
        with em.no_grad():
            part = x[1:]
            assert not part.requires_grad
            part[0] = 5.0
            x.reshape(-1, 1)[0] = 7.0
        assert x[:3].tolist() == [7.0, 5.0, 2.0]
        assert part[:2].tolist() == [5.0, 2.0]
        (x * x).sum().backward()
        assert x.grad[:3].tolist() == [14.0, 10.0, 4.0]


# --- detach ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, LARGE])
def test_detach_shares_memory(size: int) -> None:
    x = tensor.array(np.ones(size, np.float32), requires_grad=True)
    d = x.detach()
    assert not d.requires_grad
    d[0] = 3.0
    assert x[:2].tolist() == [3.0, 1.0]
    with em.no_grad():
        x[1] = 4.0
        x *= 2.0
    assert d[:2].tolist() == [6.0, 8.0]
    assert x.is_leaf
    (x * x).sum().backward()
    assert x.grad[:2].tolist() == [12.0, 16.0]


def test_detach_of_results_and_of_their_views() -> None:
    x = leaf(1.0, 2.0)
    y = x * 3.0
    d, e = y.detach(), y[1:].detach()
    y *= 2.0
    assert (d.tolist(), e.tolist()) == ([6.0, 12.0], [12.0])
    y.sum().backward()
    assert grads(x) == [[6.0, 6.0]]
    (x * x.detach()).sum().backward()
    assert grads(x) == [[7.0, 8.0]]


def test_detach_within_a_function_that_is_differentiated() -> None:
    x = ops.asarray([1.0, 2.0])
    assert em.grad(lambda x: (x * x.detach()).sum())(x).tolist() == [1.0, 2.0]
    assert em.grad(lambda x: (x * x[::-1].detach()).sum())(x).tolist() == [2.0, 1.0]


# --- Values that change before they are used --------------------------------------------------


def _frozen(backend: str, run: Callable[[], Any], x: Any, expected: Any) -> None:
    """On engines whose arrays change the gradient is refused, on others it is of the old values."""
    if backend in ("numpy", "torch"):
        with pytest.raises(GradientError, match="written to"):
            run()
    else:
        run()
        assert x.grad[: len(expected)].tolist() == expected


@pytest.mark.parametrize("size", [2, LARGE])
def test_an_operand_that_was_written_to(backend: str, size: int) -> None:
    """Also JAX and MLX: memory that a graph keeps is not used again for the write."""
    c = ops.asarray(np.full(size, 3.0, np.float32))
    c[0] = 2.0
    x = tensor.array(np.ones(size, np.float32), requires_grad=True)
    y = (x * c).sum()
    c[0] = 100.0
    c[1] = 200.0
    assert c[:2].tolist() == [100.0, 200.0]
    _frozen(backend, y.backward, x, [2.0, 3.0])


def test_a_view_of_an_operand_that_was_written_to(backend: str) -> None:
    c = ops.ones((2, LARGE))
    x = tensor.array(np.ones(LARGE, np.float32), requires_grad=True)
    y = (x * c[1]).sum()
    c[0] = 5.0  # another part of the same memory counts, as in torch
    c[1] = 7.0
    _frozen(backend, y.backward, x, [1.0])


def test_a_leaf_that_was_written_to(backend: str) -> None:
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    with em.no_grad():
        x += 1.0
    _frozen(backend, y.backward, x, [2.0, 4.0])


def test_a_result_that_was_written_to(backend: str) -> None:
    x = leaf(0.0, 0.0)
    y = ops.exp(x)
    y.detach()[0] = 5.0
    _frozen(backend, y.sum().backward, x, [1.0, 1.0])


def test_what_no_gradient_needs_may_change() -> None:
    c = ops.ones(2)
    x = leaf(1.0, 2.0)
    y = (x + c).sum()
    c[0] = 100.0
    y.backward()
    assert grads(x) == [[1.0, 1.0]]


# --- Copies ---------------------------------------------------------------------------------


def test_copies_of_leaves_and_results() -> None:
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert again.is_leaf
        assert again.requires_grad
        with em.no_grad():
            again += 1.0
        (again * again).sum().backward()
    assert copy.deepcopy(x).grad.tolist() == [2.0, 4.0]
    assert pickle.loads(pickle.dumps(x)).grad is None
    assert (x.tolist(), grads(x)) == ([1.0, 2.0], [[2.0, 4.0]])
    y = x.copy()
    assert not y.is_leaf
    y += 1.0
    (y * y).sum().backward()
    assert (x.tolist(), grads(x)) == ([1.0, 2.0], [[6.0, 10.0]])
    result = x * 2.0
    for again in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert again.is_leaf
        assert again.requires_grad
        assert again.tolist() == [2.0, 4.0]
    with em.no_grad():
        assert not x.copy().requires_grad


def test_a_tensor_made_of_a_tensor_shares_its_memory() -> None:
    plain = ops.asarray([1.0, 2.0])
    x = em.Tensor(plain, requires_grad=True)
    assert not plain.requires_grad
    plain[0] = 5.0
    assert x.tolist() == [5.0, 2.0]
    with em.no_grad():
        x += 1.0
    assert plain.tolist() == [6.0, 3.0]


def test_rows_of_an_iteration() -> None:
    x = tensor.array([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    total = ops.zeros(())
    for i, row in enumerate(x):
        total = total + (row * row).sum() * float(i + 1)
    total.backward()
    assert grads(x) == [[[2.0, 4.0], [12.0, 16.0]]]
    with pytest.raises(ReadOnlyError):
        x.iter_mut()


# --- The gradient ---------------------------------------------------------------------------


def test_gradients_add_up() -> None:
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    held = x.grad
    y.backward()
    assert grads(x) == [[4.0, 8.0]]
    assert held.tolist() == [4.0, 8.0]
    with pytest.raises(GradientError, match="retain_graph"):
        y.backward()
    assert grads(x) == [[4.0, 8.0]]
    x.grad = None
    assert x.grad is None
    (x * 3.0).sum().backward()
    assert grads(x) == [[3.0, 3.0]]
    assert held.tolist() == [4.0, 8.0]


def test_a_graph_without_values_can_be_walked_again() -> None:
    x = leaf(1.0, 2.0)
    y = (x + 1.0).sum()
    y.backward()
    y.backward()
    assert grads(x) == [[2.0, 2.0]]


def test_gradients_are_apart() -> None:
    """What is handed on unchanged to two leaves is two tensors, and neither is read-only."""
    a, b, c = leaf(1.0, 2.0), leaf(3.0, 4.0), leaf(5.0, 6.0)
    (a + b + c.reshape(1, 2)).sum().backward()
    a.grad[0] = 9.0
    b.grad *= 2.0
    assert grads(a, b, c) == [[9.0, 1.0], [2.0, 2.0], [[1.0, 1.0]][0]]
    one = tensor.array(1.0, requires_grad=True)
    given = ops.asarray(2.0)
    one.backward()
    one.grad += 5.0
    other = tensor.array(1.0, requires_grad=True)
    other.backward(given)
    other.grad += 1.0
    assert (given.item(), other.grad.item(), float(ops.asarray(0.0) + 1.0)) == (2.0, 3.0, 1.0)
    x = ops.asarray([1.0, 2.0])
    first, second = em.grad(lambda a, b: (a + b).sum(), argnums=(0, 1))(x, x)
    first += 1.0
    assert (first.tolist(), second.tolist()) == ([2.0, 2.0], [1.0, 1.0])


def test_setting_the_gradient() -> None:
    x = leaf(1.0, 2.0)
    x.grad = ops.asarray([5.0, 6.0])
    (x * 1.0).sum().backward()
    assert grads(x) == [[6.0, 7.0]]
    x.grad *= 0.5
    assert grads(x) == [[3.0, 3.5]]
    with pytest.raises(ShapeError):
        x.grad = ops.ones(3)
    with pytest.raises(DTypeError):
        x.grad = ops.ones(2, dtype="float64")
    with pytest.raises(GradientError):
        (x * 2.0).grad = ops.ones(2)
    plain = ops.ones(2)
    plain.grad = None
    with pytest.raises(GradientError):
        plain.grad = ops.ones(2)


def test_a_gradient_for_backward() -> None:
    x = leaf(1.0, 2.0)
    y = x * x
    with pytest.raises(ShapeError, match="gradient"):
        y.backward()
    with pytest.raises(ShapeError):
        y.backward(ops.ones(3))
    y.backward(gradient=ops.asarray([1.0, 10.0]))
    assert grads(x) == [[2.0, 40.0]]
    x.grad = None
    (x * x).backward([1.0, 0.0])
    assert grads(x) == [[2.0, 0.0]]
    x.grad = None
    (x[:1] * x[:1]).backward()  # one number, in whatever shape
    assert grads(x) == [[2.0, 0.0]]
    with pytest.raises(GradientError, match="requires_grad"):
        ops.ones(()).backward()
    with em.no_grad():
        y = (x * x).sum()
    with pytest.raises(GradientError, match="no_grad"):
        y.backward()


def test_complex_results_take_a_gradient() -> None:
    z = ops.asarray([1 + 2j]).requires_grad_()
    with pytest.raises(DTypeError, match="gradient"):
        (z * z).sum().backward()
    (z * z).sum().backward(ops.asarray(1 + 0j))
    assert grads(z) == [[2 - 4j]]


def test_inputs_of_backward() -> None:
    a, b = leaf(1.0), leaf(2.0)
    inner = a * b
    y = (inner * inner).sum()
    y.backward(inputs=[a], retain_graph=True)
    assert grads(a, b) == [[8.0], None]
    y.backward(inputs=b, retain_graph=True)
    assert grads(a, b) == [[8.0], [4.0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert inner.grad is None
        y.backward(inputs=[inner])
        assert inner.grad.tolist() == [4.0]
    assert grads(a, b) == [[8.0], [4.0]]
    with pytest.raises(GradientError, match="inputs"):
        (a * b).sum().backward(inputs=[])
    with pytest.raises(GradientError, match="inputs"):
        (a * b).sum().backward(inputs=[ops.ones(1)])


def test_inner_results_keep_their_gradient_when_asked() -> None:
    x = leaf(1.0, 2.0)
    y = x * 3.0
    z = (y * y).sum()
    y.retain_grad()
    y.retain_grad()
    x.retain_grad()
    z.backward()
    assert grads(x, y) == [[18.0, 36.0], [6.0, 12.0]]
    y.grad = None
    assert y.grad is None
    with pytest.raises(GradientError):
        ops.ones(2).retain_grad()


@pytest.mark.filterwarnings("ignore:.*create_graph=True.*:UserWarning")
def test_the_gradient_of_a_gradient() -> None:
    x = leaf(2.0)
    (x * x * x).sum().backward(create_graph=True)
    g = x.grad
    assert (g.tolist(), g.requires_grad) == ([12.0], True)
    x.grad = None
    g.sum().backward()
    assert grads(x) == [[12.0]]


def test_requires_grad_in_place() -> None:
    x = ops.asarray([1.0, 2.0])
    assert x.requires_grad_() is x
    assert x.requires_grad
    assert x.is_leaf
    assert type(x) is GradTensor
    (x * x).sum().backward()
    assert grads(x) == [[2.0, 4.0]]
    assert x.requires_grad_(False) is x
    assert not x.requires_grad
    assert x.grad is None
    x += 1.0
    assert x.tolist() == [2.0, 3.0]
    x.requires_grad_()
    y = x * 2.0
    assert not y.is_leaf
    with pytest.raises(GradientError, match="detach"):
        y.requires_grad_(False)
    with pytest.raises(DTypeError):
        ops.ones(2, dtype="int64").requires_grad_()
    with pytest.raises(DomainError, match="copy"):
        ops.ones(3).slice_mut((0, 2)).requires_grad_()
    seen = ops.ones(2)
    part = seen[:1]
    seen.requires_grad_()
    part[0] = 4.0
    assert seen.tolist() == [4.0, 1.0]


def test_nothing_to_differentiate() -> None:
    x = tensor.array(np.zeros((0, 3), np.float32), requires_grad=True)
    y = ops.concat([x * x, x[:, :]], axis=0)
    with em.no_grad():
        x += 1.0
    y = ops.concat([x * x, x[:, :]], axis=0)
    y[:] = 1.0
    (y.sum() + x.sum()).backward()
    assert (x.grad.shape, x.grad.tolist()) == ((0, 3), [])


# --- Threads and tasks ------------------------------------------------------------------------


def test_a_graph_that_another_thread_walks(backend: str) -> None:
    x = leaf(1.0, 2.0)
    y = (x * ops.exp(x[::-1])).sum()
    expected = np.exp([2.0, 1.0]) + np.array([2.0, 1.0]) * np.exp([1.0, 2.0])
    failures: list[BaseException] = []
    if backend == "mlx":  # which computes what is lazy in its own thread alone
        unread = (x * ops.exp(x[::-1])).sum()
        errors: list[BaseException] = []

        def fail() -> None:
            try:
                unread.backward()
            except UnsupportedOpError as error:
                errors.append(error)

        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        assert len(errors) == 1
        assert "thread" in str(errors[0])
        assert x.grad is None
        y.item()

    def walk() -> None:
        try:
            y.backward()
        except BaseException as error:
            failures.append(error)

    with em.no_grad():  # of this thread alone
        thread = threading.Thread(target=walk)
        thread.start()
        thread.join()
    assert not failures, failures
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5)


def test_threads_record_each_for_itself(backend: str) -> None:
    found: list[bool] = []

    def run() -> None:
        with em.use_backend(backend):
            found.append((leaf(1.0) * 2.0).requires_grad)

    with em.no_grad():
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert found == [True]


def test_no_grad_stays_in_its_task() -> None:
    x = leaf(1.0, 2.0)
    seen: dict[str, Any] = {}

    async def quiet(inside: asyncio.Event, done: asyncio.Event) -> None:
        with em.no_grad():
            inside.set()
            await done.wait()
            seen["quiet"] = (x * x).requires_grad
            x[0] = 3.0
            with em.enable_grad():
                seen["again"] = (x * x).requires_grad

    async def loud(inside: asyncio.Event, done: asyncio.Event) -> None:
        await inside.wait()
        y = (x * x).sum()
        seen["loud"] = y.requires_grad
        y.backward()
        seen["grad"] = x.grad.tolist()
        done.set()

    async def both() -> None:
        inside, done = asyncio.Event(), asyncio.Event()
        await asyncio.gather(quiet(inside, done), loud(inside, done))

    asyncio.run(both())
    assert seen == {"quiet": False, "again": True, "loud": True, "grad": [2.0, 4.0]}
    assert x.tolist() == [3.0, 2.0]
    assert x.is_leaf


def test_no_grad_as_a_decorator_and_nested() -> None:
    x = leaf(1.0)

    @em.no_grad()
    def twice(v: Any) -> Any:
        return v * 2.0

    assert not twice(x).requires_grad
    assert em.is_grad_enabled()
    with em.no_grad():
        with em.enable_grad():
            assert (x * 2.0).requires_grad
        assert not (x * 2.0).requires_grad
        with em.set_grad_enabled(True):
            assert em.is_grad_enabled()
    assert (x * 2.0).requires_grad
