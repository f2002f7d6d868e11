"""Element types of graph values: names, NumPy dtypes and ONNX's numbers.

Graphs hold more types than tensors do: 4-bit integers and strings exist in files and at the
boundary of a graph. They go by their names; `numpy_dtype` gives what holds their elements.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import ml_dtypes
import numpy as np

from ember_ml.errors import DTypeError

__all__ = [
    "BITS",
    "NAMES",
    "is_whole",
    "listed",
    "name_of",
    "native",
    "number_of",
    "numpy_dtype",
    "type_name",
]

# By ONNX's TensorProto.DataType.
NAMES: Final[dict[int, str]] = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    21: "uint4",
    22: "int4",
}
_NUMBERS: Final = {name: number for number, name in NAMES.items()}
_SPECIAL: Final[dict[str, np.dtype[Any]]] = {
    "string": np.dtype(object),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "uint4": np.dtype(ml_dtypes.uint4),
    "int4": np.dtype(ml_dtypes.int4),
}
_DTYPES: Final = {name: _SPECIAL.get(name) or np.dtype(name) for name in _NUMBERS}
_OF_DTYPE: Final = {dtype: name for name, dtype in _DTYPES.items()}
# How many bits an element takes in a file or in a buffer.
BITS: Final = {
    name: 4 if name.endswith("int4") else 8 * dtype.itemsize
    for name, dtype in _DTYPES.items()
    if name != "string"
}


def type_name(number: int) -> str:
    """The name of an ONNX element type.

    >>> type_name(1)
    'float32'
    """
    found = NAMES.get(number)
    if found is None:
        raise DTypeError(f"ONNX element type {number} is not supported by ember_ml graphs")
    return found


def number_of(name: str) -> int:
    """ONNX's number of an element type."""
    return _NUMBERS[_known(name)]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype that holds one element of a type each; 4-bit integers are ml_dtypes'.

    >>> numpy_dtype("float32")
    dtype('float32')
    """
    return _DTYPES[_known(name)]


def native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array whose bytes are in the order of this machine: engines do not ask."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def listed(given: Any, name: str) -> np.ndarray[Any, Any]:
    """A list of numbers as NumPy reads it; where an integer type is wanted, integers stay exact.

    NumPy makes float64 of those of which one needs the 64th bit and another does not; here they
    are objects, and so are those past 64 bits.

    >>> listed([2**63, 1], "uint64")
    array([9223372036854775808, 1], dtype=object)
    """
    made = np.asarray(given)
    if made.dtype.kind == "f" and "int" in name:
        exact = np.asarray(given, dtype=object)
        return exact if made.size and is_whole(exact) else made
    return made


def is_whole(array: np.ndarray[Any, Any]) -> bool:
    """Whether objects are integers, all of them; a bool is none."""
    return all(isinstance(x, int | np.integer) and type(x) is not bool for x in array.flat)


def name_of(dtype: object) -> str:
    """The element type of a NumPy dtype, or of anything that is one's name.

    >>> name_of(np.dtype("int64"))
    'int64'
    """
    if isinstance(dtype, str) and dtype in _NUMBERS:
        return dtype
    found = None
    with suppress(TypeError):
        made = np.dtype(dtype)  # type: ignore[call-overload]  # whatever NumPy takes for one
        found = "string" if made.kind in "US" else _OF_DTYPE.get(made)
    if found is None:
        raise DTypeError(f"graphs hold no elements of type {dtype!r}; they hold {_all_names()}")
    return found


def _known(name: str) -> str:
    if name not in _NUMBERS:
        raise DTypeError(f"graphs hold no elements of type {name!r}; they hold {_all_names()}")
    return name


def _all_names() -> str:
    return ", ".join(_NUMBERS)
