"""What a forward pass keeps of whole tensors for the gradient: only how to gather them again.

A product keeps its weights until its gradient is computed. For weights that were gathered, what is
kept is a note of which they are; the walk back gathers them once more, a module at a time. So no
more than the tensors of some modules are whole at any time. This is for NumPy and the nodes of
the tape. On torch FSDP2 does the same, and JAX and MLX decide within their programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ember_ml.autodiff import tape
from ember_ml.backend.contract import NativeArray, Spec
from ember_ml.distributed.communicator import Communicator
from ember_ml.distributed.strategy.sharded_layout import Layout, gathered, plain
from ember_ml.distributed.strategy.sharded_modules import Scope
from ember_ml.memory.offloading import Keeper, _Place
from ember_ml.tensor.core import Tensor

__all__ = ["regathering"]


@contextmanager
def regathering(scope: Scope, communicator: Communicator) -> Iterator[None]:
    """A block around a forward pass, which keeps no tensor that `scope` gathers."""
    if communicator.backend != "numpy" or tape.KEEPER.get() is not None:
        yield
        return
    kept = _Again()
    scope.seen, scope.gone = kept.seen, kept.gone
    with tape.keeping(_Notes(kept)):
        yield


class _Group:
    """Tensors that were gathered at once, and can be so again."""

    __slots__ = ("_communicator", "_layouts", "_owner", "_parts")

    def __init__(
        self, parts: list[Tensor], layouts: list[Layout], communicator: Communicator, owner: _Again
    ) -> None:
        self._parts = [plain(part) for part in parts]
        self._layouts = layouts
        self._communicator = communicator
        self._owner = owner

    def native(self, place: int) -> NativeArray:
        """One of the tensors; all of them are held until those of another group are asked for."""
        if self._owner.latest[0] is not self:
            self._owner.latest = (None, [])  # before the next ones take memory
            found = gathered(self._communicator, self._parts, self._layouts)
            self._owner.latest = (self, [one.native for one in found])
        return self._owner.latest[1][place]


class _Again:
    """The tensors that are whole now, by where their memory is."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[_Group, int, NativeArray]] = {}
        self.latest: tuple[_Group | None, list[NativeArray]] = (None, [])

    def seen(
        self,
        made: list[Tensor],
        parts: list[Tensor],
        layouts: list[Layout],
        communicator: Communicator,
    ) -> None:
        """Note tensors that were gathered."""
        group = _Group(parts, layouts, communicator, self)
        for place, x in enumerate(made):
            if x.size:
                self.known[_start(x.native)] = (group, place, x.native)

    def gone(self, tensors: list[Tensor]) -> None:
        """Forget tensors that are let go: others may come to lie there."""
        for x in tensors:
            if x.size:
                self.known.pop(_start(x.native), None)

    def note(self, native: NativeArray) -> _Note | None:
        """What the tape is to keep in place of a NumPy array; None for others."""
        found = self.known.get(_start(native)) if native.size else None
        if found is None or native.dtype != found[2].dtype:
            return None
        offset = _address(native) - _address(found[2])
        return _Note(found[0], found[1], native.shape, native.strides, offset)


class _Note:
    """A tensor that is gathered again: of which group, and how its memory is read."""

    __slots__ = ("_group", "_offset", "_place", "_shape", "_strides")

    def __init__(
        self, group: _Group, place: int, shape: tuple[int, ...], strides: Any, offset: int
    ) -> None:
        self._group = group
        self._place = place
        self._shape = shape
        self._strides = strides
        self._offset = offset

    def numpy(self) -> NativeArray:
        """The array of NumPy."""
        native = self._group.native(self._place)
        return np.ndarray(self._shape, native.dtype, _bytes(native), self._offset, self._strides)


class _Waiting(_Place):
    """An array of NumPy in a node of the tape that is gathered when it is asked for."""

    __slots__ = ("_note",)

    def __init__(self, note: _Note, spec: Spec) -> None:
        super().__init__(spec)
        self._note = note

    def get(self) -> NativeArray:
        return self._note.numpy()


class _Notes(Keeper):
    """Puts notes in place of the arrays that were gathered, and leaves all others."""

    def __init__(self, kept: _Again) -> None:
        super().__init__(None)
        self._again = kept

    def moves(self, spec: Spec) -> bool:
        return spec.backend.name == "numpy"

    def put(self, native: NativeArray, spec: Spec) -> _Place | None:
        note = self._again.note(native) if isinstance(native, np.ndarray) else None
        return None if note is None else _Waiting(note, spec)


def _start(native: NativeArray) -> int:
    """Where the memory begins of which an array is a part."""
    root: Any = native
    while isinstance(root.base, np.ndarray):
        root = root.base
    return _address(root)


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    # As bytes: buffers do not know bfloat16.
    return array.reshape(-1).view(np.uint8)
