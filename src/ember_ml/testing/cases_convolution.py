"""Convolution against loops over windows in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.testing.case import Array, Case
from ember_ml.testing.mistake import Mistake
from ember_ml.testing.window_cases import EVERY, Shape, case, of, pairs_of, sides_of, wrong

__all__ = ["CONVOLUTION", "MISTAKES"]


def _batched(function: Callable[..., Array]) -> Callable[..., Array]:
    """A reference over (samples, channels, ...) for every layout."""

    def run(x: Array, weight: Array, *rest: Array, data_format: str = "", **options: Any) -> Array:
        alone = x.ndim == weight.ndim - 1
        x = x[None] if alone else x
        x = np.moveaxis(x, -1, 1) if data_format == "channels_last" else x
        out = function(x, weight, *rest, **options)
        out = np.moveaxis(out, 1, -1) if data_format == "channels_last" else out
        return out[0] if alone else out

    return run


@_batched
def _conv(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Array:
    spatial, kernel = x.shape[2:], weight.shape[2:]
    steps, gaps = sides_of(stride, len(kernel)), sides_of(dilation, len(kernel))
    extent = tuple((k - 1) * g + 1 for k, g in zip(kernel, gaps, strict=True))
    pairs = pairs_of(padding, spatial, extent, steps)
    padded = np.pad(x, [(0, 0), (0, 0), *pairs])
    out_shape = [(n - e) // s + 1 for n, e, s in zip(padded.shape[2:], extent, steps, strict=True)]
    out = np.zeros((x.shape[0], weight.shape[0], *out_shape))
    share, each = weight.shape[1], weight.shape[0] // groups
    for place in np.ndindex(*out_shape):
        window = tuple(
            slice(p * s, p * s + e, g)
            for p, s, e, g in zip(place, steps, extent, gaps, strict=True)
        )
        for result in range(weight.shape[0]):
            group = result // each
            seen = padded[(slice(None), slice(group * share, (group + 1) * share), *window)]
            products = seen * weight[result]
            out[(slice(None), result, *place)] = products.sum(tuple(range(1, products.ndim)))
    return out if bias is None else out + bias.reshape(-1, *(1,) * len(kernel))


@_batched
def _conv_transpose(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Array:
    kernel = weight.shape[2:]
    steps, gaps = sides_of(stride, len(kernel)), sides_of(dilation, len(kernel))
    more = sides_of(output_padding, len(kernel))
    extent = tuple((k - 1) * g + 1 for k, g in zip(kernel, gaps, strict=True))
    if padding == "same":
        pairs = [
            (max(e - s, 0) // 2, max(e - s, 0) - max(e - s, 0) // 2)
            for e, s in zip(extent, steps, strict=True)
        ]
        more = tuple(max(s - e, 0) for e, s in zip(extent, steps, strict=True))
    else:
        pairs = pairs_of(padding, x.shape[2:], extent, steps)
    full = [
        (n - 1) * s + e + m for n, s, e, m in zip(x.shape[2:], steps, extent, more, strict=True)
    ]
    each, share = weight.shape[1], x.shape[1] // groups
    out = np.zeros((x.shape[0], each * groups, *full))
    for place in np.ndindex(*x.shape[2:]):
        window = tuple(
            slice(p * s, p * s + e, g)
            for p, s, e, g in zip(place, steps, extent, gaps, strict=True)
        )
        for channel in range(x.shape[1]):
            group = channel // share
            value = x[(slice(None), channel, *place)].reshape(-1, *(1,) * (len(kernel) + 1))
            target = (slice(None), slice(group * each, (group + 1) * each), *window)
            out[target] += value * weight[channel]
    cut = tuple(slice(low, n - high) for n, (low, high) in zip(full, pairs, strict=True))
    out = out[(slice(None), slice(None), *cut)]
    return out if bias is None else out + bias.reshape(-1, *(1,) * len(kernel))


_LINE: Final = of("conv1", ((2, 4, 7), (6, 4, 3), (6,)))
_PLANE: Final = of("conv2", ((2, 4, 6, 5), (6, 4, 3, 2), (6,)))
_SPACE: Final = of("conv3", ((2, 4, 4, 5, 3), (6, 4, 2, 3, 2), (6,)))
_PARTED1: Final = of("parted1", ((2, 4, 7), (6, 2, 3), (6,)))
_PARTED2: Final = of("parted2", ((2, 4, 6, 5), (6, 2, 3, 2), (6,)))
_PARTED3: Final = of("parted3", ((2, 4, 4, 5, 3), (6, 2, 2, 3, 2), (6,)))
_DEEP: Final = of("deep", ((2, 4, 6, 5), (8, 1, 3, 2), (8,)))

_CONVOLUTIONS: Final = (
    case("conv1d", _LINE, _conv, over=EVERY),
    case("conv1d", _PARTED1, _conv,
          {"stride": 2, "padding": ((2, 1),), "dilation": 2, "groups": 2}, "options"),
    case("conv1d", of("alone", ((4, 7), (6, 4, 3))), _conv, {"padding": "same"}, "alone"),
    case("conv1d", of("last", ((2, 7, 4), (6, 4, 3))), _conv, {"data_format": "channels_last"},
          "last"),
    case("conv2d", _PLANE, _conv, over=EVERY),
    case("conv2d", _PARTED2, _conv,
          {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}, "options"),
    case("conv2d", _PLANE, _conv, {"stride": 2, "padding": "same"}, "same"),
    case("conv2d", _DEEP, _conv, {"groups": 4, "padding": 1}, "depthwise"),
    case("conv2d", of("one", ((2, 4, 3, 3), (6, 4, 1, 1))), _conv, {"padding": "valid"}, "pixel"),
    case("conv2d", of("last", ((2, 6, 5, 4), (6, 2, 3, 2), (6,))), _conv,
          {"groups": 2, "data_format": "channels_last"}, "last"),
    case("conv2d", of("none", ((0, 4, 6, 5), (6, 4, 3, 2))), _conv, label="empty"),
    case("conv3d", _SPACE, _conv, over=EVERY),
    case("conv3d", _PARTED3, _conv, {"stride": (1, 2, 1), "padding": 1, "groups": 2}, "options"),
    case("conv3d", of("last", ((2, 4, 5, 3, 4), (6, 4, 2, 3, 2))), _conv,
          {"data_format": "channels_last"}, "last"),
    case("conv", _PLANE, _conv, {"padding": 1}, over=EVERY),
)  # fmt: skip

_LINE_T: Final = of("transpose1", ((2, 4, 5), (4, 3, 3), (3,)))
_PLANE_T: Final = of("transpose2", ((2, 4, 3, 4), (4, 3, 3, 2), (3,)))
_SPACE_T: Final = of("transpose3", ((2, 4, 2, 3, 2), (4, 3, 2, 3, 2), (3,)))
_PARTED_T1: Final = of("transposed1", ((2, 4, 5), (4, 3, 3), (6,)))
_PARTED_T2: Final = of("transposed2", ((2, 4, 3, 4), (4, 3, 3, 2), (6,)))
_PARTED_T3: Final = of("transposed3", ((2, 4, 2, 3, 2), (4, 3, 2, 3, 2), (6,)))

_TRANSPOSES: Final = (
    case("conv_transpose1d", _LINE_T, _conv_transpose, over=EVERY),
    case("conv_transpose1d", _PARTED_T1, _conv_transpose,
          {"stride": 3, "padding": 1, "output_padding": 2, "groups": 2, "dilation": 2}, "options"),
    case("conv_transpose1d", _LINE_T, _conv_transpose, {"stride": 2, "padding": ((2, 0),)},
          "pairs"),
    case("conv_transpose1d", _LINE_T, _conv_transpose, {"padding": 3}, "beyond"),
    case("conv_transpose1d", of("alone", ((4, 5), (4, 3, 3))), _conv_transpose,
          {"stride": 2, "padding": "same"}, "alone"),
    case("conv_transpose2d", _PLANE_T, _conv_transpose, over=EVERY),
    case("conv_transpose2d", _PARTED_T2, _conv_transpose,
          {"stride": (2, 3), "padding": (1, 0), "output_padding": (1, 0), "groups": 2}, "options"),
    case("conv_transpose2d", _PLANE_T, _conv_transpose, {"stride": 4, "padding": "same"}, "same"),
    case("conv_transpose2d", of("last", ((2, 3, 4, 4), (4, 3, 3, 2), (3,))), _conv_transpose,
          {"stride": 2, "data_format": "channels_last"}, "last"),
    case("conv_transpose3d", _SPACE_T, _conv_transpose, over=EVERY),
    case("conv_transpose3d", _PARTED_T3, _conv_transpose,
          {"stride": 2, "padding": (1, 0, 1), "groups": 2}, "options"),
    case("conv_transpose", _LINE_T, _conv_transpose, {"stride": 2}, over=EVERY),
)  # fmt: skip


def _unfold(
    x: Array, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Array:
    """A convolution by windows that are one at one place shows what lies there."""
    axes = x.ndim - 2
    kernel = sides_of(kernel_size, axes)
    area = int(np.prod(kernel))
    weight = np.eye(area).reshape(area, 1, *kernel)
    rows = [
        _conv(x[:, c : c + 1], weight, stride=stride, padding=padding, dilation=dilation)
        for c in range(x.shape[1])
    ]
    return np.concatenate(rows, 1).reshape(x.shape[0], x.shape[1] * area, -1)


def _fold(x: Array, output_size: Shape, **options: Any) -> Array:
    """By the matrix of `unfold`, which it transposes."""
    count = int(np.prod(output_size))
    basis = np.eye(count).reshape(count, 1, *output_size)
    matrix = _unfold(basis, **options).reshape(count, -1)
    area = int(np.prod(sides_of(options["kernel_size"], len(output_size))))
    columns = x.reshape(x.shape[0], x.shape[1] // area, -1)
    return (columns @ matrix.T).reshape(*columns.shape[:2], *output_size)


_FOLDS: Final = (
    case("unfold", of("unfold", ((2, 3, 4, 5),)), _unfold, {"kernel_size": 2}, over=EVERY),
    case("unfold", of("unfold", ((2, 3, 4, 5),)), _unfold,
          {"kernel_size": (2, 3), "dilation": (2, 1), "padding": 1, "stride": 2}, "options"),
    case("unfold", of("unfold", ((2, 3, 5),)), _unfold, {"kernel_size": 2}, "line"),
    case("fold", of("fold", ((2, 8, 12),)), _fold,
          {"output_size": (4, 5), "kernel_size": 2}, over=EVERY),
    case("fold", of("fold", ((2, 12, 9),)), _fold,
          {"output_size": (4, 5), "kernel_size": (2, 3), "dilation": (2, 1), "padding": 1,
           "stride": (1, 2)} | {"stride": 2, "output_size": (5, 6)}, "options"),
)  # fmt: skip


CONVOLUTION: Final[tuple[Case, ...]] = (*_CONVOLUTIONS, *_TRANSPOSES, *_FOLDS)

MISTAKES: Final[tuple[Mistake, ...]] = (
    Mistake("conv2d-channels", ShapeError, wrong("conv2d", (1, 3, 5, 5), (4, 2, 3, 3)),
            ("ops.conv2d", "[1, 3, 5, 5]", "2 channels")),
    Mistake("conv2d-axes", ShapeError, wrong("conv2d", (1, 3, 5), (4, 3, 3)), ("ops.conv2d",)),
    Mistake("conv2d-window", ShapeError, wrong("conv2d", (1, 2, 2, 2), (4, 2, 3, 3)), ("window",)),
    Mistake("conv2d-bias", ShapeError, wrong("conv2d", (1, 2, 3, 3), (4, 2, 3, 3), (2,)),
            ("(2,)", "(4,)")),
    Mistake("conv2d-groups", ShapeError,
            wrong("conv2d", (1, 2, 3, 3), (3, 1, 3, 3), groups=2), ("groups=2",)),
    Mistake("conv2d-stride", DomainError,
            wrong("conv2d", (1, 2, 3, 3), (4, 2, 3, 3), stride=0), ("stride=0",)),
    Mistake("conv2d-strides", ShapeError,
            wrong("conv2d", (1, 2, 3, 3), (4, 2, 3, 3), stride=(1, 1, 1))),
    Mistake("conv2d-padding", DomainError,
            wrong("conv2d", (1, 2, 3, 3), (4, 2, 3, 3), padding="full"), ("'full'",)),
    Mistake("conv2d-negative", DomainError,
            wrong("conv2d", (1, 2, 3, 3), (4, 2, 3, 3), padding=-1)),
    Mistake("conv2d-fraction", DTypeError,
            wrong("conv2d", (1, 2, 3, 3), (4, 2, 3, 3), padding=0.5)),
    Mistake("conv2d-format", DomainError,
            wrong("conv2d", (1, 2, 3, 3), (4, 2, 3, 3), data_format="NCHW"), ("channels_first",)),
    Mistake("conv-axes", ShapeError, wrong("conv", (2, 3), (4, 2))),
    Mistake("conv_transpose2d-channels", ShapeError,
            wrong("conv_transpose2d", (1, 3, 5, 5), (2, 4, 3, 3)), ("ops.conv_transpose2d",)),
    Mistake("conv_transpose1d-output", DomainError,
            wrong("conv_transpose1d", (1, 2, 5), (2, 4, 3), output_padding=1),
            ("output_padding=1",)),
    Mistake("conv_transpose1d-nothing", ShapeError,
            wrong("conv_transpose1d", (1, 2, 1), (2, 4, 3), padding=2)),
    Mistake("unfold-window", ShapeError, wrong("unfold", (1, 2, 3, 3), kernel_size=4)),
    Mistake("fold-columns", ShapeError,
            wrong("fold", (1, 8, 5), output_size=(4, 5), kernel_size=2), ("12",)),
)  # fmt: skip
