"""ML and MLContext: where graphs are built and dispatched, and who holds tensors."""

from __future__ import annotations

__all__ = ["ML", "MLContext"]


class ML:
    """The entry: `ML().create_context()`."""

    def create_context(self, *, backend: str = "onnxruntime") -> MLContext:
        """A context on an executor."""
        return MLContext(backend)


class MLContext:
    """A place where graphs run."""

    def __init__(self, executor: str) -> None:
        self._executor = executor

    def _require_alive(self, what: str) -> None:
        """InvalidStateError where the context is lost."""
