"""What recurrent ops check, and how they become ONNX's GRU and LSTM, or a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ember_ml.graph.core import Value
from ember_ml.webnn.builder.arithmetic import shape_of
from ember_ml.webnn.builder.base import Call
from ember_ml.webnn.builder.peepholes import Direction, over_steps
from ember_ml.webnn.builder.windows import permuted
from ember_ml.webnn.descriptors import check_sizes
from ember_ml.webnn.operand import MLOperand

__all__ = ["Network"]

_DIRECTIONS: Final = {"forward": "forward", "backward": "reverse", "both": "bidirectional"}
_ACTIVATIONS: Final = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}
_LARGEST: Final = 2**31 - 1


class Network:
    """One call of a recurrent op. A cell is a network of one step and one direction."""

    def __init__(
        self,
        call: Call,
        input: MLOperand,
        hidden_size: int,
        layouts: tuple[str, str],
        steps: int | None = None,
    ) -> None:
        self.call = call
        self.x = call.operand("input", input)
        self.size = call.unsigned("hidden_size", hidden_size)
        # ONNX's order of the gates is the first one.
        self.layouts = layouts
        self.layout = call.choice("layout", layouts)
        gates = len(self.layout)
        if not 1 <= 2 * gates * self.size <= _LARGEST:
            raise call.fault(f"hidden_size {self.size} is out of range")
        self.is_cell = steps is None
        self.direction = "forward"
        if self.is_cell:
            self.steps, (self.batch, self.features) = 1, self.x.shape
        else:
            self.direction = call.choice("direction", tuple(_DIRECTIONS))
            self.steps = call.unsigned("steps", steps)
            if self.steps == 0 or self.x.shape[0] != self.steps:
                raise call.fault(
                    f"the input {list(self.x.shape)} has {self.x.shape[0]} steps; "
                    f"{self.steps} were given"
                )
            self.batch, self.features = self.x.shape[1:]
        self.directions = 2 if self.direction == "both" else 1
        self.state_shape = (self.batch, self.size)
        self.activations = self._activations()

    def _activations(self) -> list[str]:
        """ONNX's names, for each direction."""
        count = 2 if len(self.layout) == 3 else 3
        given = self.call["activations"]
        if given is None:
            given = ["sigmoid", "tanh", "tanh"][:count]
        if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != count:
            raise self.call.fault(f"activations has {count} entries; {given!r} came")
        unknown = [name for name in given if name not in _ACTIVATIONS]
        if unknown:
            raise self.call.fault(
                f"activations are {', '.join(_ACTIVATIONS)}; {unknown[0]!r} is none"
            )
        return [_ACTIVATIONS[name] for name in given] * self.directions

    # --- Operands -----------------------------------------------------------------------------

    def part(self, name: str, given: Any, shape: Sequence[int]) -> Value:
        """An operand of that shape for each direction, as (directions, *shape)."""
        call = self.call
        operand = call.operand(name, given)
        call.same_type(name, operand, self.x)
        expected = tuple(shape) if self.is_cell else (self.directions, *shape)
        if operand.shape != expected:
            raise call.fault(
                f"{name} has the shape {list(operand.shape)}; {list(expected)} is needed for "
                f"an input of {list(self.x.shape)} and hidden_size {self.size}"
            )
        return self._lifted(operand)

    def optional(self, name: str, shape: Sequence[int]) -> Value | None:
        """The operand of an option; None where it was not given."""
        given = self.call[name]
        return None if given is None else self.part(name, given, shape)

    def weights(self, weight: Any, recurrent_weight: Any) -> list[Value | None]:
        """The weights and biases as ONNX takes them."""
        height = len(self.layout) * self.size
        from_input = self.part("weight", weight, (height, self.features))
        from_state = self.part("recurrent_weight", recurrent_weight, (height, self.size))
        biases = [self.optional(name, (height,)) for name in ("bias", "recurrent_bias")]
        both: Value | None = None
        if any(one is not None for one in biases):
            zeros = self.call.constant(np.zeros((self.directions, height)), self.x.data_type)
            ordered = [zeros if one is None else self._ordered(one) for one in biases]
            shape = (self.directions, 2 * height)
            both = self.call.node("Concat", ordered, self.x.data_type, shape, axis=1)
        return [self._ordered(from_input), self._ordered(from_state), both]

    def _lifted(self, x: MLOperand) -> Value:
        """With an axis before the others in a cell, which has neither steps nor directions."""
        if not self.is_cell:
            return x._value
        shape = (1, *x.shape)
        return self.call.node("Reshape", [x, self.call.int64s(shape)], x.data_type, shape)

    def _ordered(self, x: Value) -> Value:
        """The gates, which follow each other along axis 1, in ONNX's order."""
        if self.layout == self.layouts[0]:
            return x
        sizes = shape_of(x)
        shape = (sizes[0], self.size, *sizes[2:])
        gates = self.call.nodes(
            "Split",
            [x, self.call.int64s([self.size] * len(self.layout))],
            [(x.dtype, shape)] * len(self.layout),
            axis=1,
        )
        ordered = [gates[self.layout.index(gate)] for gate in self.layouts[0]]
        return self.call.node("Concat", ordered, x.dtype, sizes, axis=1)

    # --- Nodes --------------------------------------------------------------------------------

    def gru(self, weights: Sequence[Value | None], state: Value | None) -> list[Value]:
        """The states of all steps, and the last."""
        reset = int(bool(self.call["reset_after"]))
        return self._run("GRU", [*weights, None, state], 1, linear_before_reset=reset)

    def lstm(
        self, weights: Sequence[Value | None], hidden: Value | None, cell: Value | None
    ) -> list[Value]:
        """The states of all steps, the last, and the last of the cell."""
        peepholes = self.optional("peephole_weight", (3 * self.size,))
        if peepholes is None:
            return self._run("LSTM", [*weights, None, hidden, cell], 2)
        self._check_sequence()
        made = [
            over_steps(self.call, self._direction(number, weights, peepholes, hidden, cell))
            for number in range(self.directions)
        ]
        kind, shape = self.x.data_type, self.state_shape
        whole = [(self.steps, 1, *shape), (1, *shape), (1, *shape)]
        return [
            self.call.cast(self._joined([one[place] for one in made], sizes, axis), kind)
            for place, (sizes, axis) in enumerate(zip(whole, (1, 0, 0), strict=True))
        ]

    def _direction(
        self,
        number: int,
        weights: Sequence[Value | None],
        peepholes: Value,
        hidden: Value | None,
        cell: Value | None,
    ) -> Direction:
        """What one direction works with, in float32."""
        call, size = self.call, self.size
        from_input, from_state, biases = (self._of(number, one) for one in weights)
        assert from_input is not None
        assert from_state is not None
        source = call.cast(self._lifted(self.x), "float32")
        shape = (self.steps, self.batch, 4 * size)
        turned = [permuted(call, one, [1, 0]) for one in (from_input, from_state)]
        gates = call.node("MatMul", [source, turned[0]], "float32", shape)
        if biases is not None:
            halves = call.nodes(
                "Split", [biases, call.int64s([4 * size] * 2)], [("float32", (4 * size,))] * 2
            )
            gates = call.node("Add", [gates, call.node("Add", halves)])
        peeps = self._of(number, peepholes)
        zeros = call.constant(np.zeros(self.state_shape), "float32")
        return Direction(
            gates,
            turned[1],
            call.nodes("Split", [peeps, call.int64s([size] * 3)], [("float32", (size,))] * 3),
            self._of(number, hidden) or zeros,
            self._of(number, cell) or zeros,
            self.activations[:3],
            number == 1 or self.direction == "backward",
        )

    def _of(self, number: int, x: Value | None) -> Value | None:
        """A direction's part of a value, in float32."""
        if x is None:
            return None
        index = self.call.constant(number, "int64")
        part = self.call.node("Gather", [x, index], x.dtype, shape_of(x)[1:], axis=0)
        return self.call.cast(part, "float32")

    def _joined(self, parts: Sequence[Value], shape: Sequence[int], axis: int) -> Value:
        """The results of all directions along an axis."""
        call = self.call
        apart = [
            call.node("Reshape", [part, call.int64s(shape)], part.dtype, shape) for part in parts
        ]
        whole = list(shape)
        whole[axis] = len(parts)
        return call.node("Concat", apart, apart[0].dtype, whole, axis=axis)

    def _run(
        self, onnx_op: str, given: Sequence[Value | None], states: int, **more: int
    ) -> list[Value]:
        kind = self.x.data_type
        state = (kind, (self.directions, *self.state_shape))
        sequence = (kind, (self.steps, self.directions, *self.state_shape))
        self._check_sequence()
        return self.call.nodes(
            onnx_op,
            [self._lifted(self.x), *given],
            [sequence, *[state] * states],
            hidden_size=self.size,
            direction=_DIRECTIONS[self.direction],
            activations=self.activations,
            **more,
        )

    def _check_sequence(self) -> None:
        """It is computed whether or not it was asked for."""
        shape = (self.steps, self.directions, *self.state_shape)
        check_sizes(self.call.what, self.x.data_type, shape)

    def result(self, state: Value) -> MLOperand:
        """The operand of a last state."""
        call, kind = self.call, self.x.data_type
        if not self.is_cell:
            return call.result(state, kind, (self.directions, *self.state_shape))
        value = call.node("Reshape", [state, call.int64s(self.state_shape)], kind, self.state_shape)
        return call.result(value, kind, self.state_shape)

    def sequence(self, states: Value) -> MLOperand:
        """The operand of all steps' states."""
        shape = (self.steps, self.directions, *self.state_shape)
        return self.call.result(states, self.x.data_type, shape)
