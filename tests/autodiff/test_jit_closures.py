"""What compiled functions close over: read anew at each call, and not written to."""

from __future__ import annotations

import pytest

import ember_ml as em
from ember_ml import Tensor, ops
from ember_ml.errors import TraceError
from ember_ml.nn import tensor


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
