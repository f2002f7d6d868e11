"""Branches and loops, whose bodies are graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ember_ml import ops
from ember_ml.errors import DomainError, ShapeError
from ember_ml.graph import types
from ember_ml.graph.core import Graph, Node
from ember_ml.graph.executors.operators.registry import Host, controls
from ember_ml.graph.executors.operators.shaping import hosted
from ember_ml.tensor.core import Tensor

if TYPE_CHECKING:
    from ember_ml.graph.executors.interpreter import Block, Frame

__all__ = ["check_bodies"]


def check_bodies(node: Node, where: str) -> None:
    """Raise where the bodies of a node take or give another number of values than it does."""
    if node.domain or node.op not in ("If", "Loop", "Scan"):
        return
    given, made = len(node.inputs), len(node.outputs)
    for name, body in node.attributes.items():
        if not isinstance(body, Graph):
            continue
        if node.op == "If":
            inputs, outputs = 0, made
        elif node.op == "Loop":
            inputs, outputs = given, made + 1  # after the number of the round and the condition
        else:
            inputs, outputs = given, made
        if len(body.inputs) != inputs or len(body.outputs) != outputs:
            raise DomainError(
                f"{where}: its {name} takes {len(body.inputs)} values and gives "
                f"{len(body.outputs)}; it would have to take {inputs} and give {outputs}"
            )


@controls("If", 11, 13, 16, 19, 21, 23, 24, 25)
def if_(frame: Frame, cond: Host, *, then_branch: Block, else_branch: Block) -> tuple[Tensor, ...]:
    """One of two bodies; the condition is read now."""
    return tuple(frame.call(then_branch if bool(cond) else else_branch))


@controls("Loop", 11, 13, 16, 19, 21, 23, 24, 25)
def loop(
    frame: Frame,
    most: Host | None = None,
    cond: Host | None = None,
    *values: Tensor,
    body: Block,
) -> tuple[Tensor, ...]:
    """A body again and again, at most so often, while its condition holds."""
    limit = None if most is None else int(most)
    going = True if cond is None else bool(cond)
    carried = list(values)
    rows: list[list[Tensor]] = [[] for _ in body.outputs[1 + len(carried) :]]
    step = 0
    while going and (limit is None or step < limit):
        inputs = [hosted(np.int64(step)), hosted(np.bool_(going)), *carried]
        again, *results = frame.call(body, *inputs)
        going = bool(again)
        carried = results[: len(carried)]
        for row, value in zip(rows, results[len(carried) :], strict=True):
            row.append(value)
        step += 1
    scanned = [
        _stacked(frame, row, 0, body.types[1 + len(carried) + i], body.shapes[1 + len(carried) + i])
        for i, row in enumerate(rows)
    ]
    return (*carried, *scanned)


def _stacked(frame: Frame, row: list[Tensor], axis: int, dtype: str, shape: Any) -> Tensor:
    if row:
        return ops.stack(frame.gathered(row), axis=axis)
    # No round, no element: what is known of its shape, and zero for what is not.
    sizes = [n if isinstance(n, int) else 0 for n in shape or ()]
    sizes.insert(axis % (len(sizes) + 1), 0)
    return hosted(np.zeros(sizes, types.numpy_dtype(dtype)))


@controls("Scan", 9, 11, 16, 19, 21, 23, 24, 25)
def scan(
    frame: Frame,
    *values: Tensor,
    body: Block,
    num_scan_inputs: int,
    scan_input_axes: Any = None,
    scan_input_directions: Any = None,
    scan_output_axes: Any = None,
    scan_output_directions: Any = None,
) -> tuple[Tensor, ...]:
    """A body for each element of some inputs, with states from one to the next."""
    count = len(values) - num_scan_inputs
    carried, scanned = list(values[:count]), values[count:]
    axes = list(scan_input_axes or [0] * num_scan_inputs)
    backwards = list(scan_input_directions or [0] * num_scan_inputs)
    lengths = {x.shape[axis] for x, axis in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        raise ShapeError(f"Scan got inputs of lengths {sorted(lengths)}; they have one length")
    parts = [ops.unstack(x, axis=axis) for x, axis in zip(scanned, axes, strict=True)]
    parts = [part[::-1] if back else part for part, back in zip(parts, backwards, strict=True)]
    rows: list[list[Tensor]] = [[] for _ in body.outputs[count:]]
    for step in range(lengths.pop()):
        results = frame.call(body, *carried, *[part[step] for part in parts])
        carried = results[:count]
        for row, value in zip(rows, results[count:], strict=True):
            row.append(value)
    places = list(scan_output_axes or [0] * len(rows))
    turned = list(scan_output_directions or [0] * len(rows))
    made = []
    for i, row in enumerate(rows):
        ordered = row[::-1] if turned[i] else row
        own = body.types[count + i], body.shapes[count + i]
        made.append(_stacked(frame, ordered, places[i], *own))
    return (*carried, *made)
