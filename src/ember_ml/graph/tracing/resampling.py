"""Resizing of axes whose lengths vary: which values, and how much of each, is worked out by nodes.

Places are fractions of whole numbers: a value and its share are exact for axes of every length.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.backend.portable.resizing import CUBIC
from ember_ml.backend.portable.resizing import resample as portable
from ember_ml.graph.tracing.indexing import ranged
from ember_ml.graph.tracing.moving import reshaped
from ember_ml.graph.tracing.operand import Operand
from ember_ml.graph.tracing.sizes import Size, sizes_in
from ember_ml.graph.tracing.trace import cast, constant, size_operand

__all__ = ["EMITTERS"]


def resample(eager: Any, x: Operand, sizes: tuple[int, ...], method: str, align: bool) -> Any:
    """Axis by axis: those of known lengths as everywhere."""
    if not sizes_in((*x.shape[2:], *sizes)):
        return NotImplemented
    for place, size in enumerate(sizes):
        axis = 2 + place
        side = x.shape[axis]
        if type(side) is not Size and type(size) is not Size:
            others = [size if i == place else x.shape[2 + i] for i in range(len(sizes))]
            x = portable(_kernels(), x, tuple(others), method, align)
        else:
            x = _resampled(x, axis, size, method, align)
    return x


def _resampled(x: Operand, axis: int, size: int, method: str, align: bool) -> Operand:
    xp = _kernels()
    side, length = _whole(x.shape[axis]), _whole(size)
    numbers = ranged((size,))
    if method == "nearest":
        return xp.take(x, numbers * side // length, axis)  # type: ignore[no-any-return]
    one = _whole(1)
    if align:
        above, below = numbers * (side - one), xp.maximum(length - one, one)
    else:
        above = (numbers + numbers + one) * side - length
        below = length + length
    if method == "linear":
        above = xp.maximum(above, _whole(0))
    first = above // below
    wide = dtypes.float64 if x.dtype == np.float64 else dtypes.float32
    share = cast(above - first * below, wide) / cast(below, wide)
    total: Any = None
    for step, weight in _weights(share, method):
        index = xp.minimum(xp.maximum(first + _whole(step), _whole(0)), side - one)
        along = reshaped(cast(weight, xp.dtype(x)), (size, *[1] * (x.ndim - axis - 1)))
        part = xp.take(x, index, axis) * along
        total = part if total is None else total + part
    return total  # type: ignore[no-any-return]


def _weights(share: Operand, method: str) -> list[tuple[int, Any]]:
    """Values beside a place, counted from the one before it, with how much of each."""
    if method == "linear":
        return [(0, 1.0 - share), (1, share)]
    made = []
    for step in range(-1, 3):
        away = share - float(step) if step < 1 else float(step) - share
        if step in (0, 1):
            slope = away * (CUBIC + 2) - (CUBIC + 3)
            made.append((step, slope * away * away + 1.0))
        else:
            slope = (away * CUBIC - 5 * CUBIC) * away + 8 * CUBIC
            made.append((step, slope * away - 4 * CUBIC))
    return made


def _whole(number: int) -> Operand:
    return size_operand(number) if type(number) is Size else constant(np.array(number, np.int64))


def _kernels() -> Any:
    from ember_ml.graph.tracing.backend import graph_backend  # which has this file's emitters

    return graph_backend().kernels


EMITTERS: Final[dict[str, Any]] = {"resample": resample}
