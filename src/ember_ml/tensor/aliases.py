"""Tensors over the memory of others: aliases, clones, and who shares memory with whom."""

from __future__ import annotations

from typing import Final

import numpy as np

from ember_ml.autodiff import tape
from ember_ml.backend.contract import NativeArray
from ember_ml.tensor import families
from ember_ml.tensor.core import GradTensor, Tensor, blank, fill, like, new
from ember_ml.tensor.families import Member
from ember_ml.tensor.homes import home_of, layout_of, storage_of
from ember_ml.tensor.layout import Layout, contiguous, plan_of, strides_of
from ember_ml.tensor.storage import Loan, Refusal, Storage, Window
from ember_ml.tensor.views import is_traced, native_view
from ember_ml.tensor.windows import TensorViewMut

__all__ = ["alias", "clone", "detached", "shares_memory", "strides_and_offset"]

# Added to addresses that count from a storage's start, of which none may be null.
_SOMEWHERE: Final = 1 << 20


def alias(x: Tensor) -> Tensor:
    """Another tensor on the same memory: what is written to one is seen in the other."""
    home = home_of(x)
    if is_traced(x):
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
    if backend.records or is_traced(x):
        out = fill(backend.detach(x.native), x._spec)
        if backend.records and not is_traced(x):
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
        out = new(type(x))
        out._spec = x._spec
        out._home = Window(home.storage, home.layout, home.base)
        return out
    if isinstance(home, Tensor | Refusal):
        return native_view(x, x.native, home)
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
        view = new(TensorViewMut)
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
