"""Who computes for a context, and in whose memory its tensors are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ember_ml.webnn.engines.base import Compiled, Engine
from ember_ml.webnn.errors import MLTypeError, NotSupportedError

__all__ = ["Compiled", "Engine", "Wishes", "make_engine"]

BACKENDS = ("numpy", "torch", "jax", "mlx")


@dataclass(frozen=True)
class Wishes:
    """What was asked for when a context was created."""

    device_type: str | None = None
    power_preference: str = "default"
    accelerated: bool = True
    cache: Path | None = None
    threads: int | None = None


def make_engine(backend: str | None, wishes: Wishes) -> Engine:
    """The engine of a backend's name; None is ONNX Runtime."""
    if backend is None or backend == "onnxruntime":
        from ember_ml.webnn.engines.runtime import RuntimeEngine

        return RuntimeEngine(wishes)
    if backend not in BACKENDS:
        raise MLTypeError(
            f"create_context: no backend {backend!r}; there are onnxruntime, {', '.join(BACKENDS)}"
        )
    if wishes.cache is not None or wishes.threads is not None:
        raise NotSupportedError(
            f"create_context: cache= and threads= are for ONNX Runtime, not for '{backend}'"
        )
    from ember_ml.webnn.engines.ops import OpsEngine

    return OpsEngine(backend)
