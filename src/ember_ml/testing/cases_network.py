"""The parts of networks: attention and normalization here, the others beside this file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import AxisError, DomainError, DTypeError, ShapeError
from ember_ml.testing import (
    cases_activations,
    cases_convolution,
    cases_dropping,
    cases_pooling,
)
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample
from ember_ml.testing.mistake import Mistake

__all__ = ["MISTAKES", "NETWORK"]

Shapes = tuple[tuple[int, ...], ...]
_SDPA: Final = "scaled_dot_product_attention"


def _of(seed: str, *runs: Shapes, low: float = -2, high: float = 2) -> Callable[..., list[Inputs]]:
    """Inputs of the given shapes; the seed keeps those of several ops apart."""

    def make(dtype: DType) -> list[Inputs]:
        return [
            tuple(sample(f"{seed}{i}{s}", s, dtype, low, high) for i, s in enumerate(shapes))
            for shapes in runs
        ]

    return make


def _case(
    op: str,
    run: Callable[..., Any],
    expect: Callable[..., Any],
    inputs: Callable[[DType], list[Inputs]],
    label: str = "",
    ulps: float = 64,
    over: tuple[DType, ...] = (),
) -> Case:
    def reference(*arrays: Array) -> Any:
        # Truth values are numbers here, but for the mask of an attention.
        kept = arrays[3:] if op == _SDPA else ()
        return expect(
            *(np.asarray(a, np.float64) for a in arrays[: len(arrays) - len(kept)]), *kept
        )

    return Case(op, run, reference, inputs, over or accepted(op), law(op), ulps, label)


# --- Attention --------------------------------------------------------------------------------

_FLOATS: Final = tuple(d for d in dtypes.ALL if d.is_floating)
_LOWEST: Final = float("-inf")


def _attention(
    q: Array, k: Array, v: Array, seen: Array | None = None, scale: float | None = None
) -> Array:
    """Query by query; one that sees nothing gives zeros."""
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    factor = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    share = q.shape[-3] // k.shape[-3] if q.ndim > 2 and q.size else 1
    shown = np.ones((*q.shape[:-1], k.shape[-2]), bool) if seen is None else seen
    bias = np.where(shown, 0, _LOWEST) if shown.dtype == bool else shown
    bias = np.broadcast_to(bias, (*q.shape[:-1], k.shape[-2]))
    for place in np.ndindex(*q.shape[:-1]):
        head = (*place[:-2], place[-2] // share) if q.ndim > 2 else ()
        scores = factor * (k[head] @ q[place]) + bias[place]
        kept = scores > _LOWEST
        if kept.any():
            weights = np.exp(scores[kept] - scores[kept].max())
            out[place] = weights @ v[head][kept] / weights.sum()
    return out


def _causal(q: Array, k: Array) -> Array:
    return np.tri(q.shape[-2], k.shape[-2], dtype=bool)


_QKV: Final = _of("attention", ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)), ((3, 4), (3, 4), (3, 4)),
                  ((2, 3, 4), (2, 3, 4), (2, 3, 4)))  # fmt: skip
_ONE_QKV: Final = _of("attention", ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)))
_SHARED: Final = _of("gqa", ((2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4)))
_SEEN: Final = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]], bool)
_ADDED: Final = np.array(
    [[0, 1, _LOWEST, -2, 0], [_LOWEST] * 5, [0.5, 0, 0, _LOWEST, 1]], np.float64
)


def _with_bool(dtype: DType) -> list[Inputs]:
    return [(*run, _SEEN) for run in _ONE_QKV(dtype)]


def _with_head_masks(dtype: DType) -> list[Inputs]:
    heads = np.stack([_SEEN, ~_SEEN, _SEEN[::-1], ~_SEEN[::-1]])
    return [(*run, heads[None]) for run in _SHARED(dtype)]


def _with_added(dtype: DType) -> list[Inputs]:
    return [(*run, _ADDED.astype(dtype.numpy)) for run in _ONE_QKV(dtype)]


_ATTENTION: Final = (
    _case(_SDPA, lambda xp, q, k, v: xp.scaled_dot_product_attention(q, k, v), _attention, _QKV),
    _case(_SDPA, lambda xp, q, k, v: xp.scaled_dot_product_attention(q, k, v, scale=0.3),
          lambda q, k, v: _attention(q, k, v, scale=0.3), _ONE_QKV, "scale"),
    _case(_SDPA, lambda xp, q, k, v: xp.scaled_dot_product_attention(q, k, v, is_causal=True),
          lambda q, k, v: _attention(q, k, v, _causal(q, k)), _QKV, "causal", over=_FLOATS),
    _case(_SDPA, lambda xp, q, k, v, m: xp.scaled_dot_product_attention(q, k, v, m), _attention,
          _with_bool, "mask"),
    _case(_SDPA, lambda xp, q, k, v, m: xp.scaled_dot_product_attention(q, k, v, m), _attention,
          _with_added, "bias", over=_FLOATS),
    _case(_SDPA,
          lambda xp, q, k, v, m: xp.scaled_dot_product_attention(q, k, v, m, is_causal=True),
          lambda q, k, v, m: _attention(q, k, v, m & _causal(q, k)), _with_bool, "mask-causal",
          over=_FLOATS),
    _case(_SDPA,
          lambda xp, q, k, v, m: xp.scaled_dot_product_attention(q, k, v, m, is_causal=True),
          lambda q, k, v, m: _attention(q, k, v, np.where(_causal(q, k), m, _LOWEST)),
          _with_added, "bias-causal", over=_FLOATS),
    _case(_SDPA, lambda xp, q, k, v: xp.scaled_dot_product_attention(q, k, v, enable_gqa=True),
          _attention, _SHARED, "shared", over=_FLOATS),
    _case(_SDPA,
          lambda xp, q, k, v, m: xp.scaled_dot_product_attention(q, k, v, m, enable_gqa=True),
          _attention, _with_head_masks, "shared-mask", over=_FLOATS),
    _case(_SDPA, lambda xp, q, k, v: xp.scaled_dot_product_attention(q, k, v), _attention,
          _of("empty", ((2, 3, 4), (2, 0, 4), (2, 0, 3)), ((0, 3, 4), (0, 5, 4), (0, 5, 3))),
          "empty", over=_FLOATS),
)  # fmt: skip


def _rope(x: Array, positions: Array, base: float, dims: int, interleaved: bool) -> Array:
    out = x.copy()
    for i in range(dims // 2):
        angle = positions * base ** (-2 * i / dims)
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + dims // 2)
        out[..., a] = x[..., a] * np.cos(angle) - x[..., b] * np.sin(angle)
        out[..., b] = x[..., b] * np.cos(angle) + x[..., a] * np.sin(angle)
    return out


_ROPE: Final = (
    _case("rope", lambda xp, x: xp.rope(x),
          lambda x: _rope(x, np.arange(x.shape[-2]), 10000, x.shape[-1], False),
          _of("rope", ((2, 2, 5, 6),), ((5, 4),), ((0, 4),))),
    _case("rope", lambda xp, x: xp.rope(x, base=100.0, dims=4, interleaved=True),
          lambda x: _rope(x, np.arange(x.shape[-2]), 100, 4, True), _of("rope", ((2, 2, 5, 6),)),
          "interleaved", over=_FLOATS),
    _case("rope", lambda xp, x: xp.rope(x, xp.asarray([[[7, 3, 0, 11, 2]], [[0, 1, 2, 3, 4]]])),
          lambda x: _rope(x, np.array([[[7, 3, 0, 11, 2]], [[0, 1, 2, 3, 4]]]), 10000,
                          x.shape[-1], False),
          _of("rope", ((2, 2, 5, 6),)), "positions", over=_FLOATS),
)  # fmt: skip


# --- Normalization ----------------------------------------------------------------------------


def _layer_norm(
    x: Array, axes: tuple[int, ...], weight: Any = 1.0, bias: Any = 0.0, eps: float = 1e-5
) -> Any:
    mean = x.mean(axes, keepdims=True)
    spread = np.square(x - mean).mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(spread + eps) * weight + bias


def _rms_norm(x: Array, axes: tuple[int, ...], weight: Any = 1.0, eps: float = 1e-5) -> Any:
    return x / np.sqrt(np.square(x).mean(axes, keepdims=True) + eps) * weight


def _columns(vector: Array, x: Array) -> Array:
    return vector.reshape(-1, *(1,) * (x.ndim - 2))


def _group_norm(x: Array, groups: int, weight: Any = None, bias: Any = None) -> Any:
    rows = x.reshape(x.shape[0], groups, -1) if x.size else x.reshape(x.shape[0], groups, 0)
    out = _layer_norm(rows, (2,)).reshape(x.shape)
    return out if weight is None else out * _columns(weight, x) + _columns(bias, x)


def _batch_norm(
    x: Array, mean: Array, var: Array, weight: Array, bias: Array, eps: float = 1e-5
) -> Any:
    out = (x - _columns(mean, x)) / np.sqrt(_columns(var, x) + eps)
    return out * _columns(weight, x) + _columns(bias, x)


def _batch_norm_training(
    x: Array, mean: Array, var: Array, weight: Array, bias: Array
) -> tuple[Any, ...]:
    axes = (0, *range(2, x.ndim))
    here = x.mean(axes)
    out = _batch_norm(x, here, x.var(axes), weight, bias)
    return out, 0.9 * mean + 0.1 * here, 0.9 * var + 0.1 * x.var(axes, ddof=1)


def _swap(x: Any, back: bool = False) -> Any:
    return np.moveaxis(x, 1, -1) if back else np.moveaxis(x, -1, 1)


_BATCH: Final = ((4, 3), (3,), (3,), (3,), (3,)), ((2, 3, 4), (3,), (3,), (3,), (3,))
_POSITIVE: Final = _of("batch", *_BATCH, low=0.5, high=3)

_NORMS: Final = (
    _case("linear", lambda xp, x, w, b: xp.linear(x, w, b), lambda x, w, b: x @ w.T + b,
          _of("linear", ((2, 3, 4), (5, 4), (5,)), ((3, 4), (2, 4), (2,)), ((4,), (2, 4), (2,)),
              ((0, 4), (2, 4), (2,)), ((2, 0), (3, 0), (3,)), ((2, 3), (0, 3), (0,)))),
    _case("linear", lambda xp, x, w: xp.linear(x, w), lambda x, w: x @ w.T,
          _of("linear", ((2, 3, 4), (5, 4)), ((4,), (2, 4))), "plain"),
    _case("layer_norm", lambda xp, x, w, b: xp.layer_norm(x, weight=w, bias=b),
          lambda x, w, b: _layer_norm(x, (-1,), w, b),
          _of("layer", ((2, 3, 4), (4,), (4,)), ((4,), (4,), (4,)), ((0, 4), (4,), (4,)))),
    _case("layer_norm", lambda xp, x: xp.layer_norm(x), lambda x: _layer_norm(x, (-1,)),
          _of("layer", ((2, 3, 4),)), "plain"),
    _case("layer_norm", lambda xp, x: xp.layer_norm(x), lambda x: np.zeros(x.shape),
          lambda dtype: [(np.full((2, 3), 7).astype(dtype.numpy),)], "constant", over=_FLOATS),
    _case("layer_norm", lambda xp, x, w: xp.layer_norm(x, (3, 4), w, None, 0.1),
          lambda x, w: _layer_norm(x, (-2, -1), w, eps=0.1), _of("layer", ((2, 3, 4), (3, 4))),
          "shape", over=_FLOATS),
    _case("layer_norm", lambda xp, x, b: xp.layer_norm(x, bias=b, axis=1),
          lambda x, b: _layer_norm(x, (1,), 1, b[:, None]), _of("layer", ((2, 3, 4), (3,))),
          "axis1", over=_FLOATS),
    _case("layer_norm", lambda xp, x, w: xp.layer_norm(x, weight=w, axis=(2, 0)),
          lambda x, w: _layer_norm(x, (2, 0), w.T[:, None]), _of("layer", ((2, 3, 4), (4, 2))),
          "axes", over=_FLOATS),
    _case("rms_norm", lambda xp, x, w: xp.rms_norm(x, w), lambda x, w: _rms_norm(x, (-1,), w),
          _of("rms", ((2, 3, 4), (4,)), ((4,), (4,)), ((0, 4), (4,)))),
    _case("rms_norm", lambda xp, x: xp.rms_norm(x, eps=0.1), lambda x: _rms_norm(x, (-1,), eps=0.1),
          _of("rms", ((2, 3, 4),)), "plain", over=_FLOATS),
    _case("rms_norm", lambda xp, x, w: xp.rms_norm(x, w, axis=(0, 1)),
          lambda x, w: _rms_norm(x, (0, 1), w[..., None]), _of("rms", ((2, 3, 4), (2, 3))), "axes",
          over=_FLOATS),
    _case("group_norm", lambda xp, x, w, b: xp.group_norm(x, 2, w, b),
          lambda x, w, b: _group_norm(x, 2, w, b),
          _of("group", ((2, 4, 3), (4,), (4,)), ((2, 4), (4,), (4,)), ((0, 4, 3), (4,), (4,)))),
    _case("group_norm", lambda xp, x: xp.group_norm(x, 2, data_format="channels_last"),
          lambda x: _swap(_group_norm(_swap(x), 2), True), _of("group", ((2, 3, 2, 4),)), "last",
          over=_FLOATS),
    _case("instance_norm", lambda xp, x, w, b: xp.instance_norm(x, w, b),
          lambda x, w, b: _group_norm(x, x.shape[1], w, b),
          _of("instance", ((2, 3, 4), (3,), (3,)), ((2, 3, 2, 4), (3,), (3,)))),
    _case("instance_norm", lambda xp, x: xp.instance_norm(x, data_format="channels_last"),
          lambda x: _swap(_group_norm(_swap(x), x.shape[-1]), True),
          _of("instance", ((2, 4, 3),)), "last", over=_FLOATS),
    _case("batch_norm", lambda xp, *v: xp.batch_norm(*v), _batch_norm, _POSITIVE),
    _case("batch_norm", lambda xp, x, m, v: xp.batch_norm(x, m, v, data_format="channels_last"),
          lambda x, m, v: (x - m) / np.sqrt(v + 1e-5),
          _of("batch", ((2, 4, 3), (3,), (3,)), low=0.5, high=3), "last", over=_FLOATS),
    _case("batch_norm", lambda xp, *v: xp.batch_norm(*v, training=True), _batch_norm_training,
          _POSITIVE, "training"),
    _case("batch_norm", lambda xp, x: xp.batch_norm(x, None, None, training=True),
          lambda x: (_layer_norm(x, (0, 2)), x.mean((0, 2)), x.var((0, 2), ddof=1)),
          _of("batch", ((2, 3, 4),)), "new", over=_FLOATS),
    _case("normalize", lambda xp, x: xp.normalize(x),
          lambda x: x / np.maximum(np.linalg.vector_norm(x, axis=-1, keepdims=True), 1e-12),
          _of("normalize", ((2, 3),), ((4,),), ((0, 3),))),
    _case("normalize", lambda xp, x: xp.normalize(x, 0, ord=1, eps=4.0),
          lambda x: x / np.maximum(np.abs(x).sum(0), 4), _of("normalize", ((2, 3),)), "one",
          over=_FLOATS),
    _case("normalize", lambda xp, x: xp.normalize(x, (0, 1), ord=float("inf")),
          lambda x: x / np.abs(x).max(), _of("normalize", ((2, 3),)), "largest", over=_FLOATS),
    _case("normalize", lambda xp, x: xp.normalize(x, ord=3),
          lambda x: x / (np.abs(x) ** 3).sum(-1, keepdims=True) ** (1 / 3),
          _of("normalize", ((2, 3),)), "three", over=_FLOATS),
    _case("normalize", lambda xp, x: xp.normalize(x), lambda x: np.zeros(x.shape),
          lambda dtype: [(np.zeros((2, 3), dtype.numpy),)], "zero", over=_FLOATS),
)  # fmt: skip


NETWORK: Final[tuple[Case, ...]] = (
    *cases_activations.ACTIVATIONS,
    *_ATTENTION,
    *_ROPE,
    *_NORMS,
    *cases_convolution.CONVOLUTION,
    *cases_pooling.POOLING,
    *cases_dropping.DROPPING,
)


def _sdpa(*shapes: tuple[int, ...], **options: Any) -> Callable[[Any], Any]:
    return lambda xp: xp.scaled_dot_product_attention(*(xp.ones(s) for s in shapes), **options)


MISTAKES: Final[tuple[Mistake, ...]] = (
    *cases_activations.MISTAKES,
    *cases_convolution.MISTAKES,
    *cases_pooling.MISTAKES,
    *cases_dropping.MISTAKES,
    Mistake("attention-features", ShapeError, _sdpa((2, 3, 4), (2, 3, 5), (2, 3, 4)),
            ("scaled_dot_product_attention", "(2, 3, 5)", "features")),
    Mistake("attention-values", ShapeError, _sdpa((2, 3, 4), (2, 3, 4), (2, 5, 4))),
    Mistake("attention-heads", ShapeError, _sdpa((4, 3, 4), (2, 3, 4), (2, 3, 4)),
            ("enable_gqa=True",)),
    Mistake("attention-uneven-heads", ShapeError,
            _sdpa((3, 3, 4), (2, 3, 4), (2, 3, 4), enable_gqa=True)),
    Mistake("attention-vectors", ShapeError, _sdpa((4,), (4,), (4,))),
    Mistake("attention-mask", ShapeError, _sdpa((3, 4), (3, 4), (3, 4), (3, 2)), ("(3, 2)",)),
    Mistake("attention-integers", DTypeError, lambda xp: xp.scaled_dot_product_attention(
        *[xp.ones((3, 4))] * 3, xp.ones((3, 3), dtype="int32")), ("int32", "bool")),
    Mistake("rope-odd", ShapeError, lambda xp: xp.rope(xp.ones((2, 3))), ("ops.rope", "3")),
    Mistake("rope-dims", ShapeError, lambda xp: xp.rope(xp.ones((2, 4)), dims=6)),
    Mistake("rope-vector", ShapeError, lambda xp: xp.rope(xp.ones((4,)))),
    Mistake("rope-positions", ShapeError, lambda xp: xp.rope(xp.ones((2, 4)), xp.ones((3,)))),
    Mistake("rope-base", DomainError, lambda xp: xp.rope(xp.ones((2, 4)), base=0)),
    Mistake("linear-inner", ShapeError, lambda xp: xp.linear(xp.ones((2, 3)), xp.ones((4, 2))),
            ("ops.linear", "(2, 3)", "(4, 2)", "(out, in)")),
    Mistake("linear-0d", ShapeError, lambda xp: xp.linear(xp.ones(()), xp.ones((4, 2)))),
    Mistake("linear-stack", ShapeError, lambda xp: xp.linear(xp.ones((2, 3)), xp.ones((2, 4, 3)))),
    Mistake("linear-bias", ShapeError,
            lambda xp: xp.linear(xp.ones((2, 3)), xp.ones((4, 3)), xp.ones((3,))),
            ("(3,)", "(4,)")),
    Mistake("layer_norm-shape", ShapeError, lambda xp: xp.layer_norm(xp.ones((2, 3)), (2,)),
            ("ops.layer_norm", "(2, 3)", "(2,)")),
    Mistake("layer_norm-weight", ShapeError,
            lambda xp: xp.layer_norm(xp.ones((2, 3)), weight=xp.ones((2,))), ("(2,)", "(3,)")),
    Mistake("layer_norm-axis", AxisError, lambda xp: xp.layer_norm(xp.ones((2, 3)), axis=2)),
    Mistake("rms_norm-0d", AxisError, lambda xp: xp.rms_norm(xp.ones(()))),
    Mistake("group_norm-groups", ShapeError, lambda xp: xp.group_norm(xp.ones((2, 3)), 2),
            ("ops.group_norm", "3 channels")),
    Mistake("group_norm-format", DomainError,
            lambda xp: xp.group_norm(xp.ones((2, 4, 3)), 2, data_format="NHWC"), ("'NHWC'",)),
    Mistake("instance_norm-vector", ShapeError, lambda xp: xp.instance_norm(xp.ones((3,)))),
    Mistake("batch_norm-statistics", DomainError,
            lambda xp: xp.batch_norm(xp.ones((2, 3)), None, None), ("running_mean",)),
    Mistake("batch_norm-one", DomainError,
            lambda xp: xp.batch_norm(xp.ones((2, 3)), xp.ones((3,)), None)),
    Mistake("batch_norm-parameter", ShapeError,
            lambda xp: xp.batch_norm(xp.ones((2, 3)), xp.ones((2,)), xp.ones((2,)))),
    Mistake("batch_norm-single", ShapeError, lambda xp: xp.batch_norm(
        xp.ones((1, 3)), xp.ones((3,)), xp.ones((3,)), training=True), ("two values",)),
    Mistake("normalize-ord", DomainError, lambda xp: xp.normalize(xp.ones((2,)), ord=0)),
    Mistake("normalize-axis", AxisError, lambda xp: xp.normalize(xp.ones((2,)), 1)),
)  # fmt: skip
