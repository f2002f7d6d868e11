"""PyTorch: arrays are torch.Tensor, on the CPU or on an accelerator.

What differs from the standard lies beside this file: `kernels` and `elementwise` hold what torch
names or does otherwise, `unsigned` the integers it lacks kernels for, `indexing` its keys,
`hosting` whose memory it uses.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, Final

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.dlpack import from_dlpack

from ember_ml import dtypes
from ember_ml.backend import aligned, dlpack
from ember_ml.backend.compiling import FROM_OUTSIDE, READ
from ember_ml.backend.contract import Backend, Kernel, NativeArray, Spec, host_memory
from ember_ml.backend.torch import (
    accelerators,
    elementwise,
    hosting,
    indexing,
    kernels,
    layouts,
    linearalg,
    losses,
    network,
    ordering,
    random,
    scattering,
    signal,
    special,
    tracing,
    unsigned,
    updating,
)
from ember_ml.backend.torch.compiling import TorchCompiler
from ember_ml.backend.torch.control import TorchControl
from ember_ml.backend.torch.gradients import TorchGradients
from ember_ml.dtypes import DType
from ember_ml.errors import CopyError, ReadOnlyError, TraceError
from ember_ml.tensor.layout import Layout

__all__ = ["TorchBackend", "load"]

# torch before 2.9 exports capsules of the first DLPack only, which consumers must take as well.
_VERSIONED: Final = "max_version" in inspect.signature(torch.Tensor.__dlpack__).parameters
# Dtypes that Metal does not have.
_NOT_ON_MPS: Final = frozenset((dtypes.float64, dtypes.complex128))


class TorchBackend(Backend):
    """Arrays are torch.Tensor; views share memory, and gradients are torch's own."""

    name = "torch"
    native_type = torch.Tensor
    native_types = (torch.Tensor,)
    native_dtypes = {d: getattr(torch, d.name) for d in dtypes.ALL}
    namespaces = {"": (torch,), "linalg": (torch.linalg,), "fft": (torch.fft,)}
    overrides = (
        kernels.OVERRIDES
        | ordering.OVERRIDES
        | special.OVERRIDES
        | linearalg.OVERRIDES
        | scattering.OVERRIDES
        | random.OVERRIDES
        | losses.OVERRIDES
        | signal.OVERRIDES
        | network.OVERRIDES
        | updating.OVERRIDES
    )
    whole = kernels.WHOLE
    aliases = kernels.ALIASES
    mutable = True
    records = True
    control_class = TorchControl
    gradients_class = TorchGradients
    compiler_class = TorchCompiler

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module)
        self._devices = accelerators.names()
        self._device_names: dict[torch.device, str] = {}

    # --- Kernels ----------------------------------------------------------------------------

    def kernel(self, name: str, dtype: DType) -> Kernel:
        if dtype in unsigned.SIGNED:
            return unsigned.kernel(self, name, dtype)
        if name in kernels.HOSTED.get(dtype.kind, ()):
            return self.hosted(name, dtype)
        if name == "cbrt":
            return elementwise.cbrt(super().kernel(name, dtype))
        found = elementwise.BY_KIND[dtype.kind].get(name)
        return super().kernel(name, dtype) if found is None else found

    # --- Arrays -----------------------------------------------------------------------------

    def from_numpy(
        self, array: np.ndarray[Any, Any], spec: Spec, copy: bool | None = None
    ) -> NativeArray:
        here = spec.device == "cpu"
        shareable = hosting.is_shareable(array)
        if copy is False and not (here and shareable):
            raise CopyError(
                f"torch cannot share the memory of a NumPy array with strides {array.strides} "
                f"on '{spec.device}'; let it copy"
            )
        if (copy and here) or not shareable:
            array = aligned.copy(array)
        made = hosting.share(array, spec.dtype)
        return made if here else made.to(spec.device)

    def to_numpy(self, native: NativeArray, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if tracing.is_fake(native):
            raise TraceError(f"{READ}; torch traces it")
        plain = _plain(native)
        array = hosting.to_host(plain)
        if copy is None:
            return array
        shared = native.is_cpu and plain.data_ptr() == native.data_ptr()
        if copy:
            return aligned.copy(array) if shared else array
        if not shared and plain.numel():
            raise CopyError(
                f"a tensor on '{native.device}' that may put off a conjugation reaches NumPy "
                f"only by a copy; let it copy"
            )
        return array

    def from_backend(
        self, native: NativeArray, source: Backend, spec: Spec, copy: bool | None = None
    ) -> NativeArray:
        made = super().from_backend(native, source, spec, copy)
        if spec.device != "cpu" and not copy and not source.mutable:
            hosting.borrow(made)  # on a GPU, DLPack hands JAX's own memory to torch
        return made

    def scalar(self, value: object, spec: Spec) -> NativeArray:
        with np.errstate(all="ignore"):
            array = np.array(value, dtype=spec.dtype.numpy)
        # Scalars are kept. One made in inference mode could not be saved for a gradient, and one
        # made while a function is traced would belong to that trace.
        with torch.inference_mode(False), _disable_current_modes():
            return self.from_numpy(array, spec)

    def full(self, shape: tuple[int, ...], value: object, spec: Spec) -> NativeArray:
        if type(value) is int and 0 <= value < 128:
            native = self.native_dtypes[spec.dtype]
            return torch.full(shape, value, dtype=native, device=spec.device)
        # torch.full refuses what overflows the dtype; NumPy's scalar is the infinity.
        return self.empty(shape, spec).fill_(spec.scalar(value))

    def empty(self, shape: tuple[int, ...], spec: Spec) -> NativeArray:
        return torch.empty(shape, dtype=self.native_dtypes[spec.dtype], device=spec.device)

    def cast(self, native: NativeArray, dtype: DType) -> NativeArray:
        return native.to(self.native_dtypes[dtype])

    def copy(self, native: NativeArray) -> NativeArray:
        return native.clone()

    def getitem(self, native: NativeArray, key: tuple[Any, ...]) -> NativeArray:
        return indexing.get(native, key)

    def setitem(self, native: NativeArray, key: tuple[Any, ...], value: NativeArray) -> NativeArray:
        _require_own_memory(native)
        if hosting.is_borrowed(native):
            native = native.clone()
        elif self.shares_memory(native, value):
            value = value.clone()
        indexing.put(unsigned.as_signed(native), key, unsigned.as_signed(value))
        return native

    def put_own(self, native: NativeArray, key: tuple[Any, ...], value: NativeArray) -> NativeArray:
        native[key] = value
        return native

    def assign(self, native: NativeArray, value: NativeArray) -> NativeArray:
        _require_own_memory(native)
        if hosting.is_borrowed(native):
            return value
        return native.copy_(value)

    def is_borrowed(self, native: NativeArray) -> bool:
        return hosting.is_borrowed(native)

    def shares_memory(self, a: NativeArray, b: NativeArray) -> bool:
        if self.is_traced(a) or self.is_traced(b):
            return a is b
        if a.device != b.device or not a.numel() or not b.numel():
            return False
        first, second = _extent(a), _extent(b)
        return first[0] < second[1] and second[0] < first[1]

    def is_view(self, native: NativeArray, base: NativeArray) -> bool:
        if tracing.is_fake(native):  # without an address
            first, second = native.untyped_storage(), base.untyped_storage()
            return bool(first._cdata == second._cdata)
        return bool(native.data_ptr() == base.data_ptr())

    def copy_memory(self, native: NativeArray) -> NativeArray | None:
        made = native.clone(memory_format=torch.preserve_format)
        return made if made.stride() == native.stride() else None

    def rebase(self, view: NativeArray, old: NativeArray, new: NativeArray) -> NativeArray:
        offset = view.storage_offset() - old.storage_offset() + new.storage_offset()
        return new.as_strided(view.shape, view.stride(), offset)

    def memory_of(self, native: NativeArray) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
        size = native.element_size()
        strides = tuple(stride * size for stride in native.stride())
        return native.data_ptr(), tuple(native.shape), strides, size

    def read_layout(self, root: NativeArray, layout: Layout) -> NativeArray:
        return layouts.read(root, layout)

    def write_layout(
        self, root: NativeArray, layout: Layout, value: NativeArray, sole: bool
    ) -> NativeArray:
        if tracing.is_outside(root):
            raise TraceError(FROM_OUTSIDE)
        layouts.write(root, layout, value)
        return root

    def is_traced(self, native: NativeArray) -> bool:
        return tracing.is_traced(native)

    def recording(self, mode: bool) -> AbstractContextManager[Any]:
        return torch.set_grad_enabled(mode)

    def is_recording(self) -> bool:
        return torch.is_grad_enabled()

    def require_grad(self, native: NativeArray) -> NativeArray:
        self.gradients.has_leaves = True
        if native.requires_grad:
            return native
        # A leaf is written to by whoever trains it: in memory of its own.
        return (native.clone() if self.is_borrowed(native) else native.detach()).requires_grad_()

    def detach(self, native: NativeArray) -> NativeArray:
        return native.detach()

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
        # The device is the tensor's own: tensor/core.py moves it first where it is not.
        plain = native.detach().resolve_conj().resolve_neg()
        if copy:
            plain = plain.clone()
        elif plain.numel() and plain.data_ptr() != native.data_ptr() and copy is False:
            raise CopyError("a conjugate that torch has put off leaves it only by a copy")
        options: dict[str, Any] = {} if stream is None else {"stream": stream}
        versioned = _VERSIONED and max_version is not None and max_version >= (1, 0)
        if versioned:
            options["max_version"] = max_version
        if not hosting.is_borrowed(plain):
            return plain.__dlpack__(**options)
        if versioned:
            return dlpack.forbid_writing(plain.__dlpack__(**options))
        if copy is False:
            raise CopyError("memory that is read-only leaves through DLPack before 1.0 by a copy")
        return plain.clone().__dlpack__(**options)

    def from_dlpack(self, source: Any, copy: bool | None) -> NativeArray:
        if int(source.__dlpack_device__()[0]) == dlpack.CPU:
            # Through NumPy: torch ends the process on a negative stride (pytorch#188023).
            return super().from_dlpack(source, copy)
        made = from_dlpack(source)
        return made.clone() if copy else made

    # --- Devices ----------------------------------------------------------------------------

    def device_of(self, native: NativeArray) -> str:
        device = native.device
        found = self._device_names.get(device)
        if found is None:
            # There is one Metal device, and torch writes it with and without its number.
            name = "mps" if device.type == "mps" else str(device)
            found = self._device_names[device] = name
        return found

    def supports(self, dtype: DType, device: str) -> bool:
        return dtype in self.native_dtypes and not (device == "mps" and dtype in _NOT_ON_MPS)

    def devices(self) -> tuple[str, ...]:
        return self._devices

    def canonical_device(self, device: str) -> str:
        # Without a number, it is the one that this process has among those of its machine.
        own = (one for one in self._devices if one.partition(":")[0] == str(device))
        return next(own, None) or super().canonical_device(device)

    def to_device(self, native: NativeArray, device: str) -> NativeArray:
        return native.to(device)

    def synchronize(self, device: str) -> None:
        accelerators.synchronize(device)

    def memory_info(self, device: str) -> dict[str, int]:
        return host_memory() if device == "cpu" else accelerators.memory_info(device)

    def memory_counter(self, device: str) -> str:
        return "" if device == "cpu" else device

    def reset_peak_memory(self, device: str) -> bool:
        return device != "cpu" and accelerators.reset_peak_memory(device)

    def clear_cache(self, device: str) -> None:
        if device != "cpu":
            accelerators.clear_cache(device)


def _plain(native: NativeArray) -> NativeArray:
    """The values in host memory, free of gradients and of conjugations that are put off."""
    if native.requires_grad:
        native = native.detach()
    return native.resolve_conj().resolve_neg().cpu()


def _require_own_memory(native: NativeArray) -> None:
    """Raise where several elements are one place in memory, or the array outlives a trace."""
    if tracing.is_outside(native):
        raise TraceError(FROM_OUTSIDE)
    strides = native.stride()
    if 0 not in strides or not native.numel():  # nothing lies anywhere
        return
    if any(side > 1 and not step for side, step in zip(native.shape, strides, strict=True)):
        raise ReadOnlyError("a broadcast tensor cannot be written to; write to a .copy() of it")


def _extent(native: NativeArray) -> tuple[int, int]:
    """The first address of an array that has elements, and the one behind its last."""
    start = native.data_ptr()
    sides = zip(native.shape, native.stride(), strict=True)
    last = sum((side - 1) * stride for side, stride in sides)
    return start, start + (last + 1) * native.element_size()


def load() -> TorchBackend:
    """The torch backend."""
    return TorchBackend(sys.modules[__name__])
