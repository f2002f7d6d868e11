"""Loops over the first axis of trees: with a carry, without one, and by halves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ember_ml import tree
from ember_ml.backend.contract import Backend, NativeArray, Spec
from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import manipulation
from ember_ml.ops.axes import axis_of, integer_of
from ember_ml.ops.control.counting import Counts, HostedError, counted
from ember_ml.ops.control.trees import (
    Carry,
    Rows,
    Taped,
    backend_of,
    is_taped,
    made,
    owned,
    part,
    rows_of,
    tensors_of,
    wrapped,
    zeros,
)
from ember_ml.ops.registry import op
from ember_ml.tensor.core import Tensor
from ember_ml.tree import Structure, Tree

if TYPE_CHECKING:
    from ember_ml.backend.control import Natives

__all__ = ["associative_scan", "map_fn", "scan"]


@op(standard=False)
def scan(
    fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Tree,
    xs: Tree = None,
    /,
    length: int | None = None,
    *,
    reverse: bool = False,
    unroll: int = 1,
) -> tuple[Any, Any]:
    """`carry, y = fn(carry, x)` for each x along the first axis of `xs`: the last carry, all ys.

    `init`, `xs` and the ys are trees; without `xs`, `length` says how often. `reverse` goes from
    the last to the first, with each y at the place of its x. `unroll` is for compiled loops.

    >>> total, sums = scan(lambda c, x: (c + x, c + x), 0.0, ops.asarray([1.0, 2.0, 3.0]))
    >>> total.item(), sums.tolist()
    (6.0, [1.0, 3.0, 6.0])
    """
    return _scan("scan", fn, init, xs, length, reverse, unroll)


@op(standard=False)
def map_fn(fn: Callable[[Any], Any], xs: Tree, /) -> Any:
    """`fn(x)` for each x along the first axis of `xs`, one after the other, stacked.

    It takes the memory of one step at a time; `ops.vmap` does all at once.

    >>> map_fn(lambda pair: pair[0] * pair[1], (ops.arange(3), ops.asarray([5, 6, 7]))).tolist()
    [0, 6, 14]
    """
    return _scan("map_fn", lambda _, x: (None, fn(x)), None, xs, None, False, 1)[1]


def _scan(
    name: str,
    fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Tree,
    xs: Tree,
    length: int | None,
    reverse: bool,
    unroll: int,
) -> tuple[Tree, Tree]:
    backend = backend_of(name, init, xs)
    carry = Carry(name, init, backend, "init" if name == "scan" else "carry")
    tensors, structure = tensors_of(name, xs, backend, "xs")
    count = _length(name, tensors, structure, length)
    steps = _Steps(name, fn, carry, tensors, structure)
    natives = [t.native for t in (*carry.first, *tensors)]
    if count and backend.control.loops(natives, count):
        found = steps.recorded(count, reverse, unroll)
        if found is not None:
            return found
        if not is_taped(carry.first, tensors):
            try:
                return steps.compiled(count, reverse, unroll)
            except (Taped, HostedError):  # step by step
                pass
    if not count:
        return carry.tree(carry.first), steps.nothing()
    columns = [rows_of(t) for t in tensors]
    rows = Rows(name, count, backend, reverse)
    state = carry.first
    for i in range(count - 1, -1, -1) if reverse else range(count):
        state, y = steps.step(state, [column[i] for column in columns])
        rows.add(y)
    # A row that came back as the carry would be a view of xs, on some engines.
    return carry.tree([owned(t, tensors) for t in state]), rows.stacked()


class _Steps:
    """The steps of a scan, in Python or compiled."""

    def __init__(
        self,
        name: str,
        fn: Callable[[Any, Any], tuple[Any, Any]],
        carry: Carry,
        tensors: Sequence[Tensor],
        structure: Structure,
    ) -> None:
        self._name = name
        self._fn = fn
        self._carry = carry
        self._tensors = tensors
        self._structure = structure
        # Of the results of a step, once one was run.
        self._made = tree.LEAF

    def step(self, state: Sequence[Tensor], row: Sequence[Tensor]) -> tuple[list[Tensor], Tree]:
        """One step on tensors."""
        pair: Any = self._fn(self._carry.tree(state), tree.unflatten(self._structure, row))
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            kind = (
                f"{type(pair).__name__} of {len(pair)}"
                if hasattr(pair, "__len__")
                else repr(type(pair).__name__)
            )
            raise ShapeError(f"ops.{self._name} takes a function that gives (carry, y), not {kind}")
        return self._carry.accept(pair[0], "fn"), pair[1]

    def nothing(self) -> Tree:
        """The stacked results of no steps: their dtypes are those of a step on zeros."""
        empty = [zeros(t.shape[1:], t._spec) for t in self._tensors]
        rows = Rows(self._name, 0, self._carry.backend)
        rows.add(self.step(self._carry.first, empty)[1])
        return rows.stacked()

    def compiled(self, count: int, reverse: bool, unroll: int) -> tuple[Tree, Tree]:
        """All steps as one loop of the engine."""
        carry = self._carry
        first, rows = [t.native for t in carry.first], [t.native for t in self._tensors]

        def run(
            counts: Counts,
        ) -> tuple[list[NativeArray], list[NativeArray], list[Spec]]:
            last, stacked, specs = self._run(first, rows, count, reverse, unroll, counts)
            counts.settle(last[: len(counts)], count)
            return last[len(counts) :], stacked, specs

        last, stacked, specs = counted(self._name, carry.backend, run)
        ys = [made(native, spec) for native, spec in zip(stacked, specs, strict=True)]
        return carry.tree(carry.wrapped(last, carry.first)), self._stacked(ys)

    def recorded(self, count: int, reverse: bool, unroll: int) -> tuple[Tree, Tree] | None:
        """The same as one step on the tape; None where there is none, or must be many."""
        from ember_ml.autodiff import engine_calls

        carry, backend = self._carry, self._carry.backend

        def step(state: list[Tensor], row: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            new, y = self.step(state, row)
            ys, self._made = tensors_of(self._name, y, backend, "result")
            return new, ys

        def run(
            first: Natives, rows: Natives
        ) -> tuple[list[NativeArray], list[NativeArray], list[Spec]]:
            counts = Counts(self._name, backend)  # of nothing: no draws come to here
            return self._run(first, rows, count, reverse, unroll, counts)

        loop = engine_calls.Loop(carry.first, self._tensors, count, step, run, reverse)
        found = engine_calls.record(backend, loop)
        return None if found is None else (carry.tree(found[0]), self._stacked(found[1]))

    def _stacked(self, tensors: Sequence[Tensor]) -> Tree:
        """Stacked results as the tree that the steps gave."""
        return tree.unflatten(self._made, tensors)

    def _run(
        self,
        first: Natives,
        rows: Natives,
        count: int,
        reverse: bool,
        unroll: int,
        counts: Counts,
    ) -> tuple[list[NativeArray], list[NativeArray], list[Spec]]:
        """The last counts and carry of the engine's loop, the stacked results, and their specs."""
        carry, backend = self._carry, self._carry.backend
        known = len(counts)
        specs: list[Spec] = []  # and no tensors: JAX keeps the body for a while

        def body(
            state: list[NativeArray], row: list[NativeArray]
        ) -> tuple[list[NativeArray], list[NativeArray]]:
            inner = wrapped(row, self._tensors)
            with counts.within(state[:known]) as after:
                new, y = self.step(carry.wrapped(state[known:], carry.first), inner)
                ys, self._made = tensors_of(self._name, y, backend, "result")
            if is_taped(new, ys):
                raise Taped
            specs[:] = [t._spec for t in ys]
            return [*after, *[t.native for t in new]], [t.native for t in ys]

        last, stacked = backend.control.scan(
            body, [*counts.natives, *first], list(rows), count, reverse=reverse, unroll=unroll
        )
        return last, stacked, specs


