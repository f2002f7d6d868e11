"""Special functions on NumPy, which has none: the portable formulas, block by block.

A formula is some fifty passes over its argument, which are quick while a block stays in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.numpy.kernels import quiet
from ember_ml.backend.portable.special import FORMULAS, Maths

__all__ = ["OVERRIDES"]

Array = NativeArray

_BLOCK: Final = 1 << 13  # elements


def _same(value: float) -> float:
    return value  # Python's numbers leave the dtype of an array as it is


def _maths(wide: bool) -> Maths:
    return Maths(
        wide=wide,
        number=_same,
        abs=np.abs,
        exp=np.exp,
        floor=np.floor,
        log=np.log,
        minimum=np.minimum,
        sin=np.sin,
        sqrt=np.sqrt,
        where=np.where,
    )


_MATHS: Final = {np.dtype(np.float32): _maths(False), np.dtype(np.float64): _maths(True)}


def _blocks(formula: Callable[[Maths, Array], Array]) -> Kernel:
    def kernel(x: Array) -> Any:
        if x.dtype == np.float16:
            return kernel(x.astype(np.float32)).astype(np.float16)
        maths = _MATHS[x.dtype]
        if x.size <= _BLOCK:
            return formula(maths, x).astype(x.dtype, copy=False)
        flat = x.reshape(-1)
        out = np.empty_like(flat)
        for start in range(0, flat.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            out[part] = formula(maths, flat[part])
        return out.reshape(x.shape)

    return quiet(kernel)


# --- Sums of exponentials ---------------------------------------------------------------------


def logsumexp(x: Array, axes: tuple[int, ...], keepdims: bool) -> Any:
    if not axes:  # of one value each; a 0-d difference would be no array to write to
        return x.copy()
    if x.dtype == np.float16:
        return logsumexp(x.astype(np.float32), axes, keepdims).astype(np.float16)
    largest = np.maximum.reduce(x, axis=axes, keepdims=True)
    # An infinite one is no scale; the exponentials are infinite or zero then, as they should be.
    largest = np.where(np.isfinite(largest), largest, x.dtype.type(0))
    powers = x - largest
    np.exp(powers, out=powers)
    out = np.log(np.sum(powers, axis=axes, keepdims=True)) + largest
    return out if keepdims else np.squeeze(out, axes)


def cumulative_logsumexp(x: Array, axis: int) -> Any:
    if x.dtype == np.float16:
        return cumulative_logsumexp(x.astype(np.float32), axis).astype(np.float16)
    return np.logaddexp.accumulate(x, axis=axis)


# --- Others -----------------------------------------------------------------------------------


def sinc(x: Array) -> Any:
    zero = x == 0  # np.sinc moves zero by what float16 does not have
    angle = np.where(zero, x.dtype.type(1), x) * x.dtype.type(math.pi)
    return np.where(zero, x.dtype.type(1), np.sin(angle) / angle)


OVERRIDES: Final[dict[str, Kernel]] = {
    **{name: _blocks(formula) for name, formula in FORMULAS.items()},
    "logsumexp": quiet(logsumexp),
    "cumulative_logsumexp": quiet(cumulative_logsumexp),
    "exp2": quiet(np.exp2),
    "sinc": quiet(sinc),
}
