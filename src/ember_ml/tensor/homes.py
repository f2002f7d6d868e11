"""Where the memory of a tensor is: storages, and windows on them.

A plain result has no home but itself. One whose memory is shared has a storage, a window on one,
or a loan; `storage_of` makes a home where somebody needs one.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

from ember_ml.backend.contract import NativeArray
from ember_ml.tensor.cell import Cell
from ember_ml.tensor.core import Tensor, new
from ember_ml.tensor.families import Member
from ember_ml.tensor.layout import Layout, contiguous
from ember_ml.tensor.storage import Loan, Refusal, Storage, Window
from ember_ml.tensor.windows import TensorView, TensorViewMut

__all__ = [
    "CREATION",
    "base_of",
    "home_of",
    "layout_of",
    "storage_of",
    "view_on",
]

# Held while a tensor gets a home, so that two threads make one.
CREATION: Final = Lock()


def home_of(x: Any) -> Any:
    """What a tensor knows of its memory.

    None: it is alone. A list: weak references to engine's views of it, which have it as their
    home in turn. Else a Storage, a Loan, a Window, or a Refusal.
    """
    return getattr(x, "_home", None)


def storage_of(x: Tensor) -> Storage:
    """The storage of a tensor; it comes into being here."""
    home: Any = getattr(x, "_home", None)
    if type(home) is Storage:
        return home
    while isinstance(home, Tensor):
        x, home = home, home_of(home)
    if isinstance(home, Storage):
        return home
    if isinstance(home, Window):
        return home.storage
    if isinstance(home, Member):
        return Storage(x.native, x._spec)
    if isinstance(home, Refusal):
        if home.root is None:
            return Storage(x.native, x._spec)
        return storage_of(home.root)
    if isinstance(home, Loan):
        with home.storage.lock:
            if x._home is home:  # no other thread has been here
                x._home = home.storage.lent(x)
                return x._home  # type: ignore[no-any-return]  # a Storage, as of the line above
        return storage_of(x)
    with CREATION:
        home = home_of(x)  # another thread may have been here
        if isinstance(home, Storage):
            return home
        storage = Storage(x.native, x._spec)
        if home is not None:
            storage.adopt(home)
        storage.foreign = x._spec.backend.is_borrowed(x.native)
        storage.mirror(x)
        x._home = storage
        return storage


def window_on(x: Tensor, layout: Layout) -> Window:
    """A window on the memory of `x` by a layout of its elements as they are arranged in `x`."""
    home = home_of(x)
    if isinstance(home, Window):
        return Window(home.storage, layout, home.base)
    storage = storage_of(x)
    return Window(storage, layout, base_of(x, storage))


def base_of(x: Tensor, storage: Storage) -> NativeArray:
    """The engine's view of a storage that `x` is; None where it is the whole array."""
    native = x.native
    if native is storage.native or not x._spec.backend.mutable or storage.is_borrowed:
        return None
    return native


def layout_of(x: Tensor) -> Layout:
    """The layout of a tensor in what `window_on` takes it to lie in."""
    home = home_of(x)
    return home.layout if isinstance(home, Window) else contiguous(x.shape)


def view_on(x: Tensor, layout: Layout, writable: bool = True) -> Tensor:
    """A view of `x` by a layout."""
    cell: Cell = x  # type: ignore[assignment]  # it is one, which type checkers do not see
    home: Any = getattr(x, "_home", None)
    if type(x) is TensorView or type(home) is Refusal:
        writable = False
    out = new(TensorViewMut if writable else TensorView)
    out._spec = cell._spec
    if type(home) is Window:
        out._home = Window(home.storage, layout, home.base)
    else:
        out._home = window_on(x, layout)
    return out
