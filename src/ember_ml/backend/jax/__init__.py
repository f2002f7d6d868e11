"""JAX: immutable arrays, compiled by XLA; 64-bit types are switched on when it is loaded."""

from __future__ import annotations

import math
import sys
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ember_ml import devices as _devices
from ember_ml import dtypes
from ember_ml.backend import aligned, dlpack, processes
from ember_ml.backend.contract import Backend, Kernel, NativeArray, Spec, host_memory
from ember_ml.backend.jax import (
    alignment,
    hosting,
    kernels,
    layouts,
    linearalg,
    network,
    ordering,
    random,
    scattering,
    signal,
    special,
    windows,
)
from ember_ml.backend.jax.compiling import JaxCompiler
from ember_ml.backend.jax.control import JaxControl
from ember_ml.backend.jax.gradients import JaxGradients
from ember_ml.dtypes import DType
from ember_ml.errors import CopyError, ShapeError, UnsupportedOpError
from ember_ml.tensor.layout import Layout

__all__ = ["JaxBackend", "load"]

# jax.Device is a variable to type checkers, and no type.
Device = Any
# Up to this many elements a constant is made on the host: quicker, and nothing is compiled.
_SMALL = 1024
# From this many bytes on, NumPy's copy is much quicker than JAX's: see backend/aligned.py.
_COPIED_BY_JAX = 1 << 14
# JAX calls either of them "gpu".
_GPU = ("cuda", "rocm")
# JAX refuses to export what asks for less; without a version it gives its oldest.
_DLPACK_OLDEST = (0, 5)


# Several processes must have met before the first of them computes anything.
processes.join_if_launched()

with jax.ensure_compile_time_eval():  # the backend may be loaded within a function that is traced
    _ORDINARY = type(jnp.zeros(()))


