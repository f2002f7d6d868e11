"""Writes to tensors, seen by every view of the same memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import active_count
from typing import Any, Final

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
from ember_ml.tensor import families
from ember_ml.tensor.cell import Cell
from ember_ml.tensor.core import GradTensor, Tensor
from ember_ml.tensor.families import Member
from ember_ml.tensor.homes import home_of, layout_of, storage_of
from ember_ml.tensor.layout import contiguous
from ember_ml.tensor.storage import Loan, Refusal, Storage, Window, is_held_alone
from ember_ml.tensor.windows import TensorView, TensorViewMut

__all__ = [
    "READ_ONLY",
    "TRACED",
    "assign",
    "put",
    "record",
    "replace",
    "require_same",
    "require_writable",
    "writable_storage",
]

# Below this, a tensor on an engine without writes is copied by each, and stays on the fast path.
_SMALL: Final = 1 << 16
# The slot in which plain tensors have their array, and which a view hides.
_SLOT: Final[Any] = vars(Cell)["native"]
TRACED: Final = UnsupportedOpError(
    "a tensor that is traced cannot be written to once it has views, and they cannot; "
    "use ops.where, or write to a .copy()"
)
READ_ONLY: Final = ReadOnlyError(
    "a view for reading, by x.slice(...) or by broadcasting, cannot be written to; "
    "take x.slice_mut(...), or write to a .copy() of it"
)
_LEAF: Final = (
    "a tensor made with requires_grad=True cannot be written to where gradients are recorded: its "
    "own would be lost; write within em.no_grad(), or to a .copy()"
)


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
        raise UnsupportedOpError(*TRACED.args)
    if type(x) is TensorView:
        raise ReadOnlyError(*READ_ONLY.args)
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
