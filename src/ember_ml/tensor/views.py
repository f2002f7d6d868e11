"""Views: tensors that show the memory of another, on every backend alike.

`x[1:3]`, `x.T`, `x.reshape(...)` and the like are views wherever strides can describe them. A write
through one is seen by all others. On NumPy and torch a view is mostly a plain tensor around the
engine's view; where the engine has none (JAX, MLX, torch's reversed axes), where memory is borrowed
(clones), and for `slice` and `slice_mut`, it is a TensorView: a window that reads when it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock, active_count
from typing import Any, Final

import numpy as np

from ember_ml.autodiff import tape
from ember_ml.backend.compiling import FROM_OUTSIDE, note
from ember_ml.backend.contract import NativeArray, Spec
from ember_ml.errors import (
    DomainError,
    DTypeError,
    GradientError,
    ReadOnlyError,
    ShapeError,
    TraceError,
    UnsupportedOpError,
)
from ember_ml.markers import D, R, V
from ember_ml.ops.explain import explain
from ember_ml.tensor import families
from ember_ml.tensor.core import GradTensor, Tensor, blank, fill, like
from ember_ml.tensor.families import Member
from ember_ml.tensor.layout import Layout, arranged, contiguous, plan_of, reshaped, strides_of
from ember_ml.tensor.methods import Operators
from ember_ml.tensor.storage import Loan, Refusal, Storage, Window, is_held_alone, remember

__all__ = [
    "TensorView",
    "TensorViewMut",
    "alias",
    "assign",
    "clone",
    "detached",
    "home_of",
    "layout_of",
    "put",
    "quick_reshape",
    "quick_slice",
    "quick_window",
    "rearranged",
    "record",
    "replace",
    "require_same",
    "require_writable",
    "shares_memory",
    "sliced",
    "storage_of",
    "strides_and_offset",
    "view_on",
    "writable_storage",
]

_CREATION: Final = Lock()
# What a key without arrays is made of; a slice that runs backwards is found out later.
_QUICK_ITEMS: Final = frozenset((int, slice, type(None), type(...)))
# Below this, a tensor on an engine without writes is copied by each, and stays on the fast path.
_SMALL: Final = 1 << 16
# Ops that put the axes in another order: every engine with views has a view for these.
_ORDERS: Final = frozenset(("matrix_transpose", "permute_dims"))
_ALL: Final = slice(None)
_TURNED: Final = slice(None, None, -1)
# The slot in which plain tensors have their array, and which a view hides.
_SLOT: Final[Any] = vars(Operators)["native"]
# Added to addresses that count from a storage's start, of which none may be null.
_SOMEWHERE: Final = 1 << 20
_READ_ONLY: Final = ReadOnlyError(
    "a view for reading, by x.slice(...) or by broadcasting, cannot be written to; "
    "take x.slice_mut(...), or write to a .copy() of it"
)
_TRACED: Final = UnsupportedOpError(
    "a tensor that is traced cannot be written to once it has views, and they cannot; "
    "use ops.where, or write to a .copy()"
)
_LEAF: Final = (
    "a tensor made with requires_grad=True cannot be written to where gradients are recorded: its "
    "own would be lost; write within em.no_grad(), or to a .copy()"
)


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


# --- Homes --------------------------------------------------------------------------------------


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
    with _CREATION:
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
    return Window(storage, layout, _base(x, storage))


def _base(x: Tensor, storage: Storage) -> NativeArray:
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
    out = object.__new__(TensorViewMut if writable else TensorView)
    out._spec = x._spec
    if type(home) is Window:
        out._home = Window(home.storage, layout, home.base)
    else:
        out._home = window_on(x, layout)
    return out


# --- Making views -------------------------------------------------------------------------------


def quick_slice(x: Tensor, key: Any) -> Tensor | None:
    """`x[key]` for what is written most: ints and slices; None where it takes a closer look."""
    if type(key) is tuple:
        for item in key:
            if type(item) not in _QUICK_ITEMS:
                return None
        if len(key) > 1 and key.count(...) > 1:
            return None
    elif type(key) is slice or type(key) is int:
        key = (key,)
    else:
        return None
    home = getattr(x, "_home", None)
    spec = x._spec
    if type(x) is Tensor and spec.backend.mutable:
        if not _is_open(x, home):
            return None
        try:
            native = x.native[key]
            if type(native) is not spec.native_type:
                native = x.native[(*key, ...)]  # NumPy gives a scalar for one element
        except Exception:
            return None  # the long way finds out, and says what is wrong
        return _native_view(x, native, home)
    if type(home) is Window:
        storage, layout, base = home.storage, home.layout, home.base
        if type(storage.native) is not spec.native_type and spec.backend.mutable:
            return None
    elif type(x) is not Tensor or not spec.backend.windows:
        return None
    else:
        storage = home if type(home) is Storage else storage_of(x)
        layout, base = contiguous(x.shape), None
    try:
        layout = layout.at(key)
    except IndexError:
        return None
    out = object.__new__(TensorView if type(x) is TensorView else TensorViewMut)
    out._spec = spec
    out._home = Window(storage, layout, base)
    return out


def quick_window(x: Tensor, items: tuple[Any, ...], writable: bool) -> Tensor | None:
    """A window by ints, slices and (start, stop[, step]); None where it takes a closer look."""
    if type(x) is GradTensor or not x._spec.backend.windows:
        return None
    home = getattr(x, "_home", None)
    spec = x._spec
    if type(home) is Window:
        storage, layout, base = home.storage, home.layout, home.base
    else:
        storage, layout = home if type(home) is Storage else storage_of(x), contiguous(x.shape)
        base = _base(x, storage)
    try:
        key = [slice(*k) if type(k) is tuple and len(k) > 1 else k for k in items]
        shown = layout.quick(key)
    except (TypeError, ValueError):
        return None
    if shown is None:
        return None  # the long way finds out, and says what is wrong
    if writable:
        require_writable(x)
    out = object.__new__(TensorViewMut if writable else TensorView)
    out._spec = spec
    out._home = Window(storage, shown, base)
    return out


def quick_reshape(x: Any, shape: Any) -> Tensor | None:
    """`x.reshape(shape)` for a tuple of ints; None where it takes a closer look."""
    if type(shape) is not tuple or not isinstance(x, Tensor):
        return None
    home = getattr(x, "_home", None)
    spec = x._spec
    if spec.backend.mutable:
        if type(x) is not Tensor or not _is_open(x, home):
            return None
        try:
            native = spec.backend.entry(spec, "reshape")[0](x.native, shape)
        except Exception:
            return None
        if spec.backend.is_view(native, x.native):
            return _native_view(x, native, home)
        return fill(native, spec)
    for side in shape:
        if type(side) is not int:
            return None
    if type(home) is Window:
        known = home.layout
    elif type(x) is Tensor and spec.backend.windows:
        known = contiguous(x.shape)
    else:
        return None
    layout = reshaped(known, shape)
    return None if layout is None else view_on(x, layout)


def _is_open(x: Tensor, home: Any) -> bool:
    """True where a plain tensor is free, or in a family whose engine's views are kept track of."""
    if home is None or type(home) is list:
        return not x._spec.backend.is_borrowed(x.native)
    if type(home) is Storage:
        return not home.is_borrowed
    return type(home) is Tensor


