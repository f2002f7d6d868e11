"""Branches and loops of traced values as nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.backend.control import Control
from ember_ml.graph import types
from ember_ml.graph.core import Graph, Value
from ember_ml.graph.tracing.operand import Operand
from ember_ml.graph.tracing.sizes import Size
from ember_ml.graph.tracing.trace import Trace, current, dims

if TYPE_CHECKING:
    from ember_ml.backend.contract import NativeArray
    from ember_ml.backend.control import Function, Natives

__all__ = ["GraphControl"]

# From so many steps on, a loop is one node; shorter ones are written out.
_LONG: Final = 64


class GraphControl(Control):
    """If and Loop; loops of known length are written out, so that our tape can record them."""

    def number(self, native: NativeArray) -> Any:
        return native.shadow.item() if native.known else None

    def cond(
        self, pred: NativeArray, true_fn: Function, false_fn: Function, natives: Natives
    ) -> list[NativeArray]:
        trace = current()
        bodies, results = [], []
        for function, name in ((true_fn, "then"), (false_fn, "else")):
            with trace.body(name) as body:
                made = function(*natives)
                _outputs(trace, body, made)
            bodies.append(body)
            results.append(made)
        chosen = results[0] if bool(pred.shadow) else results[1]
        outputs = [(types.name_of(x.dtype), dims(x.shape)) for x in results[0]]
        values = trace.node(
            "If",
            [trace.value(pred)],
            outputs,
            then_branch=bodies[0],
            else_branch=bodies[1],
        )
        return [
            Operand(x.shadow, first.shape, value)
            for x, first, value in zip(chosen, results[0], values, strict=True)
        ]

    def while_loop(
        self, cond_fn: Function, body_fn: Function, natives: Natives, name: str
    ) -> list[NativeArray]:
        trace = current()
        # The example's own steps tell nothing: shapes stay, and values are the run's.
        (first,) = cond_fn(*natives)
        with trace.body("body") as body:
            count = Value(trace.graph.fresh("step"), "int64", ())
            goes_on = Value(trace.graph.fresh("goes_on"), "bool", ())
            body.inputs += [count, goes_on]
            state = [_inner(trace, body, x) for x in natives]
            new = body_fn(*state)
            (again,) = cond_fn(*new)
            _outputs(trace, body, [again, *new])
        limit = trace.constant(np.array(np.iinfo(np.int64).max, np.int64))
        values = trace.node(
            "Loop",
            [limit, trace.value(first), *(trace.value(x) for x in natives)],
            [(types.name_of(x.dtype), dims(x.shape)) for x in natives],
            body=body,
        )
        return [
            Operand(x.shadow, old.shape, value)
            for x, old, value in zip(new, natives, values, strict=True)
        ]

    def loops(self, natives: Natives, length: int) -> bool:
        return type(length) is Size or length >= _LONG

    def aside(self) -> AbstractContextManager[Any]:
        return current().body("aside")

    def rows(self, native: NativeArray) -> Sequence[NativeArray]:
        return [self.backend.getitem(native, (i,)) for i in range(native.shape[0])]

    def scan(
        self,
        body: Callable[
            [list[NativeArray], list[NativeArray]], tuple[list[NativeArray], list[NativeArray]]
        ],
        carry: Natives,
        rows: Natives,
        length: int,
        *,
        reverse: bool,
        unroll: int,
    ) -> tuple[list[NativeArray], list[NativeArray]]:
        if not rows:
            return self._counted(body, carry, length, reverse)
        trace = current()
        with trace.body("body") as inner:
            state = [_inner(trace, inner, x) for x in carry]
            row = [_inner(trace, inner, x, row=True) for x in rows]
            last, made = body(state, row)
            _outputs(trace, inner, [*last, *made])
        way = int(reverse)
        values = trace.node(
            "Scan",
            [trace.value(x) for x in (*carry, *rows)],
            [
                *[(types.name_of(x.dtype), dims(x.shape)) for x in carry],
                *[(types.name_of(y.dtype), dims((length, *y.shape))) for y in made],
            ],
            body=inner,
            num_scan_inputs=len(rows),
            scan_input_directions=[way] * len(rows) if rows else None,
            scan_output_directions=[way] * len(made) if made else None,
        )
        ends = [
            Operand(x.shadow, old.shape, value)
            for x, old, value in zip(last, carry, values, strict=False)
        ]
        stacked = [
            Operand(
                np.broadcast_to(y.shadow, (int(length), *y.shadow.shape)),
                (length, *y.shape),
                value,
            )
            for y, value in zip(made, values[len(carry) :], strict=True)
        ]
        return ends, stacked

    def _counted(
        self, body: Callable[..., Any], carry: Natives, length: int, reverse: bool
    ) -> tuple[list[NativeArray], list[NativeArray]]:
        """A loop without rows, of which Scan must have one."""
        trace = current()
        with trace.body("body") as inner:
            inner.inputs += [
                Value(trace.graph.fresh("step"), "int64", ()),
                Value(trace.graph.fresh("goes_on"), "bool", ()),
            ]
            state = [_inner(trace, inner, x) for x in carry]
            last, made = body(state, [])
            on = Operand(np.array(True), (), trace.constant(np.array(True)))
            _outputs(trace, inner, [on, *last, *made])
        limit = self.backend.spec(dtypes.int64).scalar(length)
        values = trace.node(
            "Loop",
            [trace.value(limit), trace.constant(np.array(True)), *map(trace.value, carry)],
            [
                *[(types.name_of(x.dtype), dims(x.shape)) for x in carry],
                *[(types.name_of(y.dtype), dims((length, *y.shape))) for y in made],
            ],
            body=inner,
        )
        ends = [
            Operand(x.shadow, old.shape, value)
            for x, old, value in zip(last, carry, values, strict=False)
        ]
        stacked = [
            Operand(
                np.broadcast_to(y.shadow, (int(length), *y.shadow.shape)), (length, *y.shape), value
            )
            for y, value in zip(made, values[len(carry) :], strict=True)
        ]
        turned = [self.backend.getitem(y, (slice(None, None, -1),)) for y in stacked]
        return ends, turned if reverse else stacked


def _inner(trace: Trace, body: Graph, x: Operand, row: bool = False) -> Operand:
    """What stands for an operand within a body."""
    shape, shadow = (x.shape[1:], x.shadow[0]) if row else (x.shape, x.shadow)
    value = Value(trace.graph.fresh("carry"), types.name_of(x.dtype), dims(shape))
    body.inputs.append(value)
    return Operand(np.asarray(shadow), shape, value)


def _outputs(trace: Trace, body: Graph, made: Sequence[Operand]) -> None:
    """Results of a body: each a value of its own, made within it."""
    for x in made:
        source = trace.value(x)
        (out,) = trace.node("Identity", [source], [(source.dtype, source.shape)])
        body.outputs.append(out)
