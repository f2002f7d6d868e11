"""The state of compiled functions: what they read and write besides arguments and results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import Tensor, ops
from ember_ml.autodiff import register_state
from ember_ml.errors import GradientError, TraceError
from ember_ml.nn import tensor


def values(x: Any) -> Any:
    return em.tree.map(lambda t: t.tolist() if isinstance(t, Tensor) else t, x)


# --- Tensors ----------------------------------------------------------------------------------


def test_writes_in_place_are_seen(backend: str) -> None:
    w, rows = ops.asarray([1.0, 2.0]), ops.zeros((3, 2))

    @em.jit(state=[w, rows])
    def step(x: Tensor) -> Tensor:
        nonlocal w
        before = ops.sum(w)
        w -= x
        rows[1] = w
        rows[0, 0] = x[1]
        return before

    alike = w
    assert [step(ops.asarray([0.5, 1.0])).item() for _ in range(2)] == [3.0, 1.5]
    assert w is alike
    assert w.tolist() == [0.0, 0.0]
    assert rows.tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert step.traces <= 2  # a tensor that was alone has a storage once it was written to
    w[...] = 4.0
    assert step(ops.zeros(2)).item() == 8.0


def test_writes_are_read_within_the_function(backend: str) -> None:
    w = ops.zeros(3)

    @em.jit(state=w)
    def fill(x: Tensor) -> Any:
        w[0] = x
        first = w * 1
        part = w[1:]
        part += 2.0
        w[:1] += part[0]
        return first, w.copy()

    first, last = fill(ops.asarray(5.0))
    assert first.tolist() == [5.0, 0.0, 0.0]
    assert last.tolist() == w.tolist() == [7.0, 2.0, 2.0]


def test_containers_take_new_tensors(backend: str) -> None:
    state: dict[str, Any] = {"w": ops.ones(2), "history": [], "pair": (ops.zeros(1), None)}

    @em.jit(state=state)
    def step(x: Tensor) -> Tensor:
        state["w"] = state["w"] * x
        if "m" not in state:
            state["m"] = {"first": ops.zeros(2)}
        state["m"]["first"] = state["m"]["first"] + state["w"]
        state["history"] = [state["w"] + 1]
        state["pair"] = (state["pair"][0] + 1.0, None)
        return state["w"]

    history = state["history"]
    eager = {"w": 1.0, "m": 0.0}
    for count in range(1, 4):
        eager["w"] *= 2
        eager["m"] += eager["w"]
        assert step(ops.full((2,), 2.0)).tolist() == [eager["w"]] * 2
        assert values(state) == {
            "w": [eager["w"]] * 2,
            "history": [[eager["w"] + 1] * 2],
            "pair": ([float(count)], None),
            "m": {"first": [eager["m"]] * 2},
        }
        assert type(state["w"]) is Tensor
    assert step.traces == 2  # before and after there was a momentum
    assert state["history"] is not history or backend != "numpy"


def test_static_values_in_the_state(backend: str) -> None:
    state = {"n": 1, "x": ops.zeros(())}

    @em.jit(state=state)
    def step() -> Tensor:
        state["n"] += 1
        state["x"] = state["x"] + state["n"]
        return state["x"]

    assert [step().item() for _ in range(3)] == [2.0, 5.0, 9.0]
    assert state["n"] == 4
    assert step.traces == 3


def test_views_and_aliases_live_on(backend: str) -> None:
    base = ops.reshape(ops.arange(6, dtype="float32"), (2, 3))
    row, alias, clone, native = base[1], base.alias(), base.clone(), base.native
    kept = ops.asarray(base.numpy(copy=True))

    @em.jit(state={"row": row})
    def grow() -> Tensor:
        nonlocal row
        row += 10.0
        return ops.sum(row)

    for count in range(1, 4):
        assert grow().item() == 12.0 + 30.0 * count
        expected = [[0.0, 1.0, 2.0], [3.0 + 10 * count, 4.0 + 10 * count, 5.0 + 10 * count]]
        assert base.tolist() == alias.tolist() == expected
        assert row.tolist() == expected[1]
        assert clone.tolist() == kept.tolist()
    if backend in ("jax", "mlx"):
        assert np.asarray(native).tolist() == kept.tolist()


def test_who_else_holds_an_array_keeps_it(backend: str) -> None:
    w = ops.ones(4)
    held: list[Any] = []

    @em.jit(state=w)
    def step() -> None:
        nonlocal w
        w += 1.0

    for _ in range(3):
        held.append((w.clone(), w.detach().copy(), w.numpy(copy=True)))
        step()
    assert w.tolist() == [4.0] * 4
    for count, (clone, copy, array) in enumerate(held, 1):
        assert clone.tolist() == copy.tolist() == array.tolist() == [float(count)] * 4


def test_one_tensor_twice(backend: str) -> None:
    w = ops.ones(2)

    @em.jit(state=[w, {"again": w}])
    def step(x: Tensor) -> Tensor:
        nonlocal w
        w += x
        return w * 1

    assert step(w).tolist() == [2.0, 2.0]
    assert step(w).tolist() == [4.0, 4.0]
    assert w.tolist() == [4.0, 4.0]


def test_nothing_is_half_written(backend: str) -> None:
    w, state = ops.ones(2), {"v": ops.zeros(2)}
    kept = state["v"]

    @em.jit(state=[w, state])
    def step(x: Tensor) -> Tensor:
        nonlocal w
        w += 1.0
        state["v"] = state["v"] + 1.0
        state["more"] = w
        return ops.ones((2, 3)) @ x

    with pytest.raises(em.ShapeError):
        step(ops.ones(2))
    assert w.tolist() == [1.0, 1.0]
    assert list(state) == ["v"]
    assert state["v"] is kept
    assert step(ops.ones(3)).tolist() == [3.0, 3.0]
    assert w.tolist() == [2.0, 2.0]
    assert state["v"].tolist() == [1.0, 1.0]


def test_state_that_is_only_read(backend: str) -> None:
    w = ops.asarray([1.0, 2.0])
    scale = em.jit(lambda x: x * w, state=[w])
    assert scale(ops.ones(2)).tolist() == [1.0, 2.0]
    w *= 10.0
    assert scale(ops.ones(2)).tolist() == [10.0, 20.0]


@pytest.mark.parametrize("size", [4, 1 << 15])
def test_large_tensors(backend: str, size: int) -> None:
    w = ops.zeros(size)

    @em.jit(state=w)
    def step(x: Tensor) -> Tensor:
        w[1:3] = x
        return w[0:4] * 1

    for count in range(1, 4):
        assert step(ops.full((2,), float(count))).tolist() == [0.0, count, count, 0.0]
    assert ops.sum(w).item() == 6.0


# --- Leaves -----------------------------------------------------------------------------------


def test_leaves_stay_leaves(backend: str) -> None:
    w = tensor.array([1.0, 2.0], requires_grad=True)
    native = w.native

    @em.jit(state=[w])
    def step(x: Tensor) -> Tensor:
        nonlocal w
        loss = ops.sum(w * w * x)
        loss.backward()
        with em.no_grad():
            w -= 0.25 * w.grad
        w.grad = None
        return loss

    mine = w
    for expected in (5.0, 1.25, 0.3125):
        loss = step(ops.ones(2))
        assert loss.item() == expected
        assert not loss.requires_grad
    assert w is mine
    assert w.is_leaf
    assert w.requires_grad
    assert w.grad is None
    assert w.tolist() == [0.125, 0.25]
    if backend == "torch":
        assert w.native is native
        assert native.is_leaf
    ops.sum(w * 3).backward()
    assert w.grad.tolist() == [3.0, 3.0]


def test_gradients_add_up_across_calls(backend: str) -> None:
    w = tensor.array([1.0, 2.0], requires_grad=True)

    @em.jit(state=[w])
    def backward(x: Tensor) -> None:
        ops.sum(w * x).backward()

    for count in (1.0, 2.0, 3.0):
        backward(ops.ones(2))
        assert w.grad.tolist() == [count, count]
    assert backward.traces == 2
    ops.sum(w * w).backward()
    assert w.grad.tolist() == [5.0, 7.0]


def test_results_are_differentiated_by_leaves_of_the_state(backend: str) -> None:
    w = tensor.array([1.0, 2.0], requires_grad=True)
    loss = em.jit(lambda x: ops.sum(w * w * x), state=[w])
    for _ in range(2):
        w.grad = None
        loss(ops.asarray([1.0, 3.0])).backward()
        assert w.grad.tolist() == [2.0, 12.0]
    closed = em.jit(lambda x: ops.sum(w * w * x))  # the same without saying so
    w.grad = None
    closed(ops.ones(2)).backward()
    assert w.grad.tolist() == [2.0, 4.0]
    with em.no_grad():
        assert not loss(ops.ones(2)).requires_grad


def test_state_is_no_result_of_others(backend: str) -> None:
    w = tensor.array([1.0], requires_grad=True)
    with pytest.raises(GradientError, match="keep those others"):
        em.jit(lambda: None, state=[w * 2])()


# --- Objects ----------------------------------------------------------------------------------


class Momentum:
    """Parameters and what an optimiser keeps of them, as a class of one's own."""

    def __init__(self, size: int) -> None:
        self.w = ops.ones(size)
        self.extra: dict[str, Tensor] = {}
        self.steps = ops.asarray(0)

    def __jit_state__(self) -> Any:
        return {"w": self.w, "extra": self.extra, "steps": self.steps}

    def update(self, g: Tensor) -> None:
        v = self.extra.get("v", ops.zeros_like(g)) * 0.5 + g
        self.extra["v"] = v
        self.w = self.w - 0.25 * v
        self.steps += 1


