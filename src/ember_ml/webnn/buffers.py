"""What crosses the boundary between the host and a tensor: bytes, or arrays of the exact type.

Inside, the contents of a tensor are an array of its data type and shape, but for 4-bit integers:
those are bytes of two, the first element in the low half.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from ember_ml.graph.onnx_writing import pack4
from ember_ml.graph.types import listed, numpy_dtype
from ember_ml.webnn.descriptors import MLOperandDescriptor, byte_length
from ember_ml.webnn.errors import MLTypeError
from ember_ml.webnn.numbers import is_number

__all__ = ["Array", "check_room", "contents", "elements", "fill", "is_packed", "packed"]

Array = np.ndarray[Any, Any]
_BYTES: Final = np.dtype(np.uint8)


def is_packed(data_type: str) -> bool:
    """Whether elements lie two to a byte."""
    return data_type.endswith("int4")


def packed(array: Array) -> Array:
    """4-bit integers of ml_dtypes, two to a byte."""
    return pack4(np.ascontiguousarray(array))


def elements(raw: Array, descriptor: MLOperandDescriptor) -> Array:
    """The contents of a tensor as users see them: an array of one element each.

    >>> elements(np.array([0x21, 0x0F], np.uint8), MLOperandDescriptor("int4", (3,)))
    array([1, 2, -1], dtype=int4)
    """
    dtype = numpy_dtype(descriptor.data_type)
    if not is_packed(descriptor.data_type):
        return raw
    halves = np.empty(2 * raw.size, np.uint8)
    halves[0::2] = raw & 0xF
    halves[1::2] = raw >> 4
    count = prod(descriptor.shape)
    values = halves[:count]
    if descriptor.data_type == "int4":
        values = ((values ^ 8).astype(np.int8) - 8).view(np.int8)
    return values.astype(dtype).reshape(descriptor.shape)


def contents(what: str, given: Any, descriptor: MLOperandDescriptor) -> Array:
    """What users gave as the contents of a tensor; the memory may still be theirs.

    Bytes are taken as they are. Arrays have the tensor's type; as in the specification, arrays of
    uint8 are bytes, and unsigned integers stand for the bits of signed ones and of float16.
    """
    array = _array(what, given, descriptor)
    data_type, shape = descriptor.data_type, descriptor.shape
    dtype = numpy_dtype(data_type)
    if array.dtype == dtype:
        if array.shape != shape and array.shape != (prod(shape),):
            raise MLTypeError(
                f"{what}: the array has the shape {array.shape}; {data_type} of shape {shape} "
                f"takes that shape, or {prod(shape)} elements in one axis"
            )
        if is_packed(data_type):
            return packed(array)
        return np.ascontiguousarray(array).reshape(shape)
    if not same_bits(array.dtype, data_type):
        raise MLTypeError(
            f"{what}: the array is {array.dtype}, and the tensor {data_type}; cast it first, "
            "or give its bytes as uint8"
        )
    size = byte_length(data_type, shape)
    if array.nbytes != size:
        raise MLTypeError(
            f"{what}: {array.nbytes} bytes came; {data_type} of shape {shape} takes {size}"
        )
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(_BYTES) if is_packed(data_type) else flat.view(dtype).reshape(shape)


def same_bits(dtype: np.dtype[Any], data_type: str) -> bool:
    """Whether an array of a dtype may hold the bits of a data type."""
    if dtype == _BYTES:
        return True
    if data_type == "float16" or data_type.startswith("int"):
        return dtype == np.dtype(f"uint{8 * numpy_dtype(data_type).itemsize}")
    return False


def _array(what: str, given: Any, descriptor: MLOperandDescriptor) -> Array:
    if isinstance(given, np.ndarray):
        return given
    if isinstance(given, np.generic):
        return np.asarray(given)
    to_numpy = getattr(given, "numpy", None)
    if to_numpy is not None:
        try:
            return np.asarray(to_numpy())
        except Exception as error:  # as frameworks do: a gradient is recorded, or NumPy lacks it
            raise MLTypeError(f"{what}: {type(given).__name__}.numpy() failed: {error}") from error
    try:
        view = memoryview(given)
    except TypeError as error:
        if isinstance(given, Sequence | int | float) and not isinstance(given, str):
            return _numbers(what, given, descriptor)
        raise MLTypeError(
            f"{what}: give bytes, an array or a list of numbers, not {type(given).__name__}"
        ) from error
    return _viewed(what, view)


def _viewed(what: str, view: memoryview) -> Array:
    if not view.nbytes:
        return np.empty(0, np.uint8)
    try:
        return np.asarray(view)
    except ValueError as error:
        raise MLTypeError(f"{what}: NumPy does not know the format {view.format!r}") from error


def _numbers(what: str, given: Any, descriptor: MLOperandDescriptor) -> Array:
    """A list of numbers as an array of the tensor's type, where none of them changes its kind."""
    data_type = descriptor.data_type
    try:
        made = listed(given, data_type)
        # Integers past 64 bits are objects to NumPy; they stay Python's until they are cast.
        numbers = made.dtype.kind in "iuf" or all(is_number(one) for one in made.flat)
        if made.size and not numbers:
            raise MLTypeError(f"{what}: {data_type} takes numbers, not {given!r}")
        if "int" in data_type and made.size and made.dtype.kind == "f":
            raise MLTypeError(f"{what}: {data_type} takes integers, not {given!r}")
        if is_packed(data_type) and made.size:
            low, high = (-8, 7) if data_type == "int4" else (0, 15)
            if made.min() < low or made.max() > high:
                raise MLTypeError(f"{what}: {data_type} goes from {low} to {high}")
            return made.astype(np.int8).astype(numpy_dtype(data_type))
        with np.errstate(over="ignore"):  # what a float cannot hold is infinite, as elsewhere
            return np.array(given, dtype=numpy_dtype(data_type))
    except (OverflowError, ValueError) as error:
        raise MLTypeError(f"{what}: these are no {data_type} numbers: {error}") from error


