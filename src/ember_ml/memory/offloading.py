"""What is kept for gradients, kept somewhere else: in host memory or in a file.

Ops that run within `offload` leave their values there instead of on the device, and the walk back
fetches them one by one. On torch this goes by hooks of its own record; on every other backend the
nodes of the tape hold a place in a store instead of an array.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary, finalize, ref

import numpy as np

from ember_ml import dtypes
from ember_ml.autodiff import backward, pulls, tape
from ember_ml.autodiff.tape import Leaf, Node, Rule
from ember_ml.backend import aligned, selection, writes
from ember_ml.errors import EmberError

if TYPE_CHECKING:
    from ember_ml.backend.contract import Backend, NativeArray, Spec
    from ember_ml.tensor.core import Tensor

__all__ = ["Keeper", "offload"]

Array = np.ndarray[Any, Any]

# Smaller arrays cost more to move than they hold.
_LEAST: Final = 4096


class offload:
    """A block whose ops leave what gradients need in host memory, or in a file.

    It goes around the forward pass. Values that live in host memory already stay there; with
    `to_disk`, the name of a directory, every value goes to a file in it, which has no name and is
    gone when the last value is. Parameters and other leaves stay where they are.

    >>> import tempfile
    >>> from ember_ml import ops
    >>> from ember_ml.nn import tensor
    >>> x = tensor.array([1.0, 2.0], requires_grad=True)
    >>> with tempfile.TemporaryDirectory() as place, offload(to_disk=place) as kept:
    ...     y = ops.sum(ops.exp(ops.broadcast_to(x, (1000, 2))))
    ...     y.backward()
    ...     kept.moved_bytes
    8000
    """

    def __init__(self, to_disk: str | os.PathLike[str] | None = None) -> None:
        self._keeper = Keeper(to_disk)
        self._open: list[ExitStack] = []

    @property
    def moved_bytes(self) -> int:
        """How many bytes have been moved so far, each value counted once."""
        return self._keeper.moved_bytes

    def __enter__(self) -> offload:
        stack = ExitStack()
        stack.enter_context(tape.keeping(self._keeper))
        selection.current()  # loaded now, so that it can be told
        engine = selection.loaded("torch")
        if engine is not None:
            stack.enter_context(self._keeper.engine(engine))
        self._open.append(stack)
        return self

    def __exit__(self, *failure: Any) -> None:
        self._open.pop().__exit__(*failure)


class Keeper:
    """Moves arrays away and brings them back; see tape.KEEPER."""

    def __init__(self, to_disk: str | os.PathLike[str] | None) -> None:
        self.path: str | None = None if to_disk is None else os.fspath(to_disk)
        if self.path is not None and not os.path.isdir(self.path):
            raise NotADirectoryError(
                f"offload(to_disk={self.path!r}): this is no directory; create it first"
            )
        self.moved_bytes = 0
        # The place of an array that several nodes keep, by its id.
        self._known: dict[int, tuple[ref[Any], ref[_Place], int]] = {}
        self._lock = threading.Lock()

    def moves(self, spec: Spec) -> bool:
        """True where values of a spec go somewhere else."""
        return self.path is not None or spec.backend.gradients.offloads(spec.device)

    # --- Arrays -----------------------------------------------------------------------------

    def put(self, native: NativeArray, spec: Spec) -> _Place | None:
        """The place of an array in the store; None where it stays."""
        if not self.moves(spec):
            return None
        backend = spec.backend
        count = spec.dtype.itemsize
        for side in native.shape:
            count *= side
        if count < _LEAST or backend.is_traced(native):
            return None
        serial = writes.STATE.serial
        found = self._known.get(id(native))
        if found is not None and found[0]() is native and not writes.changed(native, found[2]):
            known = found[1]()
            if known is not None:
                return known
        array = backend.to_numpy(backend.detach(native), None if self.path is not None else True)
        place: _Place
        if self.path is None:
            place = _InMemory(array, spec)
        else:
            place = _InFile(_file_in(self.path), array, spec)
        with self._lock:
            self.moved_bytes += count
        if not backend.records:  # torch hands out another object each time
            self._known[id(native)] = (ref(native, self._forget(id(native))), ref(place), serial)
        return place

    def _forget(self, key: int) -> Any:
        known = self._known

        def forget(dead: ref[Any]) -> None:
            found = known.get(key)
            if found is not None and found[0] is dead:
                del known[key]

        return forget

    # --- The tape ---------------------------------------------------------------------------

    def __call__(
        self,
        rule: Rule,
        parents: tuple[Node | None, ...],
        kept: tuple[Any, ...],
        specs: tuple[Any, ...],
        options: tuple[Any, ...],
        out: Any,
        result: Any,
    ) -> Node:
        """A node whose values are elsewhere."""
        away: list[Any] = [
            # A leaf holds its array anyway: it would not become less.
            value if type(parent) is Leaf else self._away(value, spec)
            for value, parent, spec in zip(kept, parents, specs, strict=True)
        ]
        if type(result) is tuple:
            out_away: Any = tuple([self._away(o, r) for o, r in zip(out, result, strict=True)])
        else:
            out_away = self._away(out, result)
        places = (*away, *(out_away if type(result) is tuple else (out_away,)))
        if not any(isinstance(value, _Place) for value in places):
            return Node(rule, parents, kept, specs, options, out, result)
        moved = _Moved(rule, tuple(away), options, out_away)
        molds = (None,) * len(kept)
        shape = tuple([()] * len(result)) if type(result) is tuple else ()
        node = _Fetching(_fetching(rule.name), parents, molds, specs, (moved,), shape, result)
        moved.node = ref(node)
        return node

    def _away(self, value: Any, spec: Any) -> Any:
        if value is None or type(value) is tuple:  # left out, or a shape
            return value
        return self.put(value, spec) or value

    # --- torch ------------------------------------------------------------------------------

    def engine(self, backend: Backend) -> AbstractContextManager[Any]:
        """A block in which what the engine's own record keeps is elsewhere."""
        if not backend.records or not any(self.moves(s) for s in _specs_of(backend)):
            return nullcontext()

        def pack(native: NativeArray) -> Any:
            # Parameters and their views: their memory is held anyway.
            base = native if native._base is None else native._base
            if base.is_leaf and base.requires_grad:
                return native
            return self.put(native, backend.spec_of(native)) or native

        def unpack(value: Any) -> NativeArray:
            return value.get() if isinstance(value, _Place) else value

        return backend.gradients.keeping(pack, unpack)