def test_objects_tell_their_state(backend: str) -> None:
    def step(model: Momentum, x: Tensor) -> Tensor:
        loss, g = em.value_and_grad(lambda w: ops.sum(w * w * x))(model.w)
        model.update(g)
        return loss

    x = ops.asarray([1.0, 2.0])
    eager = Momentum(2)
    expected = [step(eager, x).item() for _ in range(4)]
    closed, given = Momentum(2), Momentum(2)
    by_state = em.jit(lambda x: step(closed, x), state=closed)
    as_argument = em.jit(step)
    for want in expected:
        assert by_state(x).item() == pytest.approx(want)
        assert as_argument(given, x).item() == pytest.approx(want)
    for model in (closed, given):
        np.testing.assert_allclose(model.w.numpy(), eager.w.numpy(), rtol=1e-6)
        np.testing.assert_allclose(model.extra["v"].numpy(), eager.extra["v"].numpy(), rtol=1e-6)
        assert model.steps.item() == 4
    assert by_state.traces == 2  # before and after the first momentum
    other = Momentum(2)
    assert as_argument(other, x).item() == pytest.approx(expected[0])
    assert as_argument.traces == 2
    assert given.steps.item() == 4


def test_classes_are_registered(backend: str) -> None:
    class Mean:
        def __init__(self) -> None:
            self._parts = [ops.zeros(()), ops.zeros(())]

    def put(mean: Mean, parts: Any) -> None:
        mean._parts = list(parts)

    register_state(Mean, lambda mean: tuple(mean._parts), put)
    mean = Mean()

    @em.jit(state=[mean])
    def add(x: Tensor) -> Tensor:
        total, count = mean._parts
        mean._parts = [total + x, count + 1.0]
        return mean._parts[0] / mean._parts[1]

    assert [add(ops.asarray(x)).item() for x in (2.0, 4.0, 9.0)] == [2.0, 3.0, 5.0]
    with pytest.raises(em.DomainError, match="known already"):
        register_state(Mean, put)


