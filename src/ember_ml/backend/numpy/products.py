"""What small networks do most on NumPy: products of matrices, relu, sums of rows.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ember_ml.backend.spec import NativeArray

__all__ = ["added_rows", "matmul", "product", "relu"]

Array = NativeArray
# Constants, which compiled code holds at hand.
_MATMUL: Final[Any] = np.matmul
_MAXIMUM: Final[Any] = np.maximum
_ADD_ROWS: Final[Any] = np.add.reduce
# Elements of both operands up to which nothing else is asked; and those of a product from which the
# method, which writes zeros first, is the slower one.
_SHORT: Final = 1 << 10
_LONG: Final = 1 << 14


def matmul(x1: Array, x2: Array) -> Any:
    """np.matmul."""
    if x1.ndim == 2 == x2.ndim:
        # As product(), which would cost another call.
        return x1.dot(x2) if x1.size + x2.size < _SHORT else product(x1, x2)
    return _MATMUL(x1, x2)


def product(x1: Array, x2: Array) -> Any:
    """The product of two matrices, by the method where they are small: half the ufunc's time."""
    if x1.size + x2.size < _SHORT:
        return x1.dot(x2)
    rows, inner = x1.shape
    columns = x2.shape[1]
    # A column by a row the ufunc makes by itself, in four to eight times the time of BLAS.
    if rows * columns < _LONG or inner == 1:
        return x1.dot(x2)
    return _MATMUL(x1, x2)


# Without axes, since NumPy looks longer at Python's numbers.
_ZEROS: Final = {np.dtype(name): np.array(0, name) for name in ("float32", "float64")}


def relu(x: Array) -> Array:
    """Zero in place of what is less."""
    return _MAXIMUM(x, _ZEROS.get(x.dtype, 0))


_FEW: Final = 1024
# Ones by their number, as many as were asked for: 2 MB for all numbers in float32.
_ONES: Final[dict[str, list[Any]]] = {char: [None] * (_FEW + 1) for char in "fd"}


def added_rows(x: Array) -> Array:
    """The sum of the rows of a matrix of float32 or float64.

    A product takes a third of the time of a reduction where there are few, and adds them in the
    same order.
    """
    count = len(x)
    if count > _FEW:
        return _ADD_ROWS(x, 0)
    char: str = x.dtype.char
    ones = _ONES[char][count]
    if ones is None:
        ones = _ONES[char][count] = np.ones(count, char)
    return ones.dot(x)
