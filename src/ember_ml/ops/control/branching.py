"""Branches: one function of several, by a value that may be traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ember_ml import dtypes, tree
from ember_ml.autodiff.tape import is_grad_enabled
from ember_ml.backend.contract import Backend, NativeArray
from ember_ml.errors import DomainError, DTypeError, OutOfBoundsError, ShapeError
from ember_ml.ops import elementwise
from ember_ml.ops.control.counting import Counts, HostedError, counted, settle
from ember_ml.ops.control.trees import (
    Branch,
    backend_of,
    has_tensors,
    is_taped,
    predicate,
    tensor_of,
    tensors_of,
    wrapped,
)
from ember_ml.ops.random import replay
from ember_ml.ops.registry import op
from ember_ml.ops.searching import where
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill
from ember_ml.tree import Tree
from ember_ml.typing import TensorLike

if TYPE_CHECKING:
    from ember_ml.backend.control import Function, Natives

__all__ = ["cond", "switch"]

T = TypeVar("T")


@op(standard=False)
def cond(
    pred: TensorLike, true_fn: Callable[..., T], false_fn: Callable[..., T], /, *operands: Tree
) -> T:
    """What `true_fn(*operands)` or `false_fn(*operands)` gives, by a condition of one value.

    Where the condition can be read, only the function that it names is called. Where it is
    traced, both are, and must give trees of the same structure, dtypes and shapes.

    >>> x = ops.asarray([1.0, 2.0])
    >>> cond(x.sum() > 2, lambda x: x * 10, lambda x: -x, x).tolist()
    [10.0, 20.0]
    """
    backend = backend_of("cond", pred, operands)
    tensors, structure = tensors_of("cond", operands, backend, "operands")
    chosen = predicate("cond", pred, backend)
    if isinstance(chosen, bool):
        who, function = ("true_fn", true_fn) if chosen else ("false_fn", false_fn)
        home = backend if has_tensors(pred, operands) else None
        result: T = Branch("cond", who, function, tensors, structure, home).call(tensors)
        return result
    first = Branch("cond", "true_fn", true_fn, tensors, structure, backend)
    second = Branch("cond", "false_fn", false_fn, tensors, structure, backend)
    second.like(first)
    calls = [first, second]

    def engine(functions: Sequence[Function], natives: Natives) -> list[NativeArray]:
        return backend.control.cond(chosen, functions[0], functions[1], natives)

    out: T = _joined(
        engine, lambda: [fill(chosen, backend.spec_of(chosen))], calls, tensors, backend
    )
    return out


def _joined(
    engine: Callable[[Sequence[Function], Natives], list[NativeArray]],
    chosen: Callable[[], Sequence[Tensor]],
    branches: Sequence[Branch],
    tensors: Sequence[Tensor],
    backend: Backend,
) -> Tree:
    """What the engine's own branch gives, as the tree that the branches gave.

    Where our tape records what goes in, or what a branch closes over, all branches run on it; the
    first whose condition holds is chosen, or the last.
    """
    first = branches[0]
    natives = [t.native for t in tensors]
    taken: replay.Taken = {}

    def select(values: Sequence[Any]) -> Any:
        *others, found = values
        for condition, value in zip(reversed(chosen()), reversed(others), strict=True):
            found = where(condition, value, found)
        return found

    def run(counts: Counts) -> list[NativeArray] | None:
        if counts.returned and backend.records and any(map(_needs_gradient, branches)):
            return None  # torch has no gradient of a branch that gives integers
        each = [counts.branch(one, place) for place, one in enumerate(branches)]
        made = engine(each, [*counts.natives, *natives])
        if is_taped(*(branch.results for branch in branches)):
            return None
        return counts.settle_branches(made, select)

    if not is_taped(tensors):
        try:
            out = counted(first.name, backend, run)
        except HostedError:  # numbers that are constants of the trace, as anywhere in it
            runs = [replay.Count(taken=taken) for _ in branches]
            out = engine([_held(*pair) for pair in zip(branches, runs, strict=True)], natives)
            settle(runs, select)
            if any(one.calls != runs[0].calls for one in runs):
                replay.approximate()
        if out is not None and not is_taped(*(branch.results for branch in branches)):
            return tree.unflatten(first.structure, wrapped(out, first.results))
    runs = [replay.Count(taken=taken) for _ in branches]
    each: list[list[Tensor]] = []
    for branch, draws in zip(branches, runs, strict=True):
        with draws:
            each.append(branch.run(tensors))
    settle(runs, select)
    return tree.unflatten(first.structure, [select(results) for results in zip(*each, strict=True)])


def _needs_gradient(branch: Branch) -> bool:
    return is_grad_enabled() and any(type(t) is GradTensor for t in branch.results)


def _held(branch: Branch, draws: replay.Count) -> Function:
    """A branch whose draws begin where those of the others do."""

    def run(*natives: NativeArray) -> list[NativeArray]:
        with draws:
            return branch(*natives)

    return run


@op(standard=False)
def switch(index: TensorLike, branches: Sequence[Callable[..., T]], /, *operands: Tree) -> T:
    """What `branches[index](*operands)` gives, for an integer of one value.

    An index beyond the branches raises OutOfBoundsError; one that is traced takes the nearest.

    >>> switch(1, [lambda x: x, lambda x: x * x, lambda x: -x], ops.asarray(3)).item()
    9
    """
    functions = list(branches)
    if not functions:
        raise DomainError("ops.switch takes at least one branch, got none")
    backend = backend_of("switch", index, operands)
    tensors, structure = tensors_of("switch", operands, backend, "operands")
    home = backend if has_tensors(index, operands) else None
    calls = [
        Branch("switch", f"branches[{i}]", function, tensors, structure, home)
        for i, function in enumerate(functions)
    ]
    given = tensor_of("switch", index, backend)
    if not given.dtype.is_integer:
        raise DTypeError(f"ops.switch takes an integer index, not {given.dtype}")
    if given.ndim:
        raise ShapeError(f"ops.switch takes an index of one value, not of shape {given.shape}")
    known = backend.control.number(given.native)
    if known is not None:
        if not 0 <= known < len(calls):
            raise OutOfBoundsError(
                f"ops.switch got index {known} for {len(calls)} branches, 0 to {len(calls) - 1}"
            )
        result: T = calls[known].call(tensors)
        return result
    for call in calls[1:]:
        call.like(calls[0])
    place = convert.cast(given, dtypes.int64)

    def engine(functions: Sequence[Function], natives: Natives) -> list[NativeArray]:
        return backend.control.switch(place.native, functions, natives)

    def chosen() -> list[Tensor]:
        return [elementwise.less_equal(place, i) for i in range(len(calls) - 1)]

    out: T = _joined(engine, chosen, calls, tensors, backend)
    return out
