"""Steps along an axis whose length varies: a Scan, which goes from slice to slice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ember_ml.graph.tracing.moving import concat, expanded, permuted
from ember_ml.graph.tracing.operand import Operand
from ember_ml.graph.tracing.sizes import Size, never_negative
from ember_ml.graph.tracing.trace import constant

__all__ = ["last", "running"]

Join = Callable[[Operand, Operand], Operand]


def last(join: Join, x: Operand, neutral: float) -> Operand:
    """All slices along the last axis joined one by one; `neutral` is what changes nothing."""
    return _stepped(join, x, x.ndim - 1, neutral)[0]


def running(join: Join, x: Operand, axis: int, neutral: float) -> Operand:
    """At each place of an axis, all slices up to it joined one by one."""
    whole = _stepped(join, x, axis, neutral)[1]
    return permuted(whole, [*range(1, axis + 1), 0, *range(axis + 1, x.ndim)])


def _stepped(join: Join, x: Operand, axis: int, neutral: float) -> tuple[Operand, Operand]:
    """What all slices give, and what those up to each place give, along the first axis."""
    from ember_ml.graph.tracing.backend import graph_backend

    front = permuted(x, (axis, *(i for i in range(x.ndim) if i != axis)))
    side, rest = front.shape[0], front.shape[1:]
    unit = constant(np.array(neutral, x.dtype))
    empty = type(side) is Size and not never_negative(side - 1)
    if empty:  # of some run, which ONNX Runtime's Scan does not take
        front = concat([front, expanded(unit, (1, *rest))], 0)

    def body(now: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        made = join(now[0], row[0])
        return [made], [made]

    ends, whole = graph_backend().control.scan(
        body, [expanded(unit, rest)], [front], front.shape[0], reverse=False, unroll=1
    )
    return ends[0], whole[0][:side] if empty else whole[0]
