"""MLX: lazy arrays in memory that the CPU and the GPU share.

An mx.array carries no device: the spec of its tensor does, and a kernel of another device than
the default one runs under a stream of that device. float64 exists on the CPU only.
"""

from __future__ import annotations

import math
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mlx.core as mx
import numpy as np

from ember_ml import dtypes
from ember_ml.backend import aligned, dlpack
from ember_ml.backend.compiling import tracing
from ember_ml.backend.contract import Backend, Entry, Kernel, NativeArray, Spec, host_memory
from ember_ml.backend.gradients import TRANSFORMING
from ember_ml.backend.mlx import (
    activations,
    elementwise,
    indexing,
    kernels,
    layouts,
    linearalg,
    losses,
    network,
    ordering,
    random,
    scattering,
    special,
    summation,
    windows,
)
from ember_ml.backend.mlx.compiling import MlxCompiler
from ember_ml.backend.mlx.control import MlxControl
from ember_ml.backend.mlx.gradients import MlxGradients
from ember_ml.backend.mlx.hosting import (
    differentiable,
    evaluated,
    host_view,
    require_values,
    taped_rule,
)
from ember_ml.dtypes import DType
from ember_ml.errors import CopyError
from ember_ml.tensor.layout import Layout

__all__ = ["MlxBackend", "load"]

_HALVES = (dtypes.float16, dtypes.bfloat16)
# Up to this many elements an array from the host takes less than MLX's evaluation of one.
_SMALL = 1024