def sliced(x: Tensor, key: tuple[Any, ...]) -> Tensor:
    """`x[key]` for a checked key without arrays: a view."""
    spec = x._spec
    backend = spec.backend
    if _is_apart(x):
        native = _read(x, key)
        if type(native) is not spec.native_type:
            native = backend.settle_native(native, spec)
        if type(x) is not GradTensor:
            return _unshared(x, fill(native, spec), "getitem", (key,))
        out = tape.recorded("getitem", native, spec, (x,), (key,))
        return _unshared(x, out, "getitem", (key,))
    if not _has_native_views(x) or (not backend.reverses and _turns(key)):
        return view_on(x, layout_of(x).at(key))
    native = _read(x, key)
    if type(native) is not spec.native_type:
        native = backend.settle_native(native, spec)
    return _native_view(x, native, home_of(x))


def rearranged(name: str, x: Tensor, *options: Any) -> Tensor:
    """The result of an op that only rearranges: a view, or a copy where no view describes it."""
    backend = x._spec.backend
    home = getattr(x, "_home", None)
    if type(home) is Window and (
        not backend.mutable or type(home.storage.native) is x._spec.native_type
    ):
        layout = arranged(home.layout, name, options)
        if layout is not None:
            return view_on(x, layout, writable=name != "broadcast_to")
    elif (
        type(x) is Tensor
        and backend.windows
        and (not backend.mutable or type(x.native) is x._spec.native_type)
    ):
        if name == "flip" and backend.reverses:
            quick = quick_slice(x, _turning(x.ndim, options[0]))
            if quick is not None:
                return quick
        elif name == "flip" or (name in _ORDERS and not backend.mutable):
            return view_on(x, arranged(contiguous(x.shape), name, options))  # type: ignore[arg-type]  # these have a layout
        elif name in _ORDERS and _is_open(x, home):
            return _native_view(x, backend.entry(x._spec, name)[0](x.native, *options), home)
    from ember_ml.ops import dispatch

    if _is_apart(x):
        return _unshared(x, dispatch.call(name, x, *options), name, options)
    if name == "flip" and (backend.reverses or not options[0]):
        return sliced(x, (*_turning(x.ndim, options[0]), ...))
    if _has_native_views(x) and name != "flip":
        out = dispatch.call(name, x, *options)
        if name == "reshape" and not backend.is_view(out.native, x.native):
            return out
        made = _native_view(x, out.native, home_of(x))
        if name == "broadcast_to" and not isinstance(home_of(x), Refusal):
            made._home = Refusal(_READ_ONLY, x)
        return made
    layout = arranged(layout_of(x), name, options)
    if layout is None:
        return dispatch.call(name, x, *options)
    return view_on(x, layout, writable=name != "broadcast_to")


