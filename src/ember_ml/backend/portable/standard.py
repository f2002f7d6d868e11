"""Ops of the standard for engines that lack one.

Each takes `xp`, the settled kernels of the backend as a namespace over native arrays.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ember_ml.backend.contract import Kernel, Kernels, NativeArray

__all__ = ["KERNELS", "choose"]


def tril(xp: Kernels, x: NativeArray, k: int) -> NativeArray:
    mask = xp.host(np.tri(x.shape[-2], x.shape[-1], k, dtype=bool), x)
    return choose(xp, mask, x, xp.full((), 0, x))


def triu(xp: Kernels, x: NativeArray, k: int) -> NativeArray:
    mask = xp.host(np.tri(x.shape[-2], x.shape[-1], k - 1, dtype=bool), x)
    return choose(xp, mask, xp.full((), 0, x), x)


def choose(xp: Kernels, mask: NativeArray, a: NativeArray, b: NativeArray) -> NativeArray:
    """Elements of `a` where the mask is true, of `b` elsewhere."""
    # Kernels are found by the dtype of their first array; `where` runs by that of its branches.
    backend = xp._backend
    return backend.entry(backend.spec_of(a), "where")[0](mask, a, b)


def flip(xp: Kernels, x: NativeArray, axes: tuple[int, ...]) -> NativeArray:
    return x[tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(x.ndim))]


def repeat(xp: Kernels, x: NativeArray, counts: np.ndarray[Any, Any], axis: int) -> NativeArray:
    return xp.take(x, xp.host(np.repeat(np.arange(x.shape[axis]), counts), x), axis)


def var(
    xp: Kernels, x: NativeArray, axes: tuple[int, ...], correction: float, keepdims: bool
) -> NativeArray:
    centred = xp.subtract(x, xp.mean(x, axis=axes, keepdims=True))
    total = xp.sum(xp.square(centred), axis=axes, keepdims=keepdims)
    count = float(np.prod([x.shape[axis] for axis in axes], dtype=float)) - correction
    return xp.divide(total, xp.full((), max(count, 0.0), x))


def matrix_transpose(xp: Kernels, x: NativeArray) -> NativeArray:
    ndim = len(x.shape)
    return xp.permute_dims(x, (*range(ndim - 2), ndim - 1, ndim - 2))


def count_nonzero(
    xp: Kernels, x: NativeArray, *, axis: Any = None, keepdims: bool = False
) -> NativeArray:
    return xp.sum(xp.not_equal(x, xp.full((), 0, x)), axis=axis, keepdims=keepdims)


def unique_values(xp: Kernels, x: NativeArray) -> NativeArray:
    return xp.unique_all(x)[0]


def unique_all(xp: Kernels, x: NativeArray) -> tuple[NativeArray, ...]:
    return xp._backend.hosted("unique_all", xp.dtype(x))(x)  # type: ignore[no-any-return]  # several


def nonzero(xp: Kernels, x: NativeArray) -> tuple[NativeArray, ...]:
    return xp._backend.hosted("nonzero", xp.dtype(x))(x)  # type: ignore[no-any-return]  # several


def isin(xp: Kernels, x: NativeArray, y: NativeArray, invert: bool) -> NativeArray:
    return xp._backend.hosted("isin", xp.dtype(x))(x, y, invert)


def searchsorted(xp: Kernels, x: NativeArray, y: NativeArray, side: str) -> NativeArray:
    return xp._backend.hosted("searchsorted", xp.dtype(x))(x, y, side)


def reciprocal(xp: Kernels, x: NativeArray) -> NativeArray:
    return xp.divide(xp.full((), 1, x), x)


def root(xp: Kernels, x: NativeArray) -> NativeArray:
    """The square root whose slope at zero counts as zero, for deviations and lengths."""
    return xp.sqrt(x)


def split_heads(xp: Kernels, x: NativeArray, heads: int) -> NativeArray:
    *lead, length, size = x.shape
    if length == 1:  # nothing changes its place
        return xp.reshape(x, (*lead, heads, 1, size // heads))
    split = xp.reshape(x, (*lead, length, heads, size // heads))
    return xp.permute_dims(split, _swapped(len(lead)))


def merge_heads(xp: Kernels, x: NativeArray) -> NativeArray:
    *lead, heads, length, size = x.shape
    turned = x if length == 1 else xp.permute_dims(x, _swapped(len(lead)))
    return xp.reshape(turned, (*lead, length, heads * size))


def _swapped(lead: int) -> tuple[int, ...]:
    """The last three axes with the first two of them in each other's place."""
    return (*range(lead), lead + 1, lead, lead + 2)


