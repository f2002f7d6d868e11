"""Clipping and accumulation, with gradients as values and as parameters carry them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ember_ml as em
from ember_ml import nn, ops, training
from ember_ml.training import Accumulator, clip_grad_norm, clip_grad_value, global_norm

ARRAYS = [np.random.default_rng(3).normal(size=shape) for shape in ((3, 4), (3,))]


def carrying(dtype: str) -> list[Any]:
    """Parameters with gradients."""
    params = [nn.Parameter(ops.zeros(a.shape, dtype=dtype)) for a in ARRAYS]
    for x, a in zip(params, ARRAYS, strict=True):
        x.grad = ops.asarray(a, dtype=dtype)
    return params


def reference(max_norm: float, norm_type: float) -> tuple[list[Any], float]:
    params = [torch.zeros(a.shape, dtype=torch.float64, requires_grad=True) for a in ARRAYS]
    for x, a in zip(params, ARRAYS, strict=True):
        x.grad = torch.tensor(a)
    norm = torch.nn.utils.clip_grad_norm_(params, max_norm, norm_type)
    return [x.grad.numpy() for x in params], norm.item()  # type: ignore[union-attr]


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_norms_are_those_of_torch(backend: str, max_norm: float, norm_type: float) -> None:
    want, length = reference(max_norm, norm_type)
    grads = {"a": ops.asarray(ARRAYS[0]), "b": [ops.asarray(ARRAYS[1])]}
    clipped, norm = clip_grad_norm(grads, max_norm, norm_type)
    assert norm.item() == pytest.approx(length, rel=1e-12)
    assert (norm.shape, norm.dtype) == ((), "float64")
    np.testing.assert_allclose(clipped["a"].numpy(), want[0], rtol=1e-12)
    np.testing.assert_allclose(clipped["b"][0].numpy(), want[1], rtol=1e-12)
    np.testing.assert_array_equal(grads["a"].numpy(), ARRAYS[0])  # type: ignore[union-attr]
    params = carrying("float64")
    norm = clip_grad_norm(params, max_norm, norm_type)
    assert norm.item() == pytest.approx(length, rel=1e-12)
    for x, w in zip(params, want, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), w, rtol=1e-12)
    assert global_norm(params, norm_type).item() <= max(max_norm * (1 + 1e-12), 0)


def test_a_model_and_its_gradients(backend: str) -> None:
    model = nn.Linear(3, 2)
    x = ops.ones((4, 3))
    _, grads = em.value_and_grad(lambda m: ops.sum(m(x)))(model)
    clipped, norm = clip_grad_norm(grads, 1.0)
    assert norm.item() == pytest.approx(np.sqrt(8 * 16), rel=1e-6)
    assert global_norm(clipped).item() == pytest.approx(1.0, rel=1e-5)
    assert clipped.weight.shape == (2, 3)
    ops.sum(model(x)).backward()
    assert clip_grad_norm(model, 1.0).item() == pytest.approx(norm.item(), rel=1e-6)
    np.testing.assert_allclose(model.weight.grad.numpy(), clipped.weight.numpy(), rtol=1e-6)
    clip_grad_value(model, 0.01)
    assert model.bias.grad.tolist() == pytest.approx([0.01, 0.01])
    assert clip_grad_value(grads, 2.0).weight.tolist() == [[2.0] * 3] * 2


def test_halves_do_not_overflow(backend: str) -> None:
    grads = [ops.asarray([300.0, 400.0], dtype="float16")]
    clipped, norm = clip_grad_norm(grads, 5.0)
    assert (norm.item(), norm.dtype, clipped[0].dtype) == (500.0, "float32", "float16")
    np.testing.assert_allclose(clipped[0].numpy(), [3.0, 4.0], rtol=1e-3)


def test_in_a_compiled_function(backend: str) -> None:
    w = nn.Parameter([3.0, 4.0])
    opt = training.SGD([w], lr=1.0)

    def descend() -> Any:
        ops.sum(w * w).backward()
        norm = clip_grad_norm([w], 1.0)
        opt.step()
        opt.zero_grad()
        return norm

    run = em.jit(descend, state=[w, opt])
    assert run().item() == pytest.approx(10.0)
    assert w.tolist() == pytest.approx([2.4, 3.2], rel=1e-5)


def test_mistakes() -> None:
    with pytest.raises(em.errors.DomainError, match="max_norm=-1"):
        clip_grad_norm([ops.ones(1)], -1)
    with pytest.raises(em.errors.DomainError, match="negative"):
        clip_grad_value([ops.ones(1)], -1.0)
    with pytest.raises(em.errors.DTypeError, match="found str"):
        global_norm(["x"])
    with pytest.raises(em.errors.DomainError, match="norm inf"):
        clip_grad_norm([ops.asarray([np.inf])], 1.0, error_if_nonfinite=True)
    with pytest.raises(em.errors.DomainError, match="steps=0"):
        Accumulator(0)
    with pytest.raises(em.errors.DomainError, match="weight of 0"):
        Accumulator(2).add([ops.ones(1)], weight=0)
    with pytest.raises(em.errors.DomainError, match="add"):
        Accumulator(1).ready([ops.ones(1)])
    assert global_norm([]).item() == 0.0


def test_small_batches_are_one_large_one(backend: str) -> None:
    model = nn.Linear(3, 2)
    data = ops.asarray(np.random.default_rng(0).normal(size=(7, 3)).astype("float32"))

    def loss(m: Any, x: Any) -> Any:
        return ops.mean(m(x) ** 2)

    _, want = em.value_and_grad(loss)(model, data)
    parts = [data[0:2], data[2:5], data[5:7]]
    accumulator = Accumulator(3)
    found = [
        accumulator.add(em.value_and_grad(loss)(model, x)[1], weight=x.shape[0]) for x in parts
    ]
    assert found[:2] == [None, None]
    np.testing.assert_allclose(found[2].weight.numpy(), want.weight.numpy(), rtol=1e-5, atol=1e-7)
    ready = []
    for x in parts:
        (loss(model, x) * float(x.shape[0])).backward()
        ready.append(accumulator.ready(model, weight=x.shape[0]))
    assert ready == [False, False, True]
    np.testing.assert_allclose(model.weight.grad.numpy(), want.weight.numpy(), rtol=1e-5, atol=1e-7)


def test_an_accumulator_is_kept(backend: str) -> None:
    accumulator, again = Accumulator(2), Accumulator(2)
    accumulator.add({"w": ops.asarray([1.0])})
    again.load_state_dict(accumulator.state_dict(), like={"w": ops.zeros(1)})
    assert again.add({"w": ops.asarray([3.0])})["w"].tolist() == [2.0]
    assert again.flush() is None
    with pytest.raises(em.errors.DomainError, match="like"):
        again.load_state_dict(accumulator.state_dict())
    assert accumulator.flush()["w"].tolist() == [1.0]