def check_room(what: str, target: Any, descriptor: MLOperandDescriptor) -> Array:
    """What users handed in to be filled, as an array; MLTypeError where it does not fit."""
    if isinstance(target, np.ndarray):
        array = target
    else:
        try:
            view = memoryview(target)
        except TypeError as error:
            raise MLTypeError(
                f"{what}: give a bytearray, a memoryview or an array to be filled, "
                f"not {type(target).__name__}"
            ) from error
        array = _viewed(what, view)
    if not array.flags.writeable or not array.flags.c_contiguous:
        raise MLTypeError(f"{what}: the buffer to be filled must be writable and contiguous")
    data_type = descriptor.data_type
    if array.dtype == numpy_dtype(data_type):
        there, needed, unit = array.size, prod(descriptor.shape), "elements"
    elif same_bits(array.dtype, data_type):
        there, needed = array.nbytes, byte_length(data_type, descriptor.shape)
        unit = "bytes"
    else:
        raise MLTypeError(f"{what}: the buffer is {array.dtype}, and the tensor {data_type}")
    if there < needed:
        raise MLTypeError(f"{what}: the buffer has {there} {unit}, and the tensor {needed}")
    return array


def fill(what: str, target: Any, raw: Array, descriptor: MLOperandDescriptor) -> None:
    """Write the contents of a tensor to the beginning of what users handed in to be filled."""
    array = check_room(what, target, descriptor).reshape(-1)
    if array.dtype == numpy_dtype(descriptor.data_type):
        values = elements(raw, descriptor).reshape(-1)
        array[: values.size] = values
    else:
        source = np.ascontiguousarray(raw).reshape(-1).view(_BYTES)
        array.view(_BYTES)[: source.size] = source
