"""Host memory at 64-byte addresses, which JAX takes as it is; NumPy's own seldom lies there.

Finding such an address costs one to two microseconds. Below `THRESHOLD` bytes, where that would be
felt, memory is NumPy's own and JAX copies it. In microseconds, on one core; the last two columns
on another, of half the speed:

    bytes    np.full aligned   array.copy() aligned   into JAX: jnp.array  as it is
    16           0.8     1.7            0.2     1.6                    70        14
    64 KB        3.1     4.0            1.9     3.5                    70        12
    256 KB       9.1    10.0            6.6     8.1                    62        15
    1 MB          33      34             42      47                   250        16
    64 MB     11,400  11,000         17,600  16,000                57,000         9
"""

from __future__ import annotations

from ctypes import addressof, c_char
from math import prod
from typing import Any, Final

import numpy as np

__all__ = [
    "ALIGNMENT",
    "THRESHOLD",
    "address",
    "cast",
    "copy",
    "empty",
    "full",
    "is_aligned",
    "settled",
    "unlocked",
]

Array = np.ndarray[Any, Any]

# What XLA asks of host memory that it is to use in place.
ALIGNMENT: Final = 64
# Bytes from which memory is aligned.
THRESHOLD: Final = 1 << 18

_BYTE: Final = np.dtype(np.uint8)
_at = c_char.from_buffer


def empty(shape: tuple[int, ...], dtype: np.dtype[Any], least: int = THRESHOLD) -> Array:
    """A new array whose values do not matter, aligned from `least` bytes on."""
    size = prod(shape) * dtype.itemsize
    if size < least:
        return np.empty(shape, dtype)
    return _within(np.empty(size + ALIGNMENT, _BYTE), shape, dtype)


def full(shape: tuple[int, ...], value: Any, dtype: np.dtype[Any]) -> Array:
    """A new array filled with a number."""
    size = prod(shape) * dtype.itemsize
    if size < THRESHOLD:
        return np.full(shape, value, dtype)
    if type(value) is int and value == 0:
        # The system hands out zeroed pages, and only when they are first used.
        return _within(np.zeros(size + ALIGNMENT, _BYTE), shape, dtype)
    out = _within(np.empty(size + ALIGNMENT, _BYTE), shape, dtype)
    np.copyto(out, value, casting="unsafe")
    return out


def copy(array: Array, least: int = THRESHOLD) -> Array:
    """The values in new memory, in C order and in this machine's byte order."""
    if array.nbytes < least and array.dtype.isnative:
        return array.copy()
    # newbyteorder makes another object, with which ufunc.at misses its quick loop.
    native = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    out = empty(array.shape, native, least)
    np.copyto(out, array)
    return out


def cast(array: Array, dtype: np.dtype[Any]) -> Array:
    """The values in new memory of another dtype; Fortran order is kept."""
    if array.size * dtype.itemsize < THRESHOLD:
        return array.astype(dtype)
    if array.flags.f_contiguous and array.ndim > 1 and not array.flags.c_contiguous:
        return cast(array.T, dtype).T
    out = empty(array.shape, dtype)
    np.copyto(out, array, casting="unsafe")
    return out


def settled(array: Array) -> Array:
    """The array itself where it is small or aligned in C order, else a copy that is."""
    if array.nbytes < THRESHOLD or (array.flags.c_contiguous and is_aligned(array)):
        return array
    return copy(array)


def is_aligned(array: Array) -> bool:
    """True where an array begins at an address that JAX takes."""
    return address(array) % ALIGNMENT == 0


def address(array: Array) -> int:
    """Where an array begins; read-only memory has no quicker way."""
    return int(array.__array_interface__["data"][0])


def unlocked(array: Array) -> Array:
    """The same memory as an array that can be written, for engines that refuse read-only ones.

    Whoever asks for it must not write.
    """
    bits = array.view(f"u{array.itemsize}") if array.dtype.kind == "V" else array
    return np.asarray(_Unlocked(bits)).view(array.dtype)


class _Unlocked:
    """Memory that says that it may be written; whoever takes it keeps its owner."""

    def __init__(self, owner: Array) -> None:
        self.owner = owner
        facts = dict(owner.__array_interface__)
        facts["data"] = (facts["data"][0], False)
        self.__array_interface__ = facts


def _within(raw: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array in `raw` from the first aligned address on."""
    # addressof takes a quarter of the time of `raw.ctypes.data`.
    start = addressof(_at(raw))  # type: ignore[arg-type]  # an array is a buffer, untyped before 3.12
    return np.ndarray(shape, dtype, raw, -start % ALIGNMENT)
