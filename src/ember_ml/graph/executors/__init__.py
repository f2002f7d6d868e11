"""Who runs graphs: ONNX Runtime, or ember_ml's own ops on any of its backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ember_ml.graph.executors.program import Program

if TYPE_CHECKING:
    from ember_ml.graph.core import Graph

__all__ = ["Program", "make_program"]


def make_program(graph: Graph, backend: str | None = None) -> Program:
    """A graph made ready to run on ONNX Runtime (None, "onnxruntime") or on a backend of ops."""
    if backend is None or backend == "onnxruntime":
        from ember_ml.graph.executors.runtime import RuntimeProgram

        return RuntimeProgram(graph)
    from ember_ml.graph.executors.interpreter import OpsProgram

    return OpsProgram(graph, backend)
