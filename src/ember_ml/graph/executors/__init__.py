"""Who runs graphs: ONNX Runtime, or ember_ml's own ops on any of its backends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ember_ml.errors import UnsupportedOpError
from ember_ml.graph.core import OPSET
from ember_ml.graph.executors.program import Program

if TYPE_CHECKING:
    from ember_ml.graph.core import Graph

__all__ = ["Program", "make_program"]

OLDEST_OF_OPS: Final = 13


def make_program(graph: Graph, backend: str | None = None) -> Program:
    """A graph made ready to run on ONNX Runtime (None, "onnxruntime") or on a backend of ops."""
    if backend is None or backend == "onnxruntime":
        from ember_ml.graph.executors.runtime import RuntimeProgram

        return RuntimeProgram(graph)
    version = graph.opsets.get("", OPSET)
    if version < OLDEST_OF_OPS:
        # Softmax, Squeeze and others mean something else there by the same names.
        raise UnsupportedOpError(
            f"graph '{graph.name}' is of opset {version}: only ONNX Runtime runs those before "
            f"{OLDEST_OF_OPS}; onnx.version_converter.convert_version brings it to a newer one"
        )
    from ember_ml.graph.executors.interpreter import OpsProgram

    return OpsProgram(graph, backend)
