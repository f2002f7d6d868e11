"""Numbers that users gave, and what they are in the data type of an operand."""

from __future__ import annotations

from math import inf, isfinite, isinf, isnan
from typing import Any

import numpy as np

from ember_ml.graph.types import BITS, numpy_dtype
from ember_ml.webnn.errors import MLTypeError

__all__ = ["as_float", "cast_number", "is_number", "wrapped_number"]


def is_number(given: object) -> bool:
    """Whether something is a real number, of Python or of NumPy; a bool is none.

    >>> is_number(2), is_number(np.float16(2)), is_number(True), is_number(2j)
    (True, True, False, False)
    """
    known = isinstance(given, int | float | np.integer | np.floating)
    return known and not isinstance(given, bool)


def as_float(number: float) -> float:
    """A double; integers past all of those become infinite, as they do in JavaScript."""
    try:
        return float(number)
    except OverflowError:
        return inf if number > 0 else -inf


def cast_number(number: float, data_type: str) -> np.generic[Any]:
    """The nearest float, or the integer part within bounds.

    >>> cast_number(300.0, "uint8"), cast_number(2**53 + 1, "int64"), cast_number(3.9, "int32")
    (np.uint8(255), np.int64(9007199254740993), np.int32(3))
    """
    kind = numpy_dtype(data_type).type
    if data_type.startswith("float"):
        with np.errstate(over="ignore"):
            made: np.generic[Any] = kind(as_float(number))
        return made
    signed = data_type.startswith("int")
    bits = BITS[data_type] - signed
    least, most = (-(2**bits) if signed else 0), 2**bits - 1
    if not isinstance(number, int) and isnan(number):
        return kind(0)  # type: ignore[no-any-return]  # of the type asked for
    if not isinstance(number, int) and isinf(number):
        return kind(most if number > 0 else least)  # type: ignore[no-any-return]
    # The specification's "cast" rounds here; the web platform's tests want the integer part.
    return kind(min(max(int(number), least), most))  # type: ignore[no-any-return]


def wrapped_number(value: float, data_type: str) -> np.ndarray[Any, Any]:
    """A number in a data type, as the specification casts it: integers wrap, fractions are cut."""
    dtype = numpy_dtype(data_type)
    if dtype.kind == "f":
        return np.asarray(cast_number(value, data_type))
    if not isinstance(value, int) and not isfinite(value):
        raise MLTypeError(f"constant: {value!r} is no {data_type} number")
    bits = 8 * dtype.itemsize
    wrapped = int(value) % 2**bits
    return np.asarray(wrapped, dtype=f"uint{bits}").view(dtype)
