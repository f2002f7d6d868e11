"""Gradients summed over ranks in buckets, each of which goes off while the others are computed.

Gradients of one dtype are laid into flat memory in the order in which the backward pass gives
them, and a bucket that is full is sent while the pass goes on. Loss and other numbers of a step go
with the first one. On engines without memory that can be written to, and where the engine
compiles the step, gradients go as they are: the compiler sees them all.
"""

from __future__ import annotations

import cmath
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ember_ml import dtypes, ops, tree
from ember_ml.autodiff import backward, runs
from ember_ml.backend.contract import NativeArray, Spec
from ember_ml.distributed.communicator import Communicator, Pending
from ember_ml.tensor.core import GradTensor, Tensor, fill

__all__ = ["FLAT", "Buckets", "summed", "summed_tree"]

# Engines whose arrays are memory that can be laid out and written to.
FLAT: Final = ("torch", "numpy")
_HALF: Final = (dtypes.float16, dtypes.bfloat16)
# Engines on which many messages cost more than a copy of what they say.
_JOINED: Final = ("torch", "numpy", "mlx")
# Places for numbers in the bucket that carries them; more of them are a message of their own.
_NUMBERS: Final = 16


class _Bucket:
    """Flat memory with a place for each of some gradients."""

    __slots__ = ("has_numbers", "left", "memory", "places", "size", "spec", "views", "wide")

    def __init__(self, spec: Spec) -> None:
        # Sums of 16-bit floats are made in 32 bits.
        self.wide = spec.dtype in _HALF
        self.spec = spec.with_dtype(dtypes.float32) if self.wide else spec
        self.places: list[int] = []
        self.size = 0
        self.has_numbers = False
        self.left = 0
        self.memory: NativeArray = None
        self.views: dict[int, NativeArray] = {}

    def lay(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Take memory for the gradients, and for some numbers at its beginning."""
        extra = _NUMBERS if self.has_numbers else 0
        self.memory = self.spec.backend.full((self.size + extra,), 0, self.spec)
        start = extra
        for place in self.places:
            stop = start + _count(shapes[place])
            self.views[place] = self.memory[start:stop].reshape(shapes[place])
            start = stop

    def carried(self) -> NativeArray:
        """The memory as the wire takes it: complex numbers are pairs of floats."""
        if not self.spec.dtype.is_complex:
            return self.memory
        if isinstance(self.memory, np.ndarray):
            return self.memory.view(self.memory.real.dtype)
        import torch

        return torch.view_as_real(self.memory).view(-1)


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for side in shape:
        count *= side
    return count


class Buckets:
    """The memory for gradients like some tensors, and for some numbers beside them."""

    def __init__(
        self,
        communicator: Communicator,
        like: Sequence[Tensor],
        first_bytes: int,
        bucket_bytes: int,
    ) -> None:
        self.communicator = communicator
        self.specs = [x._spec for x in like]
        self.shapes = [x.shape for x in like]
        self.buckets = _planned(self.specs, self.shapes, first_bytes, bucket_bytes)
        carrier = next((b for b in self.buckets if b.spec.dtype.is_floating and not b.wide), None)
        if carrier is None:
            home = self.specs[0].with_dtype(dtypes.float32)
            carrier = _Bucket(home)
            self.buckets.insert(0, carrier)
        carrier.has_numbers = True
        self.carrier = carrier
        for one in self.buckets:
            one.lay(self.shapes)
        self._of = {place: one for one in self.buckets for place in one.places}
        self._by_hooks = self.specs[0].backend.name == "torch"
        self._hooked: list[Any] = []
        self._handles: list[Any] = []
        self._is_armed = False
        self._next = 0
        self._pending: list[Pending] = []
        self._given: Sequence[Tensor] = ()
        # Whether the memory has the gradients of this step.
        self._is_filled = False

    def fits(self, like: Sequence[Tensor]) -> bool:
        """Whether it is for such tensors."""
        return self.specs == [x._spec for x in like] and self.shapes == [x.shape for x in like]

    # --- A step -----------------------------------------------------------------------------

    def pulled(
        self,
        results: Sequence[Tensor],
        seeds: Sequence[Tensor],
        inputs: Sequence[Tensor],
        numbers: Sequence[Tensor],
    ) -> tuple[list[Tensor | None], list[Tensor]]:
        """As `runs.pulled`: gradients of inputs, and numbers, summed over ranks."""
        self._begin(numbers)
        pull = self._pulled_by_hooks if self._by_hooks else self._pulled_on_tape
        own = pull(results, seeds, inputs)
        found, totals = self._end(inputs)
        whole = [None if g is None else x for g, x in zip(own, found, strict=True)]
        return whole, totals

    def sum(
        self, leaves: Sequence[Tensor], numbers: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Gradients that are there already and numbers, summed over ranks."""
        self._begin(numbers)
        for place in reversed(range(len(leaves))):
            self._put(place, leaves[place].native)
        return self._end(leaves)

    def forget(self) -> None:
        """What the memory has is not of this step."""
        self._is_filled = False

    def _begin(self, numbers: Sequence[Tensor]) -> None:
        self._next = 0
        self._pending = []
        for one in self.buckets:
            # Those without elements need not come, and some engines leave them out.
            one.left = sum(0 not in self.shapes[place] for place in one.places)
        self._given = numbers
        memory = self.carrier.memory
        for place, x in enumerate(numbers[:_NUMBERS]):
            memory[place] = x.native

    def _end(self, leaves: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        self._launch()  # what holds no elements, and nothing has filled
        for one in self._pending:
            one.wait()
        self._is_filled = True
        given, carrier = self._given, self.carrier
        kept = carrier.spec.backend.copy(carrier.memory[: len(given[:_NUMBERS])])
        numbers = [
            fill(kept[place : place + 1].reshape(()), carrier.spec).astype(x.dtype, copy=False)
            for place, x in enumerate(given[:_NUMBERS])
        ]
        if len(given) > _NUMBERS:
            numbers += summed(self.communicator, given[_NUMBERS:])
        return self._found(leaves), numbers

    def _put(self, place: int, native: NativeArray) -> None:
        bucket = self._of[place]
        view = bucket.views[place]
        if 0 in self.shapes[place]:
            return
        if self._by_hooks:
            view.copy_(native)
        else:
            view[...] = native
        bucket.left -= 1
        if not bucket.left:
            self._launch()

    def _launch(self) -> None:
        """Send what is full, in the one order that all ranks have."""
        buckets = self.buckets
        while self._next < len(buckets) and not buckets[self._next].left:
            memory = buckets[self._next].carried()
            if len(memory):
                self._pending.append(self.communicator.start_sum([memory]))
            self._next += 1

    def _found(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        """The sums in the dtypes of the gradients."""
        found = []
        for place, leaf in enumerate(leaves):
            bucket = self._of[place]
            x = fill(bucket.views[place], bucket.spec)
            found.append(x.astype(leaf.dtype) if bucket.wide else x)
        return found

    def is_surely_finite(self) -> bool:
        """Whether all sums are finite: a sum over them is so only if they are, and costs little."""
        if not self._is_filled:
            return False
        with np.errstate(all="ignore"):
            total = sum(complex(one.memory.sum()) for one in self.buckets)
        return cmath.isfinite(total)

    # --- torch: hooks of the parameters -----------------------------------------------------

    def _pulled_by_hooks(
        self, results: Sequence[Tensor], seeds: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> list[Tensor | None]:
        natives = [x.native for x in inputs]
        if len(natives) != len(self._hooked) or any(
            a is not b for a, b in zip(natives, self._hooked, strict=True)
        ):
            self._hook(natives)
        self._is_armed = True
        try:
            return runs.pulled(results, seeds, inputs)
        finally:
            self._is_armed = False

    def _hook(self, natives: list[Any]) -> None:
        self.release()
        self._hooked = natives
        self._handles = [
            native.register_hook(self._filling(place)) for place, native in enumerate(natives)
        ]

    def _filling(self, place: int) -> Callable[[Any], Any]:
        bucket = self._of[place]
        view, wide = bucket.views[place], bucket.wide

        def fill_in(g: Any) -> Any:
            if not self._is_armed or not g.numel():
                return None
            view.copy_(g)
            bucket.left -= 1
            if not bucket.left:
                self._launch()
            return None if wide else view

        return fill_in

    def release(self) -> None:
        """Let go of the parameters."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._hooked = [], []

    # --- Our tape: a walk in as many stretches as there are buckets ---------------------------

    def _pulled_on_tape(
        self, results: Sequence[Tensor], seeds: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> list[Tensor | None]:
        (result,), (seed,) = results, seeds
        nodes = [x._node for x in inputs]
        if type(result) is not GradTensor:
            return [None] * len(inputs)
        found: dict[Any, Tensor] = {}
        ahead: dict[Any, Tensor] = {result._node: seed}
        places = {node: place for place, node in enumerate(nodes)}
        for bucket, since in zip(self.buckets, self._stretches(result._node, places), strict=True):
            if ahead:
                ahead = _walked(ahead, since, places, found)
            for place in bucket.places:
                if nodes[place] in found:
                    self._put(place, found[nodes[place]].native)
        return [found.get(node) for node in nodes]

    def _stretches(self, root: Any, places: dict[Any, int]) -> list[int]:
        """How far back the walk has to go until a bucket is full, by the orders of nodes."""
        if len(self.buckets) == 1:
            return [-1]
        first_use = [-1] * len(self.specs)
        seen = {root}
        waiting = [root]
        while waiting:
            node = waiting.pop()
            order = node.order
            for parent in node.parents or ():
                if parent is None:
                    continue
                place = places.get(parent)
                if place is not None:
                    if first_use[place] < 0 or order < first_use[place]:
                        first_use[place] = order
                elif parent not in seen:
                    seen.add(parent)
                    waiting.append(parent)
        ends: list[int] = []
        last = root.order
        for bucket in self.buckets:
            last = min([last, *[first_use[place] for place in bucket.places]])
            ends.append(last)
        ends[-1] = -1
        return ends


def _walked(
    ahead: dict[Any, Tensor], since: int, places: dict[Any, int], found: dict[Any, Tensor]
) -> dict[Any, Tensor]:
    """One stretch: gradients of leaves are added to those found, and the others go on."""
    further: dict[Any, Tensor] = {}
    for node, g in backward.pull_back(ahead, since=since).items():
        if node in places:
            have = found.get(node)
            found[node] = g if have is None else have + g
        elif node.order < since and node.parents:
            further[node] = g
    return further


def _planned(
    specs: Sequence[Spec],
    shapes: Sequence[tuple[int, ...]],
    first_bytes: int,
    bucket_bytes: int,
) -> list[_Bucket]:
    """Buckets for gradients that come from the last parameter to the first."""
    made: list[_Bucket] = []
    open_by_dtype: dict[Any, _Bucket] = {}
    for place in reversed(range(len(specs))):
        spec = specs[place]
        size = _count(shapes[place])
        bucket = open_by_dtype.get(spec)
        limit = first_bytes if bucket is not None and bucket is made[0] else bucket_bytes
        if bucket is None or bucket.size * bucket.spec.dtype.bits // 8 >= limit:
            bucket = open_by_dtype[spec] = _Bucket(spec)
            made.append(bucket)
        bucket.places.append(place)
        bucket.size += size
    return made


# --- Gradients as they are ------------------------------------------------------------------------


def summed(communicator: Communicator, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Sums over ranks of some tensors, in their dtypes."""
    # Where arrays are memory, they are summed in place: not in that of somebody else.
    wide = [x.astype(dtypes.float32) if x.dtype in _HALF else _own(x) for x in tensors]
    if wide[0].backend in _JOINED:
        found = _summed_joined(communicator, wide)
    else:
        natives = communicator.start_sum([x.native for x in wide]).wait()
        found = [fill(native, x._spec) for native, x in zip(natives, wide, strict=True)]
    return [one.astype(x.dtype, copy=False) for one, x in zip(found, tensors, strict=True)]


def _summed_joined(communicator: Communicator, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same, with one message for each dtype."""
    found: dict[int, Tensor] = {}
    for spec in dict.fromkeys(x._spec for x in tensors):
        places = [place for place, x in enumerate(tensors) if x._spec is spec]
        flat = ops.concat([ops.reshape(tensors[place], (-1,)) for place in places])
        (native,) = communicator.start_sum([flat.native]).wait()
        total, start = fill(native, spec), 0
        for place in places:
            stop = start + tensors[place].size
            found[place] = ops.reshape(total[start:stop], tensors[place].shape)
            start = stop
    return [found[place] for place in range(len(tensors))]


def _own(x: Tensor) -> Tensor:
    plain = x.detach() if type(x) is GradTensor else x
    backend = plain._spec.backend
    return plain.copy() if backend.mutable and not backend.is_traced(plain.native) else plain


def summed_tree(
    communicator: Communicator, grads: Any, numbers: Sequence[Tensor]
) -> tuple[Any, list[Tensor]]:
    """The same of gradients in a tree and of numbers."""
    leaves, structure = tree.flatten(grads)
    found = summed(communicator, [*leaves, *numbers])
    return tree.unflatten(structure, found[: len(leaves)]), found[len(leaves) :]