def filled(xp: Kernels, value: NativeArray, shape: tuple[int, ...]) -> NativeArray:
    """An array of one value, which is 0-d."""
    return xp.broadcast_to(value, shape)


def stop_gradient(xp: Kernels, x: NativeArray) -> NativeArray:
    return xp._backend.detach(x)


def positive(xp: Kernels, x: NativeArray) -> NativeArray:
    return xp._backend.copy(x)


def clip(
    xp: Kernels, x: NativeArray, low: NativeArray | None, high: NativeArray | None
) -> NativeArray:
    if low is not None:
        x = xp.maximum(x, low)
    return x if high is None else xp.minimum(x, high)


def hypot(xp: Kernels, x: NativeArray, y: NativeArray) -> NativeArray:
    """Scaled by the larger side, so that squares do not overflow; infinity wins over NaN."""
    a, b = xp.abs(x), xp.abs(y)
    large, small = xp.maximum(a, b), xp.minimum(a, b)
    zero = xp.full((), 0, x)
    ratio = xp.divide(small, choose(xp, xp.equal(large, zero), xp.full((), 1, x), large))
    length = xp.multiply(large, xp.sqrt(xp.add(xp.full((), 1, x), xp.square(ratio))))
    infinite = xp.logical_or(xp.isinf(x), xp.isinf(y))
    return choose(xp, infinite, xp.full((), float("inf"), x), length)


def signbit(xp: Kernels, x: NativeArray) -> NativeArray:
    """Division tells -0.0 from 0.0; a NaN counts as positive, its sign cannot be computed."""
    zero, one = xp.full((), 0, x), xp.full((), 1, x)
    negative_zero = xp.logical_and(xp.equal(x, zero), xp.less(xp.divide(one, x), zero))
    return xp.logical_or(xp.less(x, zero), negative_zero)


def copysign(xp: Kernels, x: NativeArray, y: NativeArray) -> NativeArray:
    size = xp.abs(x)
    return choose(xp, xp.signbit(y), xp.negative(size), size)


def euclidean(
    xp: Kernels, x: NativeArray, *, axis: Any = None, keepdims: bool = False
) -> NativeArray:
    """The root of the sum of squares."""
    return xp.root(xp.sum(xp.square(x), axis=axis, keepdims=keepdims))


def _linalg_part(name: str, part: int, *options: Any) -> Kernel:
    def kernel(xp: Kernels, x: NativeArray) -> NativeArray:
        return getattr(xp.linalg, name)(x, *options)[part]

    return kernel


KERNELS: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel
    for kernel in (
        tril,
        triu,
        flip,
        repeat,
        var,
        matrix_transpose,
        count_nonzero,
        unique_values,
        unique_all,
        nonzero,
        isin,
        searchsorted,
        reciprocal,
        filled,
        merge_heads,
        split_heads,
        root,
        stop_gradient,
        positive,
        clip,
        hypot,
        signbit,
        copysign,
    )
} | {
    "linalg.euclidean": euclidean,
    # Values need no full bases: the reduced factorisation is the cheap one.
    "linalg.svdvals": _linalg_part("svd", 1, False),
    "linalg.eigvals": _linalg_part("eig", 0),
    "linalg.eigvalsh": _linalg_part("eigh", 0),
}
