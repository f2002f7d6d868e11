"""Scatter on NumPy: `ufunc.at` over one flat axis, the only form for which it has a quick loop.

For a million float32 values in ten thousand places that takes 1.3 ms, where `np.bincount` takes
2.1 ms and sorting with `reduceat` 110 ms; of several axes, `ufunc.at` is a tenth as quick.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ember_ml.backend import aligned
from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.numpy.kernels import quiet
from ember_ml.backend.portable.scattering import flat_parts, require_range

__all__ = ["OVERRIDES"]

# Kernels take arrays of any dtype, which NumPy's own annotations cannot follow.
Array = NativeArray


def _positions(name: str, values: Array, indices: Array, axis: int, size: int) -> Array:
    """Where in the flat result each value goes."""
    if values.ndim == 1:
        return indices
    # An index beyond its axis would be a place of another row.
    if require_range(name, indices, size):
        indices = np.where(indices < 0, indices + size, indices)
    stride, offsets = flat_parts(values.shape, axis, size)
    if indices.ndim == 1:
        indices = indices.reshape(tuple(-1 if i == axis else 1 for i in range(values.ndim)))
    return np.broadcast_to(indices * stride + offsets, values.shape).reshape(-1)


def _scatter(name: str, ufunc: np.ufunc, start: int | None) -> Kernel:
    def kernel(values: Array, indices: Array, axis: int, size: int) -> Any:
        shape = (*values.shape[:axis], size, *values.shape[axis + 1 :])
        wide = values
        if values.dtype.itemsize == 2 and values.dtype.kind == "f" and start is not None:
            wide = values.astype(np.float32)
        places = _positions(name, values, indices, axis, size)
        flat = wide.reshape(-1)
        out: Any = aligned.full((math.prod(shape),), start or 0, wide.dtype)
        try:
            if start is None:
                out[places] = flat  # any value of a place is a good first one
            ufunc.at(out, places, flat)
        except IndexError:
            require_range(name, indices, size)
            raise
        return out.reshape(shape).astype(values.dtype, copy=False)

    return quiet(kernel)


OVERRIDES: Final[dict[str, Kernel]] = {
    "scatter_add": _scatter("scatter_add", np.add, 0),
    "scatter_mul": _scatter("scatter_mul", np.multiply, 1),
    "scatter_max": _scatter("scatter_max", np.maximum, None),
    "scatter_min": _scatter("scatter_min", np.minimum, None),
}
