"""Torch and host memory: taking it, giving it, and remembering whose it is.

torch knows no read-only memory. What is lent by an owner that forbids writing (JAX, MLX, a
read-only NumPy array) carries a mark on its storage, which all views of it share. Writes of ours
then go to a copy; torch's own in-place functions on the native array do not see the mark.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

from ember_ml import dtypes
from ember_ml.backend import aligned
from ember_ml.backend.contract import NativeArray
from ember_ml.dtypes import DType

__all__ = ["borrow", "is_borrowed", "is_shareable", "share", "to_host"]

_HALF: Final = dtypes.bfloat16.numpy
# The name of the mark. torch keeps the Python object of a storage as long as the storage.
_MARK: Final = "_ember_borrowed"


class _Marks:
    """Whether there has ever been a mark: most programs have none, and need not look for it."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made = False


_MARKS: Final = _Marks()


def borrow(native: NativeArray) -> NativeArray:
    """The same array, marked as memory that must not be written."""
    _MARKS.made = True
    setattr(native.untyped_storage(), _MARK, True)
    return native


def is_borrowed(native: NativeArray) -> bool:
    """True where the memory of an array is marked."""
    if not _MARKS.made:
        return False
    try:
        return hasattr(native.untyped_storage(), _MARK)
    except (NotImplementedError, RuntimeError):  # what transforms wrap has no storage
        return False


def is_shareable(array: np.ndarray[Any, Any]) -> bool:
    """True where torch can use the memory of a NumPy array as it is."""
    return array.flags.aligned and all(
        stride >= 0 and stride % array.itemsize == 0 for stride in array.strides
    )


def share(array: np.ndarray[Any, Any], dtype: DType) -> NativeArray:
    """A torch tensor in the memory of a shareable NumPy array."""
    # torch has no bfloat16 of NumPy's, and refuses long long, which is int64 by another name.
    bits = array.view(np.int16 if dtype is dtypes.bfloat16 else dtype.numpy)
    if array.flags.writeable:
        made = torch.from_numpy(bits)
    else:
        made = borrow(torch.from_numpy(aligned.unlocked(bits)))  # torch warns of read-only ones
    return made.view(torch.bfloat16) if dtype is dtypes.bfloat16 else made


def to_host(native: NativeArray) -> np.ndarray[Any, Any]:
    """A tensor in host memory as a NumPy array that shares it, read-only where it is borrowed."""
    if native.dtype is torch.bfloat16:
        array: np.ndarray[Any, Any] = native.view(torch.int16).numpy().view(_HALF)
    else:
        array = native.numpy()
    if is_borrowed(native):
        array.flags.writeable = False
    return array
