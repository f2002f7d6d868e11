"""Element by element, two operands that broadcast."""

from __future__ import annotations

from typing import Final

import numpy as np

from ember_ml.graph.core import Value
from ember_ml.webnn.builder.arithmetic import (
    between,
    constant_like,
    greater,
    integer_power,
    lesser,
    unwrapped,
    where,
)
from ember_ml.webnn.builder.base import BuilderBase, Call, Options
from ember_ml.webnn.limits import FLOATS
from ember_ml.webnn.operand import MLOperand
from ember_ml.webnn.shapes import broadcast

__all__ = ["Binary", "broadcast_pair"]


class Binary(BuilderBase):
    """The element-wise binary ops. Both operands have one data type, and so has the result."""

    def add(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """a + b."""
        return self._binary("add", "Add", a, b, options, label)

    def sub(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """a - b."""
        return self._binary("sub", "Sub", a, b, options, label)

    def mul(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """a * b."""
        return self._binary("mul", "Mul", a, b, options, label)

    def div(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """a / b; of integers the part before the point."""
        return self._binary("div", "Div", a, b, options, label)

    def max(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """The greater of a and b."""
        return self._binary("max", "Max", a, b, options, label)

    def min(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """The lesser of a and b."""
        return self._binary("min", "Min", a, b, options, label)

    def pow(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """a to the power of b; integers are exact and wrap."""
        return self._binary("pow", "Pow", a, b, options, label)

    def _binary(
        self, op: str, onnx_op: str, a: MLOperand, b: MLOperand, options: Options, label: str
    ) -> MLOperand:
        call = self._call(op, options, label=label)
        left, right, shape = broadcast_pair(call, a, b)
        special = _INTEGERS.get(op)
        if special is not None and left.data_type not in FLOATS:
            made = special(call, unwrapped(left), unwrapped(right))
        else:
            made = call.node(onnx_op, [left, right], left.data_type, shape)
        return call.result(made, left.data_type, shape)


def broadcast_pair(
    call: Call, a: MLOperand, b: MLOperand
) -> tuple[MLOperand, MLOperand, tuple[int, ...]]:
    """Two checked operands of one data type, and the shape to which they broadcast."""
    left, right = call.operand("a", a), call.operand("b", b)
    if left.data_type != right.data_type:
        raise call.fault(f"a is {left.data_type} and b is {right.data_type}; cast one of them")
    shape = broadcast(left.shape, right.shape)
    if shape is None:
        raise call.fault(f"{list(left.shape)} and {list(right.shape)} do not broadcast")
    return left, right, shape


def _integer_quotient(call: Call, a: Value, b: Value) -> Value:
    if b.data is not None and not np.all(b.data):
        raise call.fault("b is constant and has a 0, by which no integer can be divided")
    is_safe = a.dtype not in ("int32", "int64") or (b.data is not None and not np.any(b.data == -1))
    if is_safe:
        return between(call, "Div", [a, b])
    # The least integer over -1 has no answer, and processors trap: ONNX Runtime would die of it.
    one, minus_one = constant_like(call, b, 1), constant_like(call, b, -1)
    is_minus = between(call, "Equal", [b, minus_one], "bool")
    quotient = between(call, "Div", [a, where(call, is_minus, one, b)])
    return between(call, "Mul", [quotient, where(call, is_minus, minus_one, one)])


# Those whose kernels for integers are missing or inexact.
_INTEGERS: Final = {
    "div": _integer_quotient,
    "max": greater,
    "min": lesser,
    "pow": integer_power,
}
