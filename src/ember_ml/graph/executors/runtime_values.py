"""Arrays as values of ONNX Runtime and back, with the types that its NumPy arrays lack.

bfloat16 and 4-bit integers go in and out by their memory. 4-bit integers lie two to a byte there,
the first in the low half, and ONNX Runtime takes the shape from the array that it is given: an
array of one byte per element is made, of which only the first half of the bytes is used.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from ember_ml.graph import types

__all__ = ["from_ortvalue", "needs_ortvalue", "to_ortvalue"]

_BY_MEMORY: Final = ("bfloat16", "int4", "uint4")


def needs_ortvalue(dtype: str) -> bool:
    """Whether a type passes ONNX Runtime's border only as an OrtValue."""
    return dtype in _BY_MEMORY


def to_ortvalue(
    array: np.ndarray[Any, Any], dtype: str, shape: tuple[int, ...], *, packed: bool = False
) -> Any:
    """An OrtValue on the CPU that shares the memory of an array, and keeps it alive.

    `packed` says that 4-bit integers are already two to a byte.
    """
    from ember_ml.graph.executors.runtime import runtime

    if types.BITS[dtype] < 8:
        from ember_ml.graph.onnx_writing import pack4

        content = array if packed else pack4(array)
        array = np.empty(shape, np.uint8)
        array.reshape(-1)[: content.size] = content
    array = np.ascontiguousarray(array).reshape(shape)
    made = runtime().OrtValue
    if dtype in _BY_MEMORY:
        found = made.ortvalue_from_numpy_with_onnx_type(array, types.number_of(dtype))
    else:
        found = made.ortvalue_from_numpy(array)
    found.ember_memory = array  # ONNX Runtime holds no reference to it
    return found


def from_ortvalue(value: Any, dtype: str) -> Any:
    """The NumPy array of an OrtValue on the CPU; a copy."""
    if dtype not in _BY_MEMORY:
        return value.numpy()
    from ember_ml.graph.onnx_tensors import unpack4

    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    content = (
        ctypes.string_at(value.data_ptr(), (count * types.BITS[dtype] + 7) // 8) if count else b""
    )
    raw = np.frombuffer(content, np.uint8)
    if types.BITS[dtype] < 8:
        return unpack4(raw, count, dtype).reshape(shape)
    return raw.view(types.numpy_dtype(dtype)).reshape(shape).copy()
