"""Every layer as a graph, alone and for batches of other sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.errors import TraceError
from ember_ml.graph import Graph, export
from tests.nn.layer_cases import CASES, LayerCase, drawn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

Array = np.ndarray[Any, Any]
# One example without a batch: its first axis is that of the channels.
_ALONE: Final = {"Conv1d-alone", "InstanceNorm1d-alone"}
_LINE, _STATE = (2, 5, 3), (2, 4)
# Layers that the cases above have not: how they are made, and what comes in; batches first.
_OTHERS: Final[dict[str, tuple[Callable[[], nn.Module], list[tuple[int, ...]]]]] = {
    "RNN": (lambda: nn.RNN(3, 4, batch_first=True), [_LINE]),
    "GRU": (lambda: nn.GRU(3, 4, batch_first=True, bidirectional=True), [_LINE]),
    "LSTM": (lambda: nn.LSTM(3, 4, num_layers=2, batch_first=True), [_LINE]),
    "CfC": (lambda: nn.CfC(3, 4, batch_first=True), [_LINE]),
    "LTC": (lambda: nn.LTC(3, 4, batch_first=True), [_LINE]),
    "RNNCell": (lambda: nn.RNNCell(3, 4), [(2, 3), _STATE]),
    "GRUCell": (lambda: nn.GRUCell(3, 4), [(2, 3), _STATE]),
    "LSTMCell": (lambda: nn.LSTMCell(3, 4), [(2, 3)]),
    "CfCCell": (lambda: nn.CfCCell(3, 4), [(2, 3), _STATE]),
    "LTCCell": (lambda: nn.LTCCell(3, 4), [(2, 3), _STATE]),
    "MultiHeadAttention": (lambda: nn.MultiHeadAttention(4, 2), [(2, 5, 4)]),
    "Residual": (lambda: nn.Residual(nn.Linear(4, 4)), [(2, 4)]),
    "Sequential": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh()), [(2, 4)]),
}
# Containers without a forward of their own, and what layers are made of.
_ABSTRACT: Final = {"Model", "Module", "ModuleDict", "ModuleList"}


def test_every_layer_is_here() -> None:
    layers = {
        name
        for name in dir(nn)
        if isinstance(getattr(nn, name), type) and getattr(getattr(nn, name), "_is_module", False)
    }
    assert layers - _ABSTRACT == {case.name for case in CASES} | set(_OTHERS)


def _check(graph: Graph, layer: Any, arrays: list[Array]) -> None:
    feeds = {value.name: array for value, array in zip(graph.inputs, arrays, strict=True)}
    got = list(graph.run(feeds).values())
    wanted = [x.numpy() for x in em.tree.leaves(layer(*map(ops.asarray, arrays)))]
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def _check_batches(layer: Any, arrays: list[Array]) -> None:
    """The graph of one export, run with the example's batch and with two others."""
    graph = export(layer, *arrays, dynamic_axes={i: {0: "batch"} for i in range(len(arrays))})
    onnx.checker.check_model(graph.to_onnx(), full_check=True)
    for size in (len(arrays[0]), 1, 5):
        _check(graph, layer, [np.resize(array, (size, *array.shape[1:])) for array in arrays])


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_a_layer_runs_for_other_batches(case: LayerCase) -> None:
    with em.use_backend("numpy"):
        layer, arrays = case.make(), case.arrays()
        layer(*map(ops.asarray, arrays))  # a layer that learns its sizes has them now
        layer.eval()
        if case.id not in _ALONE:
            _check_batches(layer, arrays)
            return
        _check(export(layer, *arrays), layer, arrays)
        with pytest.raises(TraceError, match="alone, so they cannot be dynamic_axes"):
            export(layer, *arrays, dynamic_axes={0: {0: "batch"}})


@pytest.mark.parametrize("name", _OTHERS)
def test_a_layer_of_layers_runs_for_other_batches(name: str) -> None:
    make, shapes = _OTHERS[name]
    with em.use_backend("numpy"):
        arrays = [drawn(f"{name}{place}", shape) for place, shape in enumerate(shapes)]
        _check_batches(make().eval(), arrays)
