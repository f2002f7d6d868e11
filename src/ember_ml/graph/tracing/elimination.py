"""Systems of equations as nodes: elimination, written out step by step.

ONNX has no factorisations. For matrices of a known and small size their steps are ordinary
arithmetic: a dozen nodes for each row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from ember_ml.graph.tracing.elementwise import choose, number
from ember_ml.graph.tracing.linearalg import product
from ember_ml.graph.tracing.moving import concat, expanded, permuted, unsqueezed
from ember_ml.graph.tracing.operand import Operand
from ember_ml.graph.tracing.sizes import Size
from ember_ml.graph.tracing.trace import broadcast, constant, emit

__all__ = ["EMITTERS"]

# Beyond it a graph would have thousands of nodes.
_MOST: Final = 64


def _fits(*arrays: Operand) -> bool:
    sides = [side for x in arrays for side in x.shape[-2:]]
    return all(type(side) is not Size and 0 < side <= _MOST for side in sides)


def _turned(x: Operand) -> Operand:
    return permuted(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _stacked(x: Operand, y: Operand) -> tuple[Operand, Operand]:
    """Both with the axes before their matrices that they have together."""
    stack = broadcast([x.shape[:-2], y.shape[:-2]]) or ()
    return expanded(x, (*stack, *x.shape[-2:])), expanded(y, (*stack, *y.shape[-2:]))


# --- Without exchanges --------------------------------------------------------------------------


def solve_triangular(eager: Any, a: Operand, b: Operand, lower: bool, unit: bool) -> Any:
    """Substitution, from the first row down or from the last up."""
    if not _fits(a):
        return NotImplemented
    a, b = _stacked(a, b)
    count = a.shape[-1]
    rows: list[Operand] = []
    for i in range(count) if lower else range(count - 1, -1, -1):
        one = slice(i, i + 1)
        row = b[..., one, :]
        if rows:
            done = slice(0, i) if lower else slice(i + 1, count)
            known = concat(rows if lower else rows[::-1], b.ndim - 2)
            row = row - product(a[..., one, done], known)
        rows.append(row if unit else row / a[..., one, one])
    return concat(rows if lower else rows[::-1], b.ndim - 2)


def cholesky(eager: Any, x: Operand, upper: bool) -> Any:
    """Column by column; where the matrix is not positive definite, NaN comes out."""
    if not _fits(x):
        return NotImplemented
    count, axis = x.shape[-1], x.ndim - 1
    whole: Operand | None = None
    for j in range(count):
        rest, one = slice(j, None), slice(j, j + 1)
        column = x[..., rest, one]
        if whole is not None:
            column = column - product(whole[..., rest, :], _turned(whole[..., one, :]))
        top = column[..., :1, :]
        column = column / emit("Sqrt", [top], np.sqrt(top.shadow))
        if j:
            zeros = expanded(constant(np.zeros((), x.dtype)), (*x.shape[:-2], j, 1))
            column = concat([zeros, column], axis - 1)
        whole = column if whole is None else concat([whole, column], axis)
    assert whole is not None
    return _turned(whole) if upper else whole


# --- With exchanges -----------------------------------------------------------------------------


class _Step(NamedTuple):
    """A matrix after its largest row was brought up, which one that was, and if it moved."""

    matrix: Operand
    chosen: Operand
    pivot: Operand


def _exchanged(matrix: Operand, step: int, rows: int) -> _Step:
    """Bring the largest element of a column up to its diagonal."""
    column = abs(matrix[..., step:, step])
    place = np.argmax(column.shadow, axis=-1, keepdims=True)
    shape = (*column.shape[:-1], 1)
    chosen = emit("ArgMax", [column], place, shape=shape, axis=column.ndim - 1, keepdims=1) + step
    numbers = constant(np.arange(rows))
    order = choose(numbers == step, chosen, choose(numbers == chosen, np.array(step), numbers))
    wide = expanded(unsqueezed(order, [order.ndim]), matrix.shape)
    array = np.take_along_axis(matrix.shadow, wide.shadow, axis=-2)
    moved = emit("GatherElements", [matrix, wide], array, shape=matrix.shape, axis=matrix.ndim - 2)
    return _Step(moved, chosen, moved[..., step : step + 1, step : step + 1])


def _solved(a: Operand, b: Operand) -> tuple[Operand, list[_Step]]:
    """Gauss and Jordan's way: what is left of `b` where `a` has become the identity."""
    a, b = _stacked(a, b)
    rows = a.shape[-1]
    both = concat([a, b], a.ndim - 1)
    steps = []
    lines = constant(np.arange(rows)[:, None])
    for k in range(rows):
        step = _exchanged(both, k, rows)
        steps.append(step)
        row = step.matrix[..., k : k + 1, :] / step.pivot
        cleared = step.matrix - step.matrix[..., :, k : k + 1] * row
        both = choose(lines == k, row, cleared)
    return both[..., :, rows:], steps


def _identity(x: Operand) -> Operand:
    return constant(np.eye(x.shape[-1], dtype=x.dtype))


def inv(eager: Any, x: Operand) -> Any:
    return _solved(x, _identity(x))[0] if _fits(x) else NotImplemented


def solve(eager: Any, a: Operand, b: Operand) -> Any:
    if not _fits(a):
        return NotImplemented
    if b.ndim == 1:
        return _solved(a, unsqueezed(b, [1]))[0][..., 0]
    return _solved(a, b)[0]