def _length(name: str, tensors: Sequence[Tensor], structure: Structure, length: int | None) -> int:
    """How many steps there are: what all of `xs`, and `length`, say."""
    paths = tree.paths(structure, "xs")
    for path, t in zip(paths, tensors, strict=True):
        if not t.ndim:
            raise ShapeError(f"ops.{name} goes along the first axis, and {path} is 0-d")
    if length is not None:
        count = integer_of(name, length, "length")
        if count < 0:
            raise DomainError(f"ops.{name} got the length {count}, which is negative")
        first = "length"
    elif tensors:
        count, first = tensors[0].shape[0], paths[0]
    else:
        raise DomainError(f"ops.{name} got nothing to go along; give xs or a length")
    for path, t in zip(paths, tensors, strict=True):
        if t.shape[0] != count:
            raise ShapeError(
                f"ops.{name} got {first} of {count} steps and {path} of {t.shape[0]}; "
                f"first axes must be equal"
            )
    return count


# --- By halves -------------------------------------------------------------------------------


@op(standard=False)
def associative_scan(
    fn: Callable[[Any, Any], Any], xs: Tree, /, *, axis: int = 0, reverse: bool = False
) -> Any:
    """All partial results of an associative function, in a number of calls that is a logarithm.

    `fn(a, b)` joins trees of slices along `axis`, elementwise along it: `fn(fn(a, b), c)` must be
    `fn(a, fn(b, c))`. `reverse` joins from the end.

    >>> associative_scan(lambda a, b: a * b, ops.asarray([1, 2, 3, 4])).tolist()
    [1, 2, 6, 24]
    """
    name = "associative_scan"
    backend: Backend = backend_of(name, xs)
    tensors, structure = tensors_of(name, xs, backend, "xs")
    if not tensors:
        raise DomainError("ops.associative_scan got nothing to go along; give xs with tensors")
    axes = [axis_of(name, axis, t.ndim) for t in tensors]
    count = tensors[0].shape[axes[0]]
    paths = tree.paths(structure, "xs")
    for path, t, place in zip(paths, tensors, axes, strict=True):
        if t.shape[place] != count:
            raise ShapeError(
                f"ops.{name} got {paths[0]} of length {count} and {path} of {t.shape[place]} "
                f"along axis {axis}; they must be equal"
            )
    if count < 2:
        return tree.unflatten(structure, tensors)
    if reverse:
        tensors = [manipulation.flip(t, axis=k) for t, k in zip(tensors, axes, strict=True)]
    join = _Join(fn, structure, axes, backend)
    found = join.scan(tensors, count)
    if reverse:
        found = [manipulation.flip(t, axis=k) for t, k in zip(found, axes, strict=True)]
    return tree.unflatten(structure, found)


