"""Elementwise arithmetic, products of matrices, and functions of one number."""

from __future__ import annotations

from functools import reduce

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.graph.executors.operators.registry import Host, operator
from ember_ml.graph.executors.operators.shaping import hosted
from ember_ml.tensor.core import Tensor

__all__: list[str] = []

# --- One number ---------------------------------------------------------------------------------

operator("Abs", 6, 13)(ops.abs)
operator("Acos", 7, 22)(ops.acos)
operator("Acosh", 9, 22)(ops.acosh)
operator("Asin", 7, 22)(ops.asin)
operator("Asinh", 9, 22)(ops.asinh)
operator("Atan", 7, 22)(ops.atan)
operator("Atanh", 9, 22)(ops.atanh)
operator("Ceil", 6, 13)(ops.ceil)
operator("Cos", 7, 22)(ops.cos)
operator("Cosh", 9, 22)(ops.cosh)
operator("Exp", 6, 13)(ops.exp)
operator("Floor", 6, 13)(ops.floor)
operator("Log", 6, 13)(ops.log)
operator("Neg", 6, 13)(ops.negative)
operator("Reciprocal", 6, 13)(ops.reciprocal)
operator("Round", 11, 22)(ops.round)
operator("Sign", 9, 13)(ops.sign)
operator("Sin", 7, 22)(ops.sin)
operator("Sinh", 9, 22)(ops.sinh)
operator("Sqrt", 6, 13)(ops.sqrt)
operator("Tan", 7, 22)(ops.tan)
operator("Tanh", 6, 13)(ops.tanh)


@operator("Erf", 9, 13)
def erf(x: Tensor) -> Tensor:
    """The error function; of integers too, whose results are integers."""
    return ops.erf(x) if x.dtype.is_floating else ops.astype(ops.erf(x), x.dtype)


# --- Two numbers --------------------------------------------------------------------------------

operator("Add", 7, 13, 14)(ops.add)
operator("Sub", 7, 13, 14)(ops.subtract)
operator("Mul", 7, 13, 14)(ops.multiply)


@operator("Div", 7, 13, 14)
def div(x1: Tensor, x2: Tensor) -> Tensor:
    """Quotients; those of integers lose their fraction, towards zero.

    An integer divided by zero, which ONNX leaves undefined, raises IntegerDivisionError.
    """
    if not x1.dtype.is_integer:
        return ops.divide(x1, x2)
    low = ops.floor_divide(x1, x2)
    if x1.dtype.name.startswith("u"):
        return low
    # Towards zero is one above the floor where the signs differ and something is left over.
    left = ops.not_equal(ops.multiply(low, x2), x1)
    apart = ops.not_equal(ops.less(x1, 0), ops.less(x2, 0))
    return ops.add(low, ops.astype(ops.logical_and(left, apart), x1.dtype))


@operator("Mod", 10, 13, 28)
def mod(x1: Tensor, x2: Tensor, *, fmod: int = 0) -> Tensor:
    """Remainders: of the sign of the divisor, or with `fmod` of the dividend, as in C."""
    if not fmod:
        return ops.remainder(x1, x2)
    if not x1.dtype.is_integer:
        return ops.fmod(x1, x2)
    return ops.subtract(x1, ops.multiply(div(x1, x2), x2))


@operator("Pow", 7, 12, 13, 15)
def pow(x1: Tensor, x2: Tensor) -> Tensor:
    """Powers in the dtype of the base, whatever the dtype of the exponent."""
    if x1.dtype is x2.dtype:
        return ops.pow(x1, x2)
    if x1.dtype.is_floating or x2.dtype.is_integer:
        return ops.pow(x1, ops.astype(x2, x1.dtype))
    return ops.astype(ops.pow(ops.astype(x1, x2.dtype), x2), x1.dtype)


# --- Several numbers ----------------------------------------------------------------------------


@operator("Sum", 8, 13)
def sum_all(*inputs: Tensor) -> Tensor:
    return reduce(ops.add, inputs)


@operator("Mean", 8, 13)
def mean_all(*inputs: Tensor) -> Tensor:
    return ops.divide(reduce(ops.add, inputs), float(len(inputs)))


@operator("Max", 8, 12, 13)
def max_all(*inputs: Tensor) -> Tensor:
    return reduce(ops.maximum, inputs)


