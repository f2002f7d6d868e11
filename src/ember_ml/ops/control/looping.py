"""Loops: until a condition fails, or over a range of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ember_ml import dtypes
from ember_ml.backend.contract import Backend, NativeArray, Spec
from ember_ml.backend.control import uncounted
from ember_ml.errors import DTypeError, GradientError, ShapeError, TraceError
from ember_ml.ops.control.counting import Counts, HostedError, counted
from ember_ml.ops.control.trees import Carry, Taped, backend_of, is_taped, predicate, tensor_of
from ember_ml.ops.random import replay
from ember_ml.ops.registry import op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill
from ember_ml.tree import Tree
from ember_ml.typing import TensorLike

if TYPE_CHECKING:
    from ember_ml.backend.control import Natives

__all__ = ["fori_loop", "while_loop"]

C = TypeVar("C")


@op(standard=False)
def while_loop(cond_fn: Callable[[C], TensorLike], body_fn: Callable[[C], C], init: C, /) -> C:
    """Repeat `carry = body_fn(carry)` while `cond_fn(carry)` holds.

    The carry is a tree that keeps its structure, dtypes and shapes.

    >>> i, x = while_loop(lambda c: c[1] < 100.0, lambda c: (c[0] + 1, c[1] * 3.0), (0, 2.0))
    >>> i.item(), x.item()
    (4, 162.0)
    """
    carry = Carry("while_loop", init, backend_of("while_loop", init))
    found: C = carry.tree(_repeat(carry, cond_fn, body_fn))
    return found


def _repeat(
    carry: Carry, cond_fn: Callable[[Any], Any], body_fn: Callable[[Any], Any]
) -> list[Tensor]:
    backend, name = carry.backend, carry.name
    state = carry.first
    while True:
        with replay.Count() as draws:
            goes_on = predicate(name, cond_fn(carry.tree(state)), backend)
        if not isinstance(goes_on, bool):
            draws.drop()
            return _traced(carry, state, cond_fn, body_fn)
        draws.settle()
        if not goes_on:
            return state
        state = carry.accept(body_fn(carry.tree(state)), "body_fn")


def _traced(
    carry: Carry,
    state: list[Tensor],
    cond_fn: Callable[[Any], Any],
    body_fn: Callable[[Any], Any],
) -> list[Tensor]:
    """The rest of a loop whose condition cannot be read."""
    backend, name = carry.backend, carry.name
    results: list[Tensor] = []

    def run(counts: Counts) -> list[NativeArray]:
        known = len(counts)

        def goes_on(*natives: NativeArray) -> list[NativeArray]:
            with counts.asking(natives[:known]):
                inner = carry.tree(carry.wrapped(natives[known:], results))
                found = predicate(name, cond_fn(inner), backend)
            if isinstance(found, bool):
                found = backend.full((), found, backend.spec(dtypes.bool))
            return [found]

        def body(*natives: NativeArray) -> list[NativeArray]:
            with counts.within(natives[:known]) as after:
                tensors = carry.wrapped(natives[known:], results)
                results[:] = carry.accept(body_fn(carry.tree(tensors)), "body_fn")
            if is_taped(results):
                raise Taped
            return [*after, *[t.native for t in results]]

        natives = [*counts.natives, *[t.native for t in state]]
        last = backend.control.while_loop(goes_on, body, natives, name)
        counts.settle(last[:known], None)
        return last[known:]

    if is_taped(state):
        raise GradientError(uncounted(name))
    try:
        found = counted(name, backend, run)
    except Taped:
        raise GradientError(uncounted(name)) from None
    except HostedError as error:
        raise TraceError(
            f"{error} would give the same random numbers in every step of a loop that is traced; "
            f"use em.jit, or put a key into the carry and split it in each step"
        ) from None
    return carry.wrapped(found, results)


@op(standard=False)
def fori_loop(
    lower: TensorLike, upper: TensorLike, body_fn: Callable[[Tensor, C], C], init: C, /
) -> C:
    """`carry = body_fn(i, carry)` for i from `lower` to `upper - 1`; `i` is a 0-d int64 tensor.

    The carry is a tree that keeps its structure, dtypes and shapes.

    >>> fori_loop(1, 6, lambda i, product: product * i, ops.asarray(1)).item()
    120
    """
    backend = backend_of("fori_loop", lower, upper, init)
    carry = Carry("fori_loop", init, backend)
    begin, end = _bound(lower, backend, "lower"), _bound(upper, backend, "upper")
    spec = backend.spec(dtypes.int64, carry.first[0].device if carry.first else None)
    if isinstance(begin, Tensor) or isinstance(end, Tensor):
        both = Carry("fori_loop", (begin, end, init), backend)

        def step(state: tuple[Tensor, Tensor, Tree]) -> tuple[Tensor, Tensor, Tree]:
            i, stop, inner = state
            return i + 1, stop, body_fn(i, inner)

        state = both.tree(_repeat(both, lambda state: state[0] < state[1], step))
        counted: C = state[2]
        return counted
    count = max(end - begin, 0)
    if count and backend.control.loops([t.native for t in carry.first], count):
        index = fill(backend.full((), begin, spec), spec)
        found = _in_the_engine(carry, index, body_fn, count)
        if found is not None:
            whole: C = carry.tree(found)
            return whole
    state_ = carry.first
    for i in range(begin, end):
        index = fill(backend.full((), i, spec), spec)
        state_ = carry.accept(body_fn(index, carry.tree(state_)), "body_fn")
    out: C = carry.tree(state_)
    return out


def _in_the_engine(
    carry: Carry, index: Tensor, body_fn: Callable[[Tensor, Any], Any], count: int
) -> list[Tensor] | None:
    """A loop of known length that the engine runs, and can differentiate; None where our tape is to
    record each step.
    """
    from ember_ml.autodiff import engine_calls

    control = carry.backend.control

    def step(state: Sequence[Tensor], row: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        i, *inner = state
        return [i + 1, *carry.accept(body_fn(i, carry.tree(inner)), "body_fn")], []

    def run(counts: Counts) -> list[NativeArray]:
        return looped(counts, natives)

    def looped(counts: Counts, first: Natives) -> list[NativeArray]:
        known = len(counts)

        def body(state: Natives, row: Natives) -> tuple[list[NativeArray], list[NativeArray]]:
            i, *inner = state[known:]
            with counts.within(state[:known]) as after:
                given = carry.wrapped(inner, carry.first)
                new, _ = step([fill(i, index._spec), *given], [])
            if is_taped(new):
                raise Taped
            return [*after, *[t.native for t in new]], []

        given = [*counts.natives, *first]
        last, _ = control.scan(body, given, [], count, reverse=False, unroll=1)
        counts.settle(last[:known], count)
        return last[known:]

    def staged(
        first: Natives, rows: Natives
    ) -> tuple[list[NativeArray], list[NativeArray], list[Spec]]:
        # Counts of nothing: no draws come to here.
        return looped(Counts(carry.name, carry.backend), first), [], []

    first = [index, *carry.first]
    natives = [t.native for t in first]
    found = engine_calls.record(carry.backend, engine_calls.Loop(first, [], count, step, staged))
    if found is not None:
        return found[0][1:]
    if is_taped(carry.first):
        return None
    try:
        last = counted(carry.name, carry.backend, run)
    except (Taped, HostedError):
        return None
    return carry.wrapped(last[1:], carry.first)


def _bound(value: TensorLike, backend: Backend, what: str) -> int | Tensor:
    """A bound as a number, or as a tensor whose value cannot be read."""
    if type(value) is int:
        return value  # as a tensor it would be traced under jit
    tensor = tensor_of("fori_loop", value, backend)
    if not tensor.dtype.is_integer:
        raise DTypeError(f"ops.fori_loop takes an integer {what}, not {tensor.dtype}")
    if tensor.ndim:
        raise ShapeError(
            f"ops.fori_loop takes one value as its {what}, not a tensor of shape {tensor.shape}"
        )
    known = backend.control.number(tensor.native)
    return convert.cast(tensor, dtypes.int64) if known is None else int(known)
