"""Branches: one function of several, by a value that may be traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ember_ml import dtypes, tree
from ember_ml.errors import DomainError, DTypeError, OutOfBoundsError, ShapeError
from ember_ml.ops import elementwise
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
from ember_ml.ops.registry import op
from ember_ml.ops.searching import where
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill
from ember_ml.tree import Tree
from ember_ml.typing import TensorLike

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
    natives = [t.native for t in tensors]
    found = None if is_taped(tensors) else backend.control.cond(chosen, first, second, natives)
    out: T = _joined(found, lambda: [fill(chosen, backend.spec_of(chosen))], calls, tensors)
    return out


def _joined(
    natives: Sequence[Any] | None,
    chosen: Callable[[], Sequence[Tensor]],
    branches: Sequence[Branch],
    tensors: Sequence[Tensor],
) -> Tree:
    """Native results as the tree that the branches gave.

    Where our tape records what goes in, or what a branch closes over, all branches run on it; the
    first whose condition holds is chosen, or the last.
    """
    first = branches[0]
    if natives is not None and not is_taped(*(branch.results for branch in branches)):
        return tree.unflatten(first.structure, wrapped(natives, first.results))
    *others, found = [branch.run(tensors) for branch in branches]
    for condition, results in zip(reversed(chosen()), reversed(others), strict=True):
        found = [where(condition, a, b) for a, b in zip(results, found, strict=True)]
    return tree.unflatten(first.structure, found)


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
    natives = [t.native for t in tensors]
    found = None if is_taped(tensors) else backend.control.switch(place.native, calls, natives)

    def chosen() -> list[Tensor]:
        return [elementwise.less_equal(place, i) for i in range(len(calls) - 1)]

    out: T = _joined(found, chosen, calls, tensors)
    return out
