"""ONNX Runtime as an executor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ember_ml.errors import BackendUnavailableError, FormatError
from ember_ml.graph.executors.program import Program, check_feeds

if TYPE_CHECKING:
    from ember_ml.graph.core import Graph

__all__ = ["RuntimeProgram", "runtime"]


def runtime() -> Any:
    """The onnxruntime package, or an error that tells how to get it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise BackendUnavailableError(
            "this runs on ONNX Runtime, which is not installed; install it with: "
            "pip install 'ember-ml[onnx]', or run the graph on a backend: backend='numpy'"
        ) from error
    return onnxruntime


class RuntimeProgram(Program):
    """A session of ONNX Runtime over a graph."""

    executor = "onnxruntime"

    def __init__(self, graph: Graph, providers: list[str] | None = None) -> None:
        ort = runtime()
        options = ort.SessionOptions()
        options.log_severity_level = 4  # errors are raised; the log would say them twice
        # Else int8 becomes uint8 on x86, and models of opset 21 break on the way: nodes that ONNX
        # Runtime put in keep an output_dtype of int8.
        options.add_session_config_entry("session.qdqisint8allowed", "1")
        try:
            self.session = ort.InferenceSession(
                graph.to_onnx().SerializeToString(),
                options,
                providers=providers or ["CPUExecutionProvider"],
            )
        except Exception as error:  # ORT's own classes have no common base but this
            raise FormatError(
                f"ONNX Runtime does not take the graph '{graph.name}': {error}"
            ) from error
        self._graph = graph
        self._outputs = [x.name for x in graph.outputs]

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        given = {
            name: value.numpy() if hasattr(value, "numpy") else np.asarray(value)
            for name, value in feeds.items()
        }
        check_feeds(self._graph, given)
        return dict(zip(self._outputs, self.session.run(None, given), strict=True))
