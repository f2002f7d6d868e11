"""One graph: made by WebNN's builder, traced from ops or read from an ONNX file; run anywhere."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ember_ml.graph.core import OPSET, Graph, Node, Value

if _TYPE_CHECKING:
    from ember_ml.graph.exporting import export
    from ember_ml.graph.onnx_reading import load_onnx

__all__ = ["OPSET", "Graph", "Node", "Value", "export", "load_onnx"]

_LATER = {"export": "ember_ml.graph.exporting", "load_onnx": "ember_ml.graph.onnx_reading"}


def __getattr__(name: str) -> _Any:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
