"""Convolution, pooling and resizing against loops over windows in float64."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample
from ember_ml.testing.mistake import Mistake

__all__ = ["MISTAKES", "WINDOWS"]

Shape = tuple[int, ...]
_FLOATS: Final = tuple(d for d in dtypes.ALL if d.is_floating)


def _of(seed: str, *runs: tuple[Shape, ...]) -> Callable[[DType], list[Inputs]]:
    def make(dtype: DType) -> list[Inputs]:
        return [
            tuple(sample(f"{seed}{i}{s}", s, dtype, -2, 2) for i, s in enumerate(shapes))
            for shapes in runs
        ]

    return make


def _case(
    op: str,
    inputs: Callable[[DType], list[Inputs]],
    expect: Callable[..., Any],
    options: dict[str, Any] | None = None,
    label: str = "",
    over: tuple[DType, ...] = _FLOATS,
    result: Callable[[DType], DType | None] | None = None,
) -> Case:
    given = options or {}

    def reference(*arrays: Array) -> Any:
        return expect(*(np.asarray(a, np.float64) for a in arrays), **given)

    return Case(
        op,
        lambda xp, *arrays: getattr(xp, op)(*arrays, **given),
        reference,
        inputs,
        over,
        result or law(op),
        400,  # sums of some fifty products, which may cancel: as for products of matrices
        label,
    )


# --- Convolution ------------------------------------------------------------------------------


def _each(value: Any, count: int) -> Any:
    return (value,) * count if isinstance(value, int) else value


def _pairs(padding: Any, spatial: Shape, extent: Shape, stride: Shape) -> list[tuple[int, int]]:
    if padding == "same":
        totals = [
            max((-(-n // s) - 1) * s + e - n, 0)
            for n, e, s in zip(spatial, extent, stride, strict=True)
        ]
        return [(t // 2, t - t // 2) for t in totals]
    each = _each(0 if padding == "valid" else padding, len(spatial))
    return [(p, p) if isinstance(p, int) else p for p in each]


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
    steps, gaps = _each(stride, len(kernel)), _each(dilation, len(kernel))
    extent = tuple((k - 1) * g + 1 for k, g in zip(kernel, gaps, strict=True))
    pairs = _pairs(padding, spatial, extent, steps)
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
            out[(slice(None), result, *place)] = np.einsum("n...,...->n", seen, weight[result])
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
    steps, gaps = _each(stride, len(kernel)), _each(dilation, len(kernel))
    more = _each(output_padding, len(kernel))
    extent = tuple((k - 1) * g + 1 for k, g in zip(kernel, gaps, strict=True))
    if padding == "same":
        pairs = [
            (max(e - s, 0) // 2, max(e - s, 0) - max(e - s, 0) // 2)
            for e, s in zip(extent, steps, strict=True)
        ]
        more = tuple(max(s - e, 0) for e, s in zip(extent, steps, strict=True))
    else:
        pairs = _pairs(padding, x.shape[2:], extent, steps)
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


_LINE: Final = _of("conv1", ((2, 4, 7), (6, 4, 3), (6,)))
_PLANE: Final = _of("conv2", ((2, 4, 6, 5), (6, 4, 3, 2), (6,)))
_SPACE: Final = _of("conv3", ((2, 4, 4, 5, 3), (6, 4, 2, 3, 2), (6,)))
_PARTED1: Final = _of("parted1", ((2, 4, 7), (6, 2, 3), (6,)))
_PARTED2: Final = _of("parted2", ((2, 4, 6, 5), (6, 2, 3, 2), (6,)))
_PARTED3: Final = _of("parted3", ((2, 4, 4, 5, 3), (6, 2, 2, 3, 2), (6,)))
_DEEP: Final = _of("deep", ((2, 4, 6, 5), (8, 1, 3, 2), (8,)))
_EVERY: Final = accepted("conv2d")

_CONVOLUTIONS: Final = (
    _case("conv1d", _LINE, _conv, over=_EVERY),
    _case("conv1d", _PARTED1, _conv,
          {"stride": 2, "padding": ((2, 1),), "dilation": 2, "groups": 2}, "options"),
    _case("conv1d", _of("alone", ((4, 7), (6, 4, 3))), _conv, {"padding": "same"}, "alone"),
    _case("conv1d", _of("last", ((2, 7, 4), (6, 4, 3))), _conv, {"data_format": "channels_last"},
          "last"),
    _case("conv2d", _PLANE, _conv, over=_EVERY),
    _case("conv2d", _PARTED2, _conv,
          {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}, "options"),
    _case("conv2d", _PLANE, _conv, {"stride": 2, "padding": "same"}, "same"),
    _case("conv2d", _DEEP, _conv, {"groups": 4, "padding": 1}, "depthwise"),
    _case("conv2d", _of("one", ((2, 4, 3, 3), (6, 4, 1, 1))), _conv, {"padding": "valid"}, "pixel"),
    _case("conv2d", _of("last", ((2, 6, 5, 4), (6, 2, 3, 2), (6,))), _conv,
          {"groups": 2, "data_format": "channels_last"}, "last"),
    _case("conv2d", _of("none", ((0, 4, 6, 5), (6, 4, 3, 2))), _conv, label="empty"),
    _case("conv3d", _SPACE, _conv, over=_EVERY),
    _case("conv3d", _PARTED3, _conv, {"stride": (1, 2, 1), "padding": 1, "groups": 2}, "options"),
    _case("conv3d", _of("last", ((2, 4, 5, 3, 4), (6, 4, 2, 3, 2))), _conv,
          {"data_format": "channels_last"}, "last"),
    _case("conv", _PLANE, _conv, {"padding": 1}, over=_EVERY),
)  # fmt: skip

_LINE_T: Final = _of("transpose1", ((2, 4, 5), (4, 3, 3), (3,)))
_PLANE_T: Final = _of("transpose2", ((2, 4, 3, 4), (4, 3, 3, 2), (3,)))
_SPACE_T: Final = _of("transpose3", ((2, 4, 2, 3, 2), (4, 3, 2, 3, 2), (3,)))
_PARTED_T1: Final = _of("transposed1", ((2, 4, 5), (4, 3, 3), (6,)))
_PARTED_T2: Final = _of("transposed2", ((2, 4, 3, 4), (4, 3, 3, 2), (6,)))
_PARTED_T3: Final = _of("transposed3", ((2, 4, 2, 3, 2), (4, 3, 2, 3, 2), (6,)))

_TRANSPOSES: Final = (
    _case("conv_transpose1d", _LINE_T, _conv_transpose, over=_EVERY),
    _case("conv_transpose1d", _PARTED_T1, _conv_transpose,
          {"stride": 3, "padding": 1, "output_padding": 2, "groups": 2, "dilation": 2}, "options"),
    _case("conv_transpose1d", _LINE_T, _conv_transpose, {"stride": 2, "padding": ((2, 0),)},
          "pairs"),
    _case("conv_transpose1d", _LINE_T, _conv_transpose, {"padding": 3}, "beyond"),
    _case("conv_transpose1d", _of("alone", ((4, 5), (4, 3, 3))), _conv_transpose,
          {"stride": 2, "padding": "same"}, "alone"),
    _case("conv_transpose2d", _PLANE_T, _conv_transpose, over=_EVERY),
    _case("conv_transpose2d", _PARTED_T2, _conv_transpose,
          {"stride": (2, 3), "padding": (1, 0), "output_padding": (1, 0), "groups": 2}, "options"),
    _case("conv_transpose2d", _PLANE_T, _conv_transpose, {"stride": 4, "padding": "same"}, "same"),
    _case("conv_transpose2d", _of("last", ((2, 3, 4, 4), (4, 3, 3, 2), (3,))), _conv_transpose,
          {"stride": 2, "data_format": "channels_last"}, "last"),
    _case("conv_transpose3d", _SPACE_T, _conv_transpose, over=_EVERY),
    _case("conv_transpose3d", _PARTED_T3, _conv_transpose,
          {"stride": 2, "padding": (1, 0, 1), "groups": 2}, "options"),
    _case("conv_transpose", _LINE_T, _conv_transpose, {"stride": 2}, over=_EVERY),
)  # fmt: skip


def _unfold(
    x: Array, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Array:
    """A convolution by windows that are one at one place shows what lies there."""
    axes = x.ndim - 2
    kernel = _each(kernel_size, axes)
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
    area = int(np.prod(_each(options["kernel_size"], len(output_size))))
    columns = x.reshape(x.shape[0], x.shape[1] // area, -1)
    return (columns @ matrix.T).reshape(*columns.shape[:2], *output_size)


_FOLDS: Final = (
    _case("unfold", _of("unfold", ((2, 3, 4, 5),)), _unfold, {"kernel_size": 2}, over=_EVERY),
    _case("unfold", _of("unfold", ((2, 3, 4, 5),)), _unfold,
          {"kernel_size": (2, 3), "dilation": (2, 1), "padding": 1, "stride": 2}, "options"),
    _case("unfold", _of("unfold", ((2, 3, 5),)), _unfold, {"kernel_size": 2}, "line"),
    _case("fold", _of("fold", ((2, 8, 12),)), _fold,
          {"output_size": (4, 5), "kernel_size": 2}, over=_EVERY),
    _case("fold", _of("fold", ((2, 12, 9),)), _fold,
          {"output_size": (4, 5), "kernel_size": (2, 3), "dilation": (2, 1), "padding": 1,
           "stride": (1, 2)} | {"stride": 2, "output_size": (5, 6)}, "options"),
)  # fmt: skip


# --- Pooling ----------------------------------------------------------------------------------


def _pool(average: bool) -> Callable[..., Any]:
    def run(
        x: Array,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        return_indices: bool = False,
        data_format: str = "",
        axes: int = 0,
    ) -> Any:
        alone = x.ndim == axes + 1
        x = x[None] if alone else x
        x = np.moveaxis(x, -1, 1) if data_format == "channels_last" else x
        spatial = x.shape[2:]
        kernel = _each(kernel_size, axes)
        steps = kernel if stride is None else _each(stride, axes)
        gaps = _each(dilation, axes)
        extent = tuple((k - 1) * g + 1 for k, g in zip(kernel, gaps, strict=True))
        pairs = _pairs(padding, spatial, extent, steps)
        counts = []
        for n, e, s, (low, high) in zip(spatial, extent, steps, pairs, strict=True):
            count = (n + low + high - e) // s + 1
            if ceil_mode:
                count = -(-(n + low + high - e) // s) + 1
                count -= (count - 1) * s >= n + low
            counts.append(count)
        out = np.zeros((*x.shape[:2], *counts))
        found = np.zeros(out.shape, np.int64)
        flat = np.arange(int(np.prod(spatial))).reshape(spatial)
        for place in np.ndindex(*counts):
            lists, sizes = [], []
            for p, k, g, s, n, (low, high) in zip(
                place, kernel, gaps, steps, spatial, pairs, strict=True
            ):
                first = p * s - low
                lists.append([i for i in range(first, first + k * g, g) if 0 <= i < n])
                sizes.append(min(first + k, n + high) - max(first, -low))
            window = list(product(*lists))
            keys: list[Any] = [(slice(None), slice(None), *i) for i in window]
            seen = np.stack([x[key] for key in keys])
            key = (slice(None), slice(None), *place)
            if average:
                divisor = np.prod(sizes) if count_include_pad else len(window)
                out[key] = seen.sum(0) / divisor
            else:
                out[key] = seen.max(0)
                found[key] = np.array([flat[i] for i in window])[seen.argmax(0)]
        results = [out, found] if return_indices else [out]
        if data_format == "channels_last":
            results = [np.moveaxis(r, 1, -1) for r in results]
        if alone:
            results = [r[0] for r in results]
        return tuple(results) if return_indices else results[0]

    return run


def _adaptive(reduce: Callable[..., Any]) -> Callable[..., Array]:
    def run(x: Array, output_size: Any, data_format: str = "", axes: int = 0) -> Array:
        x = np.moveaxis(x, -1, 1) if data_format == "channels_last" else x
        spatial = x.shape[-axes:]
        given = _each(output_size, axes) if output_size is not None else (None,) * axes
        sizes = [n if s is None else s for s, n in zip(given, spatial, strict=True)]
        out = np.zeros((*x.shape[:-axes], *sizes))
        for place in np.ndindex(*sizes):
            window: Any = tuple(
                slice(p * n // s, -(-(p + 1) * n // s))
                for p, n, s in zip(place, spatial, sizes, strict=True)
            )
            out[(..., *place)] = reduce(x[(..., *window)], axis=tuple(range(-axes, 0)))
        return np.moveaxis(out, 1, -1) if data_format == "channels_last" else out

    return run


def _pool_case(
    kind: str, axes: int, shape: Shape, label: str = "", over: Any = _FLOATS, **options: Any
) -> Case:
    op = f"{kind}_pool{axes}d"
    if kind.startswith("adaptive"):
        reference = _adaptive(np.mean if "avg" in kind else np.max)
    else:
        reference = _pool(kind == "avg")

    def expect(x: Array, **given: Any) -> Any:
        return reference(x, **given, axes=axes)

    # Indices are integers, beside values of the dtype.
    anything = (lambda dtype: None) if options.get("return_indices") else None
    return _case(op, _of(op, (shape,)), expect, options, label, over, anything)


_PADDED: Final = {"kernel_size": 3, "stride": 2, "padding": 1}
_POOLS: Final = (
    _pool_case("max", 1, (2, 3, 7), over=_EVERY, kernel_size=2),
    _pool_case("max", 1, (3, 7), "alone", **_PADDED, dilation=2),
    _pool_case("max", 2, (2, 3, 6, 5), over=_EVERY, kernel_size=(2, 3), stride=1),
    _pool_case("max", 2, (2, 3, 6, 5), "padded", **_PADDED),
    _pool_case("max", 2, (2, 3, 6, 5), "ceil", kernel_size=2, ceil_mode=True),
    _pool_case("max", 2, (2, 3, 6, 5), "same", kernel_size=2, padding="same"),
    _pool_case("max", 2, (2, 3, 6, 5), "indices", **_PADDED, ceil_mode=True, return_indices=True),
    _pool_case("max", 2, (2, 3, 6, 5), "indices-same", kernel_size=2, padding="same",
               return_indices=True),
    _pool_case("max", 2, (2, 6, 5, 3), "last", kernel_size=2, data_format="channels_last"),
    _pool_case("max", 2, (0, 3, 6, 5), "empty", kernel_size=2),
    _pool_case("max", 3, (2, 3, 4, 5, 4), over=_EVERY, kernel_size=2),
    _pool_case("max", 3, (2, 3, 4, 5, 4), "indices", kernel_size=2, stride=1, return_indices=True),
    _pool_case("avg", 1, (2, 3, 7), over=_EVERY, kernel_size=2),
    _pool_case("avg", 1, (3, 7), "alone", **_PADDED),
    _pool_case("avg", 2, (2, 3, 6, 5), over=_EVERY, kernel_size=(2, 3), stride=1),
    _pool_case("avg", 2, (2, 3, 6, 5), "padded", **_PADDED, ceil_mode=True),
    _pool_case("avg", 2, (2, 3, 6, 5), "inside", **_PADDED, ceil_mode=True,
               count_include_pad=False),
    _pool_case("avg", 2, (2, 3, 6, 5), "same", kernel_size=2, padding="same",
               count_include_pad=False),
    _pool_case("avg", 2, (2, 6, 5, 3), "last", kernel_size=2, data_format="channels_last"),
    _pool_case("avg", 2, (0, 3, 6, 5), "empty", kernel_size=2),
    _pool_case("avg", 3, (2, 3, 4, 5, 4), over=_EVERY, kernel_size=2),
    *(
        _pool_case(f"adaptive_{kind}", axes, (2, 3, 7, 6, 5)[: 2 + axes], over=_EVERY,
                   output_size=4)
        for kind in ("avg", "max") for axes in (1, 2, 3)
    ),
    *(
        _pool_case(f"adaptive_{kind}", 2, (2, 6, 5, 3), "sizes", output_size=(3, None),
                   data_format="channels_last")
        for kind in ("avg", "max")
    ),
    *(
        _pool_case(f"adaptive_{kind}", 1, (3, 4), "longer", output_size=6)
        for kind in ("avg", "max")
    ),
    _case("global_avg_pool", _of("global", ((2, 3, 4, 5),), ((2, 3, 4),)),
          lambda x: x.mean(tuple(range(2, x.ndim))), over=_EVERY),
    _case("global_avg_pool", _of("global", ((2, 4, 5, 3),)),
          lambda x, **_: x.mean((1, 2), keepdims=True),
          {"keepdims": True, "data_format": "channels_last"}, "last"),
    _case("global_max_pool", _of("global", ((2, 3, 4, 5),), ((2, 3, 4),)),
          lambda x: x.max(tuple(range(2, x.ndim))), over=_EVERY),
)  # fmt: skip


# --- Resizing ---------------------------------------------------------------------------------


def _resize(
    x: Array, size: Any, method: str = "nearest", align_corners: bool = False, data_format: str = ""
) -> Array:
    """Value by value along one axis after the other."""
    x = np.moveaxis(x, -1, 1) if data_format == "channels_last" else x
    for i, length in enumerate(_each(size, x.ndim - 2)):
        axis, side = 2 + i, x.shape[2 + i]
        out = np.zeros((*x.shape[:axis], length, *x.shape[axis + 1 :]))
        for place in range(length):
            if method == "nearest":
                terms = [(place * side // length, 1.0)]
            else:
                at = (place + 0.5) * side / length - 0.5
                if align_corners:
                    at = place * (side - 1) / (length - 1) if length > 1 else 0.0
                cubic = method.endswith("cubic")
                at = at if cubic else max(at, 0)
                base = int(np.floor(at))
                reach = range(base - 1, base + 3) if cubic else range(base, base + 2)
                kernel = _cubic if cubic else lambda d: max(1 - d, 0.0)
                terms = [(min(max(j, 0), side - 1), kernel(abs(at - j))) for j in reach]
            for j, weight in terms:
                out[(slice(None),) * axis + (place,)] += weight * np.take(x, j, axis)
        x = out
    return np.moveaxis(x, 1, -1) if data_format == "channels_last" else x


def _cubic(d: float, a: float = -0.75) -> float:
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


_IMAGE: Final = _of("resize", ((2, 3, 4, 5),))
_LINES: Final = _of("resize", ((2, 3, 5),))

_RESIZES: Final = (
    _case("resize", _IMAGE, _resize, {"size": (6, 3)}, over=_EVERY),
    _case("resize", _LINES, _resize, {"size": 7}, "line"),
    _case("resize", _of("resize", ((1, 1, 64),)), _resize, {"size": 122}, "exact"),
    _case("resize", _IMAGE, _resize, {"size": (6, 3), "method": "bilinear"}, "bilinear"),
    _case("resize", _IMAGE, _resize, {"size": (6, 3), "method": "bilinear", "align_corners": True},
          "corners"),
    _case("resize", _LINES, _resize, {"size": 1, "method": "linear", "align_corners": True}, "one"),
    _case("resize", _of("resize", ((1, 2, 3, 4, 2),)), _resize, {"size": 5, "method": "trilinear"},
          "trilinear"),
    _case("resize", _IMAGE, _resize, {"size": (6, 3), "method": "bicubic"}, "bicubic"),
    _case("resize", _IMAGE, _resize, {"size": 7, "method": "bicubic", "align_corners": True},
          "bicubic-corners"),
    _case("resize", _LINES, _resize, {"size": 8, "method": "cubic"}, "cubic"),
    _case("resize", _of("resize", ((2, 4, 5, 3),)), _resize,
          {"size": (3, 8), "method": "bilinear", "data_format": "channels_last"}, "last"),
    Case("resize", lambda xp, x: xp.resize(x, scale=(1.5, 0.5), method="bilinear"),
         lambda x: _resize(np.asarray(x, np.float64), (6, 2), "bilinear"), _IMAGE, _FLOATS,
         ulps=64, label="scale"),
    Case("pixel_shuffle", lambda xp, x: xp.pixel_shuffle(x, 2),
         lambda x: x.reshape(1, 2, 2, 2, 3, 2).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 6, 4),
         _of("shuffle", ((1, 8, 3, 2),)), dtypes.ALL),
    Case("pixel_unshuffle", lambda xp, x: xp.pixel_unshuffle(xp.pixel_shuffle(x, 2), 2),
         lambda x: x, _of("shuffle", ((1, 8, 3, 2),)), dtypes.ALL),
)  # fmt: skip


WINDOWS: Final[tuple[Case, ...]] = (
    *_CONVOLUTIONS,
    *_TRANSPOSES,
    *_FOLDS,
    *_POOLS,
    *_RESIZES,
)


def _wrong(op: str, *shapes: Shape, **options: Any) -> Callable[[Any], Any]:
    return lambda xp: getattr(xp, op)(*(xp.ones(s) for s in shapes), **options)


MISTAKES: Final[tuple[Mistake, ...]] = (
    Mistake("conv2d-channels", ShapeError, _wrong("conv2d", (1, 3, 5, 5), (4, 2, 3, 3)),
            ("ops.conv2d", "[1, 3, 5, 5]", "2 channels")),
    Mistake("conv2d-axes", ShapeError, _wrong("conv2d", (1, 3, 5), (4, 3, 3)), ("ops.conv2d",)),
    Mistake("conv2d-window", ShapeError, _wrong("conv2d", (1, 2, 2, 2), (4, 2, 3, 3)), ("window",)),
    Mistake("conv2d-bias", ShapeError, _wrong("conv2d", (1, 2, 3, 3), (4, 2, 3, 3), (2,)),
            ("(2,)", "(4,)")),
    Mistake("conv2d-groups", ShapeError,
            _wrong("conv2d", (1, 2, 3, 3), (3, 1, 3, 3), groups=2), ("groups=2",)),
    Mistake("conv2d-stride", DomainError,
            _wrong("conv2d", (1, 2, 3, 3), (4, 2, 3, 3), stride=0), ("stride=0",)),
    Mistake("conv2d-strides", ShapeError,
            _wrong("conv2d", (1, 2, 3, 3), (4, 2, 3, 3), stride=(1, 1, 1))),
    Mistake("conv2d-padding", DomainError,
            _wrong("conv2d", (1, 2, 3, 3), (4, 2, 3, 3), padding="full"), ("'full'",)),
    Mistake("conv2d-negative", DomainError,
            _wrong("conv2d", (1, 2, 3, 3), (4, 2, 3, 3), padding=-1)),
    Mistake("conv2d-fraction", DTypeError,
            _wrong("conv2d", (1, 2, 3, 3), (4, 2, 3, 3), padding=0.5)),
    Mistake("conv2d-format", DomainError,
            _wrong("conv2d", (1, 2, 3, 3), (4, 2, 3, 3), data_format="NCHW"), ("channels_first",)),
    Mistake("conv-axes", ShapeError, _wrong("conv", (2, 3), (4, 2))),
    Mistake("conv_transpose2d-channels", ShapeError,
            _wrong("conv_transpose2d", (1, 3, 5, 5), (2, 4, 3, 3)), ("ops.conv_transpose2d",)),
    Mistake("conv_transpose1d-output", DomainError,
            _wrong("conv_transpose1d", (1, 2, 5), (2, 4, 3), output_padding=1),
            ("output_padding=1",)),
    Mistake("conv_transpose1d-nothing", ShapeError,
            _wrong("conv_transpose1d", (1, 2, 1), (2, 4, 3), padding=2)),
    Mistake("unfold-window", ShapeError, _wrong("unfold", (1, 2, 3, 3), kernel_size=4)),
    Mistake("fold-columns", ShapeError,
            _wrong("fold", (1, 8, 5), output_size=(4, 5), kernel_size=2), ("12",)),
    Mistake("max_pool2d-axes", ShapeError, _wrong("max_pool2d", (2, 3), kernel_size=2)),
    Mistake("max_pool2d-padding", DomainError,
            _wrong("max_pool2d", (1, 2, 4, 4), kernel_size=2, padding=2), ("half",)),
    Mistake("max_pool1d-window", ShapeError, _wrong("max_pool1d", (1, 2, 3), kernel_size=4),
            ("ops.max_pool1d", "window")),
    Mistake("max_pool1d-size", DomainError, _wrong("max_pool1d", (1, 2, 3), kernel_size=0)),
    Mistake("avg_pool3d-sizes", ShapeError,
            _wrong("avg_pool3d", (1, 2, 3, 3, 3), kernel_size=(1, 2))),
    Mistake("adaptive-sizes", ShapeError,
            _wrong("adaptive_avg_pool2d", (1, 2, 4, 4), output_size=(1, 2, 3))),
    Mistake("adaptive-zero", DomainError,
            _wrong("adaptive_max_pool1d", (1, 2, 4), output_size=0)),
    Mistake("global-pool-axes", ShapeError, _wrong("global_avg_pool", (2, 3))),
    Mistake("resize-method", DomainError, _wrong("resize", (1, 2, 4), size=2, method="area"),
            ("'area'", "nearest")),
    Mistake("resize-both", DomainError, _wrong("resize", (1, 2, 4), size=2, scale=2.0)),
    Mistake("resize-neither", DomainError, _wrong("resize", (1, 2, 4))),
    Mistake("resize-corners", DomainError,
            _wrong("resize", (1, 2, 4), size=2, align_corners=True)),
    Mistake("resize-nothing", DomainError, _wrong("resize", (1, 2, 4), scale=0.1)),
    Mistake("resize-empty", ShapeError, _wrong("resize", (1, 2, 0), size=2)),
    Mistake("pixel_shuffle-channels", ShapeError, _wrong("pixel_shuffle", (1, 3, 2, 2), factor=2)),
    Mistake("pixel_unshuffle-sides", ShapeError,
            _wrong("pixel_unshuffle", (1, 3, 3, 2), factor=2)),
)  # fmt: skip