def _turning(ndim: int, axes: tuple[int, ...]) -> tuple[slice, ...]:
    """The key that reverses some axes."""
    if len(axes) == ndim:
        return (_TURNED,) * ndim
    return tuple(_TURNED if axis in axes else _ALL for axis in range(ndim))


def _native_view(x: Tensor, native: NativeArray, home: Any) -> Tensor:
    """A plain tensor around an engine's view of `x`; it is remembered, to move with its memory."""
    out = fill(native, x._spec)
    if type(home) is Refusal:
        out._home = home
        if home.root is None:
            return out
        x, home = home.root, home_of(home.root)
        x, home = (home, home._home) if isinstance(home, Tensor) else (x, home)
    else:
        x, home = (home, home._home) if isinstance(home, Tensor) else (x, home)
        out._home = x
    if home is None:
        with _CREATION:
            home = home_of(x)
            if home is None:
                home = x._home = []
    if type(home) is list:
        remember(home, out)
    else:
        home.follow(out)
    return out


def _is_apart(x: Tensor) -> bool:
    """True where a view of `x` is the result of an op: it is recorded, or traced."""
    if type(x) is GradTensor:
        backend = x._spec.backend
        return (
            backend.records
            or not backend.windows
            or tape.is_grad_enabled()
            or type(home_of(x)) is Member
        )
    return type(home_of(x)) is Member or _is_traced(x)