class _Join:
    """The function of an associative scan on the leaves of its trees."""

    def __init__(
        self,
        fn: Callable[[Any, Any], Any],
        structure: Structure,
        axes: Sequence[int],
        backend: Backend,
    ) -> None:
        self._fn = fn
        self._structure = structure
        self._axes = axes
        self._backend = backend

    def scan(self, tensors: Sequence[Tensor], count: int) -> list[Tensor]:
        """Pairs are joined, their scan is every second result, and one more join gives the rest."""
        if count < 2:
            return list(tensors)
        left = self._slices(tensors, slice(0, count - 1, 2))
        right = self._slices(tensors, slice(1, count, 2))
        odd = self.scan(self._joined(left, right), count // 2)
        before = odd if count % 2 else self._slices(odd, slice(0, count // 2 - 1))
        after = self._slices(tensors, slice(2, count, 2))
        first = self._slices(tensors, slice(0, 1))
        even = first
        if count > 2:
            rest = self._joined(before, after)
            even = [
                manipulation.concat([a, b], axis=k)
                for a, b, k in zip(first, rest, self._axes, strict=True)
            ]
        return [_woven(a, b, k) for a, b, k in zip(even, odd, self._axes, strict=True)]

    def _joined(self, a: Sequence[Tensor], b: Sequence[Tensor]) -> list[Tensor]:
        result = self._fn(tree.unflatten(self._structure, a), tree.unflatten(self._structure, b))
        # Slices of one length go in, and the same must come out: as with a carry.
        return Carry(
            "associative_scan", tree.unflatten(self._structure, a), self._backend, "xs"
        ).accept(result, "fn")

    def _slices(self, tensors: Sequence[Tensor], part: slice) -> list[Tensor]:
        return [_part(t, part, axis) for t, axis in zip(tensors, self._axes, strict=True)]


def _part(tensor: Tensor, span: slice, axis: int) -> Tensor:
    key = (*(slice(None),) * axis, span)
    return part(tensor, tensor._spec.backend.getitem(tensor.native, key), key)


def _woven(even: Tensor, odd: Tensor, axis: int) -> Tensor:
    """Two tensors whose slices along an axis take turns."""
    count = odd.shape[axis]
    pairs = manipulation.stack([_part(even, slice(0, count), axis), odd], axis=axis + 1)
    shape = (*even.shape[:axis], 2 * count, *even.shape[axis + 1 :])
    woven = manipulation.reshape(pairs, shape)
    if even.shape[axis] == count:
        return woven
    return manipulation.concat([woven, _part(even, slice(count, None), axis)], axis=axis)
