"""The parts of networks on NumPy."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ember_ml import dtypes
from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.backend.numpy import products, recurrent, windows
from ember_ml.backend.portable.network import KERNELS

__all__ = ["BLAS", "NOISY", "OVERRIDES", "WIDE", "attending"]

Array = NativeArray
# Elements that are worked on at a time, so that the steps between them stay in the cache.
_BLOCK: Final = 1 << 16
# The dtypes whose products NumPy leaves to BLAS.
BLAS: Final = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)


def attention(query: Array, key: Array, value: Array, causal: bool, scale: float) -> Array:
    """Some heads at a time."""
    rows, columns = query.shape[-2], key.shape[-2]
    heads = math.prod(query.shape[:-2])
    queries = query.reshape(heads, *query.shape[-2:])
    keys = key.reshape(heads, *key.shape[-2:]).swapaxes(-1, -2)
    values = value.reshape(heads, *value.shape[-2:])
    made = np.empty((heads, rows, value.shape[-1]), query.dtype)
    hidden = ~np.tri(rows, columns, dtype=bool) if causal else None
    each = max(_BLOCK // max(rows * columns, 1), 1)
    for first in range(0, heads, each):
        some = slice(first, first + each)
        scores = np.matmul(queries[some] * query.dtype.type(scale), keys[some])
        if hidden is not None:
            np.copyto(scores, -math.inf, where=hidden)
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        np.matmul(scores, values[some], out=made[some])
        made[some] /= scores.sum(-1, keepdims=True)
    return made.reshape(*query.shape[:-1], value.shape[-1])


def layer_norm(x: Array, weight: Array | None, bias: Array | None, ndim: int, eps: float) -> Array:
    return _normalized(x, weight, bias, ndim, eps, True)


def rms_norm(x: Array, weight: Array | None, ndim: int, eps: float) -> Array:
    return _normalized(x, weight, None, ndim, eps, False)


def _normalized(
    x: Array, weight: Array | None, bias: Array | None, ndim: int, eps: float, centre: bool
) -> Array:
    """Some rows at a time."""
    length = math.prod(x.shape[x.ndim - ndim :])
    rows = (
        x.reshape(-1, length) if x.size else x.reshape(math.prod(x.shape[: x.ndim - ndim]), length)
    )
    made = np.empty(rows.shape, x.dtype)
    weights = None if weight is None else weight.reshape(-1)
    biases = None if bias is None else bias.reshape(-1)
    size = x.dtype.type(length)
    each = max(_BLOCK // max(length, 1), 1)
    for first in range(0, len(rows), each):
        part, out = rows[first : first + each], made[first : first + each]
        if centre:
            np.subtract(part, np.add.reduce(part, -1, keepdims=True) / size, out=out)
            part = out
        spread = np.add.reduce(np.square(part), -1, keepdims=True) / size
        np.divide(part, np.sqrt(spread + x.dtype.type(eps)), out=out)
        if weights is not None:
            out *= weights
        if biases is not None:
            out += biases
    return made.reshape(x.shape)


def linear(x: Array, weight: Array, bias: Array | None) -> Array:
    shape = x.shape
    rows = x if x.ndim == 2 else x.reshape(math.prod(shape[:-1]), shape[-1])
    out = products.product(rows, weight.T)
    if bias is not None:
        out += bias
    return out if x.ndim == 2 else out.reshape(*shape[:-1], weight.shape[0])


def filled(value: Array, shape: tuple[int, ...]) -> Array:
    """np.broadcast_to costs 3 us, and its result cannot be written to."""
    out = np.empty(shape, value.dtype)
    out.fill(value)
    return out


OVERRIDES: Final[dict[str, Kernel]] = {
    **windows.KERNELS,
    "filled": filled,
    "relu": products.relu,
    "layer_norm": layer_norm,
    "linear": linear,
    "rms_norm": rms_norm,
    **recurrent.KERNELS,
}


def attending(portable: Kernel) -> Kernel:
    """The kernel of attention, portable where there are masks or heads of several queries."""

    def kernel(
        query: Array,
        key: Array,
        value: Array,
        mask: Array | None,
        causal: bool,
        scale: float,
        groups: int,
    ) -> Array:
        if mask is None and groups == 1 and key.shape[-2]:
            return attention(query, key, value, causal, scale)
        return portable(query, key, value, mask, causal, scale, groups)

    return kernel


# Kernels of several steps: 16-bit floats are computed in float32, and rounded once.
WIDE: Final = frozenset(KERNELS) - {
    "recurrent",  # never 16-bit: see nn/recurrence.py
    "relu",
    "relu6",
}
# They meet infinities on their way, which are values here and no warnings.
NOISY: Final = WIDE | frozenset(recurrent.KERNELS)
