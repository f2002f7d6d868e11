"""A number that a user gave, in the data type of an operand."""

from __future__ import annotations

from math import inf, isinf, isnan
from typing import Any

import numpy as np

from ember_ml.graph.types import BITS, numpy_dtype

__all__ = ["cast_number"]


def cast_number(number: float, data_type: str) -> np.generic[Any]:
    """The nearest float, or the integer part within bounds.

    >>> cast_number(300.0, "uint8"), cast_number(2**53 + 1, "int64"), cast_number(3.9, "int32")
    (np.uint8(255), np.int64(9007199254740993), np.int32(3))
    """
    kind = numpy_dtype(data_type).type
    if data_type.startswith("float"):
        with np.errstate(over="ignore"):
            made: np.generic[Any] = kind(_finite(number))
        return made
    signed = data_type.startswith("int")
    bits = BITS[data_type] - signed
    least, most = (-(2**bits) if signed else 0), 2**bits - 1
    if isnan(number):
        return kind(0)  # type: ignore[no-any-return]  # of the type asked for
    if isinf(number):
        return kind(most if number > 0 else least)  # type: ignore[no-any-return]
    # The specification's "cast" rounds here; the web platform's tests want the integer part.
    return kind(min(max(int(number), least), most))  # type: ignore[no-any-return]


def _finite(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer past all floats
        return inf if number > 0 else -inf
