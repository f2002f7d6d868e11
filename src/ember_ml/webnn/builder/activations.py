"""Activation functions."""

from __future__ import annotations

from math import isnan, sqrt

import numpy as np

from ember_ml.graph.core import Value
from ember_ml.webnn.builder.arithmetic import (
    between,
    clipped,
    constant_like,
    greater,
    unwrapped,
    where,
    wide,
)
from ember_ml.webnn.builder.base import BuilderBase, Call, Options
from ember_ml.webnn.limits import FLOATS
from ember_ml.webnn.numbers import cast_number, is_number
from ember_ml.webnn.operand import MLOperand
from ember_ml.webnn.shapes import broadcast, broadcasts_to

__all__ = ["Activations"]


class Activations(BuilderBase):
    """Functions of each element, and softmax. Each gives the shape of its input."""

    def clamp(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        min_value: float | None = None,
        max_value: float | None = None,
        label: str = "",
    ) -> MLOperand:
        """Each element, but not below min_value and not above max_value.

        Bounds are taken in the input's data type: those that it cannot hold become its own.
        """
        call = self._call("clamp", options, min_value=min_value, max_value=max_value, label=label)
        x = call.operand("input", input)
        least, most = (_bound(call, name, x.data_type) for name in ("min_value", "max_value"))
        if least is not None and most is not None and least.item() > most.item():
            raise call.fault(f"min_value {least} is above max_value {most}")
        # A bound that is NaN bounds nothing; ONNX leaves open what it does.
        low, high = (
            None if n is None or isnan(n.item()) else call.constant(n, x.data_type)
            for n in (least, most)
        )
        made = clipped(call, unwrapped(x), low, high)
        if low is None and high is None:
            made = call.node("Identity", [x])
        return call.result(made, x.data_type, x.shape)

    def elu(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        alpha: float = 1.0,
        label: str = "",
    ) -> MLOperand:
        """x where it is positive, else alpha * (exp(x) - 1)."""
        call = self._call("elu", options, alpha=alpha, label=label)
        x, (factor,) = _input_and_numbers(call, input, "alpha")
        given = wide(call, x)
        # exp(x) - 1 would lose all digits near 0; tanh(x / 2) * (exp(x) + 1) is the same.
        below = call.node("Min", [given, constant_like(call, given, 0)])
        half = call.node("Mul", [below, constant_like(call, given, 0.5)])
        above_one = call.node("Add", [call.node("Exp", [below]), constant_like(call, given, 1)])
        made = call.node("Mul", [call.node("Tanh", [half]), above_one])
        if factor != 1:
            made = call.node("Mul", [made, constant_like(call, given, factor)])
        return _narrow(call, call.node("Add", [call.node("Relu", [given]), made]), x)

    def gelu(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """0.5 * x * (1 + erf(x / sqrt(2)))."""
        call = self._call("gelu", options, label=label)
        x = call.operand("input", input)
        given = wide(call, x)
        one, half, root = (constant_like(call, given, n) for n in (1, 0.5, sqrt(2)))
        # The platform's recorded values come from an erf with an error of 1.5e-7. Rounded in this
        # order all of them are met; ONNX's Gelu is more accurate, and misses one.
        erf = call.node("Erf", [call.node("Div", [given, root])])
        rest = between(call, "Mul", [half, between(call, "Sub", [one, erf])])
        made = call.node("Mul", [given, between(call, "Sub", [one, rest])])
        return _narrow(call, made, x)

    def hard_sigmoid(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        alpha: float = 0.2,
        beta: float = 0.5,
        label: str = "",
    ) -> MLOperand:
        """alpha * x + beta, but not below 0 and not above 1."""
        call = self._call("hard_sigmoid", options, alpha=alpha, beta=beta, label=label)
        x, (factor, shift) = _input_and_numbers(call, input, "alpha", "beta")
        made = call.node("HardSigmoid", [x], alpha=factor, beta=shift)
        return call.result(made, x.data_type, x.shape)

    def hard_swish(
        self, input: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """x * max(0, min(6, x + 3)) / 6."""
        call = self._call("hard_swish", options, label=label)
        x = call.operand("input", input)
        given = wide(call, x)
        # ONNX's HardSwish multiplies by a rounded 1 / 6, and loses digits near -3 by that.
        three, six = (constant_like(call, given, n) for n in (3, 6))
        moved = call.node("Add", [given, three])
        cut = call.node("Clip", [moved, constant_like(call, given, 0), six])
        return _narrow(call, call.node("Mul", [given, call.node("Div", [cut, six])]), x)

    def leaky_relu(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        alpha: float = 0.01,
        label: str = "",
    ) -> MLOperand:
        """x where it is positive, else alpha * x."""
        call = self._call("leaky_relu", options, alpha=alpha, label=label)
        x, (factor,) = _input_and_numbers(call, input, "alpha")
        return call.result(call.node("LeakyRelu", [x], alpha=factor), x.data_type, x.shape)

    def linear(
        self,
        input: MLOperand,
        options: Options = None,
        *,
        alpha: float = 1.0,
        beta: float = 0.0,
        label: str = "",
    ) -> MLOperand:
        """alpha * x + beta."""
        call = self._call("linear", options, alpha=alpha, beta=beta, label=label)
        x, (factor, shift) = _input_and_numbers(call, input, "alpha", "beta")
        given = wide(call, x)
        made = call.node("Mul", [given, constant_like(call, given, factor)])
        made = call.node("Add", [made, constant_like(call, given, shift)])
        return _narrow(call, made, x)

    def prelu(
        self, input: MLOperand, slope: MLOperand, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """x where it is positive, else slope * x; the two broadcast."""
        call = self._call("prelu", options, label=label)
        x, steepness = call.operand("input", input), call.operand("slope", slope)
        call.same_type("slope", steepness, x)
        shape = broadcast(x.shape, steepness.shape)
        if shape is None:
            raise call.fault(
                f"input {list(x.shape)} and slope {list(steepness.shape)} do not broadcast"
            )
        if x.data_type in FLOATS and broadcasts_to(steepness.shape, x.shape):
            made = call.node("PRelu", [x, steepness])
        else:
            given = unwrapped(x)
            zero = constant_like(call, given, 0)
            is_below = call.node("Less", [given, zero], "bool", x.shape)
            below = between(call, "Mul", [given, unwrapped(steepness)])
            made = where(call, is_below, below, given)
        return call.result(made, x.data_type, shape)

    def relu(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """x where it is positive, else 0."""
        call = self._call("relu", options, label=label)
        x = call.operand("input", input)
        if x.data_type == "int64":  # for which ONNX Runtime's Relu has no kernel
            made = greater(call, unwrapped(x), call.constant(0, "int64"))
        else:
            made = call.node("Relu", [x])
        return call.result(made, x.data_type, x.shape)

    def sigmoid(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """1 / (exp(-x) + 1)."""
        call = self._call("sigmoid", options, label=label)
        x = call.operand("input", input)
        given = wide(call, x)
        # ONNX Runtime's Sigmoid has no digits left below -10, and is 0 from -17 on: log of it
        # would be infinite. From 30 on the result is 1, and exp must not overflow.
        grown = call.node("Exp", [call.node("Min", [given, constant_like(call, given, 30)])])
        made = call.node("Div", [grown, call.node("Add", [grown, constant_like(call, given, 1)])])
        return _narrow(call, made, x)

    def softmax(
        self, input: MLOperand, axis: int, options: Options = None, *, label: str = ""
    ) -> MLOperand:
        """exp(x) over its sum along an axis."""
        call = self._call("softmax", options, label=label)
        x = call.operand("input", input)
        place = call.axis("axis", axis, len(x.shape))
        return call.result(call.node("Softmax", [x], axis=place), x.data_type, x.shape)

    def softplus(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """log(exp(x) + 1)."""
        return self._activation("softplus", "Softplus", input, options, label)

    def softsign(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """x / (1 + |x|)."""
        return self._activation("softsign", "Softsign", input, options, label)

    def tanh(self, input: MLOperand, options: Options = None, *, label: str = "") -> MLOperand:
        """The hyperbolic tangent of each element."""
        return self._activation("tanh", "Tanh", input, options, label)

    def _activation(
        self, op: str, onnx_op: str, input: MLOperand, options: Options, label: str
    ) -> MLOperand:
        call = self._call(op, options, label=label)
        x = call.operand("input", input)
        return call.result(call.node(onnx_op, [x]), x.data_type, x.shape)


def _bound(call: Call, name: str, data_type: str) -> np.generic | None:
    given = call[name]
    if given is None:
        return None
    if not is_number(given):
        raise call.fault(f"{name} is a number, not {given!r}")
    return cast_number(given.item() if isinstance(given, np.number) else given, data_type)


def _input_and_numbers(call: Call, input: MLOperand, *names: str) -> tuple[MLOperand, list[float]]:
    """The checked input, and options that are numbers, rounded to its data type."""
    x = call.operand("input", input)
    return x, [float(cast_number(call.number(name), x.data_type)) for name in names]


def _narrow(call: Call, made: Value, x: MLOperand) -> MLOperand:
    """The result of what was computed of a `wide` input."""
    return call.result(call.cast(made, x.data_type), x.data_type, x.shape)
