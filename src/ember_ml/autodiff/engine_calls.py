"""A loop of the engine's own as one step on the tape.

Where em.jit traces, a loop that the tape records step by step would be compiled step by step. Here
the loop is staged as a function of all that it depends on, also of the tensors that its body closes
over, and the engine differentiates that function. One node stands for it, whose pull is the
engine's; where the walk back is recorded, the pull is another such function, and so on.

What the body closes over shows in a first look: one step is run without values, and the tape tells
which tensors from outside it was given, and which results came of which operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ember_ml.autodiff import tape
from ember_ml.autodiff.compiling import state
from ember_ml.autodiff.rules.table import joint_rule
from ember_ml.autodiff.tape import Leaf, Node
from ember_ml.backend.contract import Backend, NativeArray, Spec
from ember_ml.backend.gradients import NESTING, Function, PullBack
from ember_ml.ops.random import replay
from ember_ml.tensor import homes
from ember_ml.tensor.core import GradTensor, Tensor, fill

__all__ = ["Captured", "Loop", "record"]

_KERNEL: Final = "engine_call"
_PLAIN: Final = frozenset((bool, int, float, str))
Natives = Sequence[NativeArray]
Step = Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]
# The last carry and the stacked results, and the specs of the latter.
Run = Callable[[Natives, Natives], tuple[list[NativeArray], list[NativeArray], list[Spec]]]
# The operands, by their places, on which each of some results depends.
Depends = list[frozenset[int]]


class Loop:
    """A scan: its first carry, what it goes along, and how it is run."""

    __slots__ = ("count", "first", "reverse", "rows", "run", "step")

    def __init__(
        self,
        first: Sequence[Tensor],
        rows: Sequence[Tensor],
        count: int,
        step: Step,
        run: Run,
        reverse: bool = False,
    ) -> None:
        self.first = first
        self.rows = rows
        self.count = count
        self.reverse = reverse
        # One step on tensors, and all of them on native arrays.
        self.step = step
        self.run = run


def record(backend: Backend, loop: Loop) -> tuple[list[Tensor], list[Tensor]] | None:
    """The last carry and the stacked results; None where there is no gradient to record, and where
    the steps are to be run one by one.

    That is outside of em.jit, on engines that cannot stage a function, and where the body draws
    random numbers, writes to the state, has parts that are not recorded, or calls backward().
    """
    if type(loop.count) is not int:  # it varies, in a function that is exported
        from ember_ml.autodiff import varying_loops

        return varying_loops.record(backend, loop)
    trees = state.TRACED.get()
    gradients = backend.gradients
    if trees is None or not gradients.stages or not loop.count or not tape.is_grad_enabled():
        return None
    taped = any(type(x) is GradTensor for x in (*loop.first, *loop.rows))
    if not (taped or tape.LEAVES.made or NESTING.get()[1]):
        return None  # there is nothing that the body could close over
    if not gradients.prepared:
        gradients.prepare()
    try:
        with _unwritten(trees), replay.refused():
            captured, depends = _looked_at(backend, loop)
            if not (taped or captured):
                return None
            stage = _staged(backend, loop, captured, depends)
    except (Exception, replay.DrawnError):  # whatever was wrong: the steps themselves will tell
        return None
    found = stage.record([*loop.first, *loop.rows, *captured])
    return found[: len(loop.first)], found[len(loop.first) :]


class _NotOneStepError(Exception):
    """The body of a loop does what is to be done step by step."""


@contextmanager
def _unwritten(trees: Sequence[Any]) -> Iterator[None]:
    """A block that is to leave the containers of a state as they are, and does so."""
    before = [state.picture(one, _itself) for one in trees]
    try:
        yield
    finally:
        after = [state.picture(one, _itself) for one in trees]
        is_same = all(state.same(a, b, _is_same) for a, b in zip(before, after, strict=True))
        if not is_same:
            for one, shown in zip(trees, before, strict=True):
                state.put(one, shown, _itself)
    if not is_same:
        raise _NotOneStepError("it puts something else into the state")


def _itself(leaf: Any) -> Any:
    return leaf


def _is_same(old: Any, new: Any) -> bool:
    # Numbers and names may be made anew each time they are asked for.
    return old is new or (type(old) in _PLAIN and type(old) is type(new) and bool(old == new))


# --- A first look -------------------------------------------------------------------------------


class Captured:
    """The tensors that ops are given within a block and that were there before."""

    __slots__ = ("start", "tensors")

    def __init__(self) -> None:
        self.start = tape.next_order()
        self.tensors: dict[int, Tensor] = {}

    def take(self, inputs: Iterable[Tensor | None]) -> None:
        """Note the operands of an op."""
        for x in inputs:
            if type(x) is GradTensor:
                if not tape.is_grad_enabled():
                    raise _NotOneStepError("the engine would differentiate what is not recorded")
                if x._node.order < self.start:
                    self.tensors[id(x)] = x

    def require_inner(self, wanted: Iterable[Node] | None) -> None:
        """Raise where gradients are asked for of what was there before, or of all leaves."""
        if wanted is None or any(node.order < self.start for node in wanted):
            raise _NotOneStepError("gradients end in tensors from outside")


def _looked_at(backend: Backend, loop: Loop) -> tuple[list[Tensor], Depends]:
    """The tensors that the body closes over, and what the results of the loop depend on."""
    captured = Captured()
    direct: Depends = []

    def look(natives: Natives) -> list[NativeArray]:
        carried, along = natives[: len(loop.first)], natives[len(loop.first) :]
        given = [_operand(n, t._spec) for n, t in zip(carried, loop.first, strict=True)]
        row = [
            _operand(backend.getitem(n, (0,)), t._spec)
            for n, t in zip(along, loop.rows, strict=True)
        ]
        with tape.keeping(captured, tape.CAPTURED):
            new, ys = loop.step(given, row)
        captured.take([*new, *ys])  # one that comes back as it is
        operands = [*given, *row, *captured.tensors.values()]
        places: dict[Node, list[int]] = {}
        for place, x in enumerate(operands):
            if type(x) is GradTensor:
                places.setdefault(x._node, []).append(place)
        direct[:] = [_sources(x, places, captured.start) for x in (*new, *ys)]
        return []

    backend.gradients.staged(look, [t.native for t in (*loop.first, *loop.rows)])
    return list(captured.tensors.values()), _along(direct, len(loop.first), loop.count)


def _operand(native: NativeArray, spec: Spec) -> Tensor:
    return tape.alias(native, spec) if spec.inexact else fill(native, spec)


def _sources(x: Tensor, places: dict[Node, list[int]], start: int) -> frozenset[int]:
    """The operands of a step on which one of its results depends."""
    found: set[int] = set()
    stack: list[Node] = [x._node] if type(x) is GradTensor else []
    seen = set(stack)
    while stack:
        node = stack.pop()
        if type(node) is Leaf or node.order < start:
            found.update(places.get(node, ()))
            continue
        for parent in node.parents:
            if parent is not None and parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return frozenset(found)


def _along(direct: Depends, carried: int, count: int) -> Depends:
    """What the last carry and the stacked results depend on, by what those of one step do."""
    now = [frozenset((place,)) for place in range(carried)]
    stacked: list[set[int]] = [set() for _ in direct[carried:]]

    def through(one: frozenset[int]) -> frozenset[int]:
        beyond = {place for place in one if place >= carried}
        return frozenset(beyond.union(*[now[place] for place in one if place < carried]))

    for _ in range(count):
        for seen, one in zip(stacked, direct[carried:], strict=True):
            seen |= through(one)
        after = [through(one) for one in direct[:carried]]
        if after == now:
            break
        now = after
    return [*now, *map(frozenset, stacked)]


# --- The function -------------------------------------------------------------------------------


def _staged(backend: Backend, loop: Loop, captured: Sequence[Tensor], depends: Depends) -> _Stage:
    """All of a loop as a function of what it depends on."""
    inputs = [*loop.first, *loop.rows, *captured]
    specs: list[Spec] = []
    carried, given = len(loop.first), len(loop.first) + len(loop.rows)

    def function(natives: Natives) -> list[NativeArray]:
        with _standing_in(captured, natives[given:]):
            last, stacked, others = loop.run(natives[:carried], natives[carried:given])
        specs[:] = [*[t._spec for t in loop.first], *others]
        return [*last, *stacked]

    run = backend.gradients.staged(function, [x.native for x in inputs])
    return _Stage(backend, run, [x._spec for x in inputs], specs, depends)


@contextmanager
def _standing_in(tensors: Sequence[Tensor], natives: Natives) -> Iterator[None]:
    """A block in which tensors hold other arrays, and are not recorded on the tape."""
    saved = [(x, x.native, homes.home_of(x)) for x in tensors]
    try:
        for x, native in zip(tensors, natives, strict=True):
            x.__class__ = Tensor
            x.native, x._home = native, None
        yield
    finally:
        for x, native, home in saved:
            x.__class__ = GradTensor
            x.native, x._home = native, home


class _Stage:
    """A function of native arrays that the engine can run and differentiate."""

    __slots__ = ("_backend", "_inputs", "_results", "_run", "depends")

    def __init__(
        self,
        backend: Backend,
        run: Function,
        inputs: list[Spec],
        results: list[Spec],
        depends: Depends,
    ) -> None:
        self._backend = backend
        self._run = run
        self._inputs = inputs
        self._results = results
        self.depends = depends

    def record(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """What it gives, with one record for all results that can be differentiated."""
        taped = {place for place, x in enumerate(inputs) if type(x) is GradTensor}
        given = [
            place
            for place, (spec, sources) in enumerate(zip(self._results, self.depends, strict=True))
            if spec.inexact and sources & taped
        ]
        reached = frozenset[int]().union(*[self.depends[place] for place in given])
        wanted = sorted(taped & reached)
        outs, others, back = self._pulled([x.native for x in inputs], wanted, given)
        recorded = iter(
            tape.recorded_many(
                _KERNEL,
                [(native, self._results[p]) for native, p in zip(outs, given, strict=True)],
                inputs,
                (self, wanted, given, back),
            )
        )
        rest = iter(others)
        return [
            next(recorded) if place in given else fill(next(rest), spec)
            for place, spec in enumerate(self._results)
        ]

    def _pulled(
        self, natives: Natives, wanted: Sequence[int], given: Sequence[int]
    ) -> tuple[list[NativeArray], list[NativeArray], PullBack]:
        """Some results, the others, and the pull from the former to some of the inputs."""
        inputs, backend = list(natives), self._backend
        shapes = [tuple(natives[place].shape) for place in wanted]

        def part(chosen: Natives) -> tuple[list[NativeArray], list[NativeArray]]:
            for place, native in zip(wanted, chosen, strict=True):
                inputs[place] = native
            outs = self._run(inputs)
            rest = [native for place, native in enumerate(outs) if place not in given]
            return [outs[place] for place in given], rest

        outs, others, pull = backend.gradients.vjp(part, [natives[place] for place in wanted])

        def back(gradients: Natives) -> list[NativeArray]:
            return [
                backend.full(shape, 0, self._inputs[place]) if g is None else g
                for g, shape, place in zip(pull(gradients), shapes, wanted, strict=True)
            ]

        return outs, others, back

    def pullback(self, wanted: Sequence[int], given: Sequence[int]) -> _Stage:
        """The gradients of some inputs as a function of all inputs and gradients of results."""
        count = len(self._inputs)

        def run(natives: Natives) -> list[NativeArray]:
            _, _, back = self._pulled(natives[:count], wanted, given)
            return back(natives[count:])

        depends = []
        for place in wanted:
            sources: set[int] = set()
            for i, result in enumerate(given):
                if place in self.depends[result]:
                    sources |= {count + i, *self.depends[result]}
            depends.append(frozenset(sources))
        return _Stage(
            self._backend,
            run,
            [*self._inputs, *[self._results[place] for place in given]],
            [self._inputs[place] for place in wanted],
            depends,
        )


@joint_rule(_KERNEL)
def _pull(
    g: list[Tensor | None], needs: tuple[bool, ...], y: Any, *rest: Any
) -> list[Tensor | None]:
    *tensors, stage, wanted, given, back = rest
    seeds = [_zeros(mold) if one is None else one for one, mold in zip(g, y, strict=True)]
    if any(type(x) is GradTensor for x in (*tensors, *seeds)):  # a walk that is recorded
        parts = stage.pullback(wanted, given).record([*tensors, *seeds])
    else:
        natives = back([x.native for x in seeds])
        parts = [fill(n, tensors[place]._spec) for place, n in zip(wanted, natives, strict=True)]
    reached: set[int] = set()
    for place, one in zip(given, g, strict=True):
        if one is not None:
            reached |= stage.depends[place]
    found: list[Tensor | None] = [None] * len(tensors)
    for place, part in zip(wanted, parts, strict=True):
        found[place] = part if place in reached and needs[place] else None
    return found


def _zeros(mold: Any) -> Tensor:
    spec: Spec = mold._spec
    return fill(spec.backend.full(mold.shape, 0, spec), spec)
