"""Schedules against torch.optim.lr_scheduler, on numbers and in compiled functions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler as torch_schedules

import ember_ml as em
from ember_ml import nn, ops, training
from ember_ml.nn import config
from ember_ml.training import (
    ChainSchedule,
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    LinearSchedule,
    OneCycleSchedule,
    PlateauSchedule,
    Schedule,
    StepSchedule,
    WarmupSchedule,
    schedules,
)

STEPS = 100
LR = 0.5
Twin = Callable[[Any], Any]


def _sequence(opt: Any) -> Any:
    first = torch_schedules.LinearLR(opt, 0.1, 1.0, 10)
    second = torch_schedules.CosineAnnealingLR(opt, 50, 0.01)
    return torch_schedules.SequentialLR(opt, [first, second], [10])


def _three(opt: Any) -> Any:
    parts = [
        torch_schedules.LinearLR(opt, 0.1, 1.0, 20),
        torch_schedules.ExponentialLR(opt, 0.9),
        torch_schedules.StepLR(opt, 10, 0.5),
    ]
    return torch_schedules.SequentialLR(opt, parts, [20, 50])


# A schedule, its twin, and up to which step both are meant to agree.
CASES: dict[str, tuple[Schedule, Twin, int]] = {
    "constant": (ConstantSchedule(LR), lambda o: torch_schedules.ConstantLR(o, 1.0), STEPS),
    "step": (StepSchedule(LR, 7, 0.5), lambda o: torch_schedules.StepLR(o, 7, 0.5), STEPS),
    "milestones": (
        StepSchedule(LR, milestones=[50, 3, 20], gamma=0.3),
        lambda o: torch_schedules.MultiStepLR(o, [3, 20, 50], 0.3),
        STEPS,
    ),
    "exponential": (
        ExponentialSchedule(LR, 0.95),
        lambda o: torch_schedules.ExponentialLR(o, 0.95),
        STEPS,
    ),
    "linear": (
        LinearSchedule(LR * 0.25, LR * 0.75, 30),
        lambda o: torch_schedules.LinearLR(o, 0.25, 0.75, 30),
        STEPS,
    ),
    "cosine": (
        CosineSchedule(LR, 80, 0.01),
        lambda o: torch_schedules.CosineAnnealingLR(o, 80, 0.01),
        81,  # torch's goes up again, ours stays
    ),
    "restarts": (
        CosineSchedule(LR, 15, 0.01, restarts=True),
        lambda o: torch_schedules.CosineAnnealingWarmRestarts(o, 15, 1, 0.01),
        STEPS,
    ),
    "longer restarts": (
        CosineSchedule(LR, 10, restarts=True, multiplier=2),
        lambda o: torch_schedules.CosineAnnealingWarmRestarts(o, 10, 2),
        STEPS,
    ),
    "one cycle": (
        OneCycleSchedule(LR, STEPS),
        lambda o: torch_schedules.OneCycleLR(o, LR, STEPS, cycle_momentum=False),
        STEPS,
    ),
    "one linear cycle in three phases": (
        OneCycleSchedule(LR, STEPS, 0.25, "linear", 10.0, 100.0, three_phase=True),
        lambda o: torch_schedules.OneCycleLR(
            o,
            LR,
            STEPS,
            pct_start=0.25,
            anneal_strategy="linear",
            cycle_momentum=False,
            div_factor=10.0,
            final_div_factor=100.0,
            three_phase=True,
        ),
        STEPS,
    ),
    "warmup": (WarmupSchedule(CosineSchedule(LR, 50, 0.01), 10, 0.1), _sequence, 61),
    "chain": (
        ChainSchedule(
            [
                LinearSchedule(LR * 0.1, LR, 20),
                ExponentialSchedule(LR, 0.9),
                StepSchedule(LR, 10, 0.5),
            ],
            [20, 50],
        ),
        _three,
        STEPS,
    ),
}
ALL = {**{key: one for key, (one, _, _) in CASES.items()}, "plateau": PlateauSchedule(LR)}


def test_every_schedule_has_a_case() -> None:
    named = {name for name in schedules.__all__ if name.endswith("Schedule")} - {"Schedule"}
    assert {type(one).__name__ for one in ALL.values()} == named


@pytest.mark.filterwarnings("ignore")  # torch's own, of the order of calls
@pytest.mark.parametrize("name", CASES)
def test_rates_are_those_of_torch(name: str) -> None:
    schedule, twin, steps = CASES[name]
    opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    reference = twin(opt)
    want = []
    for _ in range(steps):
        want.append(opt.param_groups[0]["lr"])
        opt.step()
        reference.step()
    found = [schedule(step) for step in range(steps)]
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-14)
    assert all(type(rate) is float for rate in found)


@pytest.mark.parametrize("name", CASES)
def test_tensors_give_the_rates_of_numbers(name: str) -> None:
    """All steps at once: the formula that compiled functions have."""
    schedule = CASES[name][0]
    for dtype, rtol in (("float64", 1e-12), ("float32", 2e-5)):
        steps = ops.asarray(np.arange(150), dtype=dtype)
        found = schedule.traced(steps, [])
        assert found.dtype == dtype
        want = [schedule(step) for step in range(150)]
        np.testing.assert_allclose(
            np.broadcast_to(found.numpy(), 150), want, rtol=rtol, atol=rtol * LR
        )


@pytest.mark.parametrize("name", ["warmup", "longer restarts", "one cycle"])
def test_in_a_compiled_function(backend: str, name: str) -> None:
    schedule = CASES[name][0]
    w = nn.Parameter([0.0])
    opt = training.SGD([w], lr=schedule)
    one = ops.ones(1)
    run = em.jit(lambda: opt.update([w], [one]), state=opt)
    for step in range(12):
        run()
        want = -math.fsum(schedule(i) for i in range(step + 1))
        assert w.item() == pytest.approx(want, rel=1e-5, abs=1e-7)
    assert (run.traces, opt.lr) == (1, schedule(12))


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_plateau_is_that_of_torch(mode: str, threshold_mode: str) -> None:
    options: dict[str, Any] = {
        "mode": mode,
        "factor": 0.5,
        "patience": 2,
        "threshold": 0.05,
        "threshold_mode": threshold_mode,
        "cooldown": 1,
        "min_lr": 0.01,
    }
    opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    reference = torch_schedules.ReduceLROnPlateau(opt, **options)
    schedule = PlateauSchedule(LR, **options)
    for metric in np.random.default_rng(0).normal(1.0, 0.3, STEPS):
        reference.step(metric)
        assert schedule.observe(metric) == opt.param_groups[0]["lr"]
    assert schedule(0) == schedule.rate == pytest.approx(0.01)


def test_a_plateau_reaches_a_compiled_function(backend: str) -> None:
    plateau = PlateauSchedule(1.0, factor=0.5, patience=0)
    w = nn.Parameter([0.0])
    opt = training.SGD([w], lr=WarmupSchedule(plateau, 2, 0.5))
    one = ops.ones(1)
    run = em.jit(lambda: opt.update([w], [one]), state=opt)
    run()
    assert w.item() == -0.5
    plateau.observe(1.0)
    plateau.observe(1.0)  # half of it from now on
    run()
    run()
    assert w.item() == -0.5 - 0.375 - 0.5
    assert run.traces == 1
    opt.update([w], [one])
    assert w.item() == -0.5 - 0.375 - 0.5 - 0.5


@pytest.mark.parametrize("name", ALL)
def test_configs_and_states(name: str) -> None:
    schedule = ALL[name]
    text = json.dumps(config.encode(schedule, "lr"))
    again = config.decode(json.loads(text))
    assert type(again) is type(schedule)
    assert [again(step) for step in range(30)] == [schedule(step) for step in range(30)]
    assert again.get_config() == schedule.get_config()
    assert repr(again).startswith(type(schedule).__name__)
    again.load_state_dict(schedule.state_dict())


def test_the_state_of_a_plateau() -> None:
    plateau = PlateauSchedule(1.0, patience=0)
    schedule = WarmupSchedule(plateau, 4)
    for metric in (3.0, 3.0, 2.0):
        plateau.observe(metric)
    other = PlateauSchedule(1.0, patience=0)
    again = WarmupSchedule(other, 4)
    again.load_state_dict(schedule.state_dict())
    assert (other.rate, other.best) == (plateau.rate, 2.0) == (0.1, 2.0)
    with pytest.raises(em.errors.FormatError):
        ConstantSchedule(1.0).load_state_dict(schedule.state_dict())
    with pytest.raises(em.errors.FormatError):
        again.load_state_dict({"0": {}})


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ConstantSchedule(-1.0), "lr=-1.0"),
        (lambda: ConstantSchedule(math.nan), "finite"),
        (lambda: StepSchedule(1.0), "step_size or milestones"),
        (lambda: StepSchedule(1.0, 0), "step_size=0"),
        (lambda: CosineSchedule(1.0, 2.5), "steps=2.5"),  # type: ignore[arg-type]
        (lambda: OneCycleSchedule(1.0, 10, 2.0), "pct_start=2.0"),
        (lambda: OneCycleSchedule(1.0, 10, anneal_strategy="up"), "'cos' or 'linear'"),
        (lambda: ChainSchedule([1.0, 2.0], [5, 6]), "one milestone less"),
        (lambda: ChainSchedule([1.0, 2.0, 3.0], [6, 5]), "larger than the one before"),
        (lambda: ChainSchedule(["x"], []), "schedules and numbers"),  # type: ignore[list-item]
        (lambda: PlateauSchedule(1.0, "up"), "'min' or 'max'"),
        (lambda: PlateauSchedule(1.0, factor=2.0), "smaller than 1"),
        (lambda: PlateauSchedule(1.0, threshold_mode="x"), "'rel' or 'abs'"),
    ],
)
def test_mistakes(make: Callable[[], Schedule], text: str) -> None:
    with pytest.raises((em.errors.DomainError, em.errors.DTypeError), match=text):
        make()
