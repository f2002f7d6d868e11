"""Images and signals in another size."""

from __future__ import annotations

import math
from typing import Any

from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.ops import dispatch
from ember_ml.ops.axes import integer_of
from ember_ml.ops.layouts import channels_first, channels_last, is_last, sides_of
from ember_ml.ops.manipulation import permute_dims, reshape
from ember_ml.ops.registry import ANY, REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__: list[str] = ["pixel_shuffle", "pixel_unshuffle", "resize"]

# Halves, quarters and so on: of tenths, a float holds no fraction of small numbers.
_PARTS = 1024
_LINEAR = ("linear", "bilinear", "trilinear")
_METHODS = ("nearest", *_LINEAR, "cubic", "bicubic")


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def resize(
    x: TensorLike,
    /,
    size: int | tuple[int, ...] | list[int] | None = None,
    scale: float | tuple[float, ...] | list[float] | None = None,
    method: str = "nearest",
    align_corners: bool = False,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """(samples, channels, ...) with spatial axes of another `size`, or `scale` times as long.

    Methods are "nearest" (result i takes the value floor(i * length / size), as PyTorch's
    "nearest"), "linear" or "bilinear", and "bicubic"; the last two place values at the middles of
    pixels, or with `align_corners` the first and last ones upon each other. Lengths by `scale` are
    rounded down, and the ratio of lengths counts, as with PyTorch's recompute_scale_factor.

    >>> resize([[[1.0, 3.0]]], 4).tolist()
    [[[1.0, 1.0, 3.0, 3.0]]]
    >>> resize([[[1.0, 3.0]]], scale=2, method="linear").tolist()
    [[[1.0, 1.5, 2.5, 3.0]]]
    """
    if method not in _METHODS:
        raise DomainError(f"ops.resize takes method {', '.join(_METHODS)}, not {method!r}")
    if align_corners and method == "nearest":
        raise DomainError("ops.resize takes align_corners with linear and cubic methods only")
    tensor = channels_first("resize", dispatch.lifted("resize", x), data_format)
    spatial = tensor.shape[2:]
    if not spatial:
        raise ShapeError(f"ops.resize takes (samples, channels, ...), not shape {tensor.shape}")
    if (size is None) == (scale is None):
        raise DomainError("ops.resize takes either size or scale")
    sizes = _sizes(spatial, size, scale)
    if not all(spatial):
        raise ShapeError(f"ops.resize got shape {tensor.shape}; an empty axis has no values")
    kind = "nearest" if method == "nearest" else "linear" if method in _LINEAR else "cubic"
    options = (sizes, kind, bool(align_corners))
    out = dispatch.together("resize", (tensor,), *options, kernel="resample")
    return channels_last(out, data_format)


def _sizes(spatial: tuple[int, ...], size: Any, scale: Any) -> tuple[int, ...]:
    if size is not None:
        return sides_of("resize", size, len(spatial), "size")
    given = tuple(scale) if isinstance(scale, tuple | list) else (scale,) * len(spatial)
    if len(given) != len(spatial):
        raise ShapeError(f"ops.resize got {len(given)} scales for {len(spatial)} spatial axes")
    if not all(isinstance(one, int | float) for one in given):
        raise DTypeError(f"ops.resize takes numbers as scale, not {scale!r}")
    sizes = tuple(_scaled(side, one) for side, one in zip(spatial, given, strict=True))
    if any(one < 1 for one in sizes):
        raise DomainError(f"ops.resize got scale={scale} for {spatial}, which leaves nothing")
    return sizes


def _scaled(side: int, scale: float) -> int:
    if type(side) is not int:  # a size that varies, in a function that is exported
        above, below = float(scale).as_integer_ratio()
        if below <= _PARTS:
            return side * above // below
    return math.floor(side * scale)


@op(accepts=ANY, standard=False)
def pixel_shuffle(x: TensorLike, /, factor: int, *, data_format: str = "channels_first") -> Tensor:
    """(..., channels * factor**2, h, w) as (..., channels, h * factor, w * factor).

    >>> pixel_shuffle([[[[1]], [[2]], [[3]], [[4]]]], 2).tolist()
    [[[[1, 2], [3, 4]]]]
    """
    tensor, r = _image("pixel_shuffle", x, factor, data_format)
    n, channels, h, w = tensor.shape
    if channels % r**2:
        raise ShapeError(f"ops.pixel_shuffle got {channels} channels, which {r**2} does not divide")
    parts = reshape(tensor, (n, channels // r**2, r, r, h, w))
    turned = permute_dims(parts, (0, 1, 4, 2, 5, 3))
    return channels_last(reshape(turned, (n, channels // r**2, h * r, w * r)), data_format)


@op(accepts=ANY, standard=False)
def pixel_unshuffle(
    x: TensorLike, /, factor: int, *, data_format: str = "channels_first"
) -> Tensor:
    """The reverse of `pixel_shuffle`.

    >>> pixel_unshuffle([[[[1, 2], [3, 4]]]], 2).tolist()
    [[[[1]], [[2]], [[3]], [[4]]]]
    """
    tensor, r = _image("pixel_unshuffle", x, factor, data_format)
    n, channels, h, w = tensor.shape
    if h % r or w % r:
        raise ShapeError(f"ops.pixel_unshuffle got images of {h} by {w}, which {r} does not divide")
    parts = reshape(tensor, (n, channels, h // r, r, w // r, r))
    turned = permute_dims(parts, (0, 1, 3, 5, 2, 4))
    return channels_last(reshape(turned, (n, channels * r**2, h // r, w // r)), data_format)


def _image(name: str, x: TensorLike, factor: int, data_format: str) -> tuple[Tensor, int]:
    is_last(name, data_format)
    r = integer_of(name, factor, "factor")
    if r < 1:
        raise DomainError(f"ops.{name} got factor={factor}; it must be at least 1")
    tensor = convert.to_tensor(x)
    if tensor.ndim != 4:
        raise ShapeError(f"ops.{name} takes (samples, channels, h, w), not shape {tensor.shape}")
    return channels_first(name, tensor, data_format), r
