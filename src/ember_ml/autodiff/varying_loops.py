"""A loop whose length varies, in a function that is exported, as one step on the tape.

The engine runs the loop and keeps the carry before each step. Its gradient is another such loop,
the other way round, whose step runs that of the first once more and walks back through it. What
the body closes over shows in a first look, as in engine_calls.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ember_ml import ops
from ember_ml.autodiff import backward, tape
from ember_ml.autodiff.engine_calls import Captured
from ember_ml.autodiff.nodes import RULES
from ember_ml.autodiff.tape import Node, Rule
from ember_ml.backend import pairs
from ember_ml.ops import dispatch
from ember_ml.ops.control.scanning import scan
from ember_ml.tensor.core import GradTensor, Tensor, fill

if TYPE_CHECKING:
    from ember_ml.autodiff.engine_calls import Loop
    from ember_ml.backend.contract import Backend, NativeArray, Spec

__all__ = ["record"]


def record(backend: Backend, loop: Loop) -> tuple[list[Tensor], list[Tensor]] | None:
    """The last carry and the stacked results; None where there is no gradient to record."""
    if not tape.is_grad_enabled():
        return None
    captured = _looked_at(backend, loop)
    inputs = [*loop.first, *loop.rows, *captured]
    if not any(type(x) is GradTensor for x in inputs):
        return None
    carried = len(loop.first)
    specs: list[Spec] = []

    def body(
        state: list[NativeArray], row: list[NativeArray]
    ) -> tuple[list[NativeArray], list[NativeArray]]:
        now = [fill(n, t._spec) for n, t in zip(state, loop.first, strict=True)]
        new, ys = loop.step(now, [fill(n, t._spec) for n, t in zip(row, loop.rows, strict=True)])
        # The carry before each step, for the way back.
        kept = [*ys, *now]
        specs[:] = [t._spec for t in kept]
        return [t.native for t in new], [t.native for t in kept]

    with tape.keeping(None, tape.CAPTURED), tape.no_grad():
        last, stacked = backend.control.scan(
            body,
            [t.native for t in loop.first],
            [t.native for t in loop.rows],
            loop.count,
            reverse=loop.reverse,
            unroll=1,
        )
    results = list(zip([*last, *stacked], [*[t._spec for t in loop.first], *specs], strict=True))
    given = [place for place, (_, spec) in enumerate(results) if spec.inexact]
    others = [fill(n, spec) for n, spec in results if not spec.inexact]
    recorded = iter(
        tape.recorded_many(
            _RULE.name, [results[p] for p in given], inputs, (loop, captured, given, others)
        )
    )
    rest = iter(others)
    found = [next(recorded) if spec.inexact else next(rest) for _, spec in results]
    return found[:carried], found[carried : len(found) - carried]


def _looked_at(backend: Backend, loop: Loop) -> list[Tensor]:
    """The tensors that the body closes over."""
    captured = Captured()
    with backend.control.aside(), tape.keeping(captured, tape.CAPTURED):
        state = [_leaf(t.native, t._spec) for t in loop.first]
        row = [_leaf(backend.getitem(t.native, (0,)), t._spec) for t in loop.rows]
        new, ys = loop.step(state, row)
        captured.take([*new, *ys])  # one that comes back as it is
    return list(captured.tensors.values())


def _leaf(native: NativeArray, spec: Spec) -> Tensor:
    return tape.alias(native, spec) if spec.inexact else fill(native, spec)


def _pull(
    g: Sequence[Tensor | None], needs: Sequence[bool], y: Any, *operands: Any, create: bool
) -> list[Tensor | None]:
    # What was captured is there a second time: as itself, with its node.
    *tensors, loop, captured, given, others = operands
    carried, along = len(loop.first), len(loop.rows)
    rest, made = iter(others), iter(zip(y, g, strict=True))
    results: list[Tensor] = []
    slopes: list[Tensor | None] = []
    for place in range(len(given) + len(others)):
        result, slope = next(made) if place in given else (next(rest), None)
        results.append(result)
        slopes.append(ops.zeros_like(result) if slope is None and place in given else slope)
    before = results[len(results) - carried :]
    inner = [x._spec.inexact for x in (*loop.first, *loop.rows)]

    def step(state: Any, row: Any) -> Any:
        behind, sums = state
        now, xs, seeds = row
        recording = create and tape.is_grad_enabled()
        start = tape.next_order()
        primals = [
            _leaf(x.native, x._spec) if not recording or type(x) is not GradTensor else x
            for x in (*now, *xs)
        ]
        with tape.set_grad_enabled(True):
            new, ys = loop.step(primals[:carried], primals[carried:])
        ends: dict[Node, Tensor] = {}
        wanted = [*behind, *seeds]
        for end, slope in zip([*new, *ys, *primals[:carried]], wanted, strict=True):
            if type(end) is GradTensor and slope is not None:
                have = ends.get(end._node)
                ends[end._node] = slope if have is None else dispatch.binary(pairs.ADD, have, slope)
        with tape.keeping(None, tape.CAPTURED):
            found = backward.pull_back(ends, create=recording, since=start)
        parts = [_part(found, x) for x in primals]
        more = [
            total if (part := found.get(x._node)) is None else total + part
            for x, total in zip(captured, sums, strict=True)
        ]
        return (parts[:carried], more), parts[carried:]

    init = (slopes[:carried], [ops.zeros_like(x) for x in captured])
    (first, sums), rows = scan(
        step,
        init,
        (before, tensors[carried : carried + along], slopes[carried:]),
        reverse=not loop.reverse,
    )
    return [x if is_float else None for x, is_float in zip([*first, *rows], inner, strict=True)] + [
        *sums
    ]


def _part(found: dict[Node, Tensor], x: Tensor) -> Tensor | None:
    if not x._spec.inexact:
        return None
    part = found.get(x._node) if type(x) is GradTensor else None
    return ops.zeros_like(x) if part is None else part


_RULE: Final = Rule("varying_loop", (), _pull, keeps_inputs=True, keeps_output=True, told=True)
RULES[_RULE.name] = _RULE
