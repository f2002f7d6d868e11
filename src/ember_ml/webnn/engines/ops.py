"""A backend of ember_ml: tensors are its own, and graphs run operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ember_ml.backend.selection import use_backend
from ember_ml.graph.types import numpy_dtype
from ember_ml.webnn.buffers import elements, is_packed, packed
from ember_ml.webnn.engines.base import Compiled, Engine

if TYPE_CHECKING:
    from ember_ml.graph.core import Graph
    from ember_ml.graph.executors.program import Program
    from ember_ml.webnn.buffers import Array
    from ember_ml.webnn.descriptors import MLOperandDescriptor

__all__ = ["OpsEngine"]


class Storage:
    """A tensor of the backend; an array of ml_dtypes for 4-bit integers, which no backend has.

    Its contents are replaced and never written to: a graph may give one of its inputs as an output.
    """

    __slots__ = ("descriptor", "tensor")

    def __init__(self, descriptor: MLOperandDescriptor, tensor: Any) -> None:
        self.descriptor = descriptor
        self.tensor = tensor


class OpsProgramOnTensors(Compiled):
    """A program of ops that runs over tensors."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def prepare(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Callable[[], object]:
        program = self._program

        def run() -> None:
            # Infinities and NaN are results like others: no engine but NumPy would warn of them.
            with np.errstate(all="ignore"):
                made = program.run({name: storage.tensor for name, storage in inputs.items()})
            for name, storage in outputs.items():
                storage.tensor = _held(made[name], storage.descriptor)

        return run


class OpsEngine(Engine):
    """NumPy, torch, JAX or MLX."""

    def __init__(self, backend: str) -> None:
        self.name = backend
        with use_backend(backend):
            self.device = _device()

    def allocate(self, descriptor: MLOperandDescriptor) -> Storage:
        dtype = numpy_dtype(descriptor.data_type)
        return Storage(descriptor, self._tensor(np.zeros(descriptor.shape, dtype)))

    def write(self, storage: Storage, raw: Array) -> None:
        storage.tensor = self._tensor(elements(raw, storage.descriptor))

    def read(self, storage: Storage) -> Array:
        if isinstance(storage.tensor, np.ndarray):
            return packed(storage.tensor)
        return np.array(storage.tensor.numpy())

    def compile(self, graph: Graph) -> Compiled:
        return OpsProgramOnTensors(graph.program(self.name))

    def _tensor(self, array: Array) -> Any:
        if array.dtype.name.endswith("int4"):
            return array.copy()
        from ember_ml import ops

        with use_backend(self.name):
            return ops.asarray(array, copy=True)


def _held(made: Any, descriptor: MLOperandDescriptor) -> Any:
    if not is_packed(descriptor.data_type):
        return made
    array = made if isinstance(made, np.ndarray) else made.numpy()
    return np.asarray(array).astype(numpy_dtype(descriptor.data_type))


def _device() -> str:
    """Where tensors of the current backend are made."""
    from ember_ml import ops

    kind = str(ops.zeros(()).device)
    return "cpu" if kind.startswith("cpu") else "gpu"
