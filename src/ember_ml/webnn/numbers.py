"""A number that a user gave, in the data type of an operand."""

from __future__ import annotations

from math import isinf, isnan
from typing import Any

import numpy as np

from ember_ml.graph.types import BITS, numpy_dtype

__all__ = ["cast_number"]


def cast_number(number: float, data_type: str) -> np.generic[Any]:
    """The specification's "cast": the nearest float, or the nearest integer within bounds.

    >>> cast_number(300.0, "uint8"), cast_number(2**53 + 1, "int64"), cast_number(2.5, "int32")
    (np.uint8(255), np.int64(9007199254740993), np.int32(2))
    """
    kind = numpy_dtype(data_type).type
    if data_type.startswith("float"):
        with np.errstate(over="ignore"):
            made: np.generic[Any] = kind(number)
        return made
    signed = data_type.startswith("int")
    bits = BITS[data_type] - signed
    least, most = (-(2**bits) if signed else 0), 2**bits - 1
    if isnan(number):
        return kind(0)  # type: ignore[no-any-return]  # of the type asked for
    if isinf(number):
        return kind(most if number > 0 else least)  # type: ignore[no-any-return]
    # Python's integers have no bounds, and round() takes the even one of two neighbours.
    return kind(min(max(round(number), least), most))  # type: ignore[no-any-return]
