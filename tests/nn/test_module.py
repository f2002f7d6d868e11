"""Module and Parameter: what is found, kept, moved and shown, on every backend."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, ops, tree
from ember_ml.errors import (
    BackendMismatchError,
    DomainError,
    DTypeError,
    FormatError,
    GradientError,
    ShapeError,
    UnknownKeyError,
)
from ember_ml.nn import initializers


class Affine(nn.Module):
    """A layer with a parameter, a buffer, a buffer that is not saved, and a plain tensor."""

    def __init__(self, size: int, scale: float = 2.0) -> None:
        self.scale = scale
        self.weight = nn.Parameter(ops.ones(size))
        self.shift = nn.Buffer(ops.zeros(size))
        self.seen = nn.Buffer(ops.zeros(()), persistent=False)
        self.plain = ops.full(size, 3.0)

    def forward(self, x: Any) -> Any:
        self.seen = self.seen + 1.0
        return x * self.weight * self.scale + self.shift + self.plain


class Nested(nn.Module):
    """Modules and parameters in lists and dicts."""

    def __init__(self) -> None:
        self.first = nn.Linear(2, 3)
        self.rows = [nn.Linear(3, 3), {"inner": Affine(3)}]
        self.table = {"extra": nn.Parameter(ops.ones(1))}
        self.tied = self.first.weight
        self.name = "nested"

    def forward(self, x: Any) -> Any:
        x = self.rows[0](self.first(x))  # type: ignore[operator]  # a list of both kinds
        return self.rows[1]["inner"](x) * self.table["extra"]  # type: ignore[index]


NESTED = [
    "first.weight",
    "first.bias",
    "rows.0.weight",
    "rows.0.bias",
    "rows.1.inner.weight",
    "table.extra",
]


def seeded(make: Any, seed: int = 0) -> Any:
    ops.random.set_seed(seed)
    return make()


# --- Parameters and buffers ---------------------------------------------------------------------


def test_a_parameter_is_a_tensor_with_a_mark(backend: str) -> None:
    x = nn.Parameter([1.0, 2.0])
    assert isinstance(x, nn.Parameter)
    assert isinstance(x, em.Tensor)
    assert not isinstance(x, nn.Buffer)
    assert (x.requires_grad, x.is_leaf, x.backend, x.dtype) == (True, True, backend, "float32")
    assert not isinstance(x * 2.0, nn.Parameter)
    assert not isinstance(3, nn.Parameter)
    assert repr(x).startswith("Parameter(")
    assert repr(nn.Buffer([1.0])).startswith("Buffer(")


def test_a_frozen_parameter_stays_one(backend: str) -> None:
    x = nn.Parameter(ops.ones(2), requires_grad=False)
    assert isinstance(x, nn.Parameter)
    assert not x.requires_grad
    assert x.requires_grad_().requires_grad
    assert isinstance(x, nn.Parameter)
    with pytest.raises(DTypeError, match="floating"):
        nn.Parameter([1, 2])
    assert nn.Parameter([1, 2], requires_grad=False).dtype == "int64"


def test_marks_survive_copies_and_pickles(backend: str) -> None:
    for x in (nn.Parameter([1.0]), nn.Buffer([1.0]), nn.Parameter([1.0], requires_grad=False)):
        for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
            assert isinstance(made, nn.Parameter) is isinstance(x, nn.Parameter)
            assert isinstance(made, nn.Buffer) is isinstance(x, nn.Buffer)
            assert made.requires_grad is x.requires_grad


def test_a_parameter_of_a_view_has_memory_of_its_own(backend: str) -> None:
    x = ops.zeros(4)
    p = nn.Parameter(x.slice((0, 2)))
    with em.no_grad():
        p[...] = 1.0
    assert x.tolist() == [0.0] * 4


def test_another_tensor_in_the_place_of_a_parameter_is_one(backend: str) -> None:
    layer = Affine(2)
    layer.weight = ops.full(2, 5.0)
    layer.shift = ops.full(2, 6.0)
    assert isinstance(layer.weight, nn.Parameter)
    assert layer.weight.requires_grad
    assert isinstance(layer.shift, nn.Buffer)
    assert [name for name, _ in layer.named_parameters()] == ["weight"]


def test_register_parameter_and_buffer(backend: str) -> None:
    layer = nn.Module()
    layer.register_parameter("w", ops.ones(2))
    layer.register_parameter("none", None)
    layer.register_buffer("b", ops.zeros(2))
    layer.register_buffer("t", ops.zeros(2), persistent=False)
    assert list(layer.state_dict()) == ["w", "b"]
    with pytest.raises(DomainError, match="without dots"):
        layer.register_buffer("a.b", ops.zeros(2))


# --- What is found ------------------------------------------------------------------------------


def test_lists_and_dicts_are_looked_into(backend: str) -> None:
    model = Nested()
    assert [name for name, _ in model.named_parameters()] == NESTED
    assert model.num_parameters() == 6 + 3 + 9 + 3 + 3 + 1
    assert [name for name, _ in model.named_buffers()] == [
        "rows.1.inner.shift",
        "rows.1.inner.seen",
    ]
    assert [name for name, _ in model.named_modules()] == [
        "",
        "first",
        "rows.0",
        "rows.1.inner",
    ]
    assert [name for name, _ in model.named_children()] == ["first", "rows.0", "rows.1.inner"]
    assert model.get_submodule("rows.1.inner").scale == 2.0  # type: ignore[attr-defined]
    assert model.get_parameter("table.extra").shape == (1,)
    with pytest.raises(UnknownKeyError, match=r"rows\.7.*first"):
        model.get_submodule("rows.7")
    model.rows.append(nn.Linear(3, 1))  # seen at once
    assert model.num_parameters() == 25 + 4


def test_apply_goes_from_the_inside_out() -> None:
    seen: list[str] = []
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    assert model.apply(lambda one: seen.append(type(one).__name__)) is model
    assert seen == ["ReLU", "Linear", "Sequential"]


def test_train_and_eval_reach_every_module() -> None:
    model = Nested()
    assert all(not one.training for one in model.eval().modules())
    assert all(one.training for one in model.train().modules())


def test_freeze(backend: str) -> None:
    model = Nested()
    model.first.freeze()
    assert model.num_parameters(trainable_only=True) == 25 - 9
    assert not model.first.weight.requires_grad
    _, grads = em.value_and_grad(lambda m: ops.sum(m(ops.ones((1, 2)))))(model)
    assert [name for name, _ in grads.named_parameters()][:3] == NESTED[:3]
    assert len(tree.leaves(model)) == 4
    model.unfreeze()
    assert len(tree.leaves(model)) == 6


# --- As a tree ----------------------------------------------------------------------------------


def test_gradients_are_a_module_of_the_same_tree(backend: str) -> None:
    model = seeded(Nested)
    x = ops.asarray([[1.0, -2.0], [0.5, 3.0]])

    def loss(m: Any) -> Any:
        return ops.mean(m(x) ** 2)

    value, grads = em.value_and_grad(loss)(model)
    assert type(grads) is Nested
    assert not value.requires_grad
    loss(model).backward()
    for (name, g), (other, p) in zip(
        grads.named_parameters(), model.named_parameters(), strict=True
    ):
        assert name == other
        assert not g.requires_grad
        np.testing.assert_allclose(g.numpy(), p.grad.numpy(), rtol=1e-5, atol=1e-6)  # type: ignore[union-attr]
    stepped = tree.map(lambda p, g: p.detach() - 0.1 * g, model, grads)
    assert loss(stepped).item() < value.item()
    model.zero_grad()
    assert all(p.grad is None for p in model.parameters())


def test_what_a_function_does_to_a_model_is_seen(backend: str) -> None:
    layer = Affine(2)
    em.value_and_grad(lambda m: ops.sum(m(ops.ones(2))))(layer)
    assert layer.seen.item() == 1.0
    assert not layer.seen.requires_grad


def test_second_derivatives_by_a_model(backend: str) -> None:
    layer = Affine(2)

    def slope(m: Any) -> Any:
        return ops.sum(em.grad(lambda n: ops.sum(n.weight**3))(m).weight)

    assert em.grad(slope)(layer).weight.tolist() == [6.0, 6.0]


def test_an_unused_parameter_is_named(backend: str) -> None:
    model = Nested()
    with pytest.raises(GradientError, match=r"args\[0\]\.rows\.0\.weight"):
        em.grad(lambda m: ops.sum(m.first(ops.ones((1, 2)))))(model)
    grads = em.grad(lambda m: ops.sum(m.first(ops.ones((1, 2)))), allow_unused=True)(model)
    assert grads.rows[0].weight.tolist() == [[0.0] * 3] * 3


def test_a_model_beside_tensors(backend: str) -> None:
    layer = Affine(2)
    x = ops.asarray([1.0, 2.0])
    gm, gx = em.grad(lambda m, x: ops.sum(m(x)), argnums=(0, 1))(layer, x)
    assert gm.weight.tolist() == [2.0, 4.0]
    assert gx.tolist() == [2.0, 2.0]


def test_other_derivatives_take_models(backend: str) -> None:
    layer = Affine(2)
    x = ops.asarray([1.0, 2.0])
    _, pull = em.vjp(lambda m: m(x), layer)
    assert pull(ops.ones(2))[0].weight.tolist() == [2.0, 4.0]
    rows = em.jacobian(lambda m: m(x))(layer)
    assert rows.weight.tolist() == [[2.0, 0.0], [0.0, 4.0]]


def test_compiled_training(backend: str) -> None:
    model = seeded(Nested)
    x = ops.asarray([[1.0, -2.0], [0.5, 3.0]])

    @em.jit(state=model)
    def step(x: Any) -> Any:
        loss, grads = em.value_and_grad(lambda m: ops.mean(m(x) ** 2))(model)
        with em.no_grad():
            for p, g in zip(model.parameters(), grads.parameters(), strict=True):
                p -= 0.01 * g
        return loss

    losses = [step(x).item() for _ in range(4)]
    assert losses[3] < losses[0]
    assert step.traces == 1
    assert model.rows[1]["inner"].seen.item() == 4.0
    assert isinstance(model.first.weight, nn.Parameter)
    assert model.first.weight is model.tied
    model.eval()
    step(x)
    assert step.traces == 2


def test_a_compiled_model_follows_its_weights(backend: str) -> None:
    layer = nn.Linear(2, 1, bias=False)
    fast = em.jit(lambda x: layer(x))
    x = ops.ones((1, 2))
    with em.no_grad():
        assert fast(x).tolist() == layer(x).tolist()
        layer.weight[...] = 2.0
        assert fast(x).tolist() == [[4.0]]


# --- Moving -------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["numpy", "torch", "jax", "mlx"])
def test_a_live_model_moves_between_engines(backend: str, to: str) -> None:
    model = seeded(Nested)
    x = ops.asarray([[1.0, -2.0]])
    before = model(x).numpy()
    ops.sum(model(x)).backward()
    grad = model.first.weight.grad.numpy()
    weight = model.first.weight
    assert model.to(backend=to) is model
    assert model.first.weight is weight is model.tied
    assert isinstance(weight, nn.Parameter)
    assert (weight.backend, weight.requires_grad, weight.is_leaf) == (to, True, True)
    moved = model(x.to_backend(to))
    assert moved.backend == to
    np.testing.assert_allclose(moved.detach().numpy(), before, rtol=1e-5)
    np.testing.assert_array_equal(model.first.weight.grad.numpy(), grad)
    _, grads = em.value_and_grad(lambda m: ops.sum(m(x.to_backend(to))))(model)
    np.testing.assert_allclose(grads.first.weight.numpy(), grad, rtol=1e-5)
    if to != backend:
        with pytest.raises(BackendMismatchError):
            model(x)


def test_a_dtype_is_for_floats(backend: str) -> None:
    layer = Affine(2)
    layer.steps = nn.Buffer(ops.asarray(3))
    layer.to("float16")
    assert [x.dtype for x in (layer.weight, layer.shift, layer.plain)] == ["float16"] * 3
    assert layer.steps.dtype == "int64"
    with pytest.raises(DTypeError, match="floating dtype"):
        layer.to(dtype="int32")


def test_a_model_that_cannot_move_stays_where_it_was(backend: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].derived = model[0].weight * 2.0
    with pytest.raises(GradientError, match="derived"):
        model.to(dtype="float16")
    assert {p.dtype.name for p in model.parameters()} == {"float32"}


# --- State dicts and files ----------------------------------------------------------------------


def test_a_state_dict_of_another_engine(backend: str) -> None:
    with em.use_backend("numpy"):
        source = seeded(Nested, 1)
    model = seeded(Nested, 2)
    report = model.load_state_dict(source.state_dict())
    assert report == ((), ())
    for a, b in zip(model.parameters(), source.parameters(), strict=True):
        assert (a.backend, a.requires_grad) == (backend, True)
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


def test_a_state_dict_of_torch_loads() -> None:
    import torch

    twin = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    model.load_state_dict(twin.state_dict())
    x = torch.ones(2, 3)
    np.testing.assert_allclose(
        model(x.numpy()).detach().numpy(), twin(x).detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_a_report_of_what_does_not_fit(backend: str) -> None:
    model = Nested()
    state: dict[str, Any] = model.state_dict()
    del state["rows.0.bias"]
    state["other"] = ops.ones(1)
    state["first.weight"] = ops.ones((2, 2))
    before = model.first.bias.tolist()
    state["first.bias"] = ops.full(3, 9.0)
    with pytest.raises(ShapeError) as caught:
        model.load_state_dict(state)
    text = str(caught.value)
    for part in ("nothing was loaded", "first.weight  (3, 2) here, (2, 2) given", "rows.0.bias"):
        assert part in text
    assert model.first.bias.tolist() == before
    del state["first.weight"]
    report = model.load_state_dict(state, strict=False)
    assert report.missing == ("first.weight", "rows.0.bias")
    assert report.unexpected == ("other",)
    assert model.first.bias.tolist() == [9.0] * 3
    with pytest.raises(DTypeError, match="dict of tensors"):
        model.load_state_dict([1])  # type: ignore[arg-type]


def test_both_names_of_a_tied_weight_load(backend: str) -> None:
    model = Nested()
    state: dict[str, Any] = model.state_dict()
    state["tied"] = state.pop("first.weight") * 0 + 7.0
    model.load_state_dict(state)
    assert model.first.weight.tolist() == [[7.0] * 2] * 3


def test_a_file_holds_config_and_weights(backend: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Residual(nn.Linear(3, 3, bias=False)))
    x = ops.asarray([[1.0, -2.0]])
    em.save(tmp_path / "model.safetensors", model)
    assert sorted(em.io.open_file(tmp_path / "model.safetensors")) == [
        "0.bias",
        "0.weight",
        "2.module.weight",
    ]
    for to in ("numpy", "torch"):
        made = em.load(tmp_path / "model.safetensors", backend=to)
        assert repr(made) == repr(model)
        assert made[0].weight.backend == to
        assert isinstance(made[0].weight, nn.Parameter)
        assert made[0].weight.requires_grad
        np.testing.assert_allclose(
            made(x.to_backend(to)).detach().numpy(), model(x).detach().numpy(), rtol=1e-6
        )


def test_models_in_a_tree_and_in_other_dtypes(backend: str, tmp_path: Path) -> None:
    model = Affine(2).to(dtype="float16")
    model.freeze()
    em.save(tmp_path / "all.safetensors", {"model": model, "epoch": 3})
    made = em.load(tmp_path / "all.safetensors")
    assert made["epoch"] == 3
    assert made["model"].weight.dtype == "float16"
    assert made["model"].plain.backend == backend


def test_an_unknown_class_in_a_file_is_an_error(tmp_path: Path) -> None:
    class Local(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(ops.ones(2))

    em.save(tmp_path / "m.safetensors", Local())
    from ember_ml.nn import config

    name = config.name_of(Local)
    kept = config._CLASSES.pop(name)
    try:
        with pytest.raises(FormatError, match=r"Local.*import the module"):
            em.load(tmp_path / "m.safetensors")
    finally:
        config._CLASSES[name] = kept


def test_config_round_trip(backend: str) -> None:
    model = nn.Sequential(
        nn.Linear(2, 3, weight_init=initializers.UniformFan(7)),
        nn.ModuleDict({"a": nn.Dense(2, "relu"), "b": nn.Identity()}),
        nn.ModuleList([nn.Tanh()]),
    )
    config = json.loads(json.dumps(model.get_config()))
    made = nn.Sequential.from_config(config)
    assert made.get_config() == model.get_config()
    assert repr(made) == repr(model)
    dense = nn.Dense(2, ops.tanh)
    assert nn.Dense.from_config(dense.get_config()).activation is ops.tanh
    with pytest.raises(DTypeError, match=r"Dense\(activation\) holds function"):
        nn.Dense(2, lambda x: x).get_config()
    with pytest.raises(DomainError, match=r"Linear\.from_config.*wide"):
        nn.Linear.from_config({"in_features": 1, "out_features": 1, "wide": 2})


def test_deep_copies_and_pickles(backend: str) -> None:
    model = seeded(Nested)
    x = ops.asarray([[1.0, -2.0]])
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert made.tied is made.first.weight
        np.testing.assert_array_equal(made(x).detach().numpy(), model(x).detach().numpy())
        with em.no_grad():
            made.first.weight[...] = 0.0
        assert not ops.all(model.first.weight == 0.0)


# --- Lazy shapes --------------------------------------------------------------------------------


def test_layers_that_wait_for_their_sizes(backend: str) -> None:
    model = nn.Sequential(nn.Linear(None, 3), nn.ReLU(), nn.Dense(2, "relu"))
    with pytest.raises(DomainError, match=r"'0'.*model\.build\(x\)"):
        em.grad(lambda m: ops.sum(m(ops.ones((1, 4)))))(model)
    model.build(ops.ones((1, 4), dtype="float64"))
    assert model[0].weight.shape == (3, 4)
    assert model[0].weight.dtype == "float64"
    assert model[2].weight.backend == backend
    assert all(one.training for one in model.modules())


def test_a_state_dict_tells_the_sizes(backend: str) -> None:
    source = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model = nn.Sequential(nn.Linear(None, 3), nn.Linear(None, 2))
    model.load_state_dict(source.state_dict())
    assert model[0].in_features == 4
    assert model[1].weight.tolist() == source[1].weight.tolist()


# --- Calls and showing --------------------------------------------------------------------------


def test_hooks(backend: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    seen: list[str] = []
    remove = model[1].register_forward_hook(lambda m, args, y: y * 0.0)
    with nn.watching(lambda m, args, y: seen.append(type(m).__name__)):
        assert model(ops.ones((1, 2))).tolist() == [[0.0, 0.0]]
    remove()
    model(ops.ones((1, 2)))
    assert seen == ["Linear", "ReLU", "Sequential"]


class Given(nn.Module):
    """Its arguments, as they came."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs


