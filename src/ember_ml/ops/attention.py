"""Attention: values weighted by how well keys match queries, and rotary positions."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ember_ml import dtypes
from ember_ml.autodiff.tape import recorded
from ember_ml.backend.contract import Spec
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.ops import dispatch
from ember_ml.ops.axes import broadcast, integer_of
from ember_ml.ops.elementwise import cos, multiply, sin
from ember_ml.ops.explain import explain
from ember_ml.ops.manipulation import expand_dims
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill
from ember_ml.typing import TensorLike

__all__: list[str] = ["rope", "scaled_dot_product_attention"]


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def scaled_dot_product_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    /,
    mask: TensorLike | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`softmax(scale * query @ key.T) @ value`, by the engine's fused kernel where it has one.

    Shapes are (..., heads, queries, features), (..., heads, keys, features) and (..., heads,
    keys, value features). `mask` broadcasts to (..., heads, queries, keys): True where a key is
    seen, or numbers that are added. `is_causal` lets query i see keys 0 to i. A query that sees no
    key gives zeros. `scale` is 1/sqrt(features) unless it is given. With `enable_gqa`, keys and
    values have fewer heads, each for as many query heads.

    >>> q = k = [[[1.0, 0.0], [0.0, 1.0]]]
    >>> scaled_dot_product_attention(q, k, [[[2.0], [4.0]]], is_causal=True)[0, 0].tolist()
    [2.0]
    """
    name = "scaled_dot_product_attention"
    inputs: tuple[Any, ...] = (query, key, value)
    if mask is None:
        spec, (q, k, v), taped = dispatch.gathered(name, inputs)
        seen: Any = None
    else:
        home = dispatch.home_of(name, (*inputs, mask))
        seen = convert.to_tensor(mask, home)
        if seen.dtype is dtypes.bool:
            inputs = tuple(convert.to_tensor(x, home) for x in inputs)
            spec, (q, k, v), taped = dispatch.gathered(name, inputs)
            dispatch.same_device(name, spec.device, seen.device)
            seen = seen.native
        elif seen.dtype.is_floating:
            spec, (q, k, v, seen), taped = dispatch.gathered(name, (*inputs, seen))
        else:
            raise DTypeError(
                f"ops.{name} got a mask of {seen.dtype}; it takes bool, True where a key is "
                f"seen, or floats that are added"
            )
    groups = _groups(q, k, v, seen, enable_gqa)
    kernel, result = spec.backend.entry(spec, name)
    factor = 1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else float(scale)  # type: ignore[union-attr]  # given
    try:
        native = kernel(q, k, v, seen, bool(is_causal), factor, groups)
    except Exception as error:
        raise explain(name, error, inputs) from error
    if result.settles and type(native) is not result.native_type:
        native = result.backend.settle_native(native, result)
    if taped:
        if len(taped) == 3:
            taped = (*taped, None if seen is None else convert.wrap(seen, spec.backend))
        return recorded(name, native, result, taped, (bool(is_causal), factor, groups))
    return fill(native, result)


