"""Mixed precision and loss scaling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.training import SGD, LossScaler, MixedPrecision


def problem() -> tuple[Any, Any, Any]:
    """A line whose gradients are smaller than the smallest number of float16."""
    model = nn.Linear(2, 1, bias=False)
    model.load_state_dict({"weight": np.zeros((1, 2), "float32")})
    x = np.random.default_rng(0).normal(size=(64, 2)).astype("float32") * 1e-4
    y = x @ np.array([[1.0], [-2.0]], "float32")
    return model, ops.asarray(x), ops.asarray(y)


def fit(policy: MixedPrecision, style: str, steps: int = 60) -> Any:
    model, x, y = problem()
    opt = SGD(model, lr=2e7)

    def loss_fn(model: Any) -> Any:
        out = ops.astype(policy.cast(model)(policy.cast(x)), "float32")
        return policy.scale(ops.mean((out - y) ** 2))

    for _ in range(steps):
        if style == "update":
            _, grads = em.value_and_grad(loss_fn)(model)
            assert grads.weight.dtype == "float32"
            policy.update(opt, model, grads)
        else:
            opt.zero_grad()
            loss_fn(model).backward()
            policy.step(opt)
    return model.weight.numpy()[0]


@pytest.mark.parametrize("style", ["update", "step"])
def test_scaling_keeps_gradients_from_becoming_zero(backend: str, style: str) -> None:
    scaled = fit(MixedPrecision("float16"), style)
    np.testing.assert_allclose(scaled, [1.0, -2.0], rtol=0.03)
    if style == "update":
        plain = fit(MixedPrecision("float16", scaler=False), style)
        assert np.abs(plain - [1.0, -2.0]).max() > 0.1


def test_the_rules_are_those_of_torch(backend: str) -> None:
    options: dict[str, Any] = {"init_scale": 8.0, "growth_interval": 3}
    reference = torch.amp.GradScaler("cpu", **options)
    scaler = LossScaler(**options)
    tw = torch.zeros(2, requires_grad=True)
    twin = torch.optim.SGD([tw], lr=1.0)
    w = nn.Parameter([0.0, 0.0])
    opt = SGD([w], lr=1.0)
    for number in range(12):
        bad = np.inf if number in (1, 6, 7) else 1.0
        reference.scale(torch.sum(tw * torch.tensor([1.0, bad]))).backward()
        reference.step(twin)
        reference.update()
        twin.zero_grad()
        scaler.scale(ops.sum(w * ops.asarray([1.0, bad]))).backward()
        assert scaler.step(opt) is (bad == 1.0)
        opt.zero_grad()
        assert scaler.factor == reference.get_scale()
        assert w.tolist() == tw.tolist()
    assert opt.steps == 9
    again = LossScaler()
    again.load_state_dict(scaler.state_dict())
    assert (again.factor, again.good) == (scaler.factor, scaler.good)


def test_a_compiled_loss_sees_the_factor_change(backend: str) -> None:
    policy = MixedPrecision("float16", LossScaler(4.0))
    w = ops.ones(2)

    def loss(w: Any) -> Any:
        return policy.scale(ops.sum(ops.astype(policy.cast(w), "float32")))

    run = em.jit(em.value_and_grad(loss))
    assert run(w)[1].tolist() == [4.0, 4.0]
    assert policy.scaler is not None
    policy.scaler.adjust(False)
    assert run(w)[1].tolist() == [2.0, 2.0]


def test_bfloat16_needs_no_scaler(backend: str) -> None:
    policy = MixedPrecision("bfloat16")
    assert policy.scaler is None
    assert policy.state_dict() == {}
    policy.load_state_dict({})
    model = nn.Linear(2, 1)
    opt = SGD(model, lr=0.1)
    x = ops.ones((3, 2))

    def loss_fn(model: Any) -> Any:
        half = policy.cast(model)
        assert half.weight.dtype == "bfloat16"
        return policy.scale(ops.mean(ops.astype(half(policy.cast(x)), "float32") ** 2))

    before, grads = em.value_and_grad(loss_fn)(model)
    assert policy.update(opt, model, grads)
    assert model.weight.dtype == "float32"
    assert loss_fn(model).item() < before.item()
    loss_fn(model).backward()
    assert policy.unscale(model) is model
    assert policy.step(opt)


class Counting(nn.Module):
    """A layer that keeps a statistic."""

    def __init__(self) -> None:
        self.mean = nn.Buffer([0.0])
        self.count = nn.Buffer([0])

    def forward(self, x: Any) -> Any:
        self.mean = 0.5 * self.mean + 0.5 * ops.mean(x)
        self.count = self.count + 1
        return x


def test_statistics_reach_the_model(backend: str) -> None:
    model = nn.Sequential(nn.Linear(1, 1), Counting())
    policy = MixedPrecision("bfloat16")
    with policy.casting(model) as half:
        half(policy.cast(ops.ones((2, 1))))
    counting = model[1]
    assert (counting.mean.dtype, counting.count.tolist()) == ("float32", [1])
    assert counting.mean.item() != 0.0
    assert isinstance(counting.mean, nn.Buffer)
    tree = policy.cast({"x": ops.ones(1), "labels": ops.ones(1, dtype="int64"), "n": 3})
    assert (tree["x"].dtype, tree["labels"].dtype, tree["n"]) == ("bfloat16", "int64", 3)


def test_clipping_between(backend: str) -> None:
    from ember_ml.training import clip_grad_norm

    scaler = LossScaler(16.0)
    w = nn.Parameter([3.0, 4.0])
    opt = SGD([w], lr=1.0)
    scaler.scale(ops.sum(w * w) * 0.5).backward()
    scaler.unscale([w])
    assert clip_grad_norm([w], 1.0).item() == pytest.approx(5.0)
    assert scaler.step(opt, unscaled=True)
    assert w.tolist() == pytest.approx([2.4, 3.2], rel=1e-5)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: LossScaler(0.0), "init_scale"),
        (lambda: LossScaler(growth_factor=1.0), "larger than 1"),
        (lambda: LossScaler(backoff_factor=1.0), "between 0 and 1"),
        (lambda: MixedPrecision("float32"), "'float16' or 'bfloat16'"),
        (lambda: LossScaler().load_state_dict({}), "'factor' and 'good'"),
    ],
)
def test_mistakes(make: Any, text: str) -> None:
    with pytest.raises(em.errors.EmberError, match=text):
        make()