def test_arguments_of_a_call() -> None:
    """All of them reach `forward` and the hooks, with or without those who look on."""
    model = Given()
    seen: list[Any] = []
    for _ in range(2):
        assert model() == ((), {})
        assert model(None) == ((None,), {})
        assert model(1, 2, x=3, self_=4) == ((1, 2), {"x": 3, "self_": 4})
        assert model(x=3) == ((), {"x": 3})
        model.register_forward_hook(lambda m, args, y: seen.append(args))
    assert seen == [(), (None,), (1, 2), ()]
    with pytest.raises(TypeError, match="forward"):
        nn.Linear(2, 2)()


class Doubled(nn.Linear):
    """A layer that does something more in its call."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return 2 * super().__call__(*args, **kwargs)


class DoubledToo(Doubled):
    pass


@pytest.mark.parametrize("kind", [Doubled, DoubledToo])
def test_a_call_of_its_own(kind: Any) -> None:
    """A container goes through it, before, with and after a hook."""
    layer = kind(2, 3)
    model = nn.Sequential(nn.Identity(), layer)
    x = ops.ones((1, 2))
    expected = (2 * layer.forward(x)).tolist()
    assert model(x).tolist() == expected
    seen: list[Any] = []
    remove = layer.register_forward_hook(lambda m, args, y: seen.append(y.tolist()))
    assert model(x).tolist() == expected
    assert seen == [layer.forward(x).tolist()]
    remove()
    assert model(x).tolist() == expected
    assert len(seen) == 1


def test_repr_is_a_tree() -> None:
    model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Residual(nn.ReLU()))
    assert repr(model) == (
        "Sequential(\n"
        "  (0): Linear(in_features=2, out_features=3, bias=False)\n"
        "  (1): Residual(\n"
        "    (module): ReLU()\n"
        "  )\n"
        ")"
    )


def test_summary_is_a_table(backend: str) -> None:
    model = Nested()
    model.first.freeze()
    text = str(model.summary(ops.ones((5, 2))))
    for part in ("rows", "weight 3x2", "(5, 3)", "9 frozen", "25 parameters, 9 frozen, 100 B"):
        assert part in text
    assert model.summary().rows[0].output == ""


def test_containers() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model.append(nn.Tanh())
    model.insert(0, nn.Identity())
    assert [type(one).__name__ for one in model] == ["Identity", "Linear", "ReLU", "Tanh"]
    assert len(model[1:3]) == 2
    del model[0]
    model[1] = nn.Identity()
    assert list(model.state_dict()) == ["0.weight", "0.bias"]
    assert len(nn.Sequential.from_config(model.get_config())) == 3
    with pytest.raises(DTypeError, match="Sequential takes modules, not function"):
        nn.Sequential(lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="has 3 modules, and none at 5"):
        model[5]
    table = nn.ModuleDict({"a": nn.ReLU()})
    table["b"] = nn.Linear(1, 1)
    assert ("b" in table, len(table), list(table.state_dict())) == (True, 2, ["b.weight", "b.bias"])
    del table["a"]
    with pytest.raises(KeyError, match="no 'a'"):
        table["a"]


def test_a_clone_of_a_parameter_keeps_its_values(backend: str) -> None:
    w = nn.Parameter(ops.ones(2))
    kept, shared = w.detach().clone(), w.detach()
    with em.no_grad():
        w -= 3.0
    assert kept.tolist() == [1.0, 1.0]
    assert shared.tolist() == [-2.0, -2.0]
    with em.no_grad():
        shared[...] = 5.0
    assert w.tolist() == [5.0, 5.0]
    assert kept.tolist() == [1.0, 1.0]
