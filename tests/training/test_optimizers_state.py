"""Optimizers around their formulas: groups, states, files, moves, memory, mistakes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, ops, training
from ember_ml.training import (
    SGD,
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    CosineSchedule,
    Lion,
    Muon,
    PlateauSchedule,
    RMSprop,
    get_optimizer,
)

X = np.linspace(-1.0, 1.0, 12).reshape(4, 3).astype("float32")


def loss(model: Any) -> Any:
    like = next(model.parameters())
    x = ops.asarray(X, dtype=like.dtype)
    return ops.mean((model(x.to(backend=like.backend)) - 1.0) ** 2)


def net() -> Any:
    em.ops.random.set_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def train(model: Any, opt: Any, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        value, grads = em.value_and_grad(loss)(model)
        opt.update(model, grads)
        found.append(value.item())
    return found


def values(model: Any) -> list[Any]:
    return [x.numpy(copy=True) for x in model.parameters()]


def same(a: list[Any], b: list[Any]) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


# --- What it is made with -----------------------------------------------------------------------


def test_ways_to_give_parameters() -> None:
    model = net()
    names = [name for name, _ in model.named_parameters()]
    for given in (model, model.named_parameters(), dict(model.named_parameters())):
        assert SGD(given).param_groups[0]["names"] == names
    opt = SGD(model.parameters(), lr=0.1)
    assert opt.param_groups[0]["names"] == ["0", "1", "2", "3"]
    groups = SGD(
        [{"params": model[0]}, {"params": [model[2].weight], "lr": 0.5, "momentum": 0.9}], lr=0.1
    )
    assert [group["lr"] for group in groups.param_groups] == [0.1, 0.5]
    assert groups.param_groups[1]["names"] == ["2"]
    groups.add_param_group({"params": [("last", model[2].bias)]})
    assert groups.param_groups[2]["names"] == ["last"]
    before = values(model)
    train(model, groups, 1)
    assert all(not np.array_equal(a, b) for a, b in zip(before, values(model), strict=True))
    assert "SGD(lr=0.1" in repr(groups)
    assert "4 parameters in 3 groups" in repr(groups)


def test_groups_have_their_own_options(backend: str) -> None:
    a, b = nn.Parameter([1.0]), nn.Parameter([1.0])
    opt = SGD([{"params": [a]}, {"params": [b], "lr": 0.5, "weight_decay": 1.0}], lr=0.25)
    opt.update([a, b], [ops.ones(1), ops.ones(1)])
    assert (a.item(), b.item()) == (0.75, 0.0)
    opt.lr = 1.0
    assert [group["lr"] for group in opt.param_groups] == [1.0, 1.0]


def test_gradients_as_a_tree_a_dict_or_a_list() -> None:
    found = []
    for way in range(3):
        model = net()
        opt = AdamW(model, lr=0.1)
        _, grads = em.value_and_grad(loss)(model)
        given: Any = (grads, dict(grads.named_parameters()), list(grads.parameters()))[way]
        opt.update(model, given)
        found.append(values(model))
    same(found[0], found[1])
    same(found[0], found[2])


def test_what_has_no_gradient_is_left_alone() -> None:
    model = net()
    opt = AdamW(model, lr=0.1)
    before = values(model)
    opt.step()
    same(before, values(model))
    model[0].freeze()
    train(model, opt, 2)
    after = values(model)
    same(before[:2], after[:2])
    assert not np.array_equal(before[2], after[2])
    model[0].unfreeze()  # its own count begins now, as in PyTorch
    train(model, opt, 1)
    state = opt.state_dict()["state"]
    assert (state["0.weight"]["step"].item(), state["2.weight"]["step"].item()) == (1.0, 3.0)
    assert opt.steps == 4
    opt.update(model, {"2.bias": None})
    assert opt.steps == 5


def test_a_frozen_parameter_has_no_state() -> None:
    model = net()
    model[0].freeze()
    assert set(AdamW(model).state_dict()["state"]) == {"2.weight", "2.bias"}


def test_by_name() -> None:
    model = net()
    assert type(get_optimizer("adamw", model)) is AdamW
    assert type(get_optimizer(SGD, model, lr=0.1)) is SGD
    opt = Lion(model)
    assert get_optimizer(opt) is opt
    with pytest.raises(em.errors.UnknownKeyError, match="Adafactor"):
        get_optimizer("adamx", model)


# --- Keeping ------------------------------------------------------------------------------------

KINDS: list[tuple[Any, dict[str, Any]]] = [
    (SGD, {"momentum": 0.9, "dampening": 0.1}),
    (Adafactor, {}),
    (RMSprop, {"centered": True, "momentum": 0.5}),
]


def test_resumed_bit_for_bit(backend: str, tmp_path: Path) -> None:
    resume(tmp_path, Adam, {"amsgrad": True})


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_others_resumed(name: str, tmp_path: Path, kind: Any, options: Any) -> None:
    """What is kept does not depend on the engine."""
    with em.use_backend(name):
        resume(tmp_path, kind, options)


def resume(tmp_path: Path, kind: Any, options: Any) -> None:
    model = net()
    opt = kind(model, lr=CosineSchedule(0.1, 10), **options)
    train(model, opt, 3)
    path = tmp_path / "state.safetensors"
    em.save(path, {"model": model.state_dict(), "opt": opt.state_dict()})
    want = train(model, opt, 3)
    again = net()
    state = em.load(path)
    again.load_state_dict(state["model"])
    other = kind(again, lr=CosineSchedule(0.1, 10), **options)
    other.load_state_dict(state["opt"])
    assert other.steps == 3
    assert train(again, other, 3) == want
    same(values(model), values(again))


def test_a_state_brings_its_options_and_schedule() -> None:
    model = net()
    plateau = PlateauSchedule(1.0, patience=0)
    opt = Adam(model, lr=plateau, amsgrad=True, betas=(0.5, 0.9))
    plateau.observe(1.0)
    plateau.observe(1.0)
    train(model, opt, 1)
    other = Adam(net(), lr=3.0)
    other.load_state_dict(opt.state_dict())
    group = other.param_groups[0]
    assert (group["amsgrad"], group["betas"], other.lr) == (True, (0.5, 0.9), 0.1)
    assert isinstance(group["lr"], PlateauSchedule)
    assert "max_exp_avg_sq" in other.state_dict()["state"]["0.weight"]
    train(model, other, 0)


def test_states_that_do_not_fit() -> None:
    opt = AdamW(net())
    state = opt.state_dict()
    with pytest.raises(em.errors.FormatError, match="steps"):
        opt.load_state_dict({})
    with pytest.raises(em.errors.UnknownKeyError, match=r"only one has .*0\.weight"):
        AdamW(nn.Linear(3, 4)).load_state_dict(state)
    with pytest.raises(em.errors.DomainError, match="1 groups"):
        AdamW([{"params": nn.Linear(1, 1)}, {"params": nn.Linear(1, 1)}]).load_state_dict(state)
    with pytest.raises(em.errors.UnknownKeyError, match="betas"):
        SGD(net()).load_state_dict(state)
    wide = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    with pytest.raises(em.errors.ShapeError, match=r"'0\.weight' has shape \(4, 3\)"):
        AdamW(wide).load_state_dict(state)


@pytest.mark.parametrize("backend", ["numpy", "torch"], indirect=True)
def test_a_copy_goes_its_own_way(backend: str) -> None:
    model = net()
    opt = AdamW(model, lr=0.1)
    train(model, opt, 1)
    both = copy.deepcopy({"model": model, "opt": opt})
    train(model, opt, 2)
    train(both["model"], both["opt"], 2)
    same(values(model), values(both["model"]))


# --- Moving, and memory -------------------------------------------------------------------------


def test_the_state_follows_the_model(backend: str) -> None:
    target = "numpy" if backend != "numpy" else "torch"
    model, other = net(), net()
    opt, plain = AdamW(model, lr=0.1), AdamW(other, lr=0.1)
    train(model, opt, 2)
    train(other, plain, 4)
    model.to(backend=target)
    train(model, opt, 1)
    model.to(dtype="float64")
    train(model, opt, 1)
    assert opt.state_dict()["state"]["0.weight"]["exp_avg"].dtype == "float64"
    assert opt.state_dict()["state"]["0.weight"]["exp_avg"].backend == target
    for x, y in zip(values(model), values(other), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)
    assert opt.steps == 4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_updated_in_single_precision(backend: str, dtype: str) -> None:
    w = nn.Parameter(ops.ones(3, dtype=dtype))
    opt = AdamW([w], lr=0.125, weight_decay=0.0)
    for _ in range(2):
        opt.update([w], [ops.asarray([1.0, -2.0, 1e-4], dtype=dtype)])
    assert w.dtype == dtype
    np.testing.assert_allclose(w.numpy().astype("float32"), [0.75, 1.25, 0.75], rtol=1e-2)
    assert opt.state_dict()["state"]["0"]["exp_avg_sq"].dtype == "float32"


def test_who_else_holds_the_values_keeps_them(backend: str) -> None:
    w = nn.Parameter(ops.ones((2, 3)))
    plain, shared = w.detach().copy(), w.detach()
    # On torch, a clone of what is detached does not know of writes to the parameter.
    cloned = plain if backend == "torch" else w.detach().clone()
    native = w.native
    opt = AdamW([w], lr=0.5)
    kept = opt.state_dict()["state"]["0"]["exp_avg"]
    for _ in range(2):
        opt.update([w], [ops.ones((2, 3))])
    assert plain.tolist() == cloned.tolist() == [[1.0] * 3] * 2
    np.testing.assert_allclose(shared.numpy(), w.numpy())  # the same memory
    assert w.numpy()[0, 0] < 0.1
    assert np.isfinite(np.asarray(kept.numpy())).all()
    if backend in ("jax", "mlx"):
        assert np.asarray(native).tolist() == [[1.0] * 3] * 2


def test_memory_in_another_order(backend: str) -> None:
    array = np.arange(6.0).reshape(2, 3)
    found = []
    for turned in (False, True):
        data = ops.asarray(array.T.copy() if turned else array.copy())
        w = nn.Parameter(data.T if turned else data)
        g = ops.asarray(array.T.copy()).T if turned else ops.asarray(array)
        for opt in (AdamW([w]), SGD([w], momentum=0.5), Adagrad([w]), Adadelta([w]), Lion([w])):
            for _ in range(2):
                opt.update([w], [g])
        found.append(w.numpy(copy=True))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


def test_large_parameters(backend: str) -> None:
    """More than one piece of NumPy's kernels."""
    n = 40_001
    rng = np.random.default_rng(0)
    start, g = rng.normal(size=n), rng.normal(size=n)
    w = nn.Parameter(start.copy())
    Adam([w], lr=0.1).update([w], [ops.asarray(g)])
    np.testing.assert_allclose(w.numpy(), start - 0.1 * np.sign(g), rtol=1e-4, atol=1e-4)


