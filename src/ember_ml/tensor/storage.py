"""Who owns the memory of tensors, once they share it.

A plain result holds its native array and nothing else. A Storage comes into being when memory is
shared or written: it has the lock under which writes happen, counts them, and knows who else
looks at the array. On NumPy and torch the views of an array are the engine's own. On JAX and MLX,
whose arrays do not change, a view is a Window, and a write gives the storage another array.

`clone` shares memory until somebody writes. On NumPy and torch the storage of the clone borrows
the array from that of the original. Whoever writes first moves to a copy, with all its views, so
that the old memory stays as it is for those who still read it. On engines whose arrays do not
change there is nothing to borrow.
"""

from __future__ import annotations

import sys
import weakref
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ember_ml.backend.compiling import FROM_OUTSIDE, note
from ember_ml.backend.contract import NativeArray, Spec
from ember_ml.errors import ReadOnlyError, TraceError
from ember_ml.tensor.layout import Layout, contiguous

if TYPE_CHECKING:
    from ember_ml.tensor.core import Tensor

__all__ = ["Loan", "Refusal", "Storage", "Window", "is_held_alone", "remember"]

# Whether reference counts tell who holds an object.
_COUNTED: Final = getattr(sys, "_is_gil_enabled", lambda: True)()
_FEW: Final = 8
# Who holds an array that belongs to its storage alone: the storage, and for a look at the count
# a local variable and the argument.
_OWN_REFERENCES: Final = 3
T = TypeVar("T")