def _unshared(x: Tensor, out: Tensor, name: str, options: tuple[Any, ...]) -> Tensor:
    """A view that is the result of an op: see tensor/families.py. What is traced is not written."""
    if x._spec.backend.records:
        return out
    if type(x) is not GradTensor and type(home_of(x)) is not Member:
        if not x._spec.backend.windows:
            storage_of(x).follow(out)  # while it lives, a write would have to be seen in it
            out._home = Refusal(_TRACED)
            return out
        out._home = x._home = Refusal(_TRACED)
    elif type(out) is GradTensor or not x._spec.backend.mutable:
        families.join(x, out, (name, options))
    return out


def _has_native_views(x: Tensor) -> bool:
    """True where the engine's own views of `x` can be relied on."""
    backend = x._spec.backend
    if not backend.mutable:
        return False
    home = home_of(x)
    if home is None or isinstance(home, list):
        return not backend.is_borrowed(x.native)
    if isinstance(home, Window | Loan):
        return False
    return not (isinstance(home, Storage) and home.is_borrowed)


def _is_traced(x: Tensor) -> bool:
    """True where the engine's own views of what a compiler traces are not kept track of."""
    home = home_of(x)
    if not x._spec.backend.mutable:
        # Windows need no memory: they serve traced arrays as any others.
        return not x._spec.backend.windows
    native = home.storage.native if isinstance(home, Window) else x.native
    return type(native) is not x._spec.native_type and x._spec.backend.is_traced(native)


def _turns(key: tuple[Any, ...]) -> bool:
    return any(isinstance(k, slice) and k.step is not None and k.step < 0 for k in key)


def _read(x: Tensor, key: tuple[Any, ...]) -> NativeArray:
    try:
        return x._spec.backend.getitem(x.native, key)
    except Exception as error:
        raise explain("__getitem__", error, (x,), options=(key,)) from error


# --- Sharing ------------------------------------------------------------------------------------


def alias(x: Tensor) -> Tensor:
    """Another tensor on the same memory: what is written to one is seen in the other."""
    home = home_of(x)
    if _is_traced(x):
        return like(x, x.native)
    if type(x) is GradTensor or type(home) is Member:
        out = like(x, x.native)
        return out if x._spec.backend.records else families.join(x, out)
    return _alias(x)


def detached(x: Tensor) -> Tensor:
    """Another tensor on the same memory, through which no gradient passes."""
    backend = x._spec.backend
    home = home_of(x)
    if type(x) is not GradTensor:
        root = home.storage.native if type(home) is Window else x.native
        if not backend.is_differentiated(root):
            return alias(x)
        return fill(backend.detach(x.native), x._spec)
    if backend.records or _is_traced(x):
        out = fill(backend.detach(x.native), x._spec)
        if backend.records and not _is_traced(x):
            storage_of(out).recorded = True
        return out
    if type(home) is not Member:
        return _alias(x)
    out = fill(x.native, x._spec)
    return out if backend.mutable else families.join(x, out)


def _alias(x: Tensor) -> Tensor:
    """Another tensor on the same memory, without a record."""
    home = home_of(x)
    if isinstance(home, Window):
        out = object.__new__(type(x))
        out._spec = x._spec
        out._home = Window(home.storage, home.layout, home.base)
        return out
    if isinstance(home, Tensor | Refusal):
        return _native_view(x, x.native, home)
    storage = storage_of(x)
    with storage.lock:
        if isinstance(x._home, Window):  # turned into a view by another thread
            return _alias(x)
        out = fill(storage.native, x._spec)
        out._home = storage
        storage.mirror(out)
    return out


def clone(x: Tensor) -> Tensor:
    """A tensor of the same values, whose memory is copied when one of the two is written to."""
    spec = x._spec
    home = getattr(x, "_home", None)
    if type(x) is GradTensor:
        native = spec.backend.copy(x.native) if spec.backend.mutable else x.native
        return tape.recorded("copy", native, spec, (x,))
    if not spec.backend.mutable:
        if not isinstance(home, Window) or home.layout.repeats:
            return fill(x.native, spec)
        view = object.__new__(TensorViewMut)
        view._spec = spec
        with home.storage.lock:
            view._home = Window(Storage(home.storage.native, spec), home.layout)
        return view
    storage = home.storage if type(home) is Loan else storage_of(x)
    if storage.recorded:  # nobody would tell the clone of a write
        return fill(spec.backend.copy(x.native), spec)
    with storage.lock:
        if type(home) is Loan and x._home is not home:  # another thread has written meanwhile
            return clone(x)
        out = blank()
        out.native = x.native
        out._spec = spec
        out._home = storage.lend(out)
        return out


