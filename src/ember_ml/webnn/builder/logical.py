"""Comparisons, logic and selection. Truth is uint8 in WebNN: 0, or anything else."""

from __future__ import annotations

from ember_ml.graph.core import Value
from ember_ml.webnn.builder.arithmetic import unwrapped, where
from ember_ml.webnn.builder.base import BuilderBase, Call, Options
from ember_ml.webnn.builder.binary import broadcast_pair
from ember_ml.webnn.operand import MLOperand
from ember_ml.webnn.shapes import broadcast

__all__ = ["Logical"]


class Logical(BuilderBase):
    """The element-wise logical ops: their results are uint8 of 0 and 1. And where."""

    def equal(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """1 where a == b; NaN equals nothing."""
        return self._compare("equal", "Equal", a, b, options, label)

    def not_equal(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """1 where a != b."""
        return self._compare("not_equal", "Equal", a, b, options, label)

    def greater(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """1 where a > b."""
        return self._compare("greater", "Greater", a, b, options, label)

    def greater_or_equal(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """1 where a >= b."""
        return self._compare("greater_or_equal", "GreaterOrEqual", a, b, options, label)

    def lesser(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """1 where a < b."""
        return self._compare("lesser", "Less", a, b, options, label)

    def lesser_or_equal(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """1 where a <= b."""
        return self._compare("lesser_or_equal", "LessOrEqual", a, b, options, label)

    def logical_not(self, a: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """1 where a is 0."""
        call = self._call("logical_not", options, label=label)
        x = call.operand("a", a)
        return _truth(call, call.node("Not", [call.cast(x, "bool")]), x.shape)

    def logical_and(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """1 where neither a nor b is 0."""
        return self._logic("logical_and", "And", a, b, options, label)

    def logical_or(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """1 where a or b is not 0."""
        return self._logic("logical_or", "Or", a, b, options, label)

    def logical_xor(
        self, a: MLOperand, b: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """1 where one of a and b is 0 and the other is not."""
        return self._logic("logical_xor", "Xor", a, b, options, label)

    def is_nan(self, a: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """1 where an element is not a number."""
        return self._classify("is_nan", "IsNaN", a, options, label)

    def is_infinite(self, a: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """1 where an element is infinite, of either sign."""
        return self._classify("is_infinite", "IsInf", a, options, label)

    def where(
        self,
        condition: MLOperand,
        true_value: MLOperand,
        false_value: MLOperand,
        options: Options = None,
        *,
        label: str = "",
    ) -> MLOperand:
        """Elements of true_value where the condition is not 0, else of false_value.

        The three broadcast.
        """
        call = self._call("where", options, label=label)
        asked = call.operand("condition", condition)
        this = call.operand("true_value", true_value)
        other = call.operand("false_value", false_value)
        if this.data_type != other.data_type:
            raise call.fault(
                f"true_value is {this.data_type} and false_value is {other.data_type}; "
                "cast one of them"
            )
        both = broadcast(this.shape, other.shape)
        shape = None if both is None else broadcast(asked.shape, both)
        if shape is None:
            shapes = ", ".join(str(list(x.shape)) for x in (asked, this, other))
            raise call.fault(f"{shapes} do not broadcast")
        made = where(call, call.cast(asked, "bool"), unwrapped(this), unwrapped(other))
        return call.result(made, this.data_type, shape)

    def _compare(
        self, op: str, onnx_op: str, a: MLOperand, b: MLOperand, options: Options, label: str
    ) -> MLOperand:
        call = self._call(op, options, label=label)
        left, right, shape = broadcast_pair(call, a, b)
        made = call.node(onnx_op, [left, right], "bool", shape)
        if op == "not_equal":
            made = call.node("Not", [made])
        return _truth(call, made, shape)

    def _logic(
        self, op: str, onnx_op: str, a: MLOperand, b: MLOperand, options: Options, label: str
    ) -> MLOperand:
        call = self._call(op, options, label=label)
        left, right, shape = broadcast_pair(call, a, b)
        pair = [call.cast(left, "bool"), call.cast(right, "bool")]
        return _truth(call, call.node(onnx_op, pair, "bool", shape), shape)

    def _classify(
        self, op: str, onnx_op: str, a: MLOperand, options: Options, label: str
    ) -> MLOperand:
        call = self._call(op, options, label=label)
        x = call.operand("a", a)
        return _truth(call, call.node(onnx_op, [x], "bool", x.shape), x.shape)


def _truth(call: Call, made: Value, shape: tuple[int, ...]) -> MLOperand:
    return call.result(call.cast(made, "uint8"), "uint8", shape)
