"""Gradients and whole training steps as graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, ops, training
from ember_ml.graph import Graph, export
from ember_ml.graph.tracing.installing import host, named_tensors

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def _floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _loss(params: Any, x: Any, y: Any) -> Any:
    return ops.mean((ops.tanh(x @ params["w"] + params["b"]) - y) ** 2)


def _descent(params: Any, x: Any, y: Any) -> Any:
    loss, grads = em.value_and_grad(_loss)(params, x, y)
    return {"loss": loss, "params": {k: params[k] - 0.1 * grads[k] for k in params}}


def test_a_step_of_descent_runs_again_and_again(backend: str) -> None:
    params = {"w": ops.asarray(_floats(4, 3)), "b": ops.asarray(_floats(3, seed=1))}
    x, y = _floats(5, 4, seed=2), _floats(5, 3, seed=3)
    axes = {"x": {0: "batch"}, "y": {0: "batch"}}
    graph = export(_descent, params, ops.asarray(x), ops.asarray(y), dynamic_axes=axes)
    onnx.checker.check_model(graph.to_onnx(), full_check=True)
    feeds = {f"params.{k}": v.numpy() for k, v in params.items()}
    for step in range(4):
        x, y = _floats(3 + step, 4, seed=step), _floats(3 + step, 3, seed=step)
        out = graph.run({**feeds, "x": x, "y": y})
        wanted = _descent(params, ops.asarray(x), ops.asarray(y))
        params = wanted["params"]
        feeds = {k.removeprefix("new."): v for k, v in out.items() if k != "loss"}
        np.testing.assert_allclose(out["loss"], wanted["loss"].numpy(), rtol=1e-5)
        for name, value in params.items():
            np.testing.assert_allclose(
                out[f"new.params.{name}"], value.numpy(), rtol=1e-5, atol=1e-6
            )


def test_backward_on_a_model_that_is_closed_over(backend: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def gradients(x: Any) -> Any:
        ops.sum(model(x) ** 2).backward()
        return [p.grad for p in model.parameters()]

    x = _floats(5, 4)
    graph = export(gradients, ops.asarray(x))
    assert all(p.grad is None for p in model.parameters())
    got = graph.run({"x": x}).values()
    for one, other in zip(got, gradients(ops.asarray(x)), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-5, atol=1e-5)


def _train(model: Any, opt: Any, x: Any, y: Any) -> Any:
    opt.zero_grad()
    loss = ops.losses.mse(model(x), y)
    loss.backward()
    opt.step()
    return {"loss": loss, "model": model, "opt": opt}


_OPTIMIZERS: Final[dict[str, Callable[[Any], Any]]] = {
    "sgd": lambda model: training.SGD(model.parameters(), lr=0.1),
    "momentum": lambda model: training.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "adamw": lambda model: training.AdamW(model.parameters(), lr=0.01),
}


def _run(graph: Graph, feeds: dict[str, Any]) -> dict[str, Any]:
    return graph.run({x.name: feeds[x.name] for x in graph.inputs})


# JAX compiles each op anew: one optimizer is enough there.
_RUNS: Final = [
    *[(name, backend) for name in _OPTIMIZERS for backend in ("numpy", "torch", "mlx")],
    ("adamw", "jax"),
]


@pytest.mark.parametrize(("name", "backend"), _RUNS)
def test_a_training_step_with_its_optimizer(name: str, backend: str) -> None:
    with em.use_backend(backend):
        _check_training(name, backend)


def _check_training(name: str, backend: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    opt = _OPTIMIZERS[name](model)
    x, y = ops.asarray(_floats(5, 4)), ops.asarray(_floats(5, 3, seed=1))
    before = [p.numpy().copy() for p in model.parameters()]
    graph = export(_train, model, opt, x, y)
    for p, old in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.numpy(), old)
        assert p.grad is None
        assert p.backend == backend
    assert opt.steps == 0
    seen: set[int] = set()
    feeds = {k: np.array(host(t)) for k, t in named_tensors(model, "model", seen)}
    feeds |= {k: np.array(host(t)) for k, t in named_tensors(opt, "opt", seen)}
    for _ in range(4):
        out = _run(graph, {**feeds, "x": x.numpy(), "y": y.numpy()})
        feeds |= {k.removeprefix("new."): v for k, v in out.items()}
        wanted = _train(model, opt, x, y)["loss"]
        np.testing.assert_allclose(out["loss"], wanted.numpy(), rtol=1e-5)
    for path, p in model.named_parameters():
        np.testing.assert_allclose(out[f"new.model.{path}"], p.numpy(), rtol=1e-5, atol=1e-6)


_GRADIENTS: Final[dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "conv": (
        lambda x, w: ops.sum(ops.conv2d(x, w, padding=1) ** 2),
        (_floats(2, 2, 5, 5), _floats(3, 2, 3, 3)),
    ),
    "max-pool": (lambda x: ops.sum(ops.max_pool2d(x, 2) ** 2), (_floats(2, 2, 4, 4),)),
    "avg-pool": (lambda x: ops.sum(ops.avg_pool2d(x, 2) ** 2), (_floats(2, 2, 4, 4),)),
    "softmax": (lambda x: ops.sum(ops.softmax(x, axis=-1) ** 2), (_floats(3, 4),)),
    "layer-norm": (lambda x: ops.sum(ops.layer_norm(x, 4) ** 3), (_floats(3, 4),)),
    "gather": (lambda x: ops.sum(x[ops.asarray([0, 2, 0])] ** 2), (_floats(3, 2),)),
    "slices": (lambda x: ops.sum(x[1:, ::2] ** 2) + ops.sum(x[0]), (_floats(3, 4),)),
    "sort": (lambda x: ops.sum(ops.sort(x) * ops.arange(5, dtype="float32")), (_floats(5),)),
    "attention": (
        lambda q, k, v: ops.sum(ops.scaled_dot_product_attention(q, k, v, is_causal=True) ** 2),
        (_floats(1, 2, 3, 4), _floats(1, 2, 3, 4, seed=1), _floats(1, 2, 3, 4, seed=2)),
    ),
    "einsum": (
        lambda a, b: ops.sum(ops.einsum("ij,jk->ik", a, b) ** 2), (_floats(2, 3), _floats(3, 2)),
    ),
    "cumulative": (lambda x: ops.sum(ops.cumulative_sum(x, axis=0) ** 2), (_floats(4),)),
    "second": (lambda x: ops.sum(em.grad(lambda y: ops.sum(y**3))(x) ** 2), (_floats(3),)),
}  # fmt: skip


@pytest.mark.parametrize("name", _GRADIENTS)
def test_gradients_of_ops(name: str) -> None:
    function, arrays = _GRADIENTS[name]
    derivative = em.grad(function, argnums=tuple(range(len(arrays))))
    graph = export(derivative, *arrays)
    feeds = {x.name: array for x, array in zip(graph.inputs, arrays, strict=True)}
    wanted = derivative(*[ops.asarray(array) for array in arrays])
    for got, other in zip(graph.run(feeds).values(), wanted, strict=True):
        np.testing.assert_allclose(got, other.numpy(), rtol=1e-5, atol=1e-5)


def test_a_recurrent_layer_is_trained() -> None:
    model = nn.LSTM(2, 3, batch_first=True)
    x = _floats(2, 4, 2)

    def gradients(x: Any) -> Any:
        ops.sum(model(x)[0] ** 2).backward()
        return [p.grad for p in model.parameters()]

    graph = export(gradients, x)
    for one, other in zip(graph.run({"x": x}).values(), gradients(ops.asarray(x)), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-5, atol=1e-5)


def test_statistics_of_a_batch_norm_are_results_where_they_are_returned() -> None:
    norm, x = nn.BatchNorm1d(3), _floats(4, 3)

    def run(norm: Any, x: Any) -> Any:
        return {"y": norm(x), "norm": norm}

    tensors = dict(named_tensors(norm, "norm"))
    feeds = {name: np.array(host(t)) for name, t in tensors.items()}
    graph = export(run, norm, x)
    for name, t in tensors.items():
        np.testing.assert_array_equal(host(t), feeds[name])
    out = _run(graph, {**feeds, "x": x})
    np.testing.assert_allclose(out["y"], norm(ops.asarray(x)).numpy(), rtol=1e-5, atol=1e-6)
    for name, t in named_tensors(norm, "norm"):
        np.testing.assert_allclose(out[f"new.{name}"], host(t), rtol=1e-5, atol=1e-6)
