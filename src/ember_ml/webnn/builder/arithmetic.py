"""What ops are composed of where ONNX Runtime has no kernel for a type, or an inexact one.

Only operators that ONNX defines exactly are used, so that every executor gives the same numbers;
and no float64, which some devices lack.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from ember_ml.graph.core import Value
from ember_ml.webnn.builder.base import Call
from ember_ml.webnn.operand import MLOperand

__all__ = [
    "between",
    "clipped",
    "constant_like",
    "extreme",
    "fold",
    "greater",
    "integer_power",
    "lesser",
    "ordered",
    "shape_of",
    "unwrapped",
    "where",
    "wide",
]

_SIGN_BIT: Final = 1 << 63


def unwrapped(x: MLOperand | Value) -> Value:
    """The value of an operand."""
    return x._value if isinstance(x, MLOperand) else x


def shape_of(x: MLOperand | Value) -> tuple[int, ...]:
    """The sizes of a value, which are all known in WebNN."""
    shape = unwrapped(x).shape or ()
    return tuple(size for size in shape if isinstance(size, int))


def between(call: Call, onnx_op: str, inputs: Sequence[Value], data_type: str = "") -> Value:
    """A node over values that broadcast."""
    shape = np.broadcast_shapes(*(shape_of(x) for x in inputs))
    return call.node(onnx_op, inputs, data_type or inputs[0].dtype, shape)


def constant_like(call: Call, x: Value, number: float) -> Value:
    """A number in the type of a value."""
    return call.constant(number, x.dtype)


def wide(call: Call, x: MLOperand | Value) -> Value:
    """float16 as float32, so that only the end of a computation rounds; others as they are."""
    value = unwrapped(x)
    return call.cast(value, "float32") if value.dtype == "float16" else value


def where(call: Call, condition: Value, this: Value, other: Value) -> Value:
    """Elements of one value or of another."""
    if this.dtype != "uint64":
        shapes = (shape_of(x) for x in (condition, this, other))
        return call.node(
            "Where", [condition, this, other], this.dtype, np.broadcast_shapes(*shapes)
        )
    # ONNX Runtime has no kernel; casts between integers keep all bits.
    signed = where(call, condition, call.cast(this, "int64"), call.cast(other, "int64"))
    return call.cast(signed, "uint64")


def ordered(call: Call, x: MLOperand | Value) -> Value:
    """Unsigned 32 and 64-bit integers as int64 in the same order; others as they are."""
    value = unwrapped(x)
    if value.dtype == "uint32":
        return call.cast(value, "int64")
    if value.dtype == "uint64":
        flipped = between(call, "BitwiseXor", [value, call.constant(_SIGN_BIT, "uint64")])
        return call.cast(flipped, "int64")
    return value


def extreme(call: Call, onnx_op: str, x: Value, axes: Sequence[int]) -> Value:
    """The greatest ("ArgMax") or the least ("ArgMin") element over some axes, by its place.

    ONNX Runtime reduces no unsigned 32 and 64-bit integers, and int64 wrongly: see `greater`.
    Gives the axes that are left, in their order.
    """
    shape = shape_of(x)
    left = [axis for axis in range(len(shape)) if axis not in axes]
    rest = tuple(shape[axis] for axis in left)
    rows = _moved(call, x, [*left, *axes], (*rest, prod(shape[axis] for axis in axes)))
    one = (*rest, 1)
    place = call.node(onnx_op, [ordered(call, rows)], "int64", one, axis=len(rest), keepdims=1)
    found = call.node("GatherElements", [rows, place], x.dtype, one, axis=len(rest))
    return call.node("Reshape", [found, call.int64s(rest)], x.dtype, rest)


def greater(call: Call, a: Value, b: Value) -> Value:
    """The greater of two.

    ONNX Runtime 1.31 compares the halves of int64 as signed numbers in Max, Min, Clip and Sign:
    there 3 is greater than 3 * 10**9. Its comparisons are right.
    """
    if a.dtype != "int64":
        return between(call, "Max", [a, b])
    return where(call, between(call, "Less", [a, b], "bool"), b, a)


def lesser(call: Call, a: Value, b: Value) -> Value:
    """The lesser of two."""
    if a.dtype != "int64":
        return between(call, "Min", [a, b])
    return where(call, between(call, "Less", [b, a], "bool"), b, a)


def clipped(call: Call, x: Value, least: Value | None, most: Value | None) -> Value:
    """What lies below or above bounds put on them; None bounds nothing."""
    if least is not None and most is not None and x.dtype != "int64":
        return call.node("Clip", [x, least, most])
    # With one bound left out, ONNX Runtime's Clip makes infinities finite.
    if least is not None:
        x = greater(call, x, least)
    return x if most is None else lesser(call, x, most)


def fold(call: Call, onnx_op: str, x: Value, axes: Sequence[int]) -> Value:
    """Add or Mul over some axes, in halves: ONNX Runtime reduces int64 by way of double.

    Gives the axes that are left, in their order.
    """
    shape = shape_of(x)
    left = [axis for axis in range(len(shape)) if axis not in axes]
    rest = tuple(shape[axis] for axis in left)
    count = prod(shape[axis] for axis in axes)
    x = _moved(call, x, [*axes, *left], (count, *rest))
    while count > 1:
        half = count // 2
        folded = call.node(
            onnx_op, [_rows(call, x, 0, half), _rows(call, x, half, 2 * half)], x.dtype
        )
        if count % 2:
            last = _rows(call, x, 2 * half, count)
            folded = call.node("Concat", [folded, last], x.dtype, (half + 1, *rest), axis=0)
        x, count = folded, half + count % 2
    return call.node("Reshape", [x, call.int64s(rest)], x.dtype, rest)


def _moved(call: Call, x: Value, order: list[int], shape: tuple[int, ...]) -> Value:
    sizes = shape_of(x)
    if order != list(range(len(sizes))):
        moved = tuple(sizes[axis] for axis in order)
        x = call.node("Transpose", [x], x.dtype, moved, perm=order)
    if shape_of(x) == shape:
        return x
    return call.node("Reshape", [x, call.int64s(shape)], x.dtype, shape)


def _rows(call: Call, x: Value, start: int, stop: int) -> Value:
    shape = (stop - start, *shape_of(x)[1:])
    bounds = [call.int64s([place]) for place in (start, stop, 0)]
    return call.node("Slice", [x, *bounds], x.dtype, shape)


def integer_power(call: Call, base: Value, exponent: Value) -> Value:
    """base ** exponent of integers, exactly: ONNX Runtime computes it by way of double.

    Overflow wraps. A negative exponent gives the integer part: 0 but for a base of 1 or -1.
    """
    data_type = base.dtype
    bits = np.dtype(data_type).itemsize * 8
    known = exponent.data
    if (
        known is not None
        and known.size == 1
        and known.item() >= 1
        and known.ndim <= len(shape_of(base))
    ):
        return _known_power(call, base, int(known.item()))
    is_negative = None
    if not data_type.startswith("u"):
        bits -= 1  # the sign
        zero, one, two = (constant_like(call, exponent, n) for n in (0, 1, 2))
        is_negative = between(call, "Less", [exponent, zero], "bool")
        # Those of 1 and -1 need only to know whether the exponent is odd.
        odd = between(call, "BitwiseAnd", [exponent, one])
        exponent = where(call, is_negative, between(call, "Add", [odd, two]), exponent)
    unit = constant_like(call, base, 1)
    made, power = unit, base
    for place in range(bits):
        if place:
            power = between(call, "Mul", [power, power])
        mask = constant_like(call, exponent, 1 << place)
        is_set = call.cast(between(call, "BitwiseAnd", [exponent, mask]), "bool")
        factor = where(call, is_set, power, unit)
        made = factor if place == 0 else between(call, "Mul", [made, factor])
    if is_negative is None:
        return made
    size = call.node("Abs", [base])
    is_fraction = between(
        call, "And", [is_negative, between(call, "Greater", [size, unit], "bool")], "bool"
    )
    return where(call, is_fraction, constant_like(call, base, 0), made)


def _known_power(call: Call, base: Value, exponent: int) -> Value:
    made, power = None, base
    while True:
        if exponent % 2:
            made = power if made is None else call.node("Mul", [made, power])
        exponent //= 2
        if not exponent:
            return power if made is None else made
        power = call.node("Mul", [power, power])
