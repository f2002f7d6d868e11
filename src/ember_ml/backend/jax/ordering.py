"""Statistics that go by order on JAX, whose sort on the CPU is slower than NumPy's by far."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.jax import hosting
from ember_ml.backend.numpy import ordering

__all__ = ["OVERRIDES"]


def quantiles_at(
    x: NativeArray, low: tuple[int, ...], high: tuple[int, ...], weight: tuple[float, ...]
) -> NativeArray:
    if x.dtype.itemsize > 2 and _on_host(x):
        return jnp.asarray(ordering.quantiles_at(hosting.to_numpy(x, None), low, high, weight))
    return _quantiles_at(x, low, high, weight)


def _on_host(x: NativeArray) -> bool:
    """True where NumPy can read the values in place."""
    if isinstance(x, Tracer):
        return False
    return isinstance(x, np.ndarray) or all(d.platform == "cpu" for d in x.devices())


@partial(jax.jit, static_argnums=(1, 2, 3))
def _quantiles_at(
    x: NativeArray, low: tuple[int, ...], high: tuple[int, ...], weight: tuple[float, ...]
) -> NativeArray:
    ordered = jnp.sort(x, -1)
    a, b = (ordered[..., np.array(one)] for one in (low, high))
    share = np.array(weight, x.dtype)
    out = jnp.where(a == b, a, a * (1 - share) + b * share)
    last = ordered[..., -1:]  # NaN sorts behind all
    return jnp.where(jnp.isnan(last), last, out)


@partial(jax.jit, static_argnums=(1, 2))
def topk_indices(x: NativeArray, k: int, largest: bool) -> tuple[NativeArray, ...]:
    key = x.astype(np.uint8) if x.dtype == np.bool_ else x
    if not jnp.issubdtype(key.dtype, np.floating):
        key = key if largest else ~key
    else:
        # top_k tells zeros and NaNs apart by their sign.
        sign = 1.0 if largest else -1.0
        key = jnp.where(key == 0, 0.0, sign * key)
        key = jnp.where(jnp.isnan(x), jnp.copysign(jnp.nan, sign), key)
        key = key.astype(x.dtype)
    return (jax.lax.top_k(key, k)[1].astype(np.int64),)


def running_maximum(x: NativeArray, axis: int) -> NativeArray:
    return jax.lax.cummax(x, axis)


@partial(jax.jit, static_argnums=2)
def bin_sum(index: NativeArray, weights: NativeArray | None, length: int) -> NativeArray:
    """How often each of 0 to length - 1 stands in `index`, or the sum of the weights there."""
    values: Any = jnp.ones((), index.dtype) if weights is None else weights
    return jnp.zeros(length, values.dtype).at[index].add(values)


OVERRIDES: Final[dict[str, Kernel]] = {
    "quantiles_at": quantiles_at,
    "topk_indices": topk_indices,
    "running_maximum": running_maximum,
    "bin_sum": bin_sum,
}
