"""Every layer of the table, on every backend, against its twin in PyTorch."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ember_ml as em
from ember_ml import Tensor, nn, ops
from ember_ml.nn.index import NAMES
from tests.nn.layer_cases import CASES, OWNED, LayerCase, drawn

# 64 units of the last place of float32, where a few dozen numbers are added up.
CLOSE: Any = {"rtol": 64 * 2.0**-23, "atol": 64 * 2.0**-23}
EVERY = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
# JAX compiles every op and every gradient anew, and MLX runs a C++ compiler for each kernel that is
# fused. There, one case of each layer runs as it is, those with parameters compiled as well, and of
# the rest these, which differ in kind: what a layer calls has tests of its own on every backend.
KINDS = ("BatchNorm1d", "Conv1d", "Embedding", "Linear")
WEIGHTED = [c for c in CASES if c.make().state_dict() or c.make().is_lazy]


def on_backends(
    cases: Sequence[LayerCase], fewer: Callable[[LayerCase], bool], engines: Sequence[str]
) -> Any:
    """Cases on all backends, and fewer of them on some."""
    pairs = [
        pytest.param(case, backend, id=f"{backend}-{case.id}")
        for backend in ("numpy", "torch", "jax", "mlx")
        for case in cases
        if backend not in engines or fewer(case)
    ]
    return pytest.mark.parametrize(("case", "backend"), pairs, indirect=["backend"])


def is_first(case: LayerCase) -> bool:
    return not case.label


def is_kind(case: LayerCase) -> bool:
    return not case.label and case.name in KINDS


def twin_of(case: LayerCase, layer: Any, training: bool) -> Any:
    """The twin in float64 with the parameters of a layer."""
    twin = case.twin(torch)
    if isinstance(twin, torch.nn.Module):
        state = {k: torch.tensor(v.numpy()) for k, v in layer.state_dict().items()}
        twin.double().load_state_dict(state)
        twin.train(training)
    return twin


def inputs_of(case: LayerCase, dtype: str = "float32") -> list[Tensor]:
    return [
        ops.asarray(array, dtype=dtype if array.dtype.kind == "f" else None)
        for array in case.arrays()
    ]


def made(case: LayerCase, training: bool = True) -> Any:
    """A layer whose sizes are known and whose parameters are all different."""
    layer = case.make()
    with ops.random.use_seed(8):
        layer.build(*inputs_of(case))
    layer.train(training)
    for name, p in layer.named_parameters():
        if "Norm" in case.name:  # ones and zeros would hide what is not used
            with em.no_grad():
                p[...] = ops.asarray(drawn(name, p.shape, 0.5, 1.5))
    return layer


def weights_of(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """What results are multiplied by, so that each counts otherwise in a sum."""
    return np.cos(np.arange(np.prod(shape, dtype=int)), dtype=np.float32).reshape(shape)


def expected(case: LayerCase, layer: Any, training: bool) -> tuple[Any, dict[str, Any], list[Any]]:
    """The result of the twin, the gradients of its parameters, and those of its inputs."""
    twin = twin_of(case, layer, training)
    given = [
        torch.tensor(a.astype(np.float64) if a.dtype.kind == "f" else a) for a in case.arrays()
    ]
    for x in given:
        x.requires_grad_(x.dtype.is_floating_point)
    y = twin(*given)
    if y.requires_grad:
        (y * torch.tensor(weights_of(tuple(y.shape)))).sum().backward()
    named = dict(twin.named_parameters()) if isinstance(twin, torch.nn.Module) else {}
    after = twin.state_dict() if isinstance(twin, torch.nn.Module) else {}
    grads = {name: np.asarray(p.grad) for name, p in named.items()}
    found = [x.grad.numpy() if x.grad is not None else None for x in given]
    return (y.detach().numpy(), {k: v.numpy() for k, v in after.items()}), grads, found


def kept(case: LayerCase, state: dict[str, Any]) -> dict[str, Any]:
    """What a twin keeps; instance norms of PyTorch keep a count and never count."""
    counts = not case.name.startswith("InstanceNorm")
    return {k: v for k, v in state.items() if counts or k != "num_batches_tracked"}


def bare(text: str) -> str:
    """A repr without brackets: JSON has no tuples."""
    return text.translate(str.maketrans("", "", "[](),"))


def modes(case: LayerCase) -> list[bool]:
    return [False] if case.random else [True, False]


def test_every_layer_has_a_case() -> None:
    wanted = {name for name, module in NAMES.items() if module in OWNED}
    assert wanted == {case.name for case in CASES}


def test_every_name_is_where_the_index_says() -> None:
    for name, module in NAMES.items():
        if module in OWNED:
            cls = getattr(nn, name)
            assert issubclass(cls, nn.Module)
            assert ">>> " in (cls.__doc__ or ""), f"{name} has no example"
            assert getattr(nn.modules, name) is cls
            if module == "modules.activation_layers":
                assert getattr(nn.modules.activations, name) is cls


@on_backends(CASES, is_first, ["jax"])
def test_values_and_state(case: LayerCase, backend: str) -> None:
    layer = made(case)
    for training in modes(case):
        layer.train(training)
        (y, state), _, _ = expected(case, layer, training)
        got = layer(*inputs_of(case))
        assert (got.dtype, got.shape, got.backend) == (ops.float32, y.shape, backend)
        np.testing.assert_allclose(got.numpy(), y, **CLOSE, err_msg=f"training={training}")
        own = layer.state_dict()
        assert state.keys() <= own.keys()
        for name, value in kept(case, state).items():
            assert isinstance(own[name], Tensor)
            np.testing.assert_allclose(own[name].numpy(), value, **CLOSE, err_msg=name)


@on_backends(WEIGHTED, lambda case: True, [])
def test_gradients_of_a_model(case: LayerCase, backend: str) -> None:
    layer = made(case)
    (y, state), grads, _ = expected(case, layer, True)
    given = inputs_of(case)
    weights = ops.asarray(weights_of(y.shape))

    def loss(model: Any) -> Any:
        return ops.sum(model(*given) * weights)

    def step() -> Any:
        return em.value_and_grad(loss)(layer)[1]

    found = em.jit(step, state=[layer])() if backend == "jax" else step()
    got = dict(found.named_parameters())
    assert got.keys() == grads.keys()
    for name, value in grads.items():
        assert got[name].dtype == "float32"
        np.testing.assert_allclose(got[name].numpy(), value, rtol=1e-5, atol=2e-5, err_msg=name)
    for name, value in kept(case, state).items():  # what is written inside stays
        np.testing.assert_allclose(layer.state_dict()[name].numpy(), value, **CLOSE)


@on_backends(CASES, is_kind, ["jax"])
def test_gradients_by_backward(case: LayerCase, backend: str) -> None:
    training = not case.random
    layer = made(case, training)
    (y, _), grads, found = expected(case, layer, training)
    given = inputs_of(case)
    for x, grad in zip(given, found, strict=True):
        x.requires_grad_(grad is not None)
    got = layer(*given)
    ops.sum(got * ops.asarray(weights_of(y.shape))).backward()
    for name, p in layer.named_parameters():
        np.testing.assert_allclose(p.grad.numpy(), grads[name], rtol=1e-5, atol=2e-5, err_msg=name)
    for x, grad in zip(given, found, strict=True):
        if grad is not None:
            np.testing.assert_allclose(x.grad.numpy(), grad, rtol=1e-5, atol=2e-5)


@EVERY
def test_config_copies_and_files(case: LayerCase, tmp_path: Path) -> None:
    layer = made(case)
    text = json.dumps(layer.get_config())
    again = type(layer).from_config(json.loads(text))
    assert json.dumps(again.get_config()) == text
    assert bare(repr(again)) == bare(repr(layer))
    again.load_state_dict(layer.state_dict())
    em.save(tmp_path / "layer.safetensors", layer)
    loaded = em.load(tmp_path / "layer.safetensors")
    layer.eval()
    want = layer(*inputs_of(case)).numpy()
    for other in (again, loaded, copy.deepcopy(layer)):
        assert type(other) is type(layer)
        got = other.eval()(*inputs_of(case))
        np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("target", ["torch", "jax", "mlx"])
@pytest.mark.parametrize("case", WEIGHTED, ids=lambda case: case.id)
def test_a_layer_moves_to_another_backend(case: LayerCase, target: str) -> None:
    layer = made(case, training=False)
    before = {name: x.numpy() for name, x in layer.state_dict().items()}
    layer.to(backend=target)
    for name, x in layer.state_dict().items():
        assert x.backend == target
        np.testing.assert_array_equal(x.numpy(), before[name])
    with em.use_backend(target):
        assert layer(*inputs_of(case)).backend == target


@on_backends([c for c in CASES if c.name in KINDS], is_kind, ["jax", "mlx"])
def test_compiled_as_called(case: LayerCase, backend: str) -> None:
    layer, other = made(case), made(case)
    step = em.jit(lambda *xs: layer(*xs), state=[layer])
    for _ in range(2):
        want, got = other(*inputs_of(case)), step(*inputs_of(case))
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got.numpy(), want.numpy(), **CLOSE)
    assert step.traces == 1
    for name, x in other.state_dict().items():
        np.testing.assert_allclose(layer.state_dict()[name].numpy(), x.numpy(), **CLOSE)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@on_backends(CASES, is_kind, ["jax"])
def test_other_floats(case: LayerCase, backend: str, dtype: str) -> None:
    training = not case.random
    with em.use_backend("numpy"):
        want = made(case, training)(*inputs_of(case)).numpy()
    layer = made(case, training).to(dtype=dtype)
    got = layer(*inputs_of(case, dtype))
    assert (got.dtype, got.backend) == (dtype, backend)
    wide = got.astype("float64").numpy()
    eps = {"float64": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    np.testing.assert_allclose(wide, want, rtol=32 * eps, atol=32 * eps)


@on_backends([c for c in CASES if c.empty], is_kind, ["jax"])
def test_an_empty_batch(case: LayerCase, backend: str) -> None:
    layer = made(case)
    given = [x[:0] for x in inputs_of(case)]
    full = layer(*inputs_of(case)).shape
    got = layer(*given)
    assert got.dtype == "float32"
    assert got.shape == (0, *full[1:]) or (case.label == "front" and got.size == 0)


@EVERY
def test_lists_are_data(case: LayerCase) -> None:
    layer = made(case, training=False)
    want = layer(*inputs_of(case)).numpy()
    if case.name in ("Identity", "Lambda"):
        return
    got = layer(*(x.tolist() for x in inputs_of(case)))
    np.testing.assert_array_equal(got.numpy(), want)
