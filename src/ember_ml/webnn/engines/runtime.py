"""ONNX Runtime: tensors are OrtValues, and a dispatch is an IOBinding that was bound once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ember_ml.graph.executors.runtime import RuntimeProgram, runtime
from ember_ml.graph.types import number_of, numpy_dtype
from ember_ml.webnn.buffers import is_packed
from ember_ml.webnn.descriptors import byte_length
from ember_ml.webnn.engines.base import Compiled, Engine
from ember_ml.webnn.errors import NotSupportedError, UnknownError

if TYPE_CHECKING:
    from ember_ml.graph.core import Graph
    from ember_ml.webnn.buffers import Array
    from ember_ml.webnn.descriptors import MLOperandDescriptor
    from ember_ml.webnn.engines import Wishes

__all__ = ["RuntimeEngine"]

CPU: Final = "CPUExecutionProvider"
# By device type, best first. TensorRT compiles for minutes: it is for those who ask for speed.
PROVIDERS: Final[dict[str, tuple[str, ...]]] = {
    "gpu": (
        "CUDAExecutionProvider",
        "TensorrtExecutionProvider",
        "DmlExecutionProvider",
        "CoreMLExecutionProvider",
    ),
    "npu": ("CoreMLExecutionProvider", "QNNExecutionProvider"),
}
# Where the memory of a provider's tensors is, by ONNX Runtime's names; others use the host's.
MEMORY: Final = {
    "CUDAExecutionProvider": "cuda",
    "TensorrtExecutionProvider": "cuda",
    "DmlExecutionProvider": "dml",
}


class Storage:
    """An OrtValue, and its memory as the host sees it where it is the host's own."""

    __slots__ = ("memory", "value")

    def __init__(self, value: Any, memory: Array | None) -> None:
        self.value = value
        self.memory = memory


class RuntimeProgramOnTensors(Compiled):
    """A session that runs over OrtValues."""

    def __init__(self, program: RuntimeProgram) -> None:
        self._program = program  # which keeps the weights that its session reads
        self._session = program.session

    def prepare(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Callable[[], object]:
        binding = self._session.io_binding()
        for name, storage in inputs.items():
            binding.bind_ortvalue_input(name, storage.value)
        for name, storage in outputs.items():
            binding.bind_ortvalue_output(name, storage.value)
        return partial(self._session.run_with_iobinding, binding)


class RuntimeEngine(Engine):
    """Execution providers of ONNX Runtime."""

    name = "onnxruntime"

    def __init__(self, wishes: Wishes) -> None:
        self._ort = runtime()
        self._wishes = wishes
        self.device, self.providers = choose(self._ort.get_available_providers(), wishes)
        self._memory = MEMORY.get(self.providers[0], "cpu")

    def allocate(self, descriptor: MLOperandDescriptor) -> Storage:
        data_type, shape = descriptor.data_type, descriptor.shape
        dtype = numpy_dtype(data_type)
        make = self._ort.OrtValue.ortvalue_from_shape_and_type
        # NumPy has no 4-bit integers of its own, and providers copy none: they are the host's.
        where = "cpu" if is_packed(data_type) else self._memory
        element = number_of(data_type) if is_packed(data_type) else dtype.type
        try:
            value = make(list(shape), element, where)
        except Exception as error:  # ORT's own classes have no common base but this
            raise UnknownError(
                f"create_tensor: ONNX Runtime cannot allocate {data_type}{list(shape)}: {error}"
            ) from error
        if where != "cpu":
            value.update_inplace(np.zeros(shape, dtype))
            return Storage(value, None)
        size = byte_length(data_type, shape)
        place = (ctypes.c_uint8 * size).from_address(value.data_ptr())
        memory: Array = np.frombuffer(memoryview(place), np.uint8)
        memory[:] = 0  # as it comes, it holds what was there before
        if not is_packed(data_type):
            memory = memory.view(dtype).reshape(shape)
        return Storage(value, memory)

    def write(self, storage: Storage, raw: Array) -> None:
        if storage.memory is None:
            storage.value.update_inplace(raw)
        else:
            np.copyto(storage.memory, raw)

    def read(self, storage: Storage) -> Array:
        if storage.memory is None:
            return np.array(storage.value.numpy())
        return storage.memory.copy()

    def compile(self, graph: Graph) -> Compiled:
        program = RuntimeProgram(
            graph,
            providers=list(self.providers),
            cache=self._wishes.cache,
            threads=self._wishes.threads,
        )
        used = tuple(program.session.get_providers())
        if used[0] != self.providers[0]:
            raise NotSupportedError(
                f"build: ONNX Runtime offers {self.providers[0]} and then used {used[0]}; "
                "its libraries may be missing. Create the context with device_type='cpu'"
            )
        return RuntimeProgramOnTensors(program)


def choose(available: list[str], wishes: Wishes) -> tuple[str, tuple[str, ...]]:
    """The device and the providers for some wishes, of those that there are.

    A device type is a hint, as in the specification: where there is none, the CPU computes, and
    the context says so. Without one, an accelerator is taken where there is one.
    """
    kinds = [] if wishes.device_type in (None, "cpu") else [wishes.device_type]
    if wishes.accelerated and wishes.device_type is None:
        kinds = ["npu", "gpu"] if wishes.power_preference == "low-power" else ["gpu", "npu"]
    for kind in kinds:
        found = [name for name in PROVIDERS[kind] if name in available]
        if wishes.power_preference == "high-performance" and PROVIDERS[kind][1] in found:
            found.remove(PROVIDERS[kind][1])
            found.insert(0, PROVIDERS[kind][1])
        if found:
            behind = [name for name in found[1:] if MEMORY.get(name) == MEMORY.get(found[0])]
            keep = behind if found[0] == "TensorrtExecutionProvider" else []
            return kind, (found[0], *keep, CPU)
    return "cpu", (CPU,)
