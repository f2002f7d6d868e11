"""Element by element, one operand."""

from __future__ import annotations

from ember_ml.webnn.builder.base import BuilderBase, Options
from ember_ml.webnn.limits import FLOATS, LIMITS
from ember_ml.webnn.operand import MLOperand

__all__ = ["Unary"]


class Unary(BuilderBase):
    """The element-wise unary ops, and cast. Each gives the shape of its input."""

    def abs(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """|x| of each element."""
        return self._unary("abs", "Abs", input, options, label)

    def ceil(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """The least integer that is not below each element."""
        return self._unary("ceil", "Ceil", input, options, label)

    def cos(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """The cosine of each element, in radians."""
        return self._unary("cos", "Cos", input, options, label)

    def erf(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """The error function of each element."""
        return self._unary("erf", "Erf", input, options, label)

    def exp(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """e to the power of each element."""
        return self._unary("exp", "Exp", input, options, label)

    def floor(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """The greatest integer that is not above each element."""
        return self._unary("floor", "Floor", input, options, label)

    def identity(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """Each element as it is."""
        return self._unary("identity", "Identity", input, options, label)

    def log(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """The natural logarithm of each element."""
        return self._unary("log", "Log", input, options, label)

    def neg(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """-x of each element."""
        return self._unary("neg", "Neg", input, options, label)

    def reciprocal(
        self, input: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """1 / x of each element."""
        return self._unary("reciprocal", "Reciprocal", input, options, label)

    def round_even(
        self, input: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """The nearest integer to each element; the even one of two that are as near."""
        return self._unary("round_even", "Round", input, options, label)

    def sign(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """1 where an element is above 0, -1 where it is below, 0 otherwise."""
        call = self._call("sign", options, label=label)
        x = call.operand("input", input)
        zero = call.constant(0, x.data_type)
        if x.data_type in FLOATS or x.data_type == "int64":
            # ONNX leaves open what NaN gives, and ONNX Runtime's kernel for int64 is wrong.
            signs = [
                call.cast(call.node(relation, [x, zero], "bool"), x.data_type)
                for relation in ("Greater", "Less")
            ]
            made = call.node("Sub", signs)
        else:
            made = call.node("Sign", [x])
        return call.result(made, x.data_type, x.shape)

    def sin(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """The sine of each element, in radians."""
        return self._unary("sin", "Sin", input, options, label)

    def sqrt(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """The square root of each element."""
        return self._unary("sqrt", "Sqrt", input, options, label)

    def tan(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """The tangent of each element, in radians."""
        return self._unary("tan", "Tan", input, options, label)

    def cast(
        self, input: MLOperand, data_type: str, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """Each element in another data type.

        Floats lose their fraction on the way to integers; integers keep their lowest bits.
        """
        call = self._call("cast", options, label=label)
        x = call.operand("input", input)
        made = str(data_type)
        allowed = LIMITS["cast"]["output"].data_types
        if made not in allowed:
            raise call.fault(f"data_type is one of {', '.join(allowed)}, not {data_type!r}")
        return call.result(call.cast(x, made), made, x.shape)

    def _unary(
        self, op: str, onnx_op: str, input: MLOperand, options: Options, label: str
    ) -> MLOperand:
        call = self._call(op, options, label=label)
        x = call.operand("input", input)
        return call.result(call.node(onnx_op, [x]), x.data_type, x.shape)
