"""Models in 16-bit floats as graphs: their dtypes hold, and nothing overflows between nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest

import ember_ml as em
from ember_ml import nn, ops
from ember_ml.graph import export

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

_HALVES: Final = {"float16": (np.float16, 4e-3), "bfloat16": (ml_dtypes.bfloat16, 3e-2)}


@pytest.mark.parametrize("name", _HALVES)
def test_a_model_keeps_its_dtype(backend: str, name: str) -> None:
    dtype, tolerance = _HALVES[name]
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    model = model.to(dtype=name).eval()
    array = np.linspace(-2, 2, 8).reshape(2, 4).astype(dtype)
    graph = export(model, ops.asarray(array), dynamic_axes={0: {0: "batch"}})
    onnx.checker.check_model(graph.to_onnx(), full_check=True)
    wanted = model(ops.asarray(array)).numpy().astype(np.float32)
    for executor in (None, backend):
        got: Any = graph.run({"x": array}, backend=executor)["output"]
        found = got if executor is None else got.numpy()
        assert found.dtype == dtype
        np.testing.assert_allclose(found.astype(np.float32), wanted, tolerance, tolerance)


# Squares of 300 are beyond float16; what they are divided by is not.
_LARGE: Final[dict[str, Callable[[Any], Any]]] = {
    "rms_norm": lambda x: ops.rms_norm(x),
    "layer_norm": lambda x: ops.layer_norm(x),
    "group_norm": lambda x: ops.group_norm(x, 2),
    "normalize": lambda x: ops.normalize(x),
    "normalize-zero": lambda x: ops.normalize(x * 0),
    "attention": lambda x: ops.scaled_dot_product_attention(x, x, x),
}


@pytest.mark.parametrize("op", _LARGE)
@pytest.mark.parametrize("name", _HALVES)
def test_large_values_do_not_overflow(op: str, name: str) -> None:
    dtype, tolerance = _HALVES[name]
    array = (300 * np.cos(np.arange(48.0))).reshape(2, 4, 6).astype(dtype)
    with em.use_backend("numpy"):
        graph = export(_LARGE[op], array)
        exact = _LARGE[op](ops.asarray(array.astype(np.float32))).numpy()
    assert np.isfinite(exact).all()
    for executor in (None, "numpy"):
        got: Any = graph.run({"x": array}, backend=executor)["output"]
        found = got if executor is None else got.numpy()
        assert found.dtype == dtype
        np.testing.assert_allclose(found.astype(np.float32), exact, tolerance, tolerance)
