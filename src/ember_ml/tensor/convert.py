"""From what users hand over to tensors, and from one backend or device to another."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml import devices, dtypes
from ember_ml.autodiff import tape
from ember_ml.backend import aligned, dlpack, selection
from ember_ml.backend.contract import Backend, Spec
from ember_ml.dtypes import DType, DTypeLike
from ember_ml.errors import CopyError, DomainError, DTypeError, EmberError, ShapeError
from ember_ml.tensor.core import GradTensor, Tensor, fill, fill_grad, require_grad

__all__ = ["asarray", "backend_of", "to_backend", "to_device", "to_tensor"]

# Tuples, since a union of types is made anew each time that it is written.
_SEQUENCES = (list, tuple)
_NUMPY = (np.generic, np.ndarray)
_DATA = (list, tuple, bool, int, float, complex, np.ndarray, np.generic)
_WEAK_DEFAULTS = {
    "f": dtypes.default_float,
    "i": dtypes.default_int,
    "c": dtypes.default_complex,
    "b": dtypes.bool,
}

current_backend = selection.current


def device_for(backend: Backend) -> str:
    """The device on which new tensors of a backend go."""
    return devices.current_device(backend)


def backend_of(value: object) -> Backend | None:
    """The backend of a native array; None for tensors' raw material: numbers, lists, ndarrays."""
    return None if isinstance(value, _DATA) else selection.backend_of(value)


def to_tensor(value: object, backend: Backend | None = None) -> Tensor:
    """An op's input as a tensor: tensors and native arrays as they are, data to `backend`."""
    if isinstance(value, Tensor):
        if backend is not None and backend.adopts and value._spec.backend is not backend:
            adopted: Tensor = backend.adopt(value)
            return adopted
        return value
    native_home = backend_of(value)
    if native_home is not None:
        return to_tensor(wrap(value, native_home), backend)
    home = backend or selection.current()
    # The caller may write to an array once the op has returned, while an engine that computes
    # later has yet to read it.
    own = True if home.defers and isinstance(value, np.ndarray) else None
    return _from_data(value, home, None, None, own)


def wrap(native: Any, backend: Backend) -> Tensor:
    """A native array of a known backend as a tensor; it keeps its memory and its gradients."""
    spec = backend.spec_of(native)
    # Only torch marks its arrays themselves as needing gradients.
    if not getattr(native, "requires_grad", False):
        return fill(native, spec)
    backend.gradients.has_leaves = True
    return fill_grad(native, spec)


def asarray(
    obj: object,
    dtype: DTypeLike = None,
    device: str | None = None,
    copy: bool | None = None,
    backend: Backend | None = None,
) -> Tensor:
    """A tensor of anything: see ops.asarray."""
    wanted = None if dtype is None else dtypes.to_dtype(dtype)
    if not isinstance(obj, Tensor):
        native_home = backend_of(obj)
        if native_home is None:
            home = backend or selection.current()
            target = None if device is None else home.canonical_device(device)
            return _from_data(obj, home, wanted, target, copy)
        obj = wrap(obj, native_home)
    spec = obj._spec
    target_device = spec.device if device is None else spec.backend.canonical_device(device)
    changes = (wanted is not None and wanted is not spec.dtype) or target_device != spec.device
    if copy is False and changes:
        raise CopyError(
            f"ops.asarray(copy=False) cannot make {wanted or spec.dtype} on '{target_device}' "
            f"of {spec.dtype} on '{spec.device}' without a copy"
        )
    if wanted is not None and wanted is not spec.dtype:
        obj = cast(obj, wanted)
    if target_device != spec.device:
        moved = to_device(obj, target_device)
        # MLX's devices use the same memory.
        return moved.copy() if copy and moved.native is obj.native else moved
    return obj.copy() if copy and not changes else obj


def cast(x: Tensor, dtype: DType) -> Tensor:
    """A tensor in another dtype."""
    spec = x._spec.with_dtype(dtype)
    if spec is x._spec:
        return x
    if x._spec.dtype.is_complex and not dtype.is_complex and dtype is not dtypes.bool:
        raise DTypeError(
            f"ops.astype from {x.dtype} to {dtype} would drop the imaginary part; "
            f"take ops.real or ops.imag first"
        )
    native = spec.backend.cast(x.native, dtype)
    if type(x) is GradTensor:
        return tape.recorded("astype", native, spec, (x,))
    return fill(native, spec)


# --- Data -----------------------------------------------------------------------------------


