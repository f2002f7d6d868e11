"""Models of every backend as graphs, run on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import ember_ml as em
from ember_ml import models, nn, ops
from ember_ml.graph import Graph, export

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

Array = np.ndarray[Any, Any]


def _floats(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _tokens(*shape: int) -> Array:
    return np.random.default_rng(0).integers(1, 19, shape)


def _decoder(**options: Any) -> nn.Module:
    return models.Decoder(
        vocab_size=20, hidden_size=8, num_layers=1, num_heads=2, max_length=64, **options
    )


def _forecaster(cell: str) -> nn.Module:
    return models.RNNForecaster(features=2, horizon=3, hidden_size=8, num_layers=2, cell=cell)


# How a model is made, an example, another input, and the names of sizes.
Model = tuple[Callable[[], nn.Module], Array, Array, dict[int, str]]
_BATCH: Final = {0: "batch"}
_BOTH: Final = {0: "batch", 1: "length"}
MODELS: Final[dict[str, Model]] = {
    "mlp": (
        lambda: models.MLP(in_features=4, out_features=3), _floats(5, 4), _floats(7, 4), _BATCH,
    ),
    "digits": (
        lambda: models.CNN(in_channels=1, out_features=10),
        _floats(2, 1, 8, 8),
        _floats(3, 1, 8, 8),
        _BATCH,
    ),
    "resnet": (
        lambda: models.ResNet(num_classes=4, width=4, stem="small"),
        _floats(2, 3, 16, 16),
        _floats(3, 3, 16, 16),
        _BATCH,
    ),
    "encoder": (
        lambda: models.Encoder(
            vocab_size=20, hidden_size=8, num_layers=2, num_heads=2, intermediate_size=16,
            max_length=32,
        ),
        _tokens(2, 6),
        _tokens(3, 9),
        _BOTH,
    ),
    "decoder": (_decoder, _tokens(2, 6), _tokens(3, 9), _BOTH),
    "decoder-learned": (
        lambda: _decoder(positions="learned", norm="layer", num_kv_heads=1),
        _tokens(2, 6),
        _tokens(3, 9),
        _BOTH,
    ),
    "lstm": (lambda: _forecaster("lstm"), _floats(4, 7, 2), _floats(5, 9, 2), _BOTH),
    "gru": (lambda: _forecaster("gru"), _floats(4, 7, 2), _floats(5, 9, 2), _BOTH),
    "rnn": (lambda: _forecaster("rnn"), _floats(4, 7, 2), _floats(5, 9, 2), _BOTH),
    "autoencoder": (
        lambda: models.Autoencoder(input_shape=(1, 8, 8), hidden=(4,), kind="conv", code_size=5),
        _floats(4, 1, 8, 8),
        _floats(3, 1, 8, 8),
        _BATCH,
    ),
}  # fmt: skip
# JAX compiles each op of each shape anew: one model of each kind is enough there.
_SLOW: Final = {"jax": {"mlp", "lstm"}}
_RUNS: Final = [
    (name, backend)
    for name in MODELS
    for backend in ("numpy", "torch", "jax", "mlx")
    if name in _SLOW.get(backend, MODELS)
]


def _check(graph: Graph, model: nn.Module, x: Array) -> None:
    onnx.checker.check_model(graph.to_onnx(), full_check=True)
    (got,) = graph.run({graph.inputs[0].name: x}).values()
    wanted = model.eval()(ops.asarray(x)).numpy()
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "backend"), _RUNS)
def test_a_model_of_any_backend_runs(name: str, backend: str) -> None:
    make, example, other, axes = MODELS[name]
    with em.use_backend(backend):
        model = make()
        _check(export(model, ops.asarray(example)), model, example)
        if backend in ("numpy", "mlx"):
            graph = export(model, ops.asarray(example), dynamic_axes={0: axes})
            assert graph.inputs[0].shape is not None
            assert graph.inputs[0].shape[0] == "batch"
            _check(graph, model, other)


@pytest.mark.parametrize("name", ["digits", "encoder", "lstm"])
def test_a_file_is_read_by_onnxruntime_alone(name: str, tmp_path: Path) -> None:
    make, example, other, axes = MODELS[name]
    model = make().eval()
    export(model, example, dynamic_axes={0: axes}).save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for x in (example, other):
        (got,) = session.run(None, {session.get_inputs()[0].name: x})
        np.testing.assert_allclose(got, model(x).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["digits", "encoder", "lstm"])
def test_a_file_is_loaded_and_run_by_ops(name: str, tmp_path: Path) -> None:
    make, example, other, axes = MODELS[name]
    model = make().eval()
    export(model, example, dynamic_axes={0: axes}).save(tmp_path / "model.onnx")
    loaded = em.load_onnx(tmp_path / "model.onnx")
    for backend in (None, "numpy", "torch"):
        (got,) = loaded.run({loaded.inputs[0].name: other}, backend=backend).values()
        np.testing.assert_allclose(np.asarray(got), model(other).numpy(), rtol=1e-5, atol=1e-5)


_LAYERS: Final[dict[str, tuple[Callable[[], nn.Module], Array, set[str]]]] = {
    "conv": (lambda: nn.Conv2d(2, 4, 3, padding=1, stride=2), _floats(2, 2, 7, 7), {"Conv"}),
    "conv-transpose": (
        lambda: nn.ConvTranspose2d(2, 4, 3, stride=2), _floats(2, 2, 4, 4), {"ConvTranspose"},
    ),
    "max-pool": (lambda: nn.MaxPool2d(2), _floats(2, 2, 6, 6), {"MaxPool"}),
    "avg-pool": (lambda: nn.AvgPool2d(2), _floats(2, 2, 6, 6), {"AveragePool"}),
    "batch-norm": (lambda: nn.BatchNorm2d(3), _floats(2, 3, 4, 4), {"BatchNormalization"}),
    "layer-norm": (lambda: nn.LayerNorm(5), _floats(2, 5), {"LayerNormalization"}),
    "group-norm": (lambda: nn.GroupNorm(2, 4), _floats(2, 4, 3, 3), {"LayerNormalization"}),
    "instance-norm": (lambda: nn.InstanceNorm2d(3), _floats(2, 3, 4, 4), set()),
    "gelu": (nn.GELU, _floats(4), {"Gelu"}),
    "silu": (nn.SiLU, _floats(4), {"Sigmoid"}),
    "softmax": (nn.Softmax, _floats(2, 4), {"Softmax"}),
    "embedding": (lambda: nn.Embedding(20, 4), _tokens(2, 3), {"Gather"}),
    "bidirectional": (
        lambda: nn.LSTM(3, 4, bidirectional=True, batch_first=True), _floats(2, 5, 3), {"LSTM"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _LAYERS)
def test_layers_become_the_nodes_that_people_expect(name: str) -> None:
    make, x, nodes = _LAYERS[name]
    layer = make().eval()
    graph = export(layer, x)
    assert nodes <= {node.op for node in graph.nodes}
    got = list(graph.run({graph.inputs[0].name: x}).values())
    wanted = em.tree.leaves(layer(ops.asarray(x)))
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-5, atol=1e-5)


def test_doubles_stay_doubles() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(dtype="float64")
    x = _floats(5, 3).astype(np.float64)
    (got,) = export(model, x).run({"x": x}).values()
    np.testing.assert_allclose(got, model(ops.asarray(x)).numpy(), rtol=1e-13)
    assert got.dtype == np.float64
