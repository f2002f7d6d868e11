"""Branches, loops and batches of an engine, over native arrays.

Where a predicate can be read, Python itself branches and loops, on every engine alike: see
ops/control. What follows is for the rest: predicates that a compiler or a transformation of
functions traces, and whole batches. Functions take native arrays and give lists of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ember_ml.errors import UnsupportedOpError

if TYPE_CHECKING:
    from ember_ml.backend.contract import Backend, NativeArray

    Natives = Sequence[NativeArray]
    Function = Callable[..., list[NativeArray]]

__all__ = ["Control", "uncounted"]


def uncounted(name: str) -> str:
    """Why a loop of unknown length has no gradient, and what has one."""
    return (
        f"ops.{name} has no gradient where its condition is traced: how often it runs is not "
        f"known; use ops.fori_loop with known bounds or ops.scan, or do not compile it"
    )


class Control:
    """The way of an engine without control flow of its own: both branches, no unknown lengths."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    # --- Values -----------------------------------------------------------------------------

    def number(self, native: NativeArray) -> Any:
        """The value of a 0-d array as a Python number; None where it cannot be read."""
        return native.item()

    # --- Branches ---------------------------------------------------------------------------

    def cond(
        self, pred: NativeArray, true_fn: Function, false_fn: Function, natives: Natives
    ) -> list[NativeArray]:
        """What one of two functions gives, by a 0-d array of bool that cannot be read."""
        chosen = true_fn(*natives)
        return self.select(pred, chosen, false_fn(*natives))

    def select(self, pred: NativeArray, first: Natives, second: Natives) -> list[NativeArray]:
        """Each array of `first` where `pred` holds, else that of `second`."""
        backend = self.backend
        return [
            backend.entry(backend.spec_of(a), "where")[0](pred, a, b)
            for a, b in zip(first, second, strict=True)
        ]

    def switch(
        self, index: NativeArray, functions: Sequence[Function], natives: Natives
    ) -> list[NativeArray]:
        """What one of several functions gives; an index beyond them takes the nearest."""
        kernels, (first, *rest) = self.backend.kernels, functions
        if not rest:
            return first(*natives)
        is_first = kernels.less_equal(index, kernels.full((), 0, index))
        less = kernels.subtract(index, kernels.full((), 1, index))

        def others(less: NativeArray, *inner: NativeArray) -> list[NativeArray]:
            return self.switch(less, rest, inner)

        def this(_: NativeArray, *inner: NativeArray) -> list[NativeArray]:
            return first(*inner)

        return self.cond(is_first, this, others, [less, *natives])

    # --- Loops ------------------------------------------------------------------------------

    def while_loop(
        self, cond_fn: Function, body_fn: Function, natives: Natives, name: str
    ) -> list[NativeArray]:
        """Repeat `body_fn` while what `cond_fn` gives, which cannot be read, holds."""
        raise UnsupportedOpError(
            f"ops.{name} on the '{self.backend.name}' backend cannot read its condition while "
            f"the function is traced, and this engine has no loop for that; "
            f"use ops.fori_loop or ops.scan with a fixed number of steps, or do not compile it"
        )

    def loops(self, natives: Natives, length: int) -> bool:
        """True where a loop of known length is to be run by `scan` and not by Python."""
        return False

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
        """The last carry and the stacked results of `body(carry, row)`; see `loops`."""
        raise UnsupportedOpError(
            f"ops.scan: the '{self.backend.name}' backend says that it runs loops and has no scan"
        )

    def aside(self) -> AbstractContextManager[Any]:
        """A block of which nothing is kept: what a trace makes in it is dropped."""
        return nullcontext()

    def rows(self, native: NativeArray) -> Sequence[NativeArray]:
        """The arrays along the first axis."""
        return [self.backend.getitem(native, (i,)) for i in range(native.shape[0])]

    # --- Batches ----------------------------------------------------------------------------

    def batch(
        self, function: Function, natives: Natives, axes: Sequence[int | None], size: int
    ) -> list[NativeArray] | None:
        """`function` on all places along `axes` at once, stacked along the first axis.

        None where the engine cannot; then the function is called for each place.
        """
        return None
