"""What a backend is: the contract of an engine, the spec of its tensors, and how kernels settle.

A backend lists only what its engine does differently. Kernels are plain functions over native
arrays, named after the ops; each is settled once for each dtype, when it is first used:

    the backend's own override -> the engine's function of that name -> the portable version,
    written over settled kernels -> a function that raises UnsupportedOpError
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.backend import aligned, checks, dlpack
from ember_ml.backend.compiling import Compiler
from ember_ml.backend.control import Control
from ember_ml.backend.gradients import Gradients
from ember_ml.backend.namespaces import Kernels
from ember_ml.backend.pairs import NUMBERS
from ember_ml.backend.spec import Entry, Kernel, NativeArray, Spec
from ember_ml.dtypes import DType
from ember_ml.errors import CopyError, DeviceError, DTypeError, UnsupportedOpError

if TYPE_CHECKING:
    from ember_ml.tensor.layout import Layout

__all__ = ["Backend", "Entry", "Kernel", "Kernels", "NativeArray", "Spec", "host_memory"]


class Backend(ABC):
    """An engine behind ember_ml. Subclass it, fill in the engine's differences, register it.

    Kernels take native arrays and positional options in the order of the array API standard
    (reductions: `axis=` and `keepdims=` by keyword, or neither) and return native arrays.
    """

    name: ClassVar[str]
    # The class of ordinary arrays.
    native_type: type
    # True where kernels may give results of another class; they go through `settle_native`.
    settles: bool = False
    # Every class that is taken as an input of this backend, tracers and parameters included.
    native_types: tuple[type, ...]
    # Engine dtype of each DType that exists here.
    native_dtypes: Mapping[DType, Any]
    # Where functions are looked up, by chapter: "" the main namespace, "linalg", "fft".
    namespaces: Mapping[str, tuple[object, ...]]
    # Kernels of this backend's own, by full op name.
    overrides: Mapping[str, Kernel]
    # For the kernel of a reduction, the one that reduces all axes with fewer steps.
    whole: Mapping[Kernel, Kernel] = {}
    # The engine's name for an op where it differs from the standard's.
    aliases: Mapping[str, str] = {}
    # Functions of the engine that share a name with an op but not its meaning.
    shadowed: frozenset[str] = frozenset()
    # False where views are results of ops: what is traced has no memory to look at.
    windows: bool = True
    # True where tensors of other backends are taken as constants: see `adopt`.
    adopts: bool = False
    # True where a native array can be written in place, and its slices are views of it.
    mutable: bool = False
    # True where the engine compiles each operation anew for each shape that it meets.
    compiles_shapes: bool = False
    # True where the engine keeps the record of gradients itself: see autodiff/tape.py.
    records: bool = False
    # True where views can run backwards.
    reverses: bool = False
    # The largest number of axes; None where there is no limit.
    max_ndim: int | None = 64
    # True where the engine itself raises IndexError for integer arrays out of bounds.
    checks_indices: bool = False
    # True where host memory may be read after a call has returned.
    defers: bool = False
    # How branches, loops and batches run where values cannot be read: see backend/control.py.
    control_class: type[Control] = Control
    # How functions are differentiated: see backend/gradients.py.
    gradients_class: type[Gradients] = Gradients
    # How functions are compiled: see backend/compiling.py.
    compiler_class: type[Compiler] = Compiler

    def __init__(self, module: ModuleType) -> None:
        self.module: Final = module
        self.kernels: Final = Kernels(self)
        self.control: Final = self.control_class(self)
        self.gradients: Final = self.gradients_class(self)
        self.compiler: Final = self.compiler_class(self)
        self._specs: Final[dict[tuple[DType, str], Spec]] = {}
        self._dtype_of: Final[dict[Any, DType]] = {
            native: dtype for dtype, native in self.native_dtypes.items()
        }

    def __repr__(self) -> str:
        return f"<backend {self.name!r}>"

    # --- Specs ------------------------------------------------------------------------------

    def spec(self, dtype: DType, device: str | None = None) -> Spec:
        """The spec of a dtype on a device (the canonical name; None is the default one)."""
        key = (dtype, device or self.default_device())
        found = self._specs.get(key)
        if found is None:
            self.require_dtype(dtype, key[1])
            found = self._specs.setdefault(key, Spec(self, *key))
        return found

    def spec_of(self, native: NativeArray) -> Spec:
        """The spec of a native array."""
        return self.spec(self.dtype_of(native), self.device_of(native))

    def supports(self, dtype: DType, device: str) -> bool:
        """True where tensors of `dtype` can live on `device`."""
        return dtype in self.native_dtypes

    def require_dtype(self, dtype: DType, device: str) -> None:
        """Raise DTypeError where `dtype` does not exist on `device`."""
        if not self.supports(dtype, device):
            have = ", ".join(d.name for d in self.native_dtypes if self.supports(d, device))
            raise DTypeError(
                f"the '{self.name}' backend has no {dtype} on device '{device}'; it has {have}"
            )

    def dtype_of(self, native: NativeArray) -> DType:
        """The DType of a native array."""
        found = self._dtype_of.get(native.dtype)
        if found is None:
            raise DTypeError(
                f"the '{self.name}' backend holds a {native.dtype} array, "
                f"which is no dtype of ember_ml; cast it first"
            )
        return found

    def device_of(self, native: NativeArray) -> str:
        """The canonical name of the device that holds a native array."""
        return "cpu"

    # --- Kernels ----------------------------------------------------------------------------

    def entry(self, spec: Spec, name: str) -> Entry:
        """The settled kernel of an op for tensors of `spec`, and the spec of its result."""
        found = spec.kernels.get(name)
        if found is None:
            found = spec.kernels[name] = _settle(spec, name)
        return found

    def resettle(self, names: Iterable[str]) -> None:
        """Find some kernels anew where they are asked for next."""
        for spec in list(self._specs.values()):
            for name in names:
                spec.kernels.pop(name, None)
                spec.whole.pop(name, None)
                if name in NUMBERS:
                    spec.pairs[NUMBERS[name]] = None

    def kernel(self, name: str, dtype: DType) -> Kernel:
        """The kernel that runs op `name` on arrays of `dtype`.

        Backends override this where a whole family of dtypes takes another way.
        """
        found = self.overrides.get(name)
        if found is not None:
            return found
        chapter, _, short = name.rpartition(".")
        if name not in self.shadowed:
            for namespace in self.namespaces.get(chapter, ()):
                found = getattr(namespace, self.aliases.get(name, short), None)
                if found is not None:
                    return found  # type: ignore[no-any-return]  # the engine is untyped here
        return self.portable(name)

    def portable(self, name: str) -> Kernel:
        """The portable kernel of an op over this backend's kernels, or one that raises."""
        from ember_ml.backend import portable

        found = portable.KERNELS.get(name)
        if found is None:
            return self.unsupported(name)
        kernels = self.kernels

        def kernel(*args: Any, **options: Any) -> NativeArray:
            return found(kernels, *args, **options)

        return kernel

    def hosted(self, name: str, dtype: DType) -> Kernel:
        """The NumPy backend's kernel of an op, run on this backend's arrays in host memory."""
        from ember_ml.backend import selection

        kernel = selection.load("numpy").kernel(name, dtype)
        types = self.native_types

        def to_host(value: Any) -> Any:
            if isinstance(value, types):
                return self.to_numpy(value)
            return [to_host(v) for v in value] if isinstance(value, list) else value

        def run(x: NativeArray, *options: Any, **named: Any) -> NativeArray:
            device = self.device_of(x[0] if isinstance(x, list) else x)
            out = kernel(to_host(x), *map(to_host, options), **named)

            def back(array: Any) -> NativeArray | None:
                if array is None:  # some have no result in a place
                    return None
                made = np.asarray(array)
                return self.from_numpy(made, self.spec(dtypes.to_dtype(made.dtype), device))

            return tuple(map(back, out)) if isinstance(out, tuple) else back(out)

        return run

    def unsupported(self, name: str, reason: str = "") -> Kernel:
        """A kernel that says that the backend has none."""
        text = f"ops.{name} has no kernel on the '{self.name}' backend" + (reason and f": {reason}")

        def kernel(*args: Any, **options: Any) -> NativeArray:
            raise UnsupportedOpError(text)

        return kernel

    def settle_native(self, native: NativeArray, spec: Spec) -> NativeArray:
        """Make an ordinary array of a result whose class is not `native_type`."""
        return native

    # --- Arrays -----------------------------------------------------------------------------

    @abstractmethod
    def from_numpy(
        self, array: np.ndarray[Any, Any], spec: Spec, copy: bool | None = None
    ) -> NativeArray:
        """A NumPy array whose dtype is that of `spec` as a native array there.

        `copy=None` shares memory where the engine can, `False` raises CopyError where it cannot.
        An array that is read-only may be shared: see `is_borrowed`.
        """

    @abstractmethod
    def to_numpy(self, native: NativeArray, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """A native array as a NumPy array; `copy` as in `from_numpy`.

        Memory that must not be written comes read-only; that of a copy can be written.
        """

    def from_backend(
        self, native: NativeArray, source: Backend, spec: Spec, copy: bool | None = None
    ) -> NativeArray:
        """A native array of another backend as one of this, of `spec`; `copy` as in `from_numpy`.

        It goes through host memory unless both lie on a GPU.
        """
        if not spec.device.startswith("cpu") and source.dlpack_device(native)[0] in dlpack.GPUS:
            made = self.from_dlpack(source.detach(native), copy)
            if copy is False and self.device_of(made) != spec.device:
                raise CopyError(f"copy=False cannot lead to the device '{spec.device}'")
            return self.to_device(made, spec.device)
        array = source.to_numpy(native, False if copy is False else None)
        return self.from_numpy(array, spec, copy)

    def adopt(self, x: Any) -> Any:
        """A tensor of another backend as one of this; asked where `adopts` says so."""
        raise UnsupportedOpError(f"the '{self.name}' backend takes no tensors of others")

    def is_borrowed(self, native: NativeArray) -> bool:
        """True where a write must go to a copy: the memory is that of someone who forbids it.

        NumPy arrays say so themselves; other engines whose arrays can be written keep a mark.
        """
        return False

    def scalar(self, value: object, spec: Spec) -> NativeArray:
        """A 0-d operand of `spec` for a Python number."""
        return self.from_numpy(np.array(value, dtype=spec.dtype.numpy), spec, copy=True)

    def is_number(self, native: NativeArray) -> bool:
        """True for an array that stands for a Python number among operands."""
        return any(spec.keeps(native) for spec in list(self._specs.values()))

    def full(self, shape: tuple[int, ...], value: object, spec: Spec) -> NativeArray:
        """A new array filled with a Python number."""
        return self.from_numpy(aligned.full(shape, value, spec.dtype.numpy), spec)

    def counted(self, count: int, spec: Spec) -> NativeArray:
        """0, 1, 2 ... in an array of `spec`."""
        return self.from_numpy(np.arange(count, dtype=spec.dtype.numpy), spec)

    def empty(self, shape: tuple[int, ...], spec: Spec) -> NativeArray:
        """A new array whose values do not matter."""
        return self.full(shape, 0, spec)

    @abstractmethod
    def cast(self, native: NativeArray, dtype: DType) -> NativeArray:
        """`native` with another dtype; the same array where it has it already."""

    @abstractmethod
    def copy(self, native: NativeArray) -> NativeArray:
        """A deep copy."""

    def getitem(self, native: NativeArray, key: tuple[Any, ...]) -> NativeArray:
        """`native[key]` for a key that is checked: see tensor/_indexing.py."""
        return native[key]

    def setitem(self, native: NativeArray, key: tuple[Any, ...], value: NativeArray) -> NativeArray:
        """Write `value` (of the same dtype, broadcastable) at a checked key; gives the array."""
        native[key] = value
        return native

    def put_own(self, native: NativeArray, key: tuple[Any, ...], value: NativeArray) -> NativeArray:
        """`setitem` at slices of an array that nobody else sees, so that nothing is asked first."""
        return self.setitem(native, key, value)

    def assign(self, native: NativeArray, value: NativeArray) -> NativeArray:
        """Write all of `value` over `native`; gives the array that holds it."""
        return value

    def shares_memory(self, a: NativeArray, b: NativeArray) -> bool:
        """True where writing one array could change the other."""
        return a is b

    def finish(self, native: NativeArray) -> None:  # noqa: B027 - most engines compute at once
        """Compute an array that is lazy."""

    def is_view(self, native: NativeArray, base: NativeArray) -> bool:
        """True where `native`, made of all elements of `base`, lies in its memory."""
        return self.shares_memory(native, base)

    def copy_memory(self, native: NativeArray) -> NativeArray | None:
        """A copy whose elements lie as those of `native` do; None where there are gaps."""
        return None

    def rebase(self, view: NativeArray, old: NativeArray, new: NativeArray) -> NativeArray:
        """A view of `old` as a view of its copy `new`, whose elements lie in the same order."""
        raise UnsupportedOpError(f"the '{self.name}' backend has no views")

    def memory_of(self, native: NativeArray) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
        """The address of an array, its shape, its strides in bytes, and bytes of an element."""
        raise UnsupportedOpError(f"the '{self.name}' backend does not tell where arrays lie")

    def read_layout(self, root: NativeArray, layout: Layout) -> NativeArray:
        """The elements of `root`, in C order, that a layout names; a view where there are any."""
        indices = self.from_numpy(layout.indices(), self.spec(dtypes.int64, self.device_of(root)))
        return self.getitem(self.kernels.reshape(root, (-1,)), (indices,))

    def write_layout(
        self, root: NativeArray, layout: Layout, value: NativeArray, sole: bool
    ) -> NativeArray:
        """Write a value, which broadcasts, at a layout; gives the array that holds it.

        Where arrays do not change, `sole` says that the memory of `root` may be used again.
        """
        indices = self.from_numpy(layout.indices(), self.spec(dtypes.int64, self.device_of(root)))
        flat = self.setitem(self.kernels.reshape(root, (-1,)), (indices,), value)
        return self.kernels.reshape(flat, tuple(root.shape))

    def leaks(self, before: NativeArray, after: NativeArray) -> bool:
        """True where `after` exists only in a trace that `before` outlives."""
        return False

    def is_traced(self, native: NativeArray) -> bool:
        """True where the array has no values yet, because a compiler is tracing."""
        return False

    def checks_values(self, native: NativeArray) -> bool:
        """True where checks that must read values run on this array: eager, and as chosen."""
        where = checks.mode()
        if where == "none" or self.is_traced(native):
            return False
        return where == "all" or self.device_of(native).startswith("cpu")

    def recording(self, mode: bool) -> AbstractContextManager[Any]:
        """A block in which the engine's own record of gradients is kept, or is not."""
        return nullcontext()

    def is_recording(self) -> bool:
        """True where the engine itself records, in the block that runs now."""
        return False

    def require_grad(self, native: NativeArray) -> NativeArray:
        """An array that the engine's own differentiation, where it has one, records."""
        return native

    def is_differentiated(self, native: NativeArray) -> bool:
        """True where an array may be one that a transform of the engine differentiates by."""
        return self.is_traced(native)

    def detach(self, native: NativeArray) -> NativeArray:
        """The array cut off from the engine's own differentiation."""
        return native

    # --- DLPack -----------------------------------------------------------------------------

    def dlpack_device(self, native: NativeArray) -> tuple[int, int]:
        """Where a native array lies, in DLPack's numbers."""
        kind, index = native.__dlpack_device__()
        return int(kind), int(index)

    def to_dlpack(
        self,
        native: NativeArray,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule of a native array."""
        if copy:
            native = self.copy(native)
        options = {"stream": stream, "max_version": max_version, "dl_device": dl_device}
        return native.__dlpack__(**{k: v for k, v in options.items() if v is not None})

    def from_dlpack(self, source: Any, copy: bool | None) -> NativeArray:
        """A native array of an object with `__dlpack__`, where it lies; `copy` as in the standard.

        Engines that share memory with others of their kind override this for GPUs.
        """
        array = dlpack.to_numpy(source, copy)
        where = "cpu" if "cpu" in self.devices() else self.default_device()
        return self.from_numpy(array, self.spec(dtypes.to_dtype(array.dtype), where), copy)

    # --- Devices ----------------------------------------------------------------------------

    def devices(self) -> tuple[str, ...]:
        """The canonical names of the devices of this machine that the engine can use."""
        return ("cpu",)

    def default_device(self) -> str:
        """The device of new tensors where the user has set none."""
        return self.devices()[0]

    def canonical_device(self, device: str) -> str:
        """The canonical name of a device as users write it; DeviceError where there is none."""
        name = str(device)
        devices = self.devices()
        if name in devices:
            return name
        accelerators = [d for d in devices if not d.startswith("cpu")]
        stem, _, index = name.partition(":")
        if stem == "cpu" and index == "0" and "cpu" in devices:
            return "cpu"
        if accelerators:
            if name == "gpu":
                return accelerators[0]
            for candidate in accelerators:
                if candidate in (f"{stem}:{index or 0}", stem if index in ("", "0") else ""):
                    return candidate
        raise DeviceError(
            f"the '{self.name}' backend has no device '{device}' on this machine; "
            f"it has {', '.join(devices)}"
        )

    def to_device(self, native: NativeArray, device: str) -> NativeArray:
        """`native` on another device (a canonical name)."""
        return native

    def synchronize(self, device: str) -> None:  # noqa: B027 - engines that do not queue need none
        """Wait until all work queued on `device` is done."""

    def memory_info(self, device: str) -> dict[str, int]:
        """Bytes on a device: `allocated` and, where known, `reserved`, `peak` and `total`.

        For host memory that no engine counts, this is the resident memory of the process.
        """
        return host_memory()

    def memory_counter(self, device: str) -> str:
        """A name for the engine's own count behind `memory_info`; empty where it has none.

        Devices that are counted together have the same.
        """
        return ""

    def reset_peak_memory(self, device: str) -> bool:
        """Let the engine's peak begin anew from now; False where it cannot."""
        return False

    def clear_cache(self, device: str) -> None:  # noqa: B027 - engines that hold nothing need none
        """Give back memory that the engine holds in reserve."""


def host_memory() -> dict[str, int]:
    """Bytes that this process holds in main memory, its peak, and the machine's total."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    info = {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    page = os.sysconf("SC_PAGE_SIZE")
    info["total"] = page * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            info["allocated"] = int(statm.read().split()[1]) * page
    except OSError:  # no /proc, as on macOS: the peak is the best that is known
        info["allocated"] = info["peak"]
    return info


def _settle(spec: Spec, name: str) -> Entry:
    """Find the kernel of an op for a spec: dtypes first, then the engine."""
    from ember_ml.ops.registry import REGISTRY

    backend, dtype = spec.backend, spec.dtype
    op = REGISTRY.get(name)
    if op is None:  # a kernel that is no op by itself: a step of a portable kernel
        return backend.gradients.settled(backend.kernel(name, dtype), name, spec, spec), spec
    run = op.run_dtype(dtype)
    result = op.result_dtype(run)
    if not (backend.supports(run, spec.device) and backend.supports(result, spec.device)):
        missing = run if not backend.supports(run, spec.device) else result
        raise DTypeError(
            f"ops.{name} on {dtype} needs {missing}, which the '{backend.name}' backend "
            f"does not have on device '{spec.device}'"
        )
    kernel = backend.kernel(name, run)
    if run is not dtype:
        kernel = _cast_first(kernel, backend.cast, run, op.arity)
    made = spec.with_dtype(result)
    return backend.gradients.settled(kernel, name, spec, made), made


def _cast_first(
    kernel: Kernel, cast: Callable[[NativeArray, DType], NativeArray], dtype: DType, arity: int
) -> Kernel:
    """A kernel that runs in another dtype than its operands have."""
    if arity == 2:

        def binary(x: NativeArray, y: NativeArray, *options: Any, **named: Any) -> NativeArray:
            return kernel(cast(x, dtype), cast(y, dtype), *options, **named)

        return binary

    def unary(x: NativeArray, *options: Any, **named: Any) -> NativeArray:
        return kernel(cast(x, dtype), *options, **named)

    return unary