def _pivots(x: Operand) -> tuple[Operand, Operand]:
    """The diagonal that elimination meets, and minus one where an odd number of rows moved."""
    steps = _solved(x, _identity(x))[1]
    diagonal = concat([step.pivot[..., 0] for step in steps], x.ndim - 2)
    sign: Any = None
    for k, step in enumerate(steps):
        still = step.chosen == k
        turn = choose(still, number(1, x), number(-1, x))
        sign = turn if sign is None else sign * turn
    return diagonal, sign[..., 0]


def _multiplied(x: Operand) -> Operand:
    shape = x.shape[:-1]
    axes = np.array([x.ndim - 1])
    return emit("ReduceProd", [x, axes], np.prod(x.shadow, axis=-1), shape=shape, keepdims=0)


def det(eager: Any, x: Operand) -> Any:
    if x.dtype == np.float32:
        return emit("Det", [x], eager(x), shape=x.shape[:-2])
    if not _fits(x):
        return NotImplemented
    diagonal, sign = _pivots(x)
    return _multiplied(diagonal) * sign


def slogdet(eager: Any, x: Operand) -> Any:
    if not _fits(x):
        return NotImplemented
    diagonal, sign = _pivots(x)
    size = abs(diagonal)
    logs = emit("Log", [size], np.log(size.shadow))
    total = np.sum(logs.shadow, axis=-1)
    axes = np.array([logs.ndim - 1])
    whole = emit("ReduceSum", [logs, axes], total, shape=logs.shape[:-1], keepdims=0)
    signs = emit("Sign", [diagonal], np.sign(diagonal.shadow))
    return _multiplied(signs) * sign, whole


def lu_factor(eager: Any, x: Operand) -> Any:
    """L and U in one matrix, with the row that each step brought up."""
    if not _fits(x):
        return NotImplemented
    rows, columns = x.shape[-2:]
    lines, places = np.arange(rows)[:, None], np.arange(columns)
    chosen = []
    for k in range(min(rows, columns)):
        step = _exchanged(x, k, rows)
        chosen.append(step.chosen)
        x = step.matrix
        none = step.pivot == 0.0
        shares = x[..., :, k : k + 1] / choose(none, number(1, x), step.pivot)
        below = choose(constant(lines > k), shares, number(0, x))
        right = choose(constant(places > k), x[..., k : k + 1, :], number(0, x))
        x = choose(constant((lines > k) & (places == k)), shares, x - below * right)
    return x, concat(chosen, x.ndim - 2)


def permutation_of_pivots(eager: Any, pivots: Operand, rows: int) -> Any:
    """The order of rows after all exchanges."""
    if type(pivots.shape[-1]) is Size or pivots.shape[-1] > _MOST:
        return NotImplemented
    numbers = constant(np.arange(rows))
    order = expanded(numbers, (*pivots.shape[:-1], rows))
    for k in range(pivots.shape[-1]):
        other = pivots[..., k : k + 1]
        turn = choose(numbers == k, other, choose(numbers == other, np.array(k), numbers))
        array = np.take_along_axis(order.shadow, turn.shadow, axis=-1)
        order = emit("GatherElements", [order, turn], array, shape=order.shape, axis=order.ndim - 1)
    return order


def qr(eager: Any, x: Operand, mode: str = "reduced") -> Any:
    """Householder's reflections, with the signs of LAPACK."""
    if not _fits(x):
        return NotImplemented
    rows, columns = x.shape[-2:]
    q, r = expanded(_eye(rows, x), (*x.shape[:-2], rows, rows)), x
    for k in range(min(rows - 1, columns)):
        column = r[..., k:, k : k + 1]
        first, rest = column[..., :1, :], column[..., 1:, :]
        tail = _summed(rest * rest)
        still = tail == 0.0
        length = first * first + tail
        size = emit("Sqrt", [length], np.sqrt(length.shadow))
        beta = choose(first < 0.0, size, -size)
        tau = choose(still, number(0, x), (beta - first) / choose(still, number(1, x), beta))
        under = choose(still, number(1, x), first - beta)
        one = expanded(constant(np.ones((), x.dtype)), first.shape)
        normal = concat([one, rest / under], x.ndim - 2)
        if k:
            zeros = expanded(constant(np.zeros((), x.dtype)), (*x.shape[:-2], k, 1))
            normal = concat([zeros, normal], x.ndim - 2)
        flat = _turned(normal)
        r = r - tau * product(normal, product(flat, r))
        q = q - tau * product(product(q, normal), flat)
    wide = rows if mode == "complete" else min(rows, columns)
    upper = np.arange(wide)[:, None] <= np.arange(columns)
    return q[..., :, :wide], choose(constant(upper), r[..., :wide, :], number(0, x))


def _eye(side: int, x: Operand) -> Operand:
    return constant(np.eye(side, dtype=x.dtype))


def _summed(x: Operand) -> Operand:
    """The sum of a column, which stays a matrix of one element."""
    shape = (*x.shape[:-2], 1, 1)
    total = np.sum(x.shadow, axis=-2, keepdims=True)
    return emit("ReduceSum", [x, np.array([x.ndim - 2])], total, shape=shape, keepdims=1)


EMITTERS: Final[dict[str, Callable[..., Any]]] = {
    "linalg.solve_triangular": solve_triangular,
    "linalg.cholesky": cholesky,
    "linalg.inv": inv,
    "linalg.solve": solve,
    "linalg.det": det,
    "linalg.slogdet": slogdet,
    "linalg.lu_factor": lu_factor,
    "linalg.permutation_of_pivots": permutation_of_pivots,
    "linalg.qr": qr,
}
