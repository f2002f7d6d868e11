"""Scatter on JAX: a compiled program for each shape, dtype, axis and size; or NumPy's loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

import jax
import jax.numpy as jnp
import numpy as np

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.jax import hosting
from ember_ml.backend.jax.kernels import in_place, readable
from ember_ml.backend.numpy import scattering
from ember_ml.backend.portable.scattering import require_range

__all__ = ["OVERRIDES"]

Run = Callable[[NativeArray, NativeArray, int, int], NativeArray]


def _key(values: NativeArray, indices: NativeArray, axis: int) -> tuple[Any, ...]:
    """The key of all values' places in the result; JAX counts negative indices from the end."""
    if indices.ndim == 1:
        return (*(slice(None),) * axis, indices)
    grid = jnp.ogrid[tuple(slice(side) for side in values.shape)]
    return (*grid[:axis], indices, *grid[axis + 1 :])


def _target(values: NativeArray, axis: int, size: int, start: int) -> NativeArray:
    shape = (*values.shape[:axis], size, *values.shape[axis + 1 :])
    return jnp.full(shape, start, values.dtype)


def _add(values: NativeArray, indices: NativeArray, axis: int, size: int) -> NativeArray:
    key = _key(values, indices, axis)
    return _target(values, axis, size, 0).at[key].add(values)


def _extreme(name: str) -> Run:
    @partial(jax.custom_jvp, nondiff_argnums=(2, 3))
    def run(values: NativeArray, indices: NativeArray, axis: int, size: int) -> NativeArray:
        key = _key(values, indices, axis)
        # Any value of a place is a good first one.
        start = _target(values, axis, size, 0).at[key].set(values)
        return getattr(start.at[key], name)(values)

    @run.defjvp
    def jvp(axis: int, size: int, primals: Any, tangents: Any) -> tuple[NativeArray, NativeArray]:
        """Equal values share the gradient of their place; JAX counts the first one twice."""
        (values, indices), (tangent, _) = primals, tangents
        out = run(values, indices, axis, size)
        chosen = (values == out[_key(values, indices, axis)]).astype(values.dtype)
        count = jnp.maximum(_add(chosen, indices, axis, size), 1)
        return out, _add(chosen * tangent, indices, axis, size) / count

    return run


@partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def _mul(values: NativeArray, indices: NativeArray, axis: int, size: int) -> NativeArray:
    key = _key(values, indices, axis)
    return _target(values, axis, size, 1).at[key].multiply(values)


@_mul.defjvp
def _mul_jvp(axis: int, size: int, primals: Any, tangents: Any) -> tuple[NativeArray, NativeArray]:
    """Each tangent with the product of the other values, which zeros forbid to get by division."""
    (values, indices), (tangent, _) = primals, tangents
    key = _key(values, indices, axis)
    zero = values == 0
    filled = jnp.where(zero, 1, values)
    rest = _mul(filled, indices, axis, size)
    zeros = _add(zero.astype(values.dtype), indices, axis, size)
    out = jnp.where(zeros == 0, rest, 0)
    # The zeros of the others.
    left = zeros[key] - zero.astype(values.dtype)
    others = jnp.where(left == 0, rest[key] / filled, 0)
    return out, _add(others * tangent, indices, axis, size)


# Index arrays that were found in range, with the sizes they are for. Arrays of JAX do not change,
# and programs over graphs use the same indices again and again.
_checked: Final[WeakValueDictionary[tuple[int, int], NativeArray]] = WeakValueDictionary()


def _require_range(name: str, indices: NativeArray, size: int) -> None:
    key = (id(indices), size)
    if _checked.get(key) is not indices:
        require_range(name, np.asarray(indices), size)
        _checked[key] = indices


# Of which NumPy's `ufunc.at` has a quick loop.
_QUICK: Final = frozenset(np.dtype(name) for name in ("float32", "float64", "int32", "int64"))
# Elements up to which the call of a program is the shorter way.
_FEW: Final = 1 << 16


def _on_host(values: NativeArray, indices: NativeArray) -> bool:
    """True where NumPy can do it in place: it adds in the same order, and no slower.

    It also tells of indices that are out of range, for which a program of XLA's has no word: a look
    at them beside it takes a quarter of its time.
    """
    if values.ndim != 1 or values.size <= _FEW or values.dtype not in _QUICK:
        return False
    return not hosting.within_trace() and in_place(values) and in_place(indices)


def _scatter(name: str, run: Run, *, exact: bool = False) -> Kernel:
    by_numpy = scattering.OVERRIDES[name]

    def program(values: NativeArray, indices: NativeArray, axis: int, size: int) -> NativeArray:
        dtype = values.dtype
        half = dtype.itemsize == 2 and jnp.issubdtype(dtype, jnp.floating)
        wide = values.astype(np.float32) if half and not exact else values
        return run(wide, indices, axis, size).astype(dtype)

    compiled = jax.jit(program, static_argnums=(2, 3))

    def kernel(values: NativeArray, indices: NativeArray, axis: int, size: int) -> NativeArray:
        if _on_host(values, indices):
            out = by_numpy(np.asarray(values), np.asarray(indices), axis, size)
            return hosting.take(out, next(iter(values.devices())))
        out = compiled(values, indices, axis, size)
        # While the program runs, the host looks at the indices.
        if readable(indices):
            _require_range(name, indices, size)
        return out

    return kernel


OVERRIDES: Final[dict[str, Kernel]] = {
    "scatter_add": _scatter("scatter_add", _add),
    "scatter_mul": _scatter("scatter_mul", _mul),
    "scatter_max": _scatter("scatter_max", _extreme("max"), exact=True),
    "scatter_min": _scatter("scatter_min", _extreme("min"), exact=True),
}