def _groups(q: Any, k: Any, v: Any, mask: Any, enable_gqa: bool) -> int:
    """How many query heads share one of keys, once all shapes fit."""
    name = "ops.scaled_dot_product_attention"
    shapes = f"shapes {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
    if not 2 <= q.ndim == k.ndim == v.ndim:
        raise ShapeError(f"{name} got {shapes}; it takes as many axes of each, two or more")
    if q.shape[-1] != k.shape[-1]:
        raise ShapeError(f"{name} got {shapes}; query and key must have as many features")
    if k.shape[-2] != v.shape[-2]:
        raise ShapeError(f"{name} got {shapes}; there must be a value for each key")
    if tuple(k.shape[:-2]) != tuple(v.shape[:-2]):
        raise ShapeError(f"{name} got {shapes}; key and value must have as many heads")
    groups = 1
    if tuple(q.shape[:-2]) != tuple(k.shape[:-2]):
        fits = q.ndim > 2 and tuple(q.shape[:-3]) == tuple(k.shape[:-3])
        if not fits or not k.shape[-3] or q.shape[-3] % k.shape[-3]:
            raise ShapeError(f"{name} got {shapes}; the leading axes must be equal")
        if not enable_gqa:
            raise ShapeError(
                f"{name} got {shapes}; pass enable_gqa=True to let several query heads share "
                f"a head of keys and values"
            )
        groups = q.shape[-3] // k.shape[-3]
    if mask is not None:
        scores = (*q.shape[:-1], k.shape[-2])
        given = tuple(mask.shape)
        if len(given) > len(scores) or broadcast(name[4:], [given, scores]) != scores:
            raise ShapeError(f"{name} got a mask of shape {given}, which does not fit {scores}")
    return int(groups)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def rope(
    x: TensorLike,
    /,
    positions: TensorLike | None = None,
    *,
    base: float = 10000.0,
    dims: int | None = None,
    interleaved: bool = False,
) -> Tensor:
    """Rotary position embedding: pairs of features turned by angles that grow with the position.

    `x` has shape (..., length, features). Pair i turns by `position * base ** (-2 * i / dims)`;
    the first `dims` features, or all, are paired. Pairs are (i, i + dims / 2), or neighbours
    where `interleaved`. `positions` are 0, 1, ... unless they are given, in a shape that
    broadcasts to (..., length).

    >>> rope([[1.0, 0.0], [1.0, 0.0]])[0].tolist()
    [1.0, 0.0]
    """
    given = (x,) if positions is None else (x, positions)
    home = dispatch.home_of("rope", given)
    tensor = dispatch.lifted("rope", convert.to_tensor(x, home))
    if tensor.ndim < 2:
        raise ShapeError(f"ops.rope takes (..., length, features), not shape {tensor.shape}")
    features = tensor.shape[-1]
    turned = features if dims is None else integer_of("rope", dims, "dims")
    if turned % 2 or not 0 < turned <= features:
        raise ShapeError(
            f"ops.rope got dims={turned} for {features} features; it must be even and no larger"
        )
    if not base > 0:
        raise DomainError(f"ops.rope got base={base}; it must be positive")
    if positions is None:
        cosine, sine = tables(tensor.shape[-2], turned, float(base), tensor._spec)
    else:
        places = convert.to_tensor(positions, home)
        if broadcast("rope", [places.shape, tensor.shape[:-1]]) != tensor.shape[:-1]:
            raise ShapeError(
                f"ops.rope got positions of shape {places.shape}, which do not fit "
                f"{tensor.shape[:-1]}"
            )
        cosine, sine = turns(places, turned, float(base), tensor._spec)
    return rotated(tensor, cosine, sine, bool(interleaved))


def rotated(x: Tensor, cosine: Tensor, sine: Tensor, interleaved: bool = False) -> Tensor:
    """A tensor with its pairs turned by angles whose cosines and sines are at hand."""
    spec, wide = x._spec, cosine._spec
    kernel, result = spec.backend.entry(wide, "rope")
    if wide is not spec:
        x = convert.cast(x, wide.dtype)
    try:
        native = kernel(x.native, cosine.native, sine.native, interleaved)
    except Exception as error:
        raise explain("rope", error, (x,)) from error
    if result.settles and type(native) is not result.native_type:
        native = result.backend.settle_native(native, result)
    if type(x) is GradTensor or type(cosine) is GradTensor:
        out = recorded("rope", native, result, (x, cosine, sine), (interleaved,))
    else:
        out = fill(native, result)
    return out if wide is spec else convert.cast(out, spec.dtype)


def _wide(spec: Spec) -> Spec:
    """Where angles are computed for tensors of a spec: half precision is too coarse for them."""
    return spec.with_dtype(dtypes.float32) if spec.dtype.itemsize < 4 else spec


def tables(length: int, dims: int, base: float, spec: Spec) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the positions 0, 1, ..., as `rotated` takes them."""
    wide = _wide(spec)
    cosine, sine = _tables(length, dims, base, wide.dtype)
    backend = wide.backend
    return (
        fill(backend.from_numpy(cosine, wide, True), wide),
        fill(backend.from_numpy(sine, wide, True), wide),
    )


def turns(positions: Tensor, dims: int, base: float, spec: Spec) -> tuple[Tensor, Tensor]:
    """Cosines and sines of some positions, as `rotated` takes them."""
    wide = _wide(spec)
    rates = fill(wide.backend.from_numpy(_rates(dims, base, wide.dtype), wide), wide)
    angles = multiply(expand_dims(convert.cast(positions, wide.dtype), -1), rates)
    return cos(angles), sin(angles)


def _rates(dims: int, base: float, dtype: dtypes.DType) -> np.ndarray[Any, Any]:
    return (base ** (-np.arange(0, dims, 2) / dims)).astype(dtype.numpy)


@lru_cache(maxsize=32)
def _tables(
    length: int, dims: int, base: float, dtype: dtypes.DType
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Cosines and sines of all positions, from angles in float64: those of float32 drift."""
    angles = np.arange(length)[:, None] * base ** (-np.arange(0, dims, 2) / dims)
    return np.cos(angles).astype(dtype.numpy), np.sin(angles).astype(dtype.numpy)
