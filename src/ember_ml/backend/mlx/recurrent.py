"""The gradient of recurrent layers on MLX, for the tape: see backend/portable/recurrent.py."""

from __future__ import annotations

from typing import Any, Final

import mlx.core as mx

from ember_ml.backend import selection
from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.portable import recurrent as portable

__all__ = ["KERNELS"]

Array = NativeArray


def recurrent_grad(*args: Any) -> list[Array | None]:
    """The gradients of all operands: MLX's own of the steps, which are run once more."""
    operands, grads, kind = args[: portable.ARRAYS], args[portable.ARRAYS : -2], args[-2]
    places = [i for i, x in enumerate(operands) if x is not None and i != 3]
    kernels = selection.load("mlx").kernels
    used = [i for i, g in enumerate(grads) if g is not None]

    def run(*inner: Array) -> list[Array]:
        given = list(operands)
        for place, x in zip(places, inner, strict=True):
            given[place] = x
        results = portable.recurrent(kernels, *given, kind, False)
        return [results[i] for i in used]

    pulled = mx.vjp(run, [operands[i] for i in places], [grads[i] for i in used])[1]
    found: list[Array | None] = [None] * portable.ARRAYS
    for place, g in zip(places, pulled, strict=True):
        found[place] = g
    return found


KERNELS: Final[dict[str, Kernel]] = {"recurrent_grad": recurrent_grad}