class MlxBackend(Backend):
    """Arrays are mx.array, evaluated when their values are read."""

    name = "mlx"
    native_type = mx.array
    native_types = (mx.array,)
    native_dtypes = {
        d: getattr(mx, "bool_" if d is dtypes.bool else d.name)
        for d in dtypes.ALL
        if d is not dtypes.complex128
    }
    namespaces = {"": (mx,), "fft": (mx.fft,)}
    overrides = {
        **elementwise.OVERRIDES,
        **indexing.OVERRIDES,
        **kernels.OVERRIDES,
        **linearalg.OVERRIDES,
        **losses.OVERRIDES,
        **network.OVERRIDES,
        **ordering.OVERRIDES,
        **random.OVERRIDES,
        **scattering.OVERRIDES,
        **special.OVERRIDES,
    }
    whole = summation.WHOLE
    # mx.repeat takes one count for all; mx.count_nonzero counts in int32.
    shadowed = frozenset(("count_nonzero", "repeat", "unique", "var"))
    max_ndim = None
    control_class = MlxControl
    gradients_class = MlxGradients
    compiler_class = MlxCompiler

    def __init__(self, module: Any) -> None:
        gpus = mx.device_count(mx.gpu) if mx.is_available(mx.gpu) else 0
        accelerators = tuple("gpu" if i == 0 else f"gpu:{i}" for i in range(gpus))
        # What MLX takes by default when this backend is loaded; em.set_device changes it later.
        on_gpu = mx.default_device().type == mx.DeviceType.gpu
        self._devices = (*accelerators, "cpu") if on_gpu else ("cpu", *accelerators)
        super().__init__(module)

    # --- Kernels ----------------------------------------------------------------------------

    def entry(self, spec: Spec, name: str) -> Entry:
        found = spec.kernels.get(name)
        if found is None:
            kernel, result = super().entry(spec, name)
            if spec.device != self._devices[0]:
                kernel = _under(kernel, _device(spec.device))
            found = spec.kernels[name] = kernel, result
        return found

    def kernel(self, name: str, dtype: DType) -> Kernel:
        if dtype.is_integer or dtype is dtypes.bool:
            found = elementwise.INTEGERS.get(name)
        elif dtype is dtypes.float64:
            found = elementwise.FLOAT64.get(name) or network.FLOAT64.get(name)
            if name in network.PORTABLE64:
                return self.portable(name)
        elif dtype is dtypes.complex64:
            found = elementwise.COMPLEX.get(name)
        else:
            found = None
        if found is None and self._devices[0] == "cpu" and not dtype.is_integer:
            found = self._summation(name, dtype)
        if found is not None:
            return found
        if name == "matmul" and dtype.is_integer:
            return linearalg.integer_matmul(self.hosted(name, dtype))
        if name in kernels.HOSTED or name in linearalg.HOSTED:
            return self.hosted(name, dtype)
        if name.startswith("fft.") and dtype is dtypes.float64:  # complex128 lies between
            return self.hosted(name, dtype)
        if name in windows.CONVOLUTIONS:
            found = windows.convolution(name, self.portable(name))
        elif name in windows.LARGEST:
            found = windows.largest(name, self)
        else:
            found = super().kernel(name, dtype)
            if name in activations.AROUND:
                found = activations.AROUND[name](found)
        if dtype in _HALVES and (name in elementwise.WIDE or name in network.WIDE):
            return elementwise.through_float32(found)
        return found

    def _summation(self, name: str, dtype: DType) -> Kernel | None:
        """The kernel of a sum on the CPU; 16-bit floats are added in float32."""
        found = summation.KERNELS.get(name)
        if found is None or dtype not in _HALVES:
            return found
        return elementwise.through_float32(found)

    def hosted(self, name: str, dtype: DType) -> Kernel:
        return differentiable(name, super().hosted(name, dtype), taped_rule(self, name))

    # --- Arrays -----------------------------------------------------------------------------

    def from_numpy(
        self, array: np.ndarray[Any, Any], spec: Spec, copy: bool | None = None
    ) -> NativeArray:
        if copy is False and array.size:
            raise CopyError("MLX copies what it takes from others; copy=False cannot be met")
        if not array.size:
            # Imported ones have strides of zero, with which reductions read beyond them.
            return self._made(mx.zeros(array.shape, dtype=self.native_dtypes[spec.dtype]))
        if any(stride < 0 for stride in array.strides):
            array = array.copy()  # MLX reads arrays through DLPack, which refuses these
        # Without the dtype, MLX makes float32 of float64.
        return mx.array(array, dtype=self.native_dtypes[spec.dtype])

    def to_numpy(self, native: NativeArray, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = host_view(native)
        return aligned.copy(array) if copy else array

    def full(self, shape: tuple[int, ...], value: object, spec: Spec) -> NativeArray:
        if math.prod(shape) <= _SMALL:
            return self.from_numpy(np.full(shape, value, spec.dtype.numpy), spec)
        with self._placed(spec.dtype):
            return self._made(mx.full(shape, self.scalar(value, spec)))

    def _made(self, native: NativeArray) -> NativeArray:
        """A new array with its values: a lazy one belongs to its thread."""
        evaluated(native)
        return native

    def cast(self, native: NativeArray, dtype: DType) -> NativeArray:
        target = self.native_dtypes[dtype]
        if native.dtype == target:
            return native
        own = self.dtype_of(native)
        with self._placed(dtype if dtype is dtypes.float64 else own):
            if own.is_inexact and not dtype.is_inexact:
                native = mx.stop_gradient(native)  # MLX would take steps for a straight line
            return native.astype(target)

    def copy(self, native: NativeArray) -> NativeArray:
        with self._placed(self.dtype_of(native)):
            return mx.array(native)

    def getitem(self, native: NativeArray, key: tuple[Any, ...]) -> NativeArray:
        with self._placed(self.dtype_of(native)):
            return indexing.get(native, key)

    def setitem(self, native: NativeArray, key: tuple[Any, ...], value: NativeArray) -> NativeArray:
        with self._placed(self.dtype_of(native)):
            return indexing.put(native, key, value)

    def finish(self, native: NativeArray) -> None:
        require_values(native)

    def read_layout(self, root: NativeArray, layout: Layout) -> NativeArray:
        with self._placed(self.dtype_of(root)):
            return layouts.read(root, layout)

    def write_layout(
        self, root: NativeArray, layout: Layout, value: NativeArray, sole: bool
    ) -> NativeArray:
        with self._placed(self.dtype_of(root)):
            return layouts.write(root, layout, value, sole)

    def leaks(self, before: NativeArray, after: NativeArray) -> bool:
        # MLX tells tracers only by trying to compute them, so this is asked where we trace.
        return tracing() and evaluated(before) and not evaluated(after)

    def is_traced(self, native: NativeArray) -> bool:
        return not evaluated(native)

    def is_differentiated(self, native: NativeArray) -> bool:
        # Within a transform arrays have values, and nothing tells them from others.
        return TRANSFORMING.get() or not evaluated(native)

    def detach(self, native: NativeArray) -> NativeArray:
        return mx.stop_gradient(native)

    # --- DLPack -----------------------------------------------------------------------------

    def to_dlpack(
        self,
        native: NativeArray,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        require_values(native)
        if any(stride < 0 for stride in memoryview(native).strides or ()):
            # Importers may end the process on these; a copy was not to be made then.
            if copy is False:
                raise CopyError("a reversed tensor can be exported through DLPack only by a copy")
            native = mx.contiguous(native)
        return native.__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def from_dlpack(self, source: Any, copy: bool | None) -> NativeArray:
        if int(source.__dlpack_device__()[0]) == dlpack.CPU:
            return super().from_dlpack(source, copy)
        if copy is False:
            raise CopyError("MLX copies what it takes from others; copy=False cannot be met")
        return mx.from_dlpack(source)

    # --- Devices ----------------------------------------------------------------------------

    def devices(self) -> tuple[str, ...]:
        return self._devices

    def device_of(self, native: NativeArray) -> str:
        # Memory is shared, so an array lies where it is used: float64 has only one such place.
        default = self._devices[0]
        return "cpu" if default != "cpu" and native.dtype == mx.float64 else default

    def supports(self, dtype: DType, device: str) -> bool:
        return dtype in self.native_dtypes and (dtype is not dtypes.float64 or device == "cpu")

    def synchronize(self, device: str) -> None:
        mx.synchronize(mx.default_stream(_device(device)))

    def memory_info(self, device: str) -> dict[str, int]:
        active = mx.get_active_memory()
        return {
            "allocated": active,
            "reserved": active + mx.get_cache_memory(),
            "peak": mx.get_peak_memory(),
            "total": host_memory()["total"],
        }

    def memory_counter(self, device: str) -> str:
        return "unified"

    def reset_peak_memory(self, device: str) -> bool:
        mx.reset_peak_memory()
        return True

    def clear_cache(self, device: str) -> None:
        mx.clear_cache()

    def _placed(self, dtype: DType) -> AbstractContextManager[Any]:
        """Where work on arrays of a dtype runs: on the CPU for what the GPU lacks."""
        if dtype is dtypes.float64 and self._devices[0] != "cpu":
            return mx.stream(mx.cpu)
        return nullcontext()


def _device(name: str) -> Any:
    if name == "cpu":
        return mx.Device(mx.cpu, 0)
    return mx.Device(mx.gpu, int(name.partition(":")[2] or 0))


def _under(kernel: Kernel, device: Any) -> Kernel:
    """A kernel that runs on a device other than the default one."""

    def run(*args: Any, **options: Any) -> NativeArray:
        with mx.stream(device):
            return kernel(*args, **options)

    return run


def load() -> MlxBackend:
    """The MLX backend."""
    return MlxBackend(sys.modules[__name__])
