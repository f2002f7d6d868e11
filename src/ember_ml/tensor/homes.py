"""Where the memory of a tensor is: views as classes, storages, and windows on them.

A plain result has no home but itself. One whose memory is shared has a storage, a window on one,
or a loan; `storage_of` makes a home where somebody needs one.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

import numpy as np

from ember_ml.backend.contract import NativeArray
from ember_ml.markers import D, R, V
from ember_ml.tensor.core import Tensor, new
from ember_ml.tensor.families import Member
from ember_ml.tensor.layout import Layout, contiguous
from ember_ml.tensor.storage import Loan, Refusal, Storage, Window

__all__ = [
    "CREATION",
    "TensorView",
    "TensorViewMut",
    "base_of",
    "home_of",
    "layout_of",
    "storage_of",
    "view_on",
]

# Held while a tensor gets a home, so that two threads make one.
CREATION: Final = Lock()


class TensorView(Tensor[D, V, R]):
    """A window on the memory of a tensor, for reading: it shows what is written there later.

    >>> from ember_ml.nn import tensor
    >>> x = tensor.arange(4)
    >>> window = x.slice((1, 3))
    >>> x[1] = 7
    >>> window.tolist()
    [7, 2]
    """

    __slots__ = ()

    @property
    def native(self) -> NativeArray:
        """The elements as an array of the engine, read now."""
        return self._home.read()

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._home.layout.shape  # type: ignore[no-any-return]  # the home of a view is a Window

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._home.layout.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._home.layout.size  # type: ignore[no-any-return]  # as above

    def numpy(self, *, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The values as a NumPy array that cannot be written to, unless it is a copy."""
        array = self._spec.backend.to_numpy(self.native, copy)
        if array.flags.writeable and not copy:
            array = array.view()
            array.flags.writeable = False
        return array

    to_numpy = numpy


class TensorViewMut(TensorView[D, V, R]):
    """A window on the memory of a tensor, for reading and writing.

    >>> from ember_ml.nn import tensor
    >>> x = tensor.arange(4)
    >>> x.slice_mut((1, 3))[:] = 0
    >>> x.tolist()
    [0, 0, 0, 3]
    """

    __slots__ = ()

    def numpy(self, *, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The values as a NumPy array, without a copy where memory allows."""
        return self._spec.backend.to_numpy(self.native, copy)

    to_numpy = numpy


def home_of(x: Tensor) -> Any:
    """What a tensor knows of its memory.

    None: it is alone. A list: weak references to engine's views of it, which have it as their
    home in turn. Else a Storage, a Loan, a Window, or a Refusal.
    """
    return getattr(x, "_home", None)


def storage_of(x: Tensor) -> Storage:
    """The storage of a tensor; it comes into being here."""
    home = getattr(x, "_home", None)
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
    home = getattr(x, "_home", None)
    if type(x) is TensorView or type(home) is Refusal:
        writable = False
    out = new(TensorViewMut if writable else TensorView)
    out._spec = x._spec
    if type(home) is Window:
        out._home = Window(home.storage, layout, home.base)
    else:
        out._home = window_on(x, layout)
    return out
