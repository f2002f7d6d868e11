"""Views: tensors that show the memory of another, on every backend alike.

`x[1:3]`, `x.T`, `x.reshape(...)` and the like are views wherever strides can describe them. A write
through one is seen by all others. On NumPy and torch a view is mostly a plain tensor around the
engine's view; where the engine has none (JAX, MLX, torch's reversed axes), where memory is borrowed
(clones), and for `slice` and `slice_mut`, it is a TensorView: a window that reads when it is used.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

from typing import Any, Final

from ember_ml.autodiff import tape
from ember_ml.backend.contract import NativeArray
from ember_ml.ops.explain import explain
from ember_ml.tensor import families
from ember_ml.tensor.cell import Cell, fill
from ember_ml.tensor.core import GradTensor, Tensor, new
from ember_ml.tensor.families import Member
from ember_ml.tensor.homes import (
    CREATION,
    base_of,
    home_of,
    layout_of,
    storage_of,
    view_on,
)
from ember_ml.tensor.layout import arranged, contiguous, reshaped
from ember_ml.tensor.storage import Loan, Refusal, Storage, Window, remember
from ember_ml.tensor.windows import TensorView, TensorViewMut
from ember_ml.tensor.writing import READ_ONLY, TRACED, require_writable

__all__ = [
    "is_traced",
    "native_view",
    "quick_reshape",
    "quick_slice",
    "quick_window",
    "rearranged",
    "sliced",
]

# What a key without arrays is made of; a slice that runs backwards is found out later.
_QUICK_ITEMS: Final = frozenset((int, slice, type(None), type(...)))
# Ops that put the axes in another order: every engine with views has a view for these.
_ORDERS: Final = frozenset(("matrix_transpose", "permute_dims"))
_ALL: Final = slice(None)
_TURNED: Final = slice(None, None, -1)


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
    home: Any = getattr(x, "_home", None)
    cell: Cell = x  # type: ignore[assignment]  # a Tensor is one, which type checkers do not see
    spec = cell._spec
    if type(x) is Tensor and spec.mutable:
        if not _is_open(x, home):
            return None
        try:
            native = cell.native[key]
            if type(native) is not spec.native_type:
                native = cell.native[(*key, ...)]  # NumPy gives a scalar for one element
        except Exception:
            return None  # the long way finds out, and says what is wrong
        return native_view(x, native, home)
    if type(home) is Window:
        storage, layout, base = home.storage, home.layout, home.base
        if type(storage.native) is not spec.native_type and spec.mutable:
            return None
    elif type(x) is GradTensor and spec.records:
        # Such a view is the result of an op, which the engine records: see `sliced`.
        try:
            native = x.native[key]
        except Exception:
            return None
        if type(native) is not spec.native_type:
            return None
        return tape.recorded("getitem", native, spec, (x,), (key,))
    elif type(x) is not Tensor or not spec.windows:
        return None
    else:
        storage = home if type(home) is Storage else storage_of(x)
        layout, base = contiguous(x.shape), None
    try:
        layout = layout.at(key)
    except IndexError:
        return None
    out = new(TensorView if type(x) is TensorView else TensorViewMut)
    out._spec = spec
    out._home = Window(storage, layout, base)
    return out


def quick_window(x: Tensor, items: tuple[Any, ...], writable: bool) -> Tensor | None:
    """A window by ints, slices and (start, stop[, step]); None where it takes a closer look."""
    cell: Cell = x  # type: ignore[assignment]  # as above
    spec = cell._spec
    if type(x) is GradTensor or not spec.windows:
        return None
    home: Any = getattr(x, "_home", None)
    if type(home) is Window:
        storage, layout, base = home.storage, home.layout, home.base
    else:
        storage, layout = home if type(home) is Storage else storage_of(x), contiguous(x.shape)
        base = base_of(x, storage)
    try:
        key = [slice(*k) if type(k) is tuple and len(k) > 1 else k for k in items]
        shown = layout.quick(key)
    except (TypeError, ValueError):
        return None
    if shown is None:
        return None  # the long way finds out, and says what is wrong
    if writable and home is not None and type(home) is not list and type(home) is not Storage:
        require_writable(x)
    out = new(TensorViewMut if writable else TensorView)
    out._spec = spec
    out._home = Window(storage, shown, base)
    return out


def quick_reshape(x: Any, shape: Any) -> Tensor | None:
    """`x.reshape(shape)` for a tuple of ints; None where it takes a closer look."""
    if type(shape) is not tuple or not isinstance(x, Tensor):
        return None
    home: Any = getattr(x, "_home", None)
    cell: Cell = x  # type: ignore[assignment]  # as above
    spec = cell._spec
    if spec.mutable:
        if type(x) is not Tensor or not _is_open(x, home):
            return None
        try:
            native = spec.kernel("reshape")(cell.native, shape)
        except Exception:
            return None
        if spec.backend.is_view(native, cell.native):
            return native_view(x, native, home)
        return fill(native, spec)
    for side in shape:
        if type(side) is not int:
            return None
    if type(home) is Window:
        known = home.layout
    elif type(x) is Tensor and spec.windows:
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
    return native_view(x, native, home_of(x))


def rearranged(name: str, x: Tensor, *options: Any) -> Tensor:
    """The result of an op that only rearranges: a view, or a copy where no view describes it."""
    cell: Cell = x  # type: ignore[assignment]  # as above
    spec = cell._spec
    backend = spec.backend
    home: Any = getattr(x, "_home", None)
    if type(home) is Window and (not spec.mutable or type(home.storage.native) is spec.native_type):
        layout = arranged(home.layout, name, options)
        if layout is not None:
            return view_on(x, layout, writable=name != "broadcast_to")
    elif (
        type(x) is Tensor
        and spec.windows
        and (not spec.mutable or type(cell.native) is spec.native_type)
    ):
        if name == "flip" and backend.reverses:
            quick = quick_slice(x, _turning(x.ndim, options[0]))
            if quick is not None:
                return quick
        elif name == "flip" or (name in _ORDERS and not spec.mutable):
            return view_on(x, arranged(contiguous(x.shape), name, options))  # type: ignore[arg-type]  # these have a layout
        elif name in _ORDERS and _is_open(x, home):
            return native_view(x, spec.kernel(name)(cell.native, *options), home)
    from ember_ml.ops import dispatch

    if _is_apart(x):
        return _unshared(x, dispatch.call(name, x, *options), name, options)
    if name == "flip" and (backend.reverses or not options[0]):
        return sliced(x, (*_turning(x.ndim, options[0]), ...))
    if _has_native_views(x) and name != "flip":
        out = dispatch.call(name, x, *options)
        if name == "reshape" and not backend.is_view(out.native, x.native):
            return out
        made = native_view(x, out.native, home_of(x))
        if name == "broadcast_to" and not isinstance(home_of(x), Refusal):
            made._home = Refusal(READ_ONLY, x)
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


def native_view(x: Tensor, native: NativeArray, home: Any) -> Tensor:
    """A plain tensor around an engine's view of `x`; it is remembered, to move with its memory."""
    cell: Cell = x  # type: ignore[assignment]  # as above
    out: Tensor = fill(native, cell._spec)
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
        with CREATION:
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
    return type(home_of(x)) is Member or is_traced(x)


def _unshared(x: Tensor, out: Tensor, name: str, options: tuple[Any, ...]) -> Tensor:
    """A view that is the result of an op: see tensor/families.py. What is traced is not written."""
    if x._spec.backend.records:
        return out
    if type(x) is not GradTensor and type(home_of(x)) is not Member:
        if not x._spec.backend.windows:
            storage_of(x).follow(out)  # while it lives, a write would have to be seen in it
            out._home = Refusal(TRACED)
            return out
        out._home = x._home = Refusal(TRACED)
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


def is_traced(x: Tensor) -> bool:
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
