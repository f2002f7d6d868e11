"""NumPy: the default engine, always there."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ember_ml import dtypes
from ember_ml.backend import aligned, dlpack, writes
from ember_ml.backend.contract import Backend, Kernel, NativeArray, Spec
from ember_ml.backend.numpy import (
    alignment,
    kernels,
    layouts,
    linearalg,
    losses,
    network,
    ordering,
    products,
    random,
    scattering,
    signal,
    special,
    updating,
)
from ember_ml.dtypes import DType
from ember_ml.errors import CopyError, ReadOnlyError
from ember_ml.tensor.layout import Layout

__all__ = ["NumpyBackend", "load"]

# Ops that move values, or are exact in bfloat16. The others run in float32 for it, as inside
# ml_dtypes.
_MOVES = frozenset(
    (
        "broadcast_to",
        "clip",
        "concat",
        "flip",
        "matrix_transpose",
        "nextafter",  # ml_dtypes counts in bfloat16 itself
        "permute_dims",
        "positive",
        "repeat",
        "reshape",
        "roll",
        "stack",
        "take",
        "take_along_axis",
        "tile",
        "tril",
        "triu",
        "where",
    )
)


class NumpyBackend(Backend):
    """Arrays are np.ndarray in host memory."""

    name = "numpy"
    native_type = np.ndarray
    native_types = (np.ndarray,)
    native_dtypes = {d: d.numpy for d in dtypes.ALL}
    namespaces = {"": (np,), "linalg": (np.linalg,), "fft": (np.fft,)}
    overrides = (
        kernels.OVERRIDES
        | ordering.OVERRIDES
        | special.OVERRIDES
        | linearalg.OVERRIDES
        | scattering.OVERRIDES
        | random.OVERRIDES
        | signal.OVERRIDES
        | network.OVERRIDES
        | losses.OVERRIDES
        | alignment.OVERRIDES
        | updating.OVERRIDES
    )
    mutable = True
    reverses = True
    settles = True
    checks_indices = True

    def kernel(self, name: str, dtype: DType) -> Kernel:
        found = super().kernel(name, dtype)
        if name == "matmul" and dtype in network.BLAS:
            found = products.matmul
        elif name == "scaled_dot_product_attention":
            found = network.attending(found)
        noisy = name in kernels.NOISY or name in network.NOISY
        if noisy and (dtype.is_floating or dtype.is_complex):
            found = kernels.quiet(found)
        if dtype is dtypes.bfloat16 and name not in _MOVES:
            return _through_float32(found, dtype)
        if dtype is dtypes.float16 and name in network.WIDE:
            return _through_float32(found, dtype)
        return found

    def settle_native(self, native: NativeArray, spec: Spec) -> NativeArray:
        return np.asarray(native)  # reductions to 0-d and ufuncs of 0-d arrays give scalars

    def from_numpy(
        self, array: np.ndarray[Any, Any], spec: Spec, copy: bool | None = None
    ) -> NativeArray:
        return aligned.copy(array) if copy else array

    def to_numpy(self, native: NativeArray, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return aligned.copy(native) if copy else native

    def full(self, shape: tuple[int, ...], value: object, spec: Spec) -> NativeArray:
        return aligned.full(shape, value, spec.dtype.numpy)

    def empty(self, shape: tuple[int, ...], spec: Spec) -> NativeArray:
        return aligned.empty(shape, spec.dtype.numpy)

    def cast(self, native: NativeArray, dtype: DType) -> NativeArray:
        if native.dtype == dtype.numpy:
            return native
        with np.errstate(all="ignore"):  # casts of NaN and of large values warn
            return aligned.cast(native, dtype.numpy)

    def copy(self, native: NativeArray) -> NativeArray:
        return aligned.copy(native)

    def setitem(self, native: NativeArray, key: tuple[Any, ...], value: NativeArray) -> NativeArray:
        native = _writable(native)
        writes.note(native)
        native[key] = value
        return native

    def assign(self, native: NativeArray, value: NativeArray) -> NativeArray:
        if not native.flags.writeable and not _is_broadcast(native):
            return value
        native = _writable(native)
        writes.note(native)
        native[...] = value
        return native

    def getitem(self, native: NativeArray, key: tuple[Any, ...]) -> NativeArray:
        found = native[key]
        # One element comes as a scalar, which is no view.
        return found if type(found) is np.ndarray else native[(*key, ...)]

    def is_view(self, native: NativeArray, base: NativeArray) -> bool:
        owner = native.base
        return owner is not None and (owner is base or owner is base.base)

    def copy_memory(self, native: NativeArray) -> NativeArray | None:
        made = aligned.copy(native) if native.flags.c_contiguous else native.copy(order="K")
        return made if made.strides == native.strides else None

    def rebase(self, view: NativeArray, old: NativeArray, new: NativeArray) -> NativeArray:
        return layouts.rebase(view, old, new)

    def memory_of(self, native: NativeArray) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
        return native.ctypes.data, native.shape, native.strides, native.itemsize

    def read_layout(self, root: NativeArray, layout: Layout) -> NativeArray:
        return layouts.read(root, layout)

    def write_layout(
        self, root: NativeArray, layout: Layout, value: NativeArray, sole: bool
    ) -> NativeArray:
        writes.note(root)
        layouts.write(root, layout, value)
        return root

    def is_borrowed(self, native: NativeArray) -> bool:
        return not native.flags.writeable and not _is_broadcast(native)

    def shares_memory(self, a: NativeArray, b: NativeArray) -> bool:
        return np.may_share_memory(a, b)

    def dlpack_device(self, native: NativeArray) -> tuple[int, int]:
        return 1, 0

    def to_dlpack(
        self,
        native: NativeArray,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        old = max_version is None or max_version < (1, 0)
        if (old and not native.flags.writeable) or any(step < 0 for step in native.strides):
            # Older DLPack cannot say that memory is read-only, and importers such as torch end
            # the process on a negative stride.
            if copy is False:
                raise CopyError("this array can be exported through DLPack only by a copy")
            native = native.copy()
        options = {
            "stream": stream,
            "max_version": max_version,
            "dl_device": dl_device,
            "copy": copy,
        }
        if native.dtype != dtypes.bfloat16.numpy:
            return native.__dlpack__(**options)
        return dlpack.export_bfloat16(native.view(np.uint16).__dlpack__(**options))


def _writable(native: NativeArray) -> NativeArray:
    """An array to write to: memory that another engine lends is copied, not changed."""
    if native.flags.writeable:
        return native
    if _is_broadcast(native):
        raise ReadOnlyError("a broadcast tensor cannot be written to; write to a .copy() of it")
    return aligned.copy(native)


def _is_broadcast(native: NativeArray) -> bool:
    """True where several elements are one place in memory."""
    sides = zip(native.shape, native.strides, strict=True)
    return any(side > 1 and not stride for side, stride in sides)


def _through_float32(kernel: Kernel, dtype: DType) -> Kernel:
    half, single = dtype.numpy, dtypes.float32.numpy

    def wide(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype == half:
            return value.astype(single)
        return [wide(v) for v in value] if isinstance(value, list) else value

    def narrow(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(narrow, value))
        return np.asarray(value).astype(half) if value.dtype == single else value

    def run(*args: Any, **named: Any) -> NativeArray:
        return narrow(kernel(*map(wide, args), **named))

    return run


def load() -> NumpyBackend:
    """The NumPy backend."""
    return NumpyBackend(sys.modules[__name__])
