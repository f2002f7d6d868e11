"""Where JAX differs from the standard."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.jax import complexes
from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, IntegerDivisionError

__all__ = ["OVERRIDES", "of_dtype"]


def count_nonzero(x: NativeArray, *, axis: Any = None, keepdims: bool = False) -> NativeArray:
    return jnp.count_nonzero(x, axis=axis, keepdims=keepdims)


def argmax(x: NativeArray, axis: int | None, keepdims: bool) -> NativeArray:
    return jnp.argmax(x, axis, keepdims=keepdims)


def argmin(x: NativeArray, axis: int | None, keepdims: bool) -> NativeArray:
    return jnp.argmin(x, axis, keepdims=keepdims)


def cumulative_sum(x: NativeArray, axis: int) -> NativeArray:
    return jnp.cumsum(x, axis)


def cumulative_prod(x: NativeArray, axis: int) -> NativeArray:
    return jnp.cumprod(x, axis)


def var(x: NativeArray, axes: tuple[int, ...], correction: float, keepdims: bool) -> NativeArray:
    return jnp.var(x, axes, correction=correction, keepdims=keepdims)


def concat(arrays: list[NativeArray], axis: int) -> NativeArray:
    return jnp.concatenate(arrays, axis)


def sort(x: NativeArray, axis: int, descending: bool, stable: bool) -> NativeArray:
    return jnp.sort(x, axis, descending=descending, stable=stable)


def argsort(x: NativeArray, axis: int, descending: bool, stable: bool) -> NativeArray:
    return jnp.argsort(x, axis, descending=descending, stable=stable)


def searchsorted(x: NativeArray, y: NativeArray, side: str) -> NativeArray:
    return jnp.searchsorted(x, y, side).astype(np.int64)  # JAX gives int32 for short arrays


def isin(x: NativeArray, y: NativeArray, invert: bool) -> NativeArray:
    return jnp.isin(x, y, invert=invert)


OVERRIDES: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel
    for kernel in (
        count_nonzero,
        argmax,
        argmin,
        cumulative_sum,
        cumulative_prod,
        var,
        concat,
        sort,
        argsort,
        searchsorted,
        isin,
    )
}


def of_dtype(name: str, dtype: DType) -> Kernel | None:
    """The kernel of an op for the dtypes that JAX's own treats in its own way."""
    if dtype.is_complex:
        return complexes.KERNELS.get(name)
    return None