class Storage:
    """The memory that some tensors share: a native array, a lock, and a count of writes.

    >>> from ember_ml.nn import tensor
    >>> x = tensor.zeros(4)
    >>> x[1:3] = 1.0
    >>> x.storage.version, x.storage.nbytes
    (1, 16)
    """

    __slots__ = (
        "__weakref__",
        "_aliases",
        "_borrowers",
        "_lender",
        "_loan",
        "_views",
        "_windows",
        "epoch",
        "foreign",
        "lock",
        "native",
        "recorded",
        "spec",
        "version",
    )

    def __init__(self, native: NativeArray, spec: Spec, lender: Storage | None = None) -> None:
        self.native: NativeArray = native
        self.spec: Final = spec
        # Writes so far.
        self.version = 0
        # Goes up whenever `native` becomes another array.
        self.epoch = 0
        # True where the memory is somebody else's, who must not see writes.
        self.foreign = False
        # True where a tensor with an engine's own record writes to the memory, unseen from here.
        self.recorded = False
        # Clones keep the lock of their original, so that no two locks are ever taken in turn.
        self.lock: RLock = RLock() if lender is None else lender.lock
        # Plain tensors that hold the whole array in a slot of their own.
        self._aliases: list[weakref.ref[Tensor]] | None = None
        # Plain tensors around the engine's views of the array.
        self._views: list[weakref.ref[Tensor]] | None = None
        # Windows that keep what they read, or that lie in an engine's view.
        self._windows: list[weakref.ref[Window]] | None = None
        # Clones, and the storages of those that have one.
        self._borrowers: list[weakref.ref[Any]] | None = None
        self._lender = lender
        # The home of all clones; there once the first borrows.
        self._loan: Loan

    def __repr__(self) -> str:
        spec = self.spec
        return (
            f"Storage({self.nbytes} bytes of {spec.dtype}, version={self.version}, "
            f"backend='{spec.backend.name}', device='{spec.device}')"
        )

    @property
    def size(self) -> int:
        """The number of elements of the whole array."""
        return contiguous(tuple(self.native.shape)).size

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return self.size * self.spec.dtype.itemsize

    @property
    def is_borrowed(self) -> bool:
        """True where a write will copy first: the memory is a clone's, or another library's."""
        return self._lender is not None or self.foreign

    # --- Who looks on -----------------------------------------------------------------------

    def mirror(self, x: Tensor) -> None:
        """Let a plain tensor follow the array of this storage."""
        if self._aliases is None:
            self._aliases = [weakref.ref(x)]
        else:
            remember(self._aliases, x)

    def follow(self, view: Tensor) -> None:
        """Remember a plain tensor around an engine's view of the array."""
        if self._views is None:
            self._views = []
        remember(self._views, view)

    def adopt(self, views: list[weakref.ref[Tensor]]) -> None:
        """Remember the views that were made before this storage."""
        self._views = views

    def aliases(self) -> list[Tensor]:
        """The plain tensors that hold the whole array."""
        return [x for ref in self._aliases or () if (x := ref()) is not None]

    def forget_aliases(self) -> None:
        """Leave tensors that read through windows from now on."""
        self._aliases = None

    def replace(self, native: NativeArray) -> None:
        """Take another array for the old one; all who look on see it."""
        self.native = native
        self.epoch += 1
        for x in self.aliases():
            x.native = native
            if x.requires_grad:
                x._show_in_views()  # type: ignore[attr-defined]  # of GradTensor

    def has_views(self) -> bool:
        """True where an engine's view of the array lives."""
        return any(one() is not None for one in self._views or ())

    def lend(self, clone: Tensor) -> Loan:
        """What a clone has until somebody asks for its storage."""
        if self._lender is not None:
            return self._lender.lend(clone)
        if self._borrowers is None:
            self._borrowers = []
            self._loan = Loan(self)
        remember(self._borrowers, clone)
        return self._loan

    def lent(self, clone: Tensor) -> Storage:
        """The storage of a clone; the lock is held."""
        made = Storage(clone.native, self.spec, self)
        made._aliases = [weakref.ref(clone)]
        kept = [ref for ref in self._borrowers or () if ref() is not clone]
        self._borrowers = [*kept, weakref.ref(made)]
        return made

    # --- Writing ----------------------------------------------------------------------------

    def prepare(self) -> None:
        """Before memory is written in place: see that nobody else sees it."""
        if self.is_borrowed:
            self.own(self.spec.backend.copy(self.native))
        if self._borrowers is not None:
            self._part([one for ref in self._borrowers if (one := ref()) is not None])

    def own(self, native: NativeArray) -> None:
        """Take an array of one's own instead of the borrowed one."""
        lender, self._lender, self.foreign = self._lender, None, False
        if lender is not None and lender._borrowers:
            lender._borrowers = [ref for ref in lender._borrowers if ref() is not self]
        self.replace(native)

    def _part(self, borrowers: list[Any]) -> None:
        """Leave the memory to the clones, and move to a copy with all views of it."""
        self._borrowers = None
        del self._loan
        if not borrowers:
            return
        backend, old = self.spec.backend, self.native
        new = backend.copy_memory(old)
        if new is None:
            # Memory with gaps: views of it have no place in a copy, so the clones move instead.
            for one in borrowers:
                if isinstance(one, Storage):
                    one.own(backend.copy(one.native))
                else:
                    one.native, one._home = backend.copy(one.native), None
            return
        self.replace(new)
        for ref in self._views or ():
            view = ref()
            if view is not None:
                view.native = backend.rebase(view.native, old, new)
        for kept in self._windows or ():
            window = kept()
            if window is not None and window.base is not None:
                window.base = backend.rebase(window.base, old, new)
        if len(borrowers) == 1 and borrowers[0].native is old:
            nobody = None  # the memory is its own now
        else:
            nobody = Storage(old, self.spec, self)
            nobody._lender = None
        for one in borrowers:
            if isinstance(one, Storage):
                one._lender = nobody
            else:
                one._home = None if nobody is None else Loan(nobody)
        if nobody is not None:
            nobody._borrowers = [weakref.ref(one) for one in borrowers]
            nobody._loan = Loan(nobody)

    def update(self, layout: Layout, value: NativeArray) -> None:
        """Write a value at a layout of an array that does not change: one functional update."""
        for ref in self._windows or ():
            window = ref()
            if window is not None:
                window.native = None  # a slice that lives would make the engine copy
        self._windows = None
        before = self.native
        sole = _COUNTED and sys.getrefcount(before) == _OWN_REFERENCES
        self.take(self.spec.backend.write_layout(before, layout, value, sole))

    def take(self, native: NativeArray) -> None:
        """Replace the array by one computed from it, unless that exists only in a trace."""
        backend = self.spec.backend
        if backend.leaks(self.native, native) and not (
            backend.compiler.makes_values and note(self, self.native)
        ):
            raise TraceError(FROM_OUTSIDE)
        self.replace(native)

    def keep(self, window: Window) -> None:
        """Remember a window that keeps what it read, or that lies in an engine's view."""
        if self._windows is None:
            self._windows = []
        remember(self._windows, window)


