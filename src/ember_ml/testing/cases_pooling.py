"""Pooling and resizing against loops over windows in float64."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.errors import DomainError, ShapeError
from ember_ml.testing.case import Array, Case
from ember_ml.testing.mistake import Mistake
from ember_ml.testing.window_cases import EVERY, FLOATS, Shape, case, of, pairs_of, sides_of, wrong

__all__ = ["MISTAKES", "POOLING"]


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
        kernel = sides_of(kernel_size, axes)
        steps = kernel if stride is None else sides_of(stride, axes)
        gaps = sides_of(dilation, axes)
        extent = tuple((k - 1) * g + 1 for k, g in zip(kernel, gaps, strict=True))
        pairs = pairs_of(padding, spatial, extent, steps)
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
        given = sides_of(output_size, axes) if output_size is not None else (None,) * axes
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
    kind: str, axes: int, shape: Shape, label: str = "", over: Any = FLOATS, **options: Any
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
    return case(op, of(op, (shape,)), expect, options, label, over, anything)


_PADDED: Final = {"kernel_size": 3, "stride": 2, "padding": 1}
_POOLS: Final = (
    _pool_case("max", 1, (2, 3, 7), over=EVERY, kernel_size=2),
    _pool_case("max", 1, (3, 7), "alone", **_PADDED, dilation=2),
    _pool_case("max", 2, (2, 3, 6, 5), over=EVERY, kernel_size=(2, 3), stride=1),
    _pool_case("max", 2, (2, 3, 6, 5), "padded", **_PADDED),
    _pool_case("max", 2, (2, 3, 6, 5), "ceil", kernel_size=2, ceil_mode=True),
    _pool_case("max", 2, (2, 3, 6, 5), "same", kernel_size=2, padding="same"),
    _pool_case("max", 2, (2, 3, 6, 5), "indices", **_PADDED, ceil_mode=True, return_indices=True),
    _pool_case("max", 2, (2, 3, 6, 5), "indices-same", kernel_size=2, padding="same",
               return_indices=True),
    _pool_case("max", 2, (2, 6, 5, 3), "last", kernel_size=2, data_format="channels_last"),
    _pool_case("max", 2, (0, 3, 6, 5), "empty", kernel_size=2),
    _pool_case("max", 3, (2, 3, 4, 5, 4), over=EVERY, kernel_size=2),
    _pool_case("max", 3, (2, 3, 4, 5, 4), "indices", kernel_size=2, stride=1, return_indices=True),
    _pool_case("avg", 1, (2, 3, 7), over=EVERY, kernel_size=2),
    _pool_case("avg", 1, (3, 7), "alone", **_PADDED),
    _pool_case("avg", 2, (2, 3, 6, 5), over=EVERY, kernel_size=(2, 3), stride=1),
    _pool_case("avg", 2, (2, 3, 6, 5), "padded", **_PADDED, ceil_mode=True),
    _pool_case("avg", 2, (2, 3, 6, 5), "inside", **_PADDED, ceil_mode=True,
               count_include_pad=False),
    _pool_case("avg", 2, (2, 3, 6, 5), "same", kernel_size=2, padding="same",
               count_include_pad=False),
    _pool_case("avg", 2, (2, 6, 5, 3), "last", kernel_size=2, data_format="channels_last"),
    _pool_case("avg", 2, (0, 3, 6, 5), "empty", kernel_size=2),
    _pool_case("avg", 3, (2, 3, 4, 5, 4), over=EVERY, kernel_size=2),
    *(
        _pool_case(f"adaptive_{kind}", axes, (2, 3, 7, 6, 5)[: 2 + axes], over=EVERY,
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
    case("global_avg_pool", of("global", ((2, 3, 4, 5),), ((2, 3, 4),)),
          lambda x: x.mean(tuple(range(2, x.ndim))), over=EVERY),
    case("global_avg_pool", of("global", ((2, 4, 5, 3),)),
          lambda x, **_: x.mean((1, 2), keepdims=True),
          {"keepdims": True, "data_format": "channels_last"}, "last"),
    case("global_max_pool", of("global", ((2, 3, 4, 5),), ((2, 3, 4),)),
          lambda x: x.max(tuple(range(2, x.ndim))), over=EVERY),
)  # fmt: skip


# --- Resizing ---------------------------------------------------------------------------------


def _resize(
    x: Array, size: Any, method: str = "nearest", align_corners: bool = False, data_format: str = ""
) -> Array:
    """Value by value along one axis after the other."""
    x = np.moveaxis(x, -1, 1) if data_format == "channels_last" else x
    for i, length in enumerate(sides_of(size, x.ndim - 2)):
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


_IMAGE: Final = of("resize", ((2, 3, 4, 5),))
_LINES: Final = of("resize", ((2, 3, 5),))

_RESIZES: Final = (
    case("resize", _IMAGE, _resize, {"size": (6, 3)}, over=EVERY),
    case("resize", _LINES, _resize, {"size": 7}, "line"),
    case("resize", of("resize", ((1, 1, 64),)), _resize, {"size": 122}, "exact"),
    case("resize", _IMAGE, _resize, {"size": (6, 3), "method": "bilinear"}, "bilinear"),
    case("resize", _IMAGE, _resize, {"size": (6, 3), "method": "bilinear", "align_corners": True},
          "corners"),
    case("resize", _LINES, _resize, {"size": 1, "method": "linear", "align_corners": True}, "one"),
    case("resize", of("resize", ((1, 2, 3, 4, 2),)), _resize, {"size": 5, "method": "trilinear"},
          "trilinear"),
    case("resize", _IMAGE, _resize, {"size": (6, 3), "method": "bicubic"}, "bicubic"),
    case("resize", _IMAGE, _resize, {"size": 7, "method": "bicubic", "align_corners": True},
          "bicubic-corners"),
    case("resize", _LINES, _resize, {"size": 8, "method": "cubic"}, "cubic"),
    case("resize", of("resize", ((1, 2, 3, 4, 2),)), _resize, {"size": 5, "method": "cubic"},
          "cubic-volume"),
    case("resize", of("resize", ((1, 2, 2, 3, 2, 2),)), _resize, {"size": 3, "method": "linear"},
          "linear-four"),
    case("resize", of("resize", ((2, 4, 5, 3),)), _resize,
          {"size": (3, 8), "method": "bilinear", "data_format": "channels_last"}, "last"),
    Case("resize", lambda xp, x: xp.resize(x, scale=(1.5, 0.5), method="bilinear"),
         lambda x: _resize(np.asarray(x, np.float64), (6, 2), "bilinear"), _IMAGE, FLOATS,
         ulps=64, label="scale"),
    Case("pixel_shuffle", lambda xp, x: xp.pixel_shuffle(x, 2),
         lambda x: x.reshape(1, 2, 2, 2, 3, 2).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 6, 4),
         of("shuffle", ((1, 8, 3, 2),)), dtypes.ALL),
    Case("pixel_unshuffle", lambda xp, x: xp.pixel_unshuffle(xp.pixel_shuffle(x, 2), 2),
         lambda x: x, of("shuffle", ((1, 8, 3, 2),)), dtypes.ALL),
)  # fmt: skip


POOLING: Final[tuple[Case, ...]] = (*_POOLS, *_RESIZES)

MISTAKES: Final[tuple[Mistake, ...]] = (
    Mistake("max_pool2d-axes", ShapeError, wrong("max_pool2d", (2, 3), kernel_size=2)),
    Mistake("max_pool2d-padding", DomainError,
            wrong("max_pool2d", (1, 2, 4, 4), kernel_size=2, padding=2), ("half",)),
    Mistake("max_pool1d-window", ShapeError, wrong("max_pool1d", (1, 2, 3), kernel_size=4),
            ("ops.max_pool1d", "window")),
    Mistake("max_pool1d-size", DomainError, wrong("max_pool1d", (1, 2, 3), kernel_size=0)),
    Mistake("avg_pool3d-sizes", ShapeError,
            wrong("avg_pool3d", (1, 2, 3, 3, 3), kernel_size=(1, 2))),
    Mistake("adaptive-sizes", ShapeError,
            wrong("adaptive_avg_pool2d", (1, 2, 4, 4), output_size=(1, 2, 3))),
    Mistake("adaptive-zero", DomainError,
            wrong("adaptive_max_pool1d", (1, 2, 4), output_size=0)),
    Mistake("global-pool-axes", ShapeError, wrong("global_avg_pool", (2, 3))),
    Mistake("resize-method", DomainError, wrong("resize", (1, 2, 4), size=2, method="area"),
            ("'area'", "nearest")),
    Mistake("resize-both", DomainError, wrong("resize", (1, 2, 4), size=2, scale=2.0)),
    Mistake("resize-neither", DomainError, wrong("resize", (1, 2, 4))),
    Mistake("resize-corners", DomainError,
            wrong("resize", (1, 2, 4), size=2, align_corners=True)),
    Mistake("resize-nothing", DomainError, wrong("resize", (1, 2, 4), scale=0.1)),
    Mistake("resize-empty", ShapeError, wrong("resize", (1, 2, 0), size=2)),
    Mistake("pixel_shuffle-channels", ShapeError, wrong("pixel_shuffle", (1, 3, 2, 2), factor=2)),
    Mistake("pixel_unshuffle-sides", ShapeError,
            wrong("pixel_unshuffle", (1, 3, 3, 2), factor=2)),
)  # fmt: skip