def test_a_parameter_of_one_number_and_of_none(backend: str) -> None:
    a, b = nn.Parameter(ops.asarray(1.0)), nn.Parameter(ops.zeros((0, 3)))
    for kind in (AdamW, SGD, Adafactor):
        kind([a, b], lr=0.1).update([a, b], [ops.asarray(1.0), ops.zeros((0, 3))])
    assert a.item() < 1.0
    assert b.shape == (0, 3)


def test_a_gradient_through_changed_weights_is_an_error() -> None:
    for name in ("numpy", "torch"):
        with em.use_backend(name):
            w = nn.Parameter([1.0, 2.0])
            value = ops.sum(w * w)
            value.backward(retain_graph=True)
            SGD([w], lr=0.1).step()
            with pytest.raises(em.errors.GradientError):
                value.backward()


# --- Compiled functions -------------------------------------------------------------------------


def test_a_training_step_is_traced_once(backend: str) -> None:
    model, other = net(), net()
    opt, plain = AdamW(model, lr=0.1), AdamW(other, lr=0.1)

    def descend() -> Any:
        value, grads = em.value_and_grad(loss)(model)
        opt.update(model, grads)
        return value

    run = em.jit(descend, state=[model, opt])
    found = [run().item() for _ in range(4)]
    np.testing.assert_allclose(found, train(other, plain, 4), rtol=1e-4)
    assert (run.traces, opt.steps) == (1, 4)
    state = opt.state_dict()["state"]["0.weight"]
    assert state["step"].item() == 4.0


