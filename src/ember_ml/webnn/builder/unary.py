"""Element by element, one operand."""

from __future__ import annotations

from ember_ml.webnn.builder.base import BuilderBase, Options
from ember_ml.webnn.operand import MLOperand

__all__ = ["Unary"]


class Unary(BuilderBase):
    """The element-wise unary ops."""

    def abs(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """|x| of each element."""
        return self._unary("abs", "Abs", input, options, label)

    def _unary(
        self, op: str, onnx_op: str, input: MLOperand, options: Options, label: str
    ) -> MLOperand:
        call = self._call(op, options, label=label)
        x = call.operand("input", input)
        return call.result(call.node(onnx_op, [x]), x.data_type, x.shape)
