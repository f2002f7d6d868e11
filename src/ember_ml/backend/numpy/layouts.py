"""Reading and writing parts of arrays by layout."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml.tensor.layout import Layout, plan_of

__all__ = ["read", "rebase", "write"]

Array = Any  # np.ndarray of any dtype


def read(root: Array, layout: Layout) -> Array:
    """The elements of `root`, in C order, that a layout names: a view, where strides allow."""
    if not layout.size:
        return np.empty(layout.shape, root.dtype)
    view = _view(root, layout)
    return root.reshape(-1)[layout.indices()] if view is None else view


def write(root: Array, layout: Layout, value: Array) -> None:
    """Write a value, which broadcasts, to the elements of `root` that a layout names."""
    view = _view(root, layout)
    if view is None:
        root.flat[layout.indices().reshape(-1)] = np.broadcast_to(value, layout.shape).reshape(-1)
    else:
        view[...] = value


def _view(root: Array, layout: Layout) -> Array | None:
    if root.flags.c_contiguous:
        strides = tuple(stride * root.itemsize for stride in layout.strides)
        start = root.reshape(-1)[layout.offset :]
        view = np.lib.stride_tricks.as_strided(start, layout.shape, strides)
        # as_strided asks NumPy for the dtype by name, which loses those of ml_dtypes.
        return view if view.dtype == root.dtype else view.view(root.dtype)
    found = plan_of(root.shape, layout)
    if found is None or found[0].root != root.shape:
        return None
    plan, starts = found
    part = root[plan.key(starts)] if plan.root else root
    part = np.flip(part, plan.turned) if plan.turned else part
    part = part.transpose(plan.permutation).reshape(plan.core)
    return part if plan.core == plan.shape else np.broadcast_to(part, plan.shape)


def rebase(view: Array, old: Array, new: Array) -> Array:
    """A view of `old` as a view of `new`, whose elements lie in the same order."""
    start = view.ctypes.data - old.ctypes.data
    return np.asarray(_Moved(view, new, start)).view(view.dtype)


class _Moved:
    """An array by its address: as_strided cannot begin elsewhere than its array does."""

    def __init__(self, view: Array, new: Array, start: int) -> None:
        self.kept = new
        self.__array_interface__ = view.__array_interface__ | {
            "data": (new.ctypes.data + start, not view.flags.writeable),
            "strides": view.strides,
        }