def test_a_compiled_function_must_know_of_it() -> None:
    with em.use_backend("jax"):
        w = nn.Parameter([1.0])
        opt = SGD([w], lr=CosineSchedule(0.1, 5))
        one = ops.ones(1)
        run = em.jit(lambda: opt.update([w], [one]), state=[w])
        with pytest.raises(em.TraceError, match=r"state=\[model, opt\]"):
            run()
        assert w.tolist() == [1.0]


# --- Mistakes -----------------------------------------------------------------------------------

WRONG: list[tuple[Any, str]] = [
    (lambda m: SGD(m, lr=-1.0), "lr=-1.0"),
    (lambda m: SGD(m, lr=float("nan")), "finite"),
    (lambda m: SGD(m, lr="fast"), "Schedule, not str"),
    (lambda m: SGD(m, momentum=-1.0), "momentum=-1.0"),
    (lambda m: SGD(m, nesterov=True), "nesterov"),
    (lambda m: Adam(m, betas=(0.9, 1.0)), "betas"),
    (lambda m: AdamW(m, eps=-1.0), "AdamW got eps"),
    (lambda m: AdamW(m, weight_decay=-1.0), "weight_decay"),
    (lambda m: Adagrad(m, lr_decay=-1.0), "lr_decay"),
    (lambda m: RMSprop(m, alpha=-1.0), "alpha"),
    (lambda m: Adadelta(m, rho=2.0), "rho"),
    (lambda m: Adafactor(m, d=0.5), "d=0.5"),
    (lambda m: Adafactor(m, beta2_decay=0.5), "beta2_decay"),
    (lambda m: Muon(m), "matrices only"),
    (lambda m: Muon([m[0].weight], adjust_lr_fn="x"), "match_rms_adamw"),
    (lambda m: SGD([]), "no parameters"),
    (lambda m: SGD(3), "not int"),
    (lambda m: SGD(m[0].weight), "in a list"),
    (lambda m: SGD(["x"]), "'0' is str"),
    (lambda m: SGD([ops.ones(2, dtype="int64")]), "int64"),
    (lambda m: SGD([m[0].weight * 2.0]), "result of an op"),
    (lambda m: SGD([m[0].weight, m[0].weight]), "twice"),
    (lambda m: SGD([{"params": m[0]}, {"params": m[0]}]), "twice"),
    (lambda m: SGD([{"params": m[0], "speed": 1}]), "'speed'"),
    (lambda m: SGD(nn.Linear(None, 2)), r"model\.build\(x\)"),
    (lambda m: SGD(m).update(nn.Linear(3, 4), [ops.ones((4, 3)), ops.ones(4)]), "none of"),
    (lambda m: SGD(m).update(m, [ops.ones(1)]), "1 gradients for 4"),
    (lambda m: SGD(m).update(m, {"x": ops.ones(1)}), "'x'"),
    (lambda m: SGD(m).update(m, 3), "not int"),
    (lambda m: SGD(m).update(m, {"2.bias": ops.ones(3)}), r"'2\.bias' of shape \(3,\)"),
    (lambda m: SGD(m).update(m, {"2.bias": [1.0, 2.0]}), "not a tensor"),
    (lambda m: SGD(m).update(m, {"2.bias": ops.ones(2, dtype="float64")}), "float64"),
    (
        lambda m: SGD(m).update(m, {"2.bias": ops.ones(2).to(backend="torch")}),
        "on 'torch', and the parameter is on 'numpy'",
    ),
    (lambda m: SGD([m[0].weight, nn.Parameter(ops.ones(1).to(backend="torch"))]), "on 'torch'"),
]


@pytest.mark.parametrize(("make", "text"), WRONG, ids=[text for _, text in WRONG])
def test_mistakes(make: Any, text: str) -> None:
    with pytest.raises(em.errors.EmberError, match=text):
        make(net())


def test_a_mistake_in_a_group_changes_nothing() -> None:
    model = net()
    opt = training.Muon([model[0].weight])
    with pytest.raises(em.errors.ShapeError):
        opt.add_param_group({"params": [model[0].bias]})
    assert len(opt.param_groups) == len(opt._slots) == 1