def test_nodes_of_trees_are_written(backend: str) -> None:
    class Point:
        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = x, y

    em.tree.register(Point, lambda p: ((p.x, p.y), None), lambda _, parts: Point(*parts))
    point = Point(ops.asarray(1.0), ops.asarray(2.0))

    @em.jit(state=point)
    def move(d: Tensor) -> Any:
        point.x = point.x + d
        point.y += d
        return point

    moved = move(ops.asarray(1.0))
    assert (moved.x.item(), moved.y.item()) == (2.0, 3.0)
    move(ops.asarray(1.0))
    assert (point.x.item(), point.y.item()) == (3.0, 4.0)
    assert (moved.x.item(), moved.y.item()) == (2.0, 3.0)


def test_a_new_object_in_the_state(backend: str) -> None:
    state: dict[str, Any] = {}

    @em.jit(state=state)
    def make(x: Tensor) -> None:
        state["model"] = Momentum(2)

    if backend == "numpy":
        make(ops.ones(1))
        return
    with pytest.raises(TraceError, match="new Momentum"):
        make(ops.ones(1))


# --- What functions close over ------------------------------------------------------------------


def test_closed_over_tensors_are_read_anew(backend: str) -> None:
    w = ops.asarray([1.0, 2.0])
    box = {"b": [ops.ones(2)]}

    class Holder:
        def __init__(self) -> None:
            self.scale = ops.asarray(1.0)

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.scale

    holder = Holder()
    inner = lambda x: x * w  # noqa: E731 - a function within a function
    jitted = em.jit(lambda x: holder(inner(x) + box["b"][0]))
    method = em.jit(holder.__call__)
    assert jitted(ops.ones(2)).tolist() == [2.0, 3.0]
    assert method(ops.ones(2)).tolist() == [1.0, 1.0]
    w += 1.0
    box["b"][0] = ops.zeros(2)
    holder.scale = ops.asarray(10.0)
    assert jitted(ops.ones(2)).tolist() == [20.0, 30.0]
    assert method(ops.ones(2)).tolist() == [10.0, 10.0]
    w = ops.asarray([5.0, 5.0])
    assert jitted(ops.ones(2)).tolist() == [50.0, 50.0]
    assert method.traces == 1


