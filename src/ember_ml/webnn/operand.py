"""What flows between ops while a graph is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ember_ml.webnn.descriptors import MLOperandDescriptor

if TYPE_CHECKING:
    from ember_ml.graph.core import Value
    from ember_ml.webnn.builder.base import BuilderBase

__all__ = ["MLOperand"]


class MLOperand:
    """An input, a constant, or the result of an op; made by an MLGraphBuilder only."""

    __slots__ = ("_builder", "_descriptor", "_value", "kind")

    def __init__(
        self, builder: BuilderBase, descriptor: MLOperandDescriptor, value: Value, kind: str
    ) -> None:
        self._builder = builder
        self._descriptor = descriptor
        # Its value in the graph that is built, in ONNX's terms.
        self._value = value
        # "input", "constant", or "result".
        self.kind = kind

    @property
    def data_type(self) -> str:
        """The data type, as "float32"."""
        return self._descriptor.data_type

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        return self._descriptor.shape

    def __repr__(self) -> str:
        return f"<MLOperand {self.kind}: {self.data_type}{list(self.shape)}>"
