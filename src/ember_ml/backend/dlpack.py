"""DLPack on the host: what NumPy leaves out of it.

NumPy neither reads nor writes bfloat16 there, and no exporter but NumPy says that memory is
read-only. Both are one number in the structure behind a capsule, which is set here: see
https://dmlc.github.io/dlpack/latest/c_api.html for the layout.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.errors import CopyError, DeviceError, DTypeError

__all__ = ["CPU", "GPUS", "export_bfloat16", "forbid_writing", "is_elsewhere", "to_numpy"]

# DLPack's numbers of device kinds: host memory, and the memory of CUDA, ROCm and managed CUDA.
CPU: Final = 1
GPUS: Final = (2, 10, 13)

# Memory that the host can read: its own, and what CUDA and ROCm share with it.
_HOST: Final = (CPU, 3, 11, 13)
_BITS: Final = 1  # the type code of unsigned integers
_BFLOAT: Final = 4
_READ_ONLY: Final = 1


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_LAYOUTS: Final[dict[bytes, type[_Managed] | type[_Versioned]]] = {
    b"dltensor": _Managed,
    b"dltensor_versioned": _Versioned,
}
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _behind(capsule: Any) -> _Managed | _Versioned:
    """The structure behind a capsule that nobody has consumed."""
    name = _name(capsule)
    return _LAYOUTS[name].from_address(_pointer(capsule, name))


def export_bfloat16(capsule: Any) -> Any:
    """A capsule of 16-bit integers as one of bfloat16."""
    _behind(capsule).tensor.code = _BFLOAT
    return capsule


def forbid_writing(capsule: Any) -> Any:
    """A capsule that says that its memory is read-only; only versioned ones can."""
    managed = _behind(capsule)
    assert isinstance(managed, _Versioned)
    managed.flags |= _READ_ONLY
    return capsule


def is_elsewhere(obj: Any) -> bool:
    """True where an object lies on another device, so that only DLPack leads to it."""
    find = getattr(obj, "__dlpack_device__", None)
    return find is not None and int(find()[0]) != CPU


def to_numpy(source: Any, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """An object with `__dlpack__` as a NumPy array that shares its memory.

    Memory of which nobody says that it may be written comes read-only. `copy=False` is passed on
    to the exporter; copies are left to the caller.
    """
    kind = int(source.__dlpack_device__()[0])
    if kind not in _HOST:
        raise DeviceError(
            f"{type(source).__name__} lies on a device of DLPack's kind {kind}, which the host "
            f"cannot read; move it to the CPU first"
        )
    readable = _Readable(source)
    try:
        array = np.from_dlpack(readable, copy=False if copy is False else None)
    except TypeError:
        if copy is not False:
            raise
        array = np.from_dlpack(readable)  # exporters of the first DLPack know no options
    except (BufferError, ValueError) as error:
        if copy is False:
            raise CopyError(f"{type(source).__name__} refuses to share memory: {error}") from error
        raise
    except RuntimeError as error:
        if "dtype" not in str(error):
            raise
        raise DTypeError(
            f"{type(source).__name__} exports a dtype that tensors do not have; cast it first"
        ) from error
    return array.view(dtypes.bfloat16.numpy) if readable.is_bfloat16 else array


class _Readable:
    """An exporter whose bfloat16 is called 16-bit integers, which NumPy reads."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.is_bfloat16 = False

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._source.__dlpack__(**options)
        tensor = _behind(capsule).tensor
        if (tensor.code, tensor.bits, tensor.lanes) == (_BFLOAT, 16, 1):
            self.is_bfloat16 = True
            tensor.code = _BITS
        return capsule

    def __dlpack_device__(self) -> Any:
        return self._source.__dlpack_device__()