def shares_memory(x: Tensor, y: Tensor) -> bool:
    """True where a write to one tensor can change the other."""
    if x._spec.backend is not y._spec.backend or not (x.size and y.size):
        return False
    backend = x._spec.backend
    if backend.mutable:
        first, second = storage_of(x), storage_of(y)
        if first is not second and (first.is_borrowed or second.is_borrowed):
            return False
        return _overlap(backend.memory_of(_memory(x)), backend.memory_of(_memory(y)))
    first, second = storage_of(x), storage_of(y)
    if first is not second:
        return False
    size = x._spec.dtype.itemsize
    a, b = layout_of(x), layout_of(y)
    return _overlap(
        (a.offset * size, a.shape, tuple(s * size for s in a.strides), size),
        (b.offset * size, b.shape, tuple(s * size for s in b.strides), size),
    )


def _memory(x: Tensor) -> NativeArray:
    """A native array in the memory of `x` that covers it."""
    home = home_of(x)
    if not isinstance(home, Window):
        return x.native
    native = x.native
    root = home.storage.native if home.base is None else home.base
    return native if x._spec.backend.shares_memory(root, native) else root


# Where an array lies: its first address, its shape, its strides in bytes, bytes of an element.
Extent = tuple[int, tuple[int, ...], tuple[int, ...], int]


def _overlap(a: Extent, b: Extent) -> bool:
    """True where two arrays have a byte in common; NumPy works it out from the addresses."""
    return bool(np.shares_memory(np.asarray(_Placed(a)), np.asarray(_Placed(b))))


class _Placed:
    """An array at an address that is never read."""

    def __init__(self, extent: Extent) -> None:
        address, shape, strides, itemsize = extent
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{itemsize}",
            "shape": shape,
            "strides": strides,
            "data": (_SOMEWHERE + address, True),
        }


def strides_and_offset(x: Tensor) -> tuple[tuple[int, ...], int]:
    """The strides of a tensor in its storage and where it starts, in elements."""
    home = home_of(x)
    if not x.size:
        return strides_of(x.shape), 0
    if isinstance(home, Window):
        layout = home.layout
        if home.base is not None or x._spec.backend.mutable:
            root = home.storage.native if home.base is None else home.base
            layout = _in_memory(layout, root, home.storage)
    elif x._spec.backend.mutable:
        layout = _in_memory(contiguous(x.shape), x.native, storage_of(x))
    else:
        layout = contiguous(x.shape)
    return _tidy(layout), layout.offset


