"""What scatter kernels share: where values go, and which indices are mistakes.

A kernel is called `kernel(values, indices, axis, size)`. The indices are int64, either one for
each place of `axis` or one for each value; negative ones count from the end. It gives an array
like `values` whose `axis` is `size` long, and raises OutOfBoundsError for an index beyond that
where values can be read.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ember_ml.errors import OutOfBoundsError

__all__ = ["flat_parts", "require_range"]

Array = np.ndarray[Any, Any]


def require_range(name: str, indices: Array, size: int) -> bool:
    """True where some index is negative; OutOfBoundsError for one beyond an axis of `size`."""
    if not indices.size:
        return False
    # Read as unsigned, negative indices are beyond every size: one pass tells the usual case.
    if indices.flags.c_contiguous and int(indices.reshape(-1).view(np.uint64).max()) < size:
        return False
    low, high = int(indices.min()), int(indices.max())
    if low < -size or high >= size:
        wrong = low if low < -size else high
        raise OutOfBoundsError(
            f"ops.{name} got index {wrong} for {size} places; give a larger dim_size"
        )
    return low < 0


def flat_parts(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, Array]:
    """How an index along `axis` becomes a position in the flat result of that shape.

    The position is `index * stride + offset`; the offsets broadcast to `shape`.
    """
    target = (*shape[:axis], size, *shape[axis + 1 :])
    offsets = np.zeros((1,) * len(shape), dtype=np.int64)
    for place, side in enumerate(target):
        if place != axis:
            steps = np.arange(side, dtype=np.int64) * math.prod(target[place + 1 :])
            offsets = offsets + steps.reshape((-1,) + (1,) * (len(shape) - place - 1))
    return math.prod(target[axis + 1 :]), offsets
