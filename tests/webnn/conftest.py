"""WebNN's tests compare with ONNX Runtime or run on it."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _onnx_runtime():
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install 'ember-ml[onnx]'")