def _in_memory(layout: Layout, root: NativeArray, storage: Storage) -> Layout:
    """A layout of the elements of `root` as one of the memory in which they lie."""
    backend = storage.spec.backend
    size = storage.spec.dtype.itemsize
    address, shape, strides, _ = backend.memory_of(root)
    start = (address - backend.memory_of(storage.native)[0]) // size
    steps = tuple(stride // size for stride in strides)
    found = plan_of(shape, layout)
    if found is None or found[0].root != shape:
        return Layout(layout.shape, layout.strides, layout.offset + start)
    plan, starts = found
    offset = start + sum(low * step for low, step in zip(starts, steps, strict=True))
    offset += sum((plan.counts[a] - 1) * plan.steps[a] * steps[a] for a in plan.turned)
    axes = iter(plan.order)
    made = []
    for side, stride in zip(layout.shape, layout.strides, strict=True):
        if side == 1 or not stride:
            made.append(0)
            continue
        axis = next(axes)
        made.append(plan.steps[axis] * steps[axis] * (-1 if axis in plan.turned else 1))
    return Layout(layout.shape, tuple(made), offset)


def _tidy(layout: Layout) -> tuple[int, ...]:
    """Strides in which axes of length one have the one that they would have in an array."""
    out: list[int] = []
    beyond = 1
    for side, stride in zip(reversed(layout.shape), reversed(layout.strides), strict=True):
        out.append(beyond if side == 1 else stride)
        beyond = out[-1] * side
    return tuple(reversed(out))


# --- Writing ------------------------------------------------------------------------------------


def put(x: Tensor, key: tuple[Any, ...], advanced: bool, value: NativeArray) -> None:
    """Write a value of the dtype of `x` at a checked key."""
    storage = writable_storage(x)
    with storage.lock:
        _put(x, storage, key, advanced, value)
        storage.version += 1


def _put(
    x: Tensor, storage: Storage, key: tuple[Any, ...], advanced: bool, value: NativeArray
) -> None:
    backend = x._spec.backend
    home = home_of(x)
    if advanced or not backend.windows:
        if isinstance(home, Window):
            home.write(backend.setitem(_loose(x), key, value))
        elif backend.mutable:
            storage.prepare()
            _settle(x, storage, backend.setitem(x.native, key, value))
        else:
            _set(storage, backend.setitem(x.native, key, value))
        return
    if not isinstance(home, Window) and backend.mutable:
        storage.prepare()
        _settle(x, storage, backend.setitem(x.native, key, value))
        return
    layout = layout_of(x).at(key)
    value = _fitted(x._spec, value, layout.shape)
    if not backend.mutable:
        _open(storage)
    Window(storage, layout, home.base if isinstance(home, Window) else None).write(value)


def assign(x: Tensor, result: Tensor) -> None:
    """Write a new result of the dtype and shape of `x` over all of it; the lock is held."""
    storage = writable_storage(x)
    backend = x._spec.backend
    home = home_of(x)
    if isinstance(home, Window):
        home.write(result.native)
    elif not backend.mutable:
        _set(storage, result.native)
    elif storage.is_borrowed:
        storage.own(result.native)
    else:
        storage.prepare()
        _settle(x, storage, backend.assign(x.native, result.native))
    storage.version += 1


def replace(x: Tensor, result: Tensor) -> None:
    """Make `x` the result of a write by which it needs gradients, or goes on to need them.

    Off torch this is how such tensors are written to: what was recorded of the old values stays
    true, since their memory does not change unless others share it.
    """
    backend = x._spec.backend
    if backend.records:
        record(x, lambda native: backend.assign(native, result.native))
        return
    if backend.leaks(x.native, result.native) and not (
        backend.compiler.makes_values and note(x, x.native)
    ):
        raise TraceError(FROM_OUTSIDE)
    _require_recordable(x)
    before = x._node if type(x) is GradTensor else None
    if type(x) is not GradTensor or home_of(x) is None:
        x.__class__ = GradTensor  # a large tensor that was written to is a window on itself
        x._home = None
        x.native = result.native
    else:
        assign(x, result)
    x._node = result._node
    families.retrace(x, before)


def record(x: Tensor, write: Callable[[NativeArray], NativeArray]) -> None:
    """Run a write on the array of `x`, which the engine itself records."""
    _require_recordable(x)
    try:
        native = write(x.native)
    except Exception as error:
        explained = x._spec.backend.gradients.explained(error)
        if explained is None:
            raise
        raise explained from error
    if type(x) is not GradTensor:
        x.__class__ = GradTensor
        x._home = None
    x.native = native


def _require_recordable(x: Tensor) -> None:
    """Raise where a tensor cannot become the result of a write."""
    if type(x) is GradTensor:
        if x.is_leaf:
            raise GradientError(_LEAF)
        return
    if type(home_of(x)) is Loan:
        storage_of(x)
    if type(home_of(x)) is Storage and x._spec.backend.mutable:
        with x._home.lock:
            x._home.prepare()
    kind = type(home_of(x))
    if kind is list:
        alone = all(one() is None for one in x._home)
    elif kind is Storage:
        alone = is_held_alone(x._home)
    elif kind is Window and type(x) is TensorViewMut and x._home.base is None:
        alone = x._home.is_whole and is_held_alone(x._home.storage)
    else:
        alone = kind is type(None)
    if not alone:
        raise UnsupportedOpError(
            "values that need gradients cannot be written to a tensor that is a view or has "
            "views; write to a .copy(), or use ops.index_update"
        )


def writable_storage(x: Tensor) -> Storage:
    """The storage of a tensor that is to be written to; raises where it must not be."""
    require_writable(x)
    return storage_of(x)


def require_writable(x: Tensor) -> None:
    """Raise where a tensor must not be written to."""
    home = getattr(x, "_home", None)
    if type(home) is Refusal:
        raise type(home.error)(*home.error.args)
    if type(home) is Storage and not home.spec.backend.windows and home.has_views():
        raise UnsupportedOpError(*_TRACED.args)
    if type(x) is TensorView:
        raise ReadOnlyError(*_READ_ONLY.args)
    if type(home) is Member:
        families.require_alone(x, home)


def _settle(x: Tensor, storage: Storage, native: NativeArray) -> None:
    """Take the array to which an engine wrote, where it is not the one it was given."""
    if native is x.native:
        return
    if x.native is storage.native:
        storage.replace(native)
    else:
        raise DomainError("this view lies in memory that cannot be written to; write to a .copy()")


def _set(storage: Storage, native: NativeArray) -> None:
    if active_count() > 1:  # a lazy array could be computed in this thread alone
        with suppress(UnsupportedOpError):  # and not at all while a function is traced
            storage.spec.backend.finish(native)
    storage.take(native)


def _open(storage: Storage) -> None:
    """Let the plain tensors of a large storage read through windows: it alone has its array then.

    A functional update can then reuse the memory of the old array. A thread that has read the
    array holds a reference, and is seen by that.
    """
    aliases = storage.aliases()
    if storage.nbytes < _SMALL or any(type(x) is GradTensor for x in aliases):
        return
    for x in aliases:
        x._home = Window(storage, contiguous(x.shape))
        x.__class__ = TensorViewMut
        _SLOT.__delete__(x)
    storage.forget_aliases()


def _loose(x: Tensor) -> NativeArray:
    """The values of a window in an array that may be written to."""
    backend = x._spec.backend
    return backend.copy(x.native) if backend.mutable else x.native


def _fitted(spec: Spec, value: NativeArray, shape: tuple[int, ...]) -> NativeArray:
    """A value whose shape broadcasts; leading axes of length one may fall away, as in NumPy."""
    given = tuple(value.shape)
    excess = len(given) - len(shape)
    if excess > 0 and given[:excess] == (1,) * excess:
        value = spec.backend.kernels.reshape(value, given[excess:])
        given = given[excess:]
    wide = (1,) * (len(shape) - len(given)) + given
    if len(wide) != len(shape) or any(a not in (1, b) for a, b in zip(wide, shape, strict=True)):
        raise ShapeError(
            f"x[key] = value got a value of shape {given} for elements of shape {shape}"
        )
    return value


def require_same(x: Tensor, result: Tensor) -> None:
    """Raise where an in-place operation would change the dtype or the shape of a tensor."""
    if result._spec is not x._spec:
        raise DTypeError(
            f"an in-place operation on a {x.dtype} tensor would give {result.dtype}; "
            f"write x = x + y instead, or cast first"
        )
    if result.shape != x.shape:
        raise ShapeError(
            f"an in-place operation on shape {x.shape} would give shape {result.shape}; "
            f"write x = x + y instead"
        )
