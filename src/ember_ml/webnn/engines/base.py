"""What a context needs of an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ember_ml.webnn.descriptors import DATA_TYPES

if TYPE_CHECKING:
    from ember_ml.graph.core import Graph
    from ember_ml.webnn.buffers import Array
    from ember_ml.webnn.descriptors import MLOperandDescriptor

__all__ = ["Compiled", "Engine"]


class Compiled(ABC):
    """A graph that an engine made ready."""

    @abstractmethod
    def prepare(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Callable[[], object]:
        """What runs it over some memory, by the names of the graph's values."""


class Engine(ABC):
    """Allocates the memory of tensors, moves bytes in and out, and runs graphs.

    A storage is whatever the engine keeps a tensor in; only the engine looks into it.
    """

    # "onnxruntime", or the name of a backend.
    name: str
    # Where it computes: "cpu", "gpu" or "npu".
    device: str
    # The execution providers of ONNX Runtime in order of preference; none on others.
    providers: tuple[str, ...] = ()
    # What it can hold.
    data_types: Final = tuple(DATA_TYPES)

    @property
    def accelerated(self) -> bool:
        """Whether it computes on something else than a CPU."""
        return self.device != "cpu"

    @abstractmethod
    def allocate(self, descriptor: MLOperandDescriptor) -> Any:
        """A storage of zeros."""

    @abstractmethod
    def write(self, storage: Any, raw: Array) -> None:
        """Copy contents into a storage (see buffers: 4-bit integers are packed)."""

    @abstractmethod
    def read(self, storage: Any) -> Array:
        """A copy of what a storage holds."""

    @abstractmethod
    def compile(self, graph: Graph) -> Compiled:
        """Make a graph ready."""