class Loan:
    """The home of a clone: memory of another storage, until one of them writes."""

    __slots__ = ("storage",)

    def __init__(self, storage: Storage) -> None:
        self.storage: Final = storage


def remember(refs: list[weakref.ref[T]], x: T) -> None:
    """Add one to a list of weak references, which never grows to more than twice the living.

    The list has a power of two elements where it is cleared of the dead.
    """
    refs.append(weakref.ref(x))
    if len(refs) > _FEW and not len(refs) & (len(refs) - 1):
        refs[:] = [ref for ref in refs if ref() is not None]


class Window:
    """What a view shows: a layout of the array of a storage, or of an engine's view of it."""

    __slots__ = ("__weakref__", "base", "epoch", "layout", "native", "storage", "thread")

    def __init__(self, storage: Storage, layout: Layout, base: NativeArray = None) -> None:
        self.storage: Final = storage
        self.layout: Final = layout
        # An engine's view of the storage that the layout speaks of; None: the whole array.
        self.base = base
        self.native: NativeArray = None
        # When `native` was read, and by whom: a lazy array of MLX can be computed in its thread
        # alone. There once something was read.
        self.epoch: int
        self.thread: int
        if base is not None:
            storage.keep(self)

    def read(self) -> NativeArray:
        """The elements as a native array: the engine's view, or a copy that is kept."""
        storage = self.storage
        with storage.lock:
            thread = get_ident()
            if self.native is not None and (self.epoch, self.thread) == (storage.epoch, thread):
                return self.native
            backend = storage.spec.backend
            root = storage.native if self.base is None else self.base
            if self.is_whole and not backend.mutable:
                return root
            native = backend.read_layout(root, self.layout)
            if backend.leaks(root, native):
                return native  # it exists only while a function is traced
            if backend.mutable:
                if not backend.shares_memory(root, native):
                    return native  # a copy, which later writes would not reach
            elif self.native is None:  # else it is kept already
                storage.keep(self)
            self.native, self.epoch, self.thread = native, storage.epoch, thread
            return native

    @property
    def is_whole(self) -> bool:
        """True where the window shows the whole array as it is."""
        layout = self.layout
        root = self.storage.native if self.base is None else self.base
        return layout.shape == tuple(root.shape) and not layout.offset and layout.is_contiguous

    def write(self, value: NativeArray) -> None:
        """Write all elements; the lock of the storage is held."""
        storage, layout = self.storage, self.layout
        if layout.repeats:
            raise ReadOnlyError("a broadcast tensor cannot be written to; write to a .copy() of it")
        backend = storage.spec.backend
        if not backend.mutable:
            storage.update(layout, value)
        elif layout.size:
            storage.prepare()
            root = storage.native if self.base is None else self.base
            backend.write_layout(root, layout, value, True)


def is_held_alone(storage: Storage) -> bool:
    """True where a storage that is given as `x.attribute` is held by that attribute alone.

    Whoever looks at its memory holds it, but for engine's views.
    """
    return _COUNTED and sys.getrefcount(storage) <= _HELD_ALONE and not storage.has_views()


class _Holder:
    """What alone holds an object: the count of its references is measured, not assumed."""

    def __init__(self) -> None:
        self.held = object()


def _count(held: object) -> int:
    return sys.getrefcount(held)


_HELD_ALONE: Final = (lambda holder: _count(holder.held))(_Holder())


class Refusal:
    """Why a view cannot be written to, and the tensor whose memory it shows."""

    __slots__ = ("error", "root")

    def __init__(self, error: Exception, root: Tensor | None = None) -> None:
        self.error: Final = error
        self.root: Final = root
