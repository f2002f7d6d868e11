"""Random numbers from ember_ml's generator: its seed fixes them, and so does the attribute."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml import ops
from ember_ml.graph import types
from ember_ml.graph.executors.operators.registry import operator
from ember_ml.tensor.core import Tensor

__all__: list[str] = []


def _generator(seed: float | None) -> Any:
    if seed is None:
        return None
    # A float in ONNX; its bits are as good as any other number.
    return ops.random.Generator(int(np.float32(seed).view(np.uint32)))


def _type(number: int | None, x: Tensor | None = None) -> Any:
    if number is not None:
        return types.type_name(number)
    return "float32" if x is None else x.dtype


def _drawn(dtype: Any) -> str:
    """In which dtype numbers are drawn, before they are cast."""
    return "float64" if str(dtype) == "float64" else "float32"


@operator("RandomNormal", 1, 22)
def random_normal(
    *, shape: Any, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    return _normal(tuple(shape), _type(dtype), mean, scale, seed, "numpy")


@operator("RandomNormalLike", 1, 22)
def random_normal_like(
    x: Tensor,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Tensor:
    return _normal(x.shape, _type(dtype, x), mean, scale, seed, x.backend)


def _normal(
    shape: tuple[int, ...], dtype: Any, mean: float, scale: float, seed: float | None, backend: str
) -> Tensor:
    with ops.use_backend(backend):
        made = ops.random.normal(shape, dtype=_drawn(dtype), generator=_generator(seed))
    return ops.astype(ops.add(ops.multiply(made, scale), mean), dtype, copy=False)


@operator("RandomUniform", 1, 22)
def random_uniform(
    *, shape: Any, dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> Tensor:
    return _uniform(tuple(shape), _type(dtype), low, high, seed, "numpy")


@operator("RandomUniformLike", 1, 22)
def random_uniform_like(
    x: Tensor,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Tensor:
    return _uniform(x.shape, _type(dtype, x), low, high, seed, x.backend)


def _uniform(
    shape: tuple[int, ...], dtype: Any, low: float, high: float, seed: float | None, backend: str
) -> Tensor:
    with ops.use_backend(backend):
        made = ops.random.uniform(shape, dtype=_drawn(dtype), generator=_generator(seed))
    return ops.astype(ops.add(ops.multiply(made, high - low), low), dtype, copy=False)


@operator("Bernoulli", 15, 22)
def bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    """One with the probability that the input says, else zero."""
    with ops.use_backend(x.backend):
        drawn = ops.random.uniform(x.shape, generator=_generator(seed))
    return ops.astype(ops.less(ops.astype(drawn, x.dtype, copy=False), x), _type(dtype, x))


@operator("Multinomial", 7, 22)
def multinomial(
    x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Tensor:
    """Classes drawn by their log-probabilities, which need not add up to 1."""
    shares = ops.softmax(x, 1)
    bounds = ops.cumulative_sum(shares, axis=1)
    with ops.use_backend(x.backend):
        drawn = ops.random.uniform((x.shape[0], sample_size), generator=_generator(seed))
    drawn = ops.expand_dims(ops.astype(drawn, x.dtype, copy=False), -1)
    above = ops.greater_equal(drawn, ops.expand_dims(bounds, 1))
    chosen = ops.minimum(ops.sum(ops.astype(above, "int64"), axis=-1), x.shape[1] - 1)
    return ops.astype(chosen, types.type_name(dtype))
