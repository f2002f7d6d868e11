"""Matrix products on JAX, of which XLA's CPU runs small ones at twice the cost of the rest."""

from __future__ import annotations

from typing import Final

import jax
import jax.numpy as jnp
import numpy as np

from ember_ml.backend.contract import NativeArray

__all__ = ["matmul"]

# Where one loop over the results is quicker than XLA's call into Eigen, by up to a half, and
# nowhere slower: measured for shapes up to 16. Halves would be added in their own few bits.
_TERMS: Final = range(64, 513)
_LONGEST: Final = 8
_DTYPES: Final = (np.dtype(np.float32), np.dtype(np.float64))


def matmul(x: NativeArray, y: NativeArray) -> NativeArray:
    """The product of two arrays of matrices or vectors, in the full precision of their dtype."""
    if x.ndim == y.ndim == 2 and x.dtype == y.dtype and x.dtype in _DTYPES:
        (rows, inner), (other, columns) = x.shape, y.shape
        if inner == other <= _LONGEST and rows > 1 < columns and rows * inner * columns in _TERMS:
            return _small(x, y)
    return _product(x, y)


def _product(x: NativeArray, y: NativeArray) -> NativeArray:
    # Without a word, accelerators multiply float32 in fewer bits.
    return jnp.matmul(x, y, precision="highest")


@jax.custom_batching.custom_vmap
def _summed(x: NativeArray, y: NativeArray) -> NativeArray:
    # XLA makes one loop of this, but a slower one of a sum over an axis.
    out = x[:, :1] * y[0]
    for i in range(1, x.shape[1]):
        out = out + x[:, i : i + 1] * y[i]
    return out


@_summed.def_vmap
def _batched(
    _size: int, batched: list[bool], x: NativeArray, y: NativeArray
) -> tuple[NativeArray, bool]:
    # Many small products are a large one.
    axes = tuple(0 if one else None for one in batched)
    return jax.vmap(_product, axes)(x, y), True


@jax.custom_jvp
def _small(x: NativeArray, y: NativeArray) -> NativeArray:
    return _summed(x, y)


def _slope(
    primals: tuple[NativeArray, NativeArray], tangents: tuple[NativeArray, NativeArray]
) -> tuple[NativeArray, NativeArray]:
    (x, y), (dx, dy) = primals, tangents
    zero = jax.custom_derivatives.SymbolicZero
    parts = [
        _product(one, other)
        for one, other in ((dx, y), (x, dy))
        if type(one) is not zero and type(other) is not zero
    ]
    out = _small(x, y)
    return out, sum(parts[1:], parts[0]) if parts else jnp.zeros_like(out)


_small.defjvp(_slope, symbolic_zeros=True)