def _from_data(
    obj: object,
    backend: Backend,
    dtype: DType | None,
    device: str | None,
    copy: bool | None,
) -> Tensor:
    if backend.adopts and _varies(obj):
        return _from_sizes(obj, backend, dtype, device)
    if isinstance(obj, _SEQUENCES):
        leaf = _first_leaf(obj)
        if isinstance(leaf, Tensor) or backend_of(leaf) is not None:
            if copy is False:
                raise CopyError("ops.asarray(copy=False) cannot share memory with several tensors")
            return _from_tensors(obj, backend, dtype, device)
    elif not isinstance(obj, _DATA) and dlpack.is_elsewhere(obj):
        made = wrap(backend.from_dlpack(obj, copy), backend)
        return asarray(made, dtype, device, False if copy is False else None)
    array, fresh = _array_of(obj, dtype, copy)
    try:
        found = dtypes.to_dtype(array.dtype)
    except DTypeError:
        raise DTypeError(
            f"ops.asarray got {_brief(obj)}, which gives dtype {array.dtype}; "
            f"tensors hold numbers and truth values"
        ) from None
    spec = backend.spec(dtype or found, device or device_for(backend))
    if spec.dtype is not found:
        if copy is False:
            raise CopyError(f"ops.asarray(copy=False) cannot cast {found} to {spec.dtype}")
        if found.is_complex and not spec.dtype.is_complex:
            raise DTypeError(
                f"ops.asarray from {found} to {spec.dtype} would drop "
                f"the imaginary part; take the real part first"
            )
        with np.errstate(all="ignore"):
            array, fresh = aligned.cast(array, spec.dtype.numpy), True
    elif not array.dtype.isnative:
        if copy is False:
            raise CopyError(f"ops.asarray(copy=False) cannot turn the byte order of {array.dtype}")
        array, fresh = aligned.copy(array), True
    elif fresh:
        array = aligned.settled(array)
    return fill(backend.from_numpy(array, spec, None if fresh else copy), spec)


def _array_of(
    obj: object, dtype: DType | None, copy: bool | None
) -> tuple[np.ndarray[Any, Any], bool]:
    """Data as a NumPy array, and whether its memory is new."""
    if isinstance(obj, np.ndarray):
        return plain_array("asarray", obj), False
    if isinstance(obj, _DATA):
        if copy is False:
            kind = "list" if isinstance(obj, _SEQUENCES) else "number"
            raise CopyError(f"ops.asarray(copy=False) cannot share memory with a {kind}")
        if isinstance(obj, np.generic):
            return np.asarray(obj), True
        return _array_of_numbers(obj, dtype, _first_leaf(obj)), True
    return _array_of_buffer(obj, copy), False


def _array_of_numbers(obj: object, dtype: DType | None, leaf: object) -> np.ndarray[Any, Any]:
    """A number or a list of them, of which `leaf` is the first."""
    wide = None if dtype is None or not dtype.is_integer else dtype.numpy
    integral = isinstance(leaf, int) and type(leaf) is not bool
    try:
        # Integers are read in their own dtype: uint64 has values that int64 has not.
        array = np.array(obj, dtype=wide) if wide and integral else np.array(obj)
        if dtype is not None and array.dtype.kind == "O" and _are(array, (int, float)):
            array = array.astype(np.float64)  # with integers past 64 bits
    except OverflowError as error:
        raise DomainError(f"ops.asarray got {_brief(obj)} for {dtype}: {error}") from None
    except ValueError as error:
        raise ShapeError(f"ops.asarray got a ragged list {_brief(obj)}: {error}") from None
    except EmberError:
        raise
    except TypeError as error:
        raise DTypeError(f"ops.asarray got {_brief(obj)}: {error}") from None
    if dtype is not None or isinstance(leaf, _NUMPY):
        return array
    kind = array.dtype.kind
    if integral and kind == "f" and array.size and np.abs(array).max() >= 2**63:
        # NumPy makes floats of integers of which one needs the 64th bit and another does not.
        exact = np.array(obj, dtype=object)
        if _are(exact, (int, np.integer)):
            array, kind = exact, "O"
    default = _WEAK_DEFAULTS.get(kind)
    if default is None:
        if kind in "uO" and integral:
            raise DomainError(
                f"ops.asarray got {_brief(obj)} with integers beyond int64; "
                f"give dtype='uint64' or a floating dtype"
            )
        return array
    return array if array.dtype == default.numpy else aligned.cast(array, default.numpy)


