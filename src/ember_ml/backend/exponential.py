"""The exponential of matrices: scaling, a Padé approximant, squaring.

Written over a namespace that reads like NumPy's, once for NumPy and JAX. The scaling is that of
Al-Mohy and Higham (2009): powers of a matrix tell more of its size than its norm does, and fewer
squarings lose fewer digits.
"""

from __future__ import annotations

from math import factorial
from typing import Any, Final

__all__ = ["approximant", "squarings"]

# By bytes of a real number: the degree, and the norm up to which it is exact to the last place.
_DEGREES: Final = {4: (7, 3.925724783138660), 8: (13, 5.371920351148152)}

Array = Any  # an array of NumPy or JAX


def _degree(x: Array) -> tuple[int, float]:
    return _DEGREES[x.real.dtype.itemsize]


def _norm(xp: Any, x: Array) -> Array:
    return xp.max(xp.sum(xp.abs(x), -2), -1)


def squarings(xp: Any, x: Array) -> Array:
    """How often each matrix must be halved, and its exponential squared; a float for each."""
    degree, bound = _degree(x)
    whole = _norm(xp, x)
    most = xp.maximum(xp.ceil(xp.log2(whole / bound)), 0)
    square = xp.matmul(x, x)
    fourth = xp.matmul(square, square)
    sixth = xp.matmul(square, fourth)
    size = xp.maximum(_norm(xp, fourth) ** (1 / 4), _norm(xp, sixth) ** (1 / 6))
    few = xp.maximum(xp.ceil(xp.log2(size / bound)), 0)
    few = few + _guard(xp, xp.abs(x) * xp.exp2(-few)[..., None, None], degree)
    # What overflows on the way is not finite, and the norm decides.
    found = xp.where(xp.isfinite(few), xp.minimum(few, most), most)
    return xp.where(xp.isfinite(whole), found, 0)


def _guard(xp: Any, size: Array, degree: int) -> Array:
    """How many more squarings keep rounding errors of the approximant below the last place."""
    row = xp.ones_like(size[..., :1, :])
    for _ in range(2 * degree + 1):
        row = xp.matmul(row, size)
    error = factorial(degree) ** 2 / (factorial(2 * degree) * factorial(2 * degree + 1))
    whole = _norm(xp, size)
    relative = xp.max(row, (-2, -1)) / xp.where(whole == 0, 1, whole) * error
    unit = xp.finfo(size.dtype).eps / 2
    return xp.maximum(xp.ceil(xp.log2(relative / unit) / (2 * degree)), 0)


def approximant(xp: Any, x: Array) -> tuple[Array, Array]:
    """Numerator and denominator of the Padé approximant of matrices that are scaled."""
    degree, _ = _degree(x)
    terms = [1.0]
    for k in range(1, degree + 1):
        terms.append(terms[-1] * (degree - k + 1) / ((2 * degree - k + 1) * k))
    one = xp.eye(x.shape[-1], dtype=x.dtype)
    second = xp.matmul(x, x)
    fourth = xp.matmul(second, second)
    sixth = xp.matmul(second, fourth)
    odd = terms[7] * sixth + terms[5] * fourth + terms[3] * second + terms[1] * one
    even = terms[6] * sixth + terms[4] * fourth + terms[2] * second + terms[0] * one
    if degree == 13:
        high = terms[13] * sixth + terms[11] * fourth + terms[9] * second
        odd = odd + xp.matmul(sixth, high)
        high = terms[12] * sixth + terms[10] * fourth + terms[8] * second
        even = even + xp.matmul(sixth, high)
    odd = xp.matmul(x, odd)
    return even + odd, even - odd
