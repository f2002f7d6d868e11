"""A backend of ember_ml: tensors are its own, and graphs run operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
        self._is_lazy = program.executor == "mlx"

    def prepare(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Callable[[], object]:
        program = self._program

        def run() -> None:
            # Infinities and NaN are results like others: no engine but NumPy would warn of them.
            with np.errstate(all="ignore"):
                made = program.run({name: storage.tensor for name, storage in inputs.items()})
            if self._is_lazy:
                _compute(made.values())
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
        data_type, shape = descriptor.data_type, descriptor.shape
        if is_packed(data_type):
            return Storage(descriptor, np.zeros(shape, numpy_dtype(data_type)))
        from ember_ml import ops

        with use_backend(self.name):
            return Storage(descriptor, self._made(ops.zeros(shape, dtype=data_type)))

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
            return self._made(ops.asarray(array, copy=True))

    def _made(self, tensor: Any) -> Any:
        if self.name == "mlx":
            _compute([tensor])
        return tensor


def _compute(tensors: Iterable[Any]) -> None:
    """MLX computes a lazy array only in the thread that made it, and any may be the next to use it.

    So what a dispatch gives is computed when it ends, as on the other engines.
    """
    from ember_ml.backend.mlx.hosting import evaluated

    evaluated(*(one.native for one in tensors if not isinstance(one, np.ndarray)))


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