class JaxBackend(Backend):
    """Arrays are jax.Array; under a transformation they are tracers, which are taken alike."""

    name = "jax"
    native_type = _ORDINARY
    native_types = (jax.Array,)
    native_dtypes = {d: d.numpy for d in dtypes.ALL}
    namespaces = {"": (jnp,), "linalg": (jnp.linalg,), "fft": (jnp.fft,)}
    overrides = (
        kernels.OVERRIDES
        | linearalg.OVERRIDES
        | ordering.OVERRIDES
        | special.OVERRIDES
        | scattering.OVERRIDES
        | alignment.OVERRIDES
        | random.OVERRIDES
        | signal.OVERRIDES
        | network.OVERRIDES
    )
    defers = True
    compiles_shapes = True
    control_class = JaxControl
    gradients_class = JaxGradients
    compiler_class = JaxCompiler

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module)
        self._devices = _named_devices()
        self._names = {device: name for name, device in self._devices.items()}

    def kernel(self, name: str, dtype: DType) -> Kernel:
        if name in windows.LARGEST:
            return network.compiled(windows.largest(name, self), network.ARRAYS[name])
        if name in network.ARRAYS and name not in self.overrides:
            return network.compiled(self.portable(name), network.ARRAYS[name])
        return kernels.of_dtype(name, dtype) or super().kernel(name, dtype)

    # --- Arrays -----------------------------------------------------------------------------

    def from_numpy(
        self, array: np.ndarray[Any, Any], spec: Spec, copy: bool | None = None
    ) -> NativeArray:
        device = self._devices[spec.device]
        here = device.platform == "cpu"
        if not copy and here:
            shared = hosting.share(array, device)
            if shared is not None:
                return shared
        if copy is False and array.size:
            raise CopyError(
                f"JAX shares host memory that is {aligned.ALIGNMENT}-byte aligned and has no gaps, "
                f"not this array of shape {array.shape} and strides {array.strides}; let it copy"
            )
        if here and not hosting.within_trace():
            # jnp.array would compile a program for each shape and dtype.
            return hosting.take(aligned.copy(array, _COPIED_BY_JAX), device)
        # What is made within a trace is a value of it: then it may be written to there.
        mine = array.copy() if here else array
        return jnp.array(mine, device=self._elsewhere(spec.device))

    def to_numpy(self, native: NativeArray, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return hosting.to_numpy(native, copy)

    def scalar(self, value: object, spec: Spec) -> NativeArray:
        array = np.array(value, dtype=spec.dtype.numpy)
        if self._elsewhere(spec.device) is None:
            return array  # a host constant has no trace, so one that jit has met can be kept
        with jax.ensure_compile_time_eval():
            return self.from_numpy(array, spec, copy=True)

    def full(self, shape: tuple[int, ...], value: object, spec: Spec) -> NativeArray:
        number = np.array(value, dtype=spec.dtype.numpy)
        if math.prod(shape) <= _SMALL:
            return self.from_numpy(np.full(shape, number), spec, copy=True)
        # Under jit, a large constant would be stored in the program.
        return jnp.full(shape, number, device=self._elsewhere(spec.device))

    def cast(self, native: NativeArray, dtype: DType) -> NativeArray:
        if native.dtype == dtype.numpy:
            return native
        if dtype is dtypes.bool:
            return kernels.truth(native)
        return kernels.cast(native, dtype.numpy)

    def copy(self, native: NativeArray) -> NativeArray:
        return kernels.copy(native)

    def getitem(self, native: NativeArray, key: tuple[Any, ...]) -> NativeArray:
        if key and all(type(item) is int for item in key):
            return kernels.pick(native, key)
        host = _host_key(native, key)
        if host is not None:
            found = np.asarray(hosting.to_numpy(native, None)[host], order="C")
            return hosting.take(found, next(iter(native.devices())))
        try:
            shape, key = _spread_truths(native.shape, key)
            return native[key] if shape == native.shape else native.reshape(shape)[key]
        except (
            jax.errors.NonConcreteBooleanIndexError,
            jax.errors.ConcretizationTypeError,
        ) as error:
            raise UnsupportedOpError(
                "a traced mask picks a number of elements that jit cannot know; use ops.where"
            ) from error

    def setitem(self, native: NativeArray, key: tuple[Any, ...], value: NativeArray) -> NativeArray:
        host = _host_key(native, key)
        if host is not None and (isinstance(value, np.ndarray) or kernels.in_place(value)):
            written = aligned.copy(hosting.to_numpy(native, None))
            written[host] = np.asarray(value)
            return hosting.take(written, next(iter(native.devices())))
        if value.ndim:
            # NumPy passes over leading axes of length one, JAX refuses them.
            leading = next((i for i, side in enumerate(value.shape) if side != 1), value.ndim)
            value = value.reshape(value.shape[leading:]) if leading else value
            _require_fit(native.shape, key, value.shape)
        shape, key = _spread_truths(native.shape, key)
        if shape == native.shape:
            return native.at[key].set(value)
        return native.reshape(shape).at[key].set(value).reshape(native.shape)

    def read_layout(self, root: NativeArray, layout: Layout) -> NativeArray:
        return layouts.read(root, layout)

    def write_layout(
        self, root: NativeArray, layout: Layout, value: NativeArray, sole: bool
    ) -> NativeArray:
        return layouts.write(root, layout, value, sole)

    def leaks(self, before: NativeArray, after: NativeArray) -> bool:
        if not isinstance(after, Tracer):
            return False
        # A loop or a gradient within a traced function is a trace of its own, which ends earlier.
        return not isinstance(before, Tracer) or before._trace is not after._trace

    def is_traced(self, native: NativeArray) -> bool:
        return isinstance(native, Tracer)

    def detach(self, native: NativeArray) -> NativeArray:
        return jax.lax.stop_gradient(native) if isinstance(native, Tracer) else native

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
        if max_version is not None and max_version < _DLPACK_OLDEST:
            max_version = None
        return super().to_dlpack(
            native, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def from_dlpack(self, source: Any, copy: bool | None) -> NativeArray:
        if int(source.__dlpack_device__()[0]) == dlpack.CPU:
            return super().from_dlpack(source, copy)
        native = jnp.from_dlpack(source)
        return self.copy(native) if copy else native

    # --- Devices ----------------------------------------------------------------------------

    def device_of(self, native: NativeArray) -> str:
        if type(native) is not self.native_type:
            return _devices.current_device(self)  # traced values are where the user computes
        device = native.device
        if not isinstance(device, jax.Device):  # one array over several devices
            device = min(device.device_set, key=lambda d: d.id)
        return self._names[device]

    def devices(self) -> tuple[str, ...]:
        return tuple(self._devices)

    def canonical_device(self, device: str) -> str:
        stem, colon, index = str(device).partition(":")
        if stem in _GPU and "gpu:0" in self._devices:
            return super().canonical_device("gpu" + colon + index)
        return super().canonical_device(device)

    def to_device(self, native: NativeArray, device: str) -> NativeArray:
        return jax.device_put(native, self._devices[device])

    def synchronize(self, device: str) -> None:
        jax.effects_barrier()
        target = self._devices[device]
        for array in jax.live_arrays():
            if target in array.devices():
                array.block_until_ready()

    def memory_info(self, device: str) -> dict[str, int]:
        stats = self._devices[device].memory_stats()
        if not stats:  # the CPU client counts nothing
            return host_memory()
        names = {
            "allocated": "bytes_in_use",
            "reserved": "bytes_reserved",
            "peak": "peak_bytes_in_use",
            "total": "bytes_limit",
        }
        return {ours: int(stats[theirs]) for ours, theirs in names.items() if theirs in stats}

    def memory_counter(self, device: str) -> str:
        return device if self._devices[device].memory_stats() else ""

    def _elsewhere(self, name: str) -> Device | None:
        """The device of a name; None where JAX would place an array anyway."""
        device = self._devices[name]
        return None if device == jax.local_devices()[0] else device


def _named_devices() -> dict[str, Device]:
    """This process's devices by name, the default one first: "cpu", "cpu:1", "gpu:0", "tpu:0"."""
    found = list(jax.local_devices())
    if found[0].platform != "cpu":
        found += jax.local_devices(backend="cpu")
    named: dict[str, Device] = {}
    for device in found:
        index = sum(1 for other in named.values() if other.platform == device.platform)
        first_cpu = device.platform == "cpu" and not index
        named["cpu" if first_cpu else f"{device.platform}:{index}"] = device
    return named


def _host_key(native: NativeArray, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """A key with arrays as NumPy reads it, where all lies in host memory.

    JAX takes such keys apart op by op, and compiles a program for each number of elements found.
    """
    arrays = [item for item in key if hasattr(item, "shape")]
    if not arrays or hosting.within_trace() or not all(map(kernels.in_place, (native, *arrays))):
        return None
    return tuple(np.asarray(item) if hasattr(item, "shape") else item for item in key)


def _spread_truths(
    shape: tuple[int, ...], key: tuple[Any, ...]
) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """A key without 0-d masks, and the shape of the array that it is for.

    JAX misreads them beside None. They mean a new axis of length one, taken or not.
    """
    spans = [_span(item) for item in key]
    if -1 not in spans:
        return shape, key
    axis, sides, items = 0, list(shape), list(key)
    for place, (item, span) in enumerate(zip(key, spans, strict=True)):
        if item is Ellipsis:
            axis += len(shape) - sum(s for s in spans if s > 0)
        elif span == -1:
            sides.insert(axis, 1)
            items[place] = np.zeros(int(item), dtype=int)
        axis += abs(span)
    return tuple(sides), tuple(items)


def _span(item: Any) -> int:
    """How many axes an item of a key takes; -1 for a 0-d mask, which makes its own."""
    if item is None or item is Ellipsis:
        return 0
    if getattr(item, "dtype", None) == np.bool_:
        return item.ndim or -1
    return 1


def _require_fit(shape: tuple[int, ...], key: tuple[Any, ...], given: tuple[int, ...]) -> None:
    """Raise ShapeError for a value that does not broadcast; JAX lets it pass where none is set."""
    arrays = [item for item in key if hasattr(item, "shape")]
    if all(map(kernels.readable, arrays)):
        host = tuple(np.asarray(item) if hasattr(item, "shape") else item for item in key)
        target = np.broadcast_to(np.False_, shape)[host].shape
        if np.broadcast_shapes(target, given) != target:
            raise ShapeError(f"a value of shape {given} does not fit elements of shape {target}")


def load() -> JaxBackend:
    """The JAX backend."""
    # Without it JAX turns 64-bit input into 32 bits in silence.
    jax.config.update("jax_enable_x64", True)
    return JaxBackend(sys.modules[__name__])
