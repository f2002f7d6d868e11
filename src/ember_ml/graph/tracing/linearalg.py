"""Products of matrices as nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml.graph.tracing import carriers
from ember_ml.graph.tracing.moving import expanded, permuted, reshaped, unsqueezed
from ember_ml.graph.tracing.operand import Operand
from ember_ml.graph.tracing.reductions import summed
from ember_ml.graph.tracing.sizes import Size
from ember_ml.graph.tracing.trace import broadcast, constant, emit

__all__ = ["EMITTERS", "product"]

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def product(x: Operand, y: Operand) -> Operand:
    """x @ y."""
    shape = _product_shape(x.shape, y.shape)
    # NumPy multiplies bfloat16 in float32, and leaves the result so.
    array = np.matmul(x.shadow, y.shadow).astype(x.dtype, copy=False)
    if any(type(side) is not Size and not side for side in (*x.shape, *y.shape)):
        # Sums of nothing, which ONNX Runtime refuses for stacks of matrices.
        return expanded(constant(np.zeros((), x.dtype)), shape or array.shape)
    return emit("MatMul", [x, y], array, shape=shape)


def _product_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    if len(a) < 2 or len(b) < 2:
        return (*a[:-1], *b[1:]) if len(a) < 3 and len(b) < 3 else None
    stack = broadcast([a[:-2], b[:-2]])
    return None if stack is None else (*stack, a[-2], b[-1])


def matmul(eager: Any, x: Operand, y: Operand) -> Any:
    eager(x, y)  # which says what is wrong with shapes
    return product(x, y)


def tensordot(eager: Any, x: Operand, y: Operand, axes: Any = 2) -> Any:
    if isinstance(axes, int):
        first, second = list(range(x.ndim - axes, x.ndim)), list(range(axes))
    else:
        first, second = ([a] if isinstance(a, int) else list(a) for a in axes)
    first, second = [a % x.ndim for a in first], [a % y.ndim for a in second]
    rest_x = [a for a in range(x.ndim) if a not in first]
    rest_y = [a for a in range(y.ndim) if a not in second]
    rows = math.prod(x.shape[a] for a in rest_x)
    inner = math.prod(x.shape[a] for a in first)
    columns = math.prod(y.shape[a] for a in rest_y)
    a = reshaped(permuted(x, (*rest_x, *first)), (rows, inner))
    b = reshaped(permuted(y, (*second, *rest_y)), (inner, columns))
    out = (*(x.shape[i] for i in rest_x), *(y.shape[i] for i in rest_y))
    return reshaped(product(a, b), out)


def vecdot(eager: Any, x: Operand, y: Operand, axis: int = -1) -> Any:
    return summed(x * y, axis)


def contract(
    eager: Any, arrays: list[Operand], terms: tuple[tuple[int, ...], ...], output: tuple[int, ...]
) -> Any:
    labels = sorted({label for term in terms for label in term})
    if len(labels) > len(_LETTERS) or not all(carriers.takes("Einsum", x.dtype) for x in arrays):
        return NotImplemented
    letter = dict(zip(labels, _LETTERS, strict=False))
    sides: dict[int, int] = {}
    for x, term in zip(arrays, terms, strict=True):
        for label, side in zip(term, x.shape, strict=True):
            if label not in sides or int(sides[label]) == 1:
                sides[label] = side
            elif int(side) == 1:
                return NotImplemented  # ONNX does not broadcast here
        if any(int(side) == 1 for side in x.shape):
            return NotImplemented
    given = ",".join("".join(letter[label] for label in term) for term in terms)
    equation = f"{given}->{''.join(letter[label] for label in output)}"
    shape = tuple(sides[label] for label in output)
    return emit("Einsum", arrays, eager(arrays, terms, output), shape=shape, equation=equation)


def outer(eager: Any, x: Operand, y: Operand) -> Any:
    return unsqueezed(x, [1]) * unsqueezed(y, [0])


EMITTERS: Final[dict[str, Callable[..., Any]]] = {
    "matmul": matmul,
    "linalg.matmul": matmul,
    "tensordot": tensordot,
    "vecdot": vecdot,
    "contract": contract,
    "linalg.outer": outer,
}
