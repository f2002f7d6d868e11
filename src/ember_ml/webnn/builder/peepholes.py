"""LSTMs with peepholes, written out.

In WebNN all gates look at the cell state before a step; in ONNX's LSTM the output gate looks at the
one after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ember_ml.graph.core import Graph, Node, Value
from ember_ml.webnn.builder.arithmetic import shape_of
from ember_ml.webnn.builder.base import Call

__all__ = ["Direction", "over_steps"]


class Direction(NamedTuple):
    """What one direction of a network works with, in float32; gates are in the order i, o, f, g."""

    # (steps, batch, 4 size): the input times its weights, with both biases.
    gates: Value
    # (size, 4 size)
    recurrent: Value
    # Three of (size,).
    peepholes: Sequence[Value]
    # (batch, size)
    hidden: Value
    cell: Value
    # ONNX's operators for the gates, for the cell gate, and for the state.
    activations: Sequence[str]
    is_backward: bool


class _Writer:
    """Adds nodes to a graph or to the body of a loop; all names differ."""

    def __init__(self, call: Call, graph: Graph) -> None:
        self.names = call.builder._graph
        self.graph = graph
        self.label = call.label

    def value(self, stem: str, shape: Sequence[int]) -> Value:
        return Value(self.names.fresh(stem), "float32", tuple(shape))

    def nodes(
        self, onnx_op: str, inputs: Sequence[Value], shapes: Sequence[Sequence[int]], **more: Any
    ) -> list[Value]:
        made = [self.value(onnx_op, shape) for shape in shapes]
        self.graph.nodes.append(Node(onnx_op, inputs, made, more, label=self.label))
        return made

    def node(self, onnx_op: str, *inputs: Value) -> Value:
        """A node whose result is as large as its first input."""
        return self.nodes(onnx_op, inputs, [shape_of(inputs[0])])[0]


def over_steps(call: Call, one: Direction) -> tuple[Value, Value, Value]:
    """All hidden states (steps, batch, size), the last of them, and the last cell state."""
    steps, batch, _ = shape_of(one.gates)
    shape = shape_of(one.hidden)
    outer = _Writer(call, call.builder._graph)
    body = Graph("step")
    inner = _Writer(call, body)
    hidden, cell = inner.value("hidden", shape), inner.value("cell", shape)
    gates = inner.value("gates", shape_of(one.gates)[1:])
    body.inputs = [hidden, cell, gates]
    after, cell_after = _step(inner, one, gates, hidden, cell)
    body.outputs = [after, cell_after, inner.node("Identity", after)]
    back = int(one.is_backward)
    last, last_cell, all_states = outer.nodes(
        "Scan",
        [one.hidden, one.cell, one.gates],
        [shape, shape, (steps, batch, shape[1])],
        body=body,
        num_scan_inputs=1,
        scan_input_directions=[back],
        scan_output_directions=[back],
    )
    return all_states, last, last_cell


def _step(
    to: _Writer, one: Direction, gates: Value, hidden: Value, cell: Value
) -> tuple[Value, Value]:
    """The hidden and the cell state after a step."""
    shape = shape_of(hidden)
    gate, new, last = one.activations
    total = to.nodes("MatMul", [hidden, one.recurrent], [shape_of(gates)])[0]
    total = to.node("Add", gates, total)
    parts = to.nodes("Split", [total], [shape] * 4, axis=1, num_outputs=4)
    i, o, f = (
        to.node(gate, to.node("Add", part, to.node("Mul", cell, weight)))
        for part, weight in zip(parts[:3], one.peepholes, strict=True)
    )
    kept = to.node("Mul", f, cell)
    added = to.node("Mul", i, to.node(new, parts[3]))
    state = to.node("Add", kept, added)
    return to.node("Mul", o, to.node(last, state)), state