def _specs_of(backend: Backend) -> list[Spec]:
    return [backend.spec(dtypes.float32, device) for device in backend.devices()]


# --- Places -----------------------------------------------------------------------------------


class _Place:
    """Where an array waits."""

    __slots__ = ("__weakref__", "_spec")

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    def get(self) -> NativeArray:
        """The array, on its device again."""
        return self._spec.backend.from_numpy(self._array(), self._spec)

    def _array(self) -> Array:
        raise NotImplementedError


class _InMemory(_Place):
    __slots__ = ("_kept",)

    def __init__(self, array: Array, spec: Spec) -> None:
        super().__init__(spec)
        self._kept = array

    def _array(self) -> Array:
        return self._kept


class _InFile(_Place):
    __slots__ = ("_dtype", "_file", "_offset", "_shape")

    def __init__(self, file: _File, array: Array, spec: Spec) -> None:
        super().__init__(spec)
        self._shape, self._dtype = array.shape, array.dtype
        self._file = file
        self._offset = file.write(array)

    def _array(self) -> Array:
        array = aligned.empty(self._shape, self._dtype)
        self._file.read(self._offset, array)
        return array

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None and hasattr(self, "_offset"):
            file.free(self._offset, int(np.prod(self._shape)) * self._dtype.itemsize)


class _File:
    """A file without a name, whose free places are used again."""

    def __init__(self, directory: str) -> None:
        # It is gone with the process, however that ends.
        self._file = tempfile.TemporaryFile(  # noqa: SIM115 - open as long as something is kept
            buffering=0, prefix="ember_ml-", dir=directory
        )
        finalize(self, self._file.close)
        self._end = 0
        self._gaps: dict[int, list[int]] = {}
        self._lock = threading.Lock()

    def write(self, array: Array) -> int:
        """Where the values of an array lie from now on."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        count = data.nbytes
        with self._lock:
            gaps = self._gaps.get(count)
            if gaps:
                offset = gaps.pop()
            else:
                offset = self._end
                self._end += count
            self._file.seek(offset)
            done = 0
            while done < count:
                done += self._file.write(data[done:])
        return offset

    def read(self, offset: int, array: Array) -> None:
        """Fill an array with what lies somewhere."""
        data = array.reshape(-1).view(np.uint8).data
        with self._lock:
            self._file.seek(offset)
            done = 0
            while done < data.nbytes:
                got = self._file.readinto(data[done:])
                if not got:
                    raise EmberError("offload: the file of values has become shorter")
                done += got

    def free(self, offset: int, count: int) -> None:
        """Let a place be used again."""
        # Called while objects go, perhaps within a `write` of the same thread: no lock is taken,
        # and each of these steps is one of Python's own.
        self._gaps.setdefault(count, []).append(offset)


_FILES: Final[WeakValueDictionary[str, _File]] = WeakValueDictionary()
_FILES_LOCK: Final = threading.Lock()


def _file_in(directory: str) -> _File:
    """The file of a directory: one for all that is kept there at the same time."""
    key = os.path.realpath(directory)
    with _FILES_LOCK:
        found = _FILES.get(key)
        if found is None:
            found = _FILES[key] = _File(directory)
        return found


# --- Fetching ---------------------------------------------------------------------------------


class _Moved:
    """What a node would hold if its values were at hand."""

    __slots__ = ("kept", "node", "options", "out", "rule")

    def __init__(
        self, rule: Rule, kept: tuple[Any, ...], options: tuple[Any, ...], out: Any
    ) -> None:
        self.rule = rule
        self.kept = kept
        self.options = options
        self.out = out
        self.node: Any = None


class _Fetching(Node):
    """A node whose values are elsewhere; what it holds instead knows it, without holding it."""

    __slots__ = ("__weakref__",)


@cache
def _fetching(name: str) -> Rule:
    """The rule of a node whose values are elsewhere."""
    return Rule(name, (), _pull, keeps_inputs=False, keeps_output=False, told=True)


def _pull(
    g: Any, needs: Sequence[bool], y: Any, *operands: Any, create: bool
) -> list[Tensor | None]:
    moved: _Moved = operands[-1]
    node: Node = moved.node()
    specs, _, _, result = node.facts
    kept = tuple([_fetched(value) for value in moved.kept])
    out = moved.out
    out = tuple(map(_fetched, out)) if type(result) is tuple else _fetched(out)
    facts = (specs, moved.options, out, result)
    if create:
        # The walk itself will be differentiated: from now on the values are at hand.
        node.rule, node.kept, node.facts = moved.rule, kept, facts
        whole = node
    else:
        whole = Node(moved.rule, node.parents, kept, *facts)
    parts = pulls.parts(whole, moved.rule, g, list(needs), create)
    if not create:
        backward.settle([part for _, part in parts])
    found: list[Tensor | None] = [None] * len(needs)
    for place, part in parts:
        found[place] = part
    return found


def _fetched(value: Any) -> Any:
    return value.get() if isinstance(value, _Place) else value