def test_writes_to_what_is_no_state(backend: str) -> None:
    w = ops.ones(2)
    leaf = tensor.array([1.0], requires_grad=True)
    box = {"v": ops.ones(2)}

    def closed(x: Tensor) -> Tensor:
        nonlocal w
        w += x
        return x

    def through_a_view(x: Tensor) -> Tensor:
        w[0] = x[0]
        return x

    def argument(x: Tensor) -> Tensor:
        x += 1.0
        return x

    def named(x: Tensor, *, y: Tensor) -> Tensor:
        y[0] = x[0]
        return x

    def on_a_leaf(x: Tensor) -> Tensor:
        nonlocal leaf
        with em.no_grad():
            leaf -= 1.0
        return x

    def in_a_dict(x: Tensor) -> Tensor:
        box["v"] += x
        return x

    x = ops.ones(2)
    for function, what in (
        (closed, "'w'"),
        (through_a_view, "'w'"),
        (argument, r"args\[0\]"),
        (on_a_leaf, "'leaf'"),
        (in_a_dict, "'box'"),
    ):
        with pytest.raises(TraceError, match=rf"writes to {what}.*state="):
            em.jit(function)(x)
    with pytest.raises(TraceError, match="writes to y, which"):
        em.jit(named)(x, y=ops.ones(2))
    if backend != "numpy":  # where the function has run, before anybody could know
        assert leaf.tolist() == [1.0]
        assert w.tolist() == x.tolist() == box["v"].tolist() == [1.0, 1.0]


def test_memory_is_used_again_on_jax() -> None:
    with em.use_backend("jax"):
        w = ops.zeros(1 << 12)

        @em.jit(state=w)
        def step() -> None:
            nonlocal w
            w += 1.0

        step()
        places = set()
        for _ in range(4):
            places.add(w.native.unsafe_buffer_pointer())
            step()
        assert len(places) == 1
        kept = w.native
        step()  # which would take it away, had we not kept it
        assert not kept.is_deleted()
        assert (float(kept[0]), w[0].item()) == (5.0, 6.0)


def test_a_function_that_reads_its_state_after_a_write(backend: str) -> None:
    w = ops.asarray([1.0, 2.0, 3.0])

    @em.jit(state=w)
    def function(x: Tensor) -> Any:
        nonlocal w
        old = w * 1
        rows = ops.reshape(w, (3, 1))
        w *= x
        middle = w + rows[:, 0]
        w += 1.0
        w[0] = 0.0
        return old, middle, w

    def eager(w: Tensor, x: Tensor) -> Any:
        old = w * 1
        rows = ops.reshape(w, (3, 1))
        w *= x
        middle = w + rows[:, 0]
        w += 1.0
        w[0] = 0.0
        return old, middle, w

    mine = ops.asarray([1.0, 2.0, 3.0])
    for _ in range(3):
        assert values(function(ops.asarray(2.0))) == values(eager(mine, ops.asarray(2.0)))
        assert w.tolist() == mine.tolist()
