"""ONNX models as graphs, for the tests of operators."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from ember_ml.graph import onnx_graphs
from ember_ml.graph.core import Graph
from ember_ml.graph.executors.operators import registry
from ember_ml.graph.onnx_reading import load_onnx

__all__ = ["from_proto"]


def from_proto(model: Any) -> Graph:
    """A model as load_onnx reads it, also of opsets that only the ops executor knows."""
    with patch.multiple(onnx_graphs, OLDEST=1, NEWEST=registry.NEWEST):
        return load_onnx(model)
