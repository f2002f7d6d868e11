"""Every optimizer, step by step against torch.optim, or against its paper in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import ember_ml as em
from ember_ml import nn, ops, training
from ember_ml.training import CosineSchedule, optimizers

BACKENDS = ("numpy", "torch", "jax", "mlx")
STEPS = 20
SHAPES = ((3, 4), (3,))
Arrays = tuple[np.ndarray[Any, Any], ...]


class Case(NamedTuple):
    """An optimizer with options, which its twin takes as well."""

    name: str
    options: dict[str, Any]
    # A name of torch.optim, or a function over NumPy arrays.
    twin: str | Callable[..., list[Arrays]]
    shapes: tuple[tuple[int, ...], ...] = SHAPES

    def __str__(self) -> str:
        return "-".join([self.name, *[f"{k}={v}" for k, v in self.options.items() if k != "lr"]])


def lion(params: Arrays, grads: Sequence[Arrays], **options: Any) -> list[Arrays]:
    """Algorithm 2 of Chen et al., Symbolic Discovery of Optimization Algorithms."""
    lr, (b1, b2), decay = options["lr"], options.get("betas", (0.9, 0.99)), options["weight_decay"]
    sign = -1.0 if options.get("maximize") else 1.0
    theta, m = [p.copy() for p in params], [np.zeros_like(p) for p in params]
    found = []
    for row in grads:
        for i, raw in enumerate(row):
            g = sign * raw
            update = np.sign(b1 * m[i] + (1 - b1) * g)
            m[i] = b2 * m[i] + (1 - b2) * g
            theta[i] = theta[i] - lr * (update + decay * theta[i])
        found.append(tuple(p.copy() for p in theta))
    return found


def lamb(params: Arrays, grads: Sequence[Arrays], **options: Any) -> list[Arrays]:
    """Algorithm 2 of You et al., Large Batch Optimization for Deep Learning."""
    lr, decay, eps = options["lr"], options["weight_decay"], options.get("eps", 1e-6)
    b1, b2 = options.get("betas", (0.9, 0.999))
    x = [p.copy() for p in params]
    m, v = [np.zeros_like(p) for p in params], [np.zeros_like(p) for p in params]
    found = []
    for t, row in enumerate(grads, 1):
        for i, g in enumerate(row):
            m[i] = b1 * m[i] + (1 - b1) * g
            v[i] = b2 * v[i] + (1 - b2) * g**2
            r = (m[i] / (1 - b1**t)) / (np.sqrt(v[i] / (1 - b2**t)) + eps)
            u = r + decay * x[i]
            norm, length = np.linalg.norm(x[i]), np.linalg.norm(u)
            ratio = norm / length if norm > 0 and length > 0 else 1.0
            x[i] = x[i] - lr * ratio * u
        found.append(tuple(p.copy() for p in x))
    return found


MATRIX = ((4, 3),)
CASES = [
    Case("SGD", {"lr": 0.1}, "SGD"),
    Case("SGD", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}, "SGD"),
    Case("SGD", {"lr": 0.1, "momentum": 0.9}, "SGD"),
    Case("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}, "SGD"),
    Case("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}, "SGD"),
    Case("Adam", {}, "Adam"),
    Case("Adam", {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}, "Adam"),
    Case("Adam", {"lr": 0.1, "amsgrad": True, "maximize": True}, "Adam"),
    Case("AdamW", {}, "AdamW"),
    Case("AdamW", {"lr": 0.1, "weight_decay": 0.3, "maximize": True}, "AdamW"),
    Case("AdamW", {"lr": 0.1, "amsgrad": True, "betas": (0.0, 0.9)}, "AdamW"),
    Case("Adagrad", {}, "Adagrad"),
    Case(
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5},
        "Adagrad",
    ),
    Case("Adagrad", {"lr": 0.1, "eps": 1e-3, "maximize": True}, "Adagrad"),
    Case("RMSprop", {}, "RMSprop"),
    Case("RMSprop", {"lr": 0.1, "centered": True, "weight_decay": 0.1}, "RMSprop"),
    Case("RMSprop", {"lr": 0.1, "momentum": 0.9, "alpha": 0.8, "maximize": True}, "RMSprop"),
    Case("RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True}, "RMSprop"),
    Case("Adadelta", {}, "Adadelta"),
    Case("Adadelta", {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1, "maximize": True}, "Adadelta"),
    Case("Adafactor", {}, "Adafactor"),
    Case("Adafactor", {"lr": 0.5, "weight_decay": 0.1, "d": 2.0, "maximize": True}, "Adafactor"),
    Case("Adafactor", {"lr": 0.1, "eps": (1e-3, 0.1), "beta2_decay": -0.5}, "Adafactor"),
    Case("Muon", {}, "Muon", MATRIX),
    Case("Muon", {"lr": 0.1, "nesterov": False, "momentum": 0.8}, "Muon", ((3, 4),)),
    Case("Muon", {"lr": 0.1, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 3}, "Muon", MATRIX),
    Case("Lion", {"lr": 0.1, "weight_decay": 0.0}, lion),
    Case("Lion", {"lr": 0.1, "weight_decay": 0.2, "betas": (0.8, 0.9), "maximize": True}, lion),
    Case("LAMB", {"lr": 0.1, "weight_decay": 0.01}, lamb),
    Case("LAMB", {"lr": 0.1, "weight_decay": 0.0, "betas": (0.8, 0.9), "eps": 1e-3}, lamb),
]


def test_every_optimizer_has_a_case() -> None:
    made = {name for name in optimizers.__all__ if name[0].isupper()} - {"Optimizer"}
    assert made == {case.name for case in CASES}


@cache
def numbers(dtype: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[Arrays, list[Arrays]]:
    """Parameters, and the gradients of all steps."""
    rng = np.random.default_rng(7)

    def draw() -> Arrays:
        return tuple(rng.normal(size=shape).astype(dtype) for shape in shapes)

    return draw(), [draw() for _ in range(STEPS)]


_EXPECTED: dict[tuple[int, str], list[Arrays]] = {}


def expected(place: int, dtype: str) -> list[Arrays]:
    """The parameters after each step."""
    found = _EXPECTED.get((place, dtype))
    if found is None:
        found = _EXPECTED[place, dtype] = _expected(CASES[place], dtype)
    return found


def _expected(case: Case, dtype: str) -> list[Arrays]:
    params, grads = numbers(dtype, case.shapes)
    if not isinstance(case.twin, str):
        wide = [tuple(g.astype("float64") for g in row) for row in grads]
        return case.twin(tuple(p.astype("float64") for p in params), wide, **case.options)
    tensors = [torch.tensor(p, requires_grad=True) for p in params]
    twin = getattr(torch.optim, case.twin)(tensors, **case.options)
    found = []
    # torch's Muon iterates in bfloat16, in which no two engines agree; here in full precision.
    half, torch.Tensor.bfloat16 = torch.Tensor.bfloat16, torch.Tensor.clone  # type: ignore[method-assign,assignment]
    try:
        for row in grads:
            for x, g in zip(tensors, row, strict=True):
                x.grad = torch.tensor(g)
            twin.step()
            found.append(tuple(x.detach().numpy().copy() for x in tensors))
    finally:
        torch.Tensor.bfloat16 = half  # type: ignore[method-assign]
    return found


def made(case: Case, dtype: str) -> tuple[list[Any], Any, list[list[Any]]]:
    """Parameters, the optimizer and the gradients."""
    arrays, rows = numbers(dtype, case.shapes)
    params = [nn.Parameter(ops.asarray(p.copy())) for p in arrays]
    opt = getattr(training, case.name)(params, **case.options)
    return params, opt, [[ops.asarray(g) for g in row] for row in rows]


def compare(params: list[Any], want: Arrays, dtype: str) -> None:
    rtol, atol = (1e-11, 1e-13) if dtype == "float64" else (2e-5, 2e-6)
    for x, y in zip(params, want, strict=True):
        assert x.dtype == dtype
        np.testing.assert_allclose(x.numpy(), y, rtol=rtol, atol=atol)


def firsts() -> list[int]:
    """One case of each optimizer: the one with most options."""
    found = {case.name: place for place, case in reversed(list(enumerate(CASES)))}
    for place, case in enumerate(CASES):
        if len(case.options) > len(CASES[found[case.name]].options):
            found[case.name] = place
    return sorted(found.values())


# Programs of JAX take most of the time: single precision and compiled functions, which differ in
# little, have one case of each optimizer there.
SOME = firsts()
RUNS = [
    pytest.param(name, place, dtype, id=f"{name}-{CASES[place]}-{dtype}")
    for name in BACKENDS
    for place in range(len(CASES))
    for dtype in ("float32", "float64")
    if dtype == "float64" or place in SOME or name != "jax"
]
COMPILED = [
    pytest.param(name, place, id=f"{name}-{CASES[place]}")
    for name in BACKENDS
    for place in range(len(CASES))
    if place in SOME or name in ("numpy", "torch")
]


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """The backend that a parameter names."""
    with em.use_backend(request.param):
        yield request.param


@pytest.mark.parametrize(("backend", "place", "dtype"), RUNS, indirect=["backend"])
def test_steps_are_those_of_the_twin(backend: str, place: int, dtype: str) -> None:
    params, opt, grads = made(CASES[place], dtype)
    objects = [id(x) for x in params]
    for number, (row, want) in enumerate(zip(grads, expected(place, dtype), strict=True)):
        if number % 2:
            opt.update(params, row)
        else:
            for x, g in zip(params, row, strict=True):
                x.grad = g
            opt.step()
            opt.zero_grad()
            assert all(x.grad is None for x in params)
        compare(params, want, dtype)
    assert opt.steps == STEPS
    assert [id(x) for group in opt.param_groups for x in group["params"]] == objects
    assert all(x.requires_grad and x.is_leaf for x in params)


@pytest.mark.parametrize(("backend", "place"), COMPILED, indirect=["backend"])
def test_steps_within_a_compiled_function(backend: str, place: int) -> None:
    params, opt, grads = made(CASES[place], "float64")
    run = em.jit(lambda row: opt.update(params, row), state=[params, opt])
    for row, want in zip(grads, expected(place, "float64"), strict=True):
        run(row)
        compare(params, want, "float64")
    assert opt.steps == STEPS
    assert run.traces == 1


FORMULAS = [place for place, case in enumerate(CASES) if getattr(training, case.name)._kernel]


@pytest.mark.parametrize("place", FORMULAS, ids=[str(CASES[place]) for place in FORMULAS])
@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_kernels_are_their_formula(name: str, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs on NumPy and torch, against the formula over ops on the same backend."""
    with em.use_backend(name):
        params, opt, grads = made(CASES[place], "float32")
        assert opt._kernel in params[0]._spec.backend.overrides
        others, plain, _ = made(CASES[place], "float32")
        monkeypatch.setattr(type(plain), "_kernel", "")
        for row in grads:
            plain.update(others, row)
        monkeypatch.undo()
        for row in grads:
            opt.update(params, row)
        for x, y in zip(params, others, strict=True):
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
@pytest.mark.parametrize("jit", [False, True])
def test_a_schedule_is_asked_before_each_update(backend: str, jit: bool) -> None:
    schedule = CosineSchedule(0.5, 6)
    w = nn.Parameter(ops.ones(2, dtype="float64"))
    opt = training.SGD([w], lr=schedule)
    one = ops.ones(2, dtype="float64")

    def descend() -> None:
        opt.update([w], [one])

    run = em.jit(descend, state=[opt]) if jit else descend
    want = 1.0
    for number in range(8):
        assert opt.lr == schedule(number)
        run()
        want -= schedule(number)
        np.testing.assert_allclose(w.numpy(), [want, want], rtol=1e-12, atol=1e-12)
    if jit:
        assert run.traces == 1


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_a_rate_that_is_set_reaches_a_compiled_function(backend: str) -> None:
    w = nn.Parameter([0.0])
    opt = training.SGD([w], lr=0.5)
    one = ops.ones(1)
    run = em.jit(lambda: opt.update([w], [one]), state=[opt])
    run()
    opt.lr = 0.25
    run()
    opt.update([w], [one])  # what is not compiled goes on from there
    opt.param_groups[0]["lr"] = 2.0
    run()
    assert w.tolist() == [-3.0]
    assert (run.traces, opt.steps) == (1, 4)
