"""Linear maps over settled kernels."""

from __future__ import annotations

import math
from typing import Final

from ember_ml.backend.contract import Kernel, Kernels, NativeArray

__all__ = ["KERNELS"]


def linear(
    xp: Kernels, x: NativeArray, weight: NativeArray, bias: NativeArray | None
) -> NativeArray:
    shape = tuple(x.shape)
    # One product of two matrices: engines take a stack of them apart.
    rows = x if len(shape) == 2 else xp.reshape(x, (math.prod(shape[:-1]), shape[-1]))
    out = xp.matmul(rows, xp.matrix_transpose(weight))
    out = out if bias is None else out + bias
    return out if len(shape) == 2 else xp.reshape(out, (*shape[:-1], weight.shape[0]))


KERNELS: Final[dict[str, Kernel]] = {"linear": linear}