def _are(array: np.ndarray[Any, Any], kinds: tuple[type, ...]) -> bool:
    return all(isinstance(x, kinds) for x in array.flat)


def plain_array(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A NumPy array without its subclass; DTypeError where that would lose values."""
    if type(array) is np.ndarray:
        return array
    if hasattr(array, "mask"):  # without an import of numpy.ma, which few need
        raise DTypeError(
            f"ops.{name} got a {type(array).__name__}, and tensors have no mask; "
            f"give .filled(value), or .data for all values"
        )
    return np.asarray(array)


def _array_of_buffer(obj: Any, copy: bool | None) -> np.ndarray[Any, Any]:
    """An array of what is neither a number, a list nor an array: buffers, DLPack, sequences."""
    if hasattr(obj, "__array__"):
        try:
            return np.asarray(obj, copy=False if copy is False else None)
        except ValueError as error:
            if copy is not False:
                raise
            raise CopyError(f"{_brief(obj)} gives its values only by a copy: {error}") from error
    if hasattr(obj, "__dlpack__"):
        return dlpack.to_numpy(obj, copy)
    if not isinstance(obj, str | bytes):
        try:
            return np.asarray(memoryview(obj))
        except TypeError:
            pass
        if hasattr(obj, "__len__") and hasattr(obj, "__getitem__"):
            if copy is False:
                raise CopyError("ops.asarray(copy=False) cannot share memory with a sequence")
            values = list(obj)
            leaf = _first_leaf(values)
            # A sequence of its own kind is read as a list of Python's numbers is.
            return _array_of_numbers(
                values, None, leaf.item() if isinstance(leaf, np.generic) else leaf
            )
    return np.asarray(obj)


def _first_leaf(obj: object) -> object:
    while isinstance(obj, _SEQUENCES):
        if not obj:
            return None
        obj = obj[0]
    return obj


def _from_tensors(
    obj: list[Any] | tuple[Any, ...], backend: Backend, dtype: DType | None, device: str | None
) -> Tensor:
    """A tensor of a list that holds tensors: they are stacked."""
    from ember_ml import ops

    stacked = ops.stack(
        [x if isinstance(x, Tensor) else to_tensor(x, _home(obj) or backend) for x in obj]
    )
    return asarray(stacked, dtype, device)


def _varies(obj: object) -> bool:
    """True for numbers that were computed of sizes which differ from run to run."""
    if isinstance(obj, _SEQUENCES):
        return any(map(_varies, obj))
    is_number = isinstance(obj, int | float) and not isinstance(obj, np.generic)
    return is_number and type(obj) not in (bool, int, float)


def _from_sizes(obj: object, backend: Backend, dtype: DType | None, device: str | None) -> Tensor:
    """A tensor of such numbers, or of a list of them, in a function that is exported."""
    if isinstance(obj, _SEQUENCES):
        return _from_tensors(obj, backend, dtype, device)
    default = dtypes.int64 if isinstance(obj, int) else dtypes.default_float
    spec = backend.spec(dtype or default, device or device_for(backend))
    return fill(backend.full((), obj, spec), spec)


def _home(obj: Any) -> Backend | None:
    leaf = _first_leaf(obj)
    return leaf._spec.backend if isinstance(leaf, Tensor) else backend_of(leaf)


def _brief(obj: object) -> str:
    text = repr(obj)
    return text if len(text) <= 60 else text[:57] + "..."


# --- Moving ---------------------------------------------------------------------------------


def to_backend(
    x: Tensor, backend: Backend, copy: bool | None = None, device: str | None = None
) -> Tensor:
    """A tensor on another backend, on a device or where that backend creates tensors.

    Gradients end here: the moved tensor needs them where `x` does, from itself on.
    """
    home = x._spec.backend
    if home is backend:
        return asarray(x, None, device, copy)
    target = device_for(backend) if device is None else backend.canonical_device(device)
    spec = backend.spec(x._spec.dtype, target)
    moved = fill(backend.from_backend(x.native, home, spec, copy), spec)
    return require_grad(moved) if type(x) is GradTensor else moved


def to_device(x: Tensor, device: str) -> Tensor:
    """A tensor on another device of its backend."""
    spec: Spec = x._spec
    canonical = spec.backend.canonical_device(device)
    if canonical == spec.device:
        return x
    target = spec.backend.spec(spec.dtype, canonical)
    native = spec.backend.to_device(x.native, canonical)
    if type(x) is GradTensor:
        return tape.recorded("to_device", native, target, (x,))
    return fill(native, target)
