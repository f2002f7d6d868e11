"""Linear algebra that NumPy lacks: LU, triangular systems, the exponential of matrices.

Loops run over rows and columns, each step over the whole stack; blocks leave most of the work of
large matrices to matrix products.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ember_ml.backend import exponential
from ember_ml.backend.contract import Kernel
from ember_ml.errors import LinAlgError

__all__ = ["OVERRIDES"]

Array = np.ndarray[Any, Any]
_BLOCK: Final = 32


def solve_triangular(a: Array, b: Array, lower: bool, unit: bool) -> Array:
    """Substitution, from the first row down or from the last up."""
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.array(np.broadcast_to(b, (*stack, *b.shape[-2:])))
    rows = a.shape[-1]
    with np.errstate(all="ignore"):  # a zero on the diagonal is for the caller to forbid
        for start in range(0, rows, _BLOCK):
            stop = min(start + _BLOCK, rows)
            if not lower:
                start, stop = rows - stop, rows - start
            _substitute(a, out, start, stop, lower, unit)
            rest = slice(stop, None) if lower else slice(0, start)
            out[..., rest, :] -= a[..., rest, start:stop] @ out[..., start:stop, :]
    return out


def _substitute(a: Array, out: Array, start: int, stop: int, lower: bool, unit: bool) -> None:
    for row in range(start, stop) if lower else range(stop - 1, start - 1, -1):
        done = slice(start, row) if lower else slice(row + 1, stop)
        one = slice(row, row + 1)
        out[..., one, :] -= a[..., one, done] @ out[..., done, :]
        if not unit:
            out[..., one, :] /= a[..., one, one]


def lu_factor(x: Array) -> tuple[Array, Array]:
    """L and U in one matrix, by columns, with the row that each step brought up."""
    if not np.logical_and.reduce(np.isfinite(x), axis=None):
        raise LinAlgError("ops.linalg.lu_factor takes finite numbers, not NaN or infinity")
    rows, columns = x.shape[-2:]
    steps = min(rows, columns)
    count = math.prod(x.shape[:-2])
    out = np.array(x.reshape((count, rows, columns)))
    pivots = np.empty((count, steps), np.int64)
    with np.errstate(all="ignore"):
        for start in range(0, steps, _BLOCK):
            stop = min(start + _BLOCK, steps)
            for step in range(start, stop):
                pivots[:, step] = _eliminate(out, step, stop)
            head = out[:, start:stop, start:stop]
            right = solve_triangular(head, out[:, start:stop, stop:], True, True)
            out[:, start:stop, stop:] = right
            out[:, stop:, stop:] -= out[:, stop:, start:stop] @ right
    return out.reshape(x.shape), pivots.reshape((*x.shape[:-2], steps))


def _eliminate(out: Array, step: int, stop: int) -> Array:
    """Bring the largest element of a column up, and clear the column below it."""
    column = out[:, step:, step]
    # LAPACK measures complex numbers so; another choice would give other factors.
    size = abs(column.real) + abs(column.imag) if np.iscomplexobj(out) else abs(column)
    best = size.argmax(-1) + step if len(out) else np.empty((0,), np.int64)
    stack = np.arange(len(out))
    out[stack, step], out[stack, best] = out[stack, best], out[stack, step]
    pivot = out[:, step, step, None]
    out[:, step + 1 :, step] /= np.where(pivot == 0, 1, pivot)
    out[:, step + 1 :, step + 1 : stop] -= (
        out[:, step + 1 :, step, None] * out[:, step, None, step + 1 : stop]
    )
    return best


def permutation_of_pivots(pivots: Array, rows: int) -> Array:
    """The order of rows after all exchanges."""
    steps = pivots.shape[-1]
    flat = pivots.reshape((math.prod(pivots.shape[:-1]), steps))
    order = np.tile(np.arange(rows), (len(flat), 1))
    stack = np.arange(len(flat))
    for step in range(steps):
        other = flat[:, step]
        order[stack, step], order[stack, other] = order[stack, other], order[stack, step]
    return order.reshape((*pivots.shape[:-1], rows))


def expm(x: Array) -> Array:
    """Each matrix is squared as often as it must be."""
    if not x.size:
        return x.copy()
    with np.errstate(all="ignore"):
        counts = exponential.squarings(np, x)
        finite = np.logical_and.reduce(np.isfinite(x), axis=(-2, -1), keepdims=True)
        scaled = np.where(finite, x, 0) * np.exp2(-counts)[..., None, None]
        above, below = exponential.approximant(np, scaled.astype(x.dtype, copy=False))
        out = np.linalg.solve(below, above)
        for step in range(int(counts.max())):
            more = counts > step
            out[more] = out[more] @ out[more]
    return np.where(finite, out, np.nan).astype(x.dtype, copy=False)


OVERRIDES: Final[dict[str, Kernel]] = {
    f"linalg.{kernel.__name__}": kernel
    for kernel in (solve_triangular, lu_factor, permutation_of_pivots, expm)
}
