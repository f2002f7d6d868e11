"""Gradients of the parts of networks: cases where those of the values do not suit."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml.testing.case import Array
from ember_ml.testing.gradients import GradientCase
from ember_ml.testing.gradients_control import CONTROL, LOSSES

__all__ = ["NETWORK"]

Shape = tuple[int, ...]


def _drawn(label: str, *shapes: Shape) -> tuple[Array, ...]:
    generator = np.random.Generator(np.random.Philox(zlib.crc32(label.encode())))
    return tuple(generator.uniform(-2.0, 2.0, shape) for shape in shapes)


def _apart(label: str, shape: Shape) -> Array:
    """Values no two of which are near each other, in any order."""
    generator = np.random.Generator(np.random.Philox(zlib.crc32(label.encode())))
    count = int(np.prod(shape))
    return (generator.permutation(count).reshape(shape) - count / 2.0) / 4.0 + 0.1


# --- Convolution ------------------------------------------------------------------------------


def _conv(op: str, label: str, shapes: tuple[Shape, ...], **options: Any) -> GradientCase:
    def run(xp: Any, *arrays: Any) -> Any:
        return getattr(xp, op)(*arrays, **options)

    return GradientCase(op, run, _drawn(op + label, *shapes), label)


_X1, _W1 = (2, 4, 7), (6, 2, 3)
_CONVOLUTIONS: Final[tuple[GradientCase, ...]] = (
    _conv("conv", "", ((2, 2, 5), (3, 2, 2), (3,))),
    _conv("conv1d", "", (_X1, (3, 4, 3), (3,)), padding=1),
    _conv("conv1d", "strides", (_X1, (3, 4, 2)), stride=3, padding=((2, 0),)),
    _conv("conv1d", "groups", (_X1, _W1, (6,)), groups=2, dilation=2, padding="same"),
    _conv("conv1d", "channels", (_X1, (8, 1, 3)), groups=4, stride=2),
    _conv("conv1d", "last", ((2, 7, 3), (2, 3, 3), (2,)), stride=2, data_format="channels_last"),
    _conv("conv1d", "alone", ((3, 5), (2, 3, 2), (2,))),
    _conv("conv1d", "wide", ((1, 2, 2), (2, 2, 1)), padding=3, stride=2),
    _conv("conv2d", "", ((2, 2, 4, 5), (3, 2, 3, 2), (3,)), stride=(1, 2), padding=(1, 0)),
    _conv("conv2d", "groups", ((1, 4, 4, 4), (4, 2, 2, 3)), groups=2, dilation=(2, 1), padding=1),
    _conv(
        "conv2d", "last", ((1, 4, 4, 2), (2, 2, 3, 3)), padding="same", data_format="channels_last"
    ),
    _conv("conv3d", "", ((1, 2, 3, 3, 4), (2, 2, 2, 2, 3), (2,)), padding=(1, 0, 1), stride=2),
    _conv("conv3d", "groups", ((1, 2, 3, 2, 2), (4, 1, 2, 1, 2)), groups=2),
    _conv("conv_transpose", "", ((2, 2, 4), (2, 3, 2), (3,)), stride=2),
    _conv("conv_transpose1d", "", ((2, 4, 4), (4, 3, 3), (3,)), stride=2, padding=1),
    _conv(
        "conv_transpose1d",
        "more",
        ((2, 4, 4), (4, 1, 3), (2,)),
        stride=3,
        padding=((0, 2),),
        output_padding=2,
        groups=2,
    ),
    _conv(
        "conv_transpose1d", "gaps", ((1, 2, 4), (2, 2, 2)), stride=2, dilation=4, output_padding=3
    ),
    _conv("conv_transpose1d", "cut", ((1, 2, 5), (2, 2, 1)), padding=2),
    _conv(
        "conv_transpose1d",
        "last",
        ((2, 4, 2), (2, 3, 3), (3,)),
        padding="same",
        stride=2,
        data_format="channels_last",
    ),
    _conv("conv_transpose2d", "", ((1, 2, 3, 3), (2, 3, 2, 3), (3,)), stride=(2, 1), padding=1),
    _conv("conv_transpose2d", "groups", ((1, 4, 2, 3), (4, 1, 3, 2)), groups=2, dilation=(1, 2)),
    _conv("conv_transpose3d", "", ((1, 2, 2, 2, 3), (2, 2, 2, 2, 2), (2,)), stride=2, padding=1),
    _conv("conv_transpose3d", "groups", ((1, 2, 2, 2, 2), (2, 1, 2, 1, 2)), groups=2),
    _conv("unfold", "", ((1, 2, 4, 5),), kernel_size=(2, 3), padding=1, stride=2, dilation=(1, 2)),
    _conv("unfold", "line", ((2, 2, 6),), kernel_size=(3,)),
    _conv("fold", "", ((1, 8, 6),), output_size=(4, 5), kernel_size=2, padding=((1, 0), (0, 0)),
          stride=(2, 1), dilation=(1, 2)),
    _conv("fold", "line", ((2, 6, 4),), output_size=(6,), kernel_size=(3,)),
)  # fmt: skip


# --- Pooling and resizing ---------------------------------------------------------------------


def _pool(op: str, label: str, shape: Shape, *args: Any, **options: Any) -> GradientCase:
    def run(xp: Any, x: Any) -> Any:
        return getattr(xp, op)(x, *args, **options)

    return GradientCase(op, run, (_apart(op + label, shape),), label)


_POOLS: Final[tuple[GradientCase, ...]] = (
    _pool("max_pool1d", "", (2, 2, 7), 3, 2),
    _pool("max_pool1d", "padded", (1, 2, 8), 3, 2, ((1, 0),), ceil_mode=True),
    _pool("max_pool1d", "gaps", (1, 2, 9), 3, 1, 1, 2),
    _pool("max_pool1d", "alone", (2, 6), 2, data_format="channels_last"),
    _pool("max_pool1d", "indices", (1, 2, 7), 3, 2, return_indices=True),
    _pool("max_pool2d", "", (1, 2, 4, 6), 2),
    _pool("max_pool2d", "overlap", (1, 2, 5, 5), 3, 2, 1),
    _pool("max_pool2d", "gaps", (1, 1, 6, 6), 2, 1, 0, 3),
    _pool("max_pool2d", "indices", (1, 1, 5, 5), 3, 1, 1, return_indices=True),
    _pool("max_pool2d", "last", (1, 4, 4, 2), 2, data_format="channels_last"),
    _pool("max_pool3d", "", (1, 2, 3, 4, 4), 2, 1),
    _pool("max_pool3d", "gaps", (1, 1, 4, 4, 4), 2, 1, 0, 2),
    _pool("avg_pool1d", "", (2, 2, 7), 3, 2),
    _pool("avg_pool1d", "padded", (1, 2, 8), 3, 2, 1, ceil_mode=True),
    _pool("avg_pool1d", "inside", (1, 2, 8), 3, 2, 1, True, False),
    _pool("avg_pool2d", "", (1, 2, 4, 6), 2),
    _pool("avg_pool2d", "overlap", (1, 2, 5, 5), 3, 2, ((1, 0), (0, 1)), False, False),
    _pool("avg_pool2d", "last", (1, 4, 4, 2), 2, data_format="channels_last"),
    _pool("avg_pool3d", "", (1, 2, 3, 4, 4), 2, 1, 1),
    _pool("adaptive_avg_pool1d", "", (2, 2, 7), 3),
    _pool("adaptive_avg_pool1d", "longer", (1, 2, 3), 5),
    _pool("adaptive_avg_pool2d", "", (1, 2, 4, 5), (2, 3)),
    _pool("adaptive_avg_pool2d", "last", (1, 4, 5, 2), (None, 2), data_format="channels_last"),
    _pool("adaptive_avg_pool3d", "", (1, 1, 4, 3, 5), (2, 3, 2)),
    _pool("adaptive_max_pool1d", "", (2, 2, 7), 3),
    _pool("adaptive_max_pool1d", "longer", (1, 2, 3), 5),
    _pool("adaptive_max_pool2d", "", (1, 2, 4, 5), (2, 3)),
    _pool("adaptive_max_pool2d", "last", (1, 4, 5, 2), (None, 2), data_format="channels_last"),
    _pool("adaptive_max_pool3d", "", (1, 1, 4, 3, 5), (2, 3, 2)),
    _pool("resize", "nearest", (1, 2, 3, 4), (6, 7)),
    _pool("resize", "smaller", (1, 1, 5, 6), (3, 4)),
    _pool("resize", "linear", (1, 2, 5), 8, method="linear"),
    _pool("resize", "bilinear", (1, 2, 3, 4), (5, 2), method="bilinear", align_corners=True),
    _pool("resize", "trilinear", (1, 1, 2, 3, 3), (3, 3, 5), method="trilinear"),
    _pool("resize", "cubic", (1, 2, 4, 4), (6, 3), method="bicubic"),
    _pool("resize", "corners", (1, 1, 4, 4), (5, 7), method="bicubic", align_corners=True),
    _pool("resize", "last", (1, 3, 4, 2), (6, 6), method="bilinear", data_format="channels_last"),
)


# --- Normalization ----------------------------------------------------------------------------


def _norm(op: str, label: str, shapes: tuple[Shape, ...], run: Callable[..., Any]) -> GradientCase:
    first, *others = _drawn(op + label, *shapes)
    # Weights and variances are positive; the rest does not mind.
    return GradientCase(op, run, (first, *(np.abs(a) + 0.25 for a in others)), label)


_NORMS: Final[tuple[GradientCase, ...]] = (
    _norm("layer_norm", "", ((3, 4), (4,), (4,)), lambda xp, x, w, b: xp.layer_norm(x, None, w, b)),
    _norm("layer_norm", "plain", ((2, 3, 3),), lambda xp, x: xp.layer_norm(x)),
    _norm(
        "layer_norm",
        "shape",
        ((2, 2, 3), (2, 3), (2, 3)),
        lambda xp, x, w, b: xp.layer_norm(x, (2, 3), w, b),
    ),
    _norm(
        "layer_norm",
        "axis",
        ((2, 3, 4), (3,)),
        lambda xp, x, w: xp.layer_norm(x, None, w, axis=1),
    ),
    _norm("linear", "", ((3, 4), (2, 4), (2,)), lambda xp, x, w, b: xp.linear(x, w, b)),
    _norm("linear", "stack", ((2, 3, 4), (5, 4)), lambda xp, x, w: xp.linear(x, w)),
    _norm("rms_norm", "", ((3, 4), (4,)), lambda xp, x, w: xp.rms_norm(x, w)),
    _norm("rms_norm", "plain", ((2, 3, 3),), lambda xp, x: xp.rms_norm(x, axis=(1, 2))),
    _norm(
        "group_norm",
        "",
        ((2, 4, 3), (4,), (4,)),
        lambda xp, x, w, b: xp.group_norm(x, 2, w, b),
    ),
    _norm(
        "group_norm",
        "last",
        ((2, 3, 4),),
        lambda xp, x: xp.group_norm(x, 2, data_format="channels_last"),
    ),
    _norm(
        "instance_norm",
        "",
        ((2, 2, 5), (2,), (2,)),
        lambda xp, x, w, b: xp.instance_norm(x, w, b),
    ),
    _norm(
        "batch_norm",
        "",
        ((3, 2, 3), (2,), (2,), (2,), (2,)),
        lambda xp, x, m, v, w, b: xp.batch_norm(x, m, v, w, b),
    ),
    _norm("batch_norm", "plain", ((3, 2), (2,), (2,)), lambda xp, x, m, v: xp.batch_norm(x, m, v)),
    # No gradient passes to or from the running values, which are not differentiated by here.
    _norm(
        "batch_norm",
        "training",
        ((4, 2, 2), (2,), (2,)),
        lambda xp, x, w, b: xp.batch_norm(x, None, None, w, b, training=True)[0],
    ),
    _norm(
        "batch_norm",
        "last",
        ((5, 2, 3), (3,)),
        lambda xp, x, w: xp.batch_norm(
            x,
            xp.zeros(3, dtype=x.dtype),
            xp.ones(3, dtype=x.dtype),
            w,
            training=True,
            data_format="channels_last",
        )[0],
    ),
    _norm("normalize", "", ((3, 4),), lambda xp, x: xp.normalize(x)),
    _norm("normalize", "axes", ((2, 3, 2),), lambda xp, x: xp.normalize(x, (0, 2))),
    _norm("normalize", "one", ((3, 4),), lambda xp, x: xp.normalize(x, 0, ord=1)),
    _norm("normalize", "three", ((3, 4),), lambda xp, x: xp.normalize(x, ord=3)),
    _norm("normalize", "largest", ((3, 4),), lambda xp, x: xp.normalize(x, ord=np.inf)),
    _norm("normalize", "small", ((3, 4),), lambda xp, x: xp.normalize(x, eps=100.0)),
)


# --- Attention --------------------------------------------------------------------------------

_SEEN: Final = np.array([[True, False, True, True], [False] * 4, [True, True, False, False]])


def _attention(
    label: str, shapes: tuple[Shape, ...], run: Callable[..., Any], *more: Array
) -> GradientCase:
    name = "scaled_dot_product_attention"
    return GradientCase(name, run, (*_drawn(name + label, *shapes), *more), label)


_ATTENTION: Final[tuple[GradientCase, ...]] = (
    _attention(
        "",
        ((2, 3, 2), (2, 4, 2), (2, 4, 3)),
        lambda xp, q, k, v: xp.scaled_dot_product_attention(q, k, v),
    ),
    _attention(
        "causal",
        ((1, 2, 3, 2), (1, 2, 3, 2), (1, 2, 3, 2)),
        lambda xp, q, k, v: xp.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.7),
    ),
    _attention(
        "uneven",
        ((4, 2), (3, 2), (3, 2)),
        lambda xp, q, k, v: xp.scaled_dot_product_attention(q, k, v, is_causal=True),
    ),
    # The second query sees no key.
    _attention(
        "mask",
        ((2, 3, 2), (2, 4, 2), (2, 4, 2)),
        lambda xp, q, k, v, m: xp.scaled_dot_product_attention(q, k, v, m),
        _SEEN,
    ),
    _attention(
        "added",
        ((2, 3, 2), (2, 4, 2), (2, 4, 2), (1, 3, 4)),
        lambda xp, q, k, v, m: xp.scaled_dot_product_attention(q, k, v, m, is_causal=True),
    ),
    _attention(
        "groups",
        ((1, 4, 2, 2), (1, 2, 3, 2), (1, 2, 3, 2)),
        lambda xp, q, k, v: xp.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    ),
    _attention(
        "groups-added",
        ((1, 4, 2, 2), (1, 2, 3, 2), (1, 2, 3, 2), (4, 1, 3)),
        lambda xp, q, k, v, m: xp.scaled_dot_product_attention(q, k, v, m, enable_gqa=True),
    ),
    GradientCase("rope", lambda xp, x: xp.rope(x), _drawn("rope", (2, 3, 4))),
    GradientCase(
        "rope",
        lambda xp, x, at: xp.rope(x, at, dims=4, interleaved=True),
        _drawn("turned", (2, 3, 6), (2, 3)),
        "positions",
    ),
    GradientCase(
        "rope", lambda xp, x, at: xp.rope(x, at), _drawn("shared", (2, 3, 4), (3,)), "shared"
    ),
)


NETWORK: Final[tuple[GradientCase, ...]] = (
    *_CONVOLUTIONS,
    *_POOLS,
    *_NORMS,
    *_ATTENTION,
    *CONTROL,
    *LOSSES,
)
