"""Comparison, truth values and bits."""

from __future__ import annotations

from ember_ml import dtypes, ops
from ember_ml.graph.executors.operators.registry import operator
from ember_ml.tensor.core import Tensor

__all__: list[str] = []

operator("And", 7)(ops.logical_and)
operator("Or", 7)(ops.logical_or)
operator("Xor", 7)(ops.logical_xor)
operator("Not", 1)(ops.logical_not)
operator("Equal", 11, 13, 19)(ops.equal)
operator("Greater", 9, 13)(ops.greater)
operator("GreaterOrEqual", 12, 16)(ops.greater_equal)
operator("Less", 9, 13)(ops.less)
operator("LessOrEqual", 12, 16)(ops.less_equal)
operator("IsNaN", 9, 13, 20)(ops.isnan)
operator("Where", 9, 16)(ops.where)
operator("BitwiseAnd", 18)(ops.bitwise_and)
operator("BitwiseOr", 18)(ops.bitwise_or)
operator("BitwiseXor", 18)(ops.bitwise_xor)
operator("BitwiseNot", 18)(ops.bitwise_invert)


@operator("IsInf", 10, 20)
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    found = ops.isinf(x)
    if not detect_negative:
        found = ops.logical_and(found, ops.greater(x, 0))
    return found if detect_positive else ops.logical_and(found, ops.less(x, 0))


@operator("BitShift", 11, 28)
def bit_shift(x: Tensor, count: Tensor, *, direction: str) -> Tensor:
    """Shifts; by as many bits as there are or more, nothing is left, as C++ leaves it undefined."""
    made = (ops.bitwise_left_shift if direction == "LEFT" else ops.bitwise_right_shift)(x, count)
    return made if made.dtype is x.dtype else ops.astype(made, x.dtype)


def truth(x: Tensor) -> Tensor:
    """Whether each number is not zero."""
    return x if x.dtype is dtypes.bool else ops.not_equal(x, 0)