@operator("Min", 8, 12, 13)
def min_all(*inputs: Tensor) -> Tensor:
    return reduce(ops.minimum, inputs)


@operator("Clip", 11, 12, 13)
def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Limits; where the lower one is above the upper one, all becomes the upper one."""
    if low is not None:
        x = ops.maximum(x, low)
    return x if high is None else ops.minimum(x, high)


# --- Matrices -----------------------------------------------------------------------------------

operator("MatMul", 9, 13)(ops.linalg.matmul)


@operator("Gemm", 11, 13)
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # ONNX's names
    transB: int = 0,
) -> Tensor:
    made = ops.matmul(ops.matrix_transpose(a) if transA else a,
                      ops.matrix_transpose(b) if transB else b)  # fmt: skip
    if alpha != 1.0:
        made = scaled(made, alpha)
    if c is None:
        return made
    return ops.add(made, c if beta == 1.0 else scaled(c, beta))


def scaled(x: Tensor, factor: float) -> Tensor:
    """A tensor times a number, in the tensor's dtype even if that is an integer one."""
    if x.dtype.is_integer:
        return ops.astype(ops.multiply(ops.astype(x, dtypes.float64), factor), x.dtype)
    return ops.multiply(x, factor)


@operator("Einsum", 12, 28)
def einsum(*inputs: Tensor, equation: str) -> Tensor:
    made = ops.einsum(equation, *inputs)
    return made if made.dtype is inputs[0].dtype else ops.astype(made, inputs[0].dtype)


@operator("Det", 11, 22)
def det(x: Tensor) -> Tensor:
    """Determinants; of 16-bit floats in float32, as no engine factorises them."""
    if x.dtype.itemsize > 2:
        return ops.linalg.det(x)
    return ops.astype(ops.linalg.det(ops.astype(x, dtypes.float32)), x.dtype)


@operator("Trilu", 14)
def trilu(x: Tensor, k: Host | None = None, *, upper: int = 1) -> Tensor:
    offset = 0 if k is None else int(k.reshape(-1)[0])
    return ops.triu(x, k=offset) if upper else ops.tril(x, k=offset)


# --- Along an axis ------------------------------------------------------------------------------


@operator("CumSum", 11, 14)
def cumsum(x: Tensor, axis: Host, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    place = int(axis.reshape(-1)[0])
    if reverse:
        x = ops.flip(x, axis=place)
    made = ops.cumulative_sum(x, axis=place, dtype=x.dtype, include_initial=bool(exclusive))
    if exclusive:
        made = without_last(made, place)
    return ops.flip(made, axis=place) if reverse else made


@operator("CumProd", 26)
def cumprod(x: Tensor, axis: Host, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    place = int(axis.reshape(-1)[0])
    if reverse:
        x = ops.flip(x, axis=place)
    made = ops.cumulative_prod(x, axis=place, dtype=x.dtype, include_initial=bool(exclusive))
    if exclusive:
        made = without_last(made, place)
    return ops.flip(made, axis=place) if reverse else made


def without_last(x: Tensor, axis: int) -> Tensor:
    """All but the last along an axis."""
    keys = [slice(None)] * x.ndim
    keys[axis] = slice(0, x.shape[axis] - 1)
    return x[tuple(keys)]


@operator("Range", 11)
def range_(start: Host, limit: Host, delta: Host) -> Tensor:
    return range_wide(start, limit, delta)


@operator("Range", 27)
def range_wide(start: Host, limit: Host, delta: Host, *, stash_type: int = 1) -> Tensor:
    """Numbers from a start by steps; made by NumPy, since their count is a shape.

    16-bit floats are computed in float32, which is what `stash_type` asks for.
    """
    dtype = start.dtype
    if dtype.itemsize == 2 and dtype.kind not in "iu":
        start, limit, delta = (x.astype(np.float32) for x in (start, limit, delta))
    first, last, step = (x.reshape(-1)[0] for x in (start, limit, delta))
    if dtype.kind in "iu":
        count = len(range(int(first), int(last), int(step)))
    else:
        count = max(int(np.ceil((float(last) - float(first)) / float(step))), 0)
    made = np.arange(count).astype(start.dtype) * step + first
    return hosted(made.astype(dtype))
