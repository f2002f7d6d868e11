"""Branches: one function of several, by a value that may be traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ember_ml import dtypes, tree
from ember_ml.errors import DomainError, DTypeError, OutOfBoundsError, ShapeError
from ember_ml.ops.control.trees import (
    Branch,
    backend_of,
    has_tensors,
    predicate,
    tensor_of,
    tensors_of,
    wrapped,
)
from ember_ml.ops.registry import op
from ember_ml.tensor import convert
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
    natives = [t.native for t in tensors]
    found = backend.control.cond(chosen, first, second.like(first), natives)
    out: T = _joined(found, [first, second])
    return out


def _joined(natives: Sequence[Any], branches: Sequence[Branch]) -> Tree:
    """Native results as the tree that the branches gave; gradients flow where one needs them."""
    first = branches[0]
    return tree.unflatten(first.structure, wrapped(natives, first.results))


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
    place = convert.cast(given, dtypes.int64).native
    out: T = _joined(backend.control.switch(place, calls, [t.native for t in tensors]), calls)
    return out
