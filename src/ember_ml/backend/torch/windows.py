"""Convolution, pooling and resizing on torch."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional

from ember_ml.backend.contract import Kernel
from ember_ml.backend.portable import resizing, windows

__all__ = ["KERNELS"]

Tensor = torch.Tensor
Sides = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

# By the number of spatial axes; there is no convolution of none.
_CONV: Final[tuple[Kernel, ...]] = (torch.conv1d, torch.conv1d, torch.conv2d, torch.conv3d)
_TRANSPOSE: Final[tuple[Kernel, ...]] = (
    functional.conv_transpose1d,
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
)


def pad_with(x: Tensor, pairs: Pairs, value: float) -> Tensor:
    flat = [side for pair in reversed(pairs) for side in pair]  # torch begins with the last axis
    return functional.pad(x, flat, value=value)


def accumulate_at(x: Tensor, key: tuple[Any, ...], value: Tensor) -> Tensor:
    x[key] += value
    return x


# --- Convolution ------------------------------------------------------------------------------


def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    groups: int,
    last: bool,
) -> Any:
    if last:
        x = x.movedim(-1, 1)
    padding, x = _symmetric(x, pairs, 0.0)
    out = _CONV[len(stride)](x, weight, bias, stride, padding, dilation, groups)
    return out.movedim(1, -1) if last else out


def _symmetric(x: Tensor, pairs: Pairs, value: float) -> tuple[Sides, Tensor]:
    """The padding that torch takes, and `x` with what is beyond it."""
    if all(low == high for low, high in pairs):
        return tuple(low for low, _ in pairs), x
    return (0,) * len(pairs), pad_with(x, pairs, value)


def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sides,
    pairs: Pairs,
    more: Sides,
    dilation: Sides,
    groups: int,
    last: bool,
) -> Any:
    if last:
        x = x.movedim(-1, 1)
    common = tuple(min(pair) for pair in pairs)
    out = _TRANSPOSE[len(stride)](x, weight, bias, stride, common, more, groups, dilation)
    if any(low != high for low, high in pairs):  # torch cuts off as much on either side
        for axis, ((low, high), cut) in enumerate(zip(pairs, common, strict=True), 2):
            out = out.narrow(axis, low - cut, out.shape[axis] - (low - cut) - (high - cut))
    return out.movedim(1, -1) if last else out


# --- Pooling ----------------------------------------------------------------------------------


def _max_pool(name: str) -> Kernel:
    pools: Any = tuple(getattr(torch.nn.functional, f"max_pool{n}d{name}") for n in (1, 1, 2, 3))

    def kernel(
        x: Tensor, size: Sides, stride: Sides, pairs: Pairs, dilation: Sides, ceil: bool
    ) -> Any:
        if not x.numel():
            return _empty(x, size, stride, pairs, dilation, ceil, bool(name))
        spatial = tuple(x.shape[2:])
        if any(low != high for low, high in pairs):
            pairs = windows.extended(spatial, size, stride, pairs, dilation, ceil)
            out = pools[len(size)](pad_with(x, ((0, 0), (0, 0), *pairs), -torch.inf), size, stride,
                                   0, dilation)  # fmt: skip
            if not name:
                return out
            wide = tuple(n + sum(pair) for n, pair in zip(spatial, pairs, strict=True))
            return out[0], _unpadded(out[1], wide, spatial, pairs)
        padding = tuple(low for low, _ in pairs)
        return pools[len(size)](x, size, stride, padding, dilation, ceil)

    return kernel


def _unpadded(indices: Tensor, wide: Sides, spatial: Sides, pairs: Pairs) -> Tensor:
    """Indices into padded planes as indices into the planes themselves."""
    places = []
    rest = indices
    for side, (low, _) in zip(reversed(wide), reversed(pairs), strict=True):
        places.append(rest % side - low)
        rest = rest // side
    out = torch.zeros_like(indices)
    for side, place in zip(spatial, reversed(places), strict=True):
        out = out * side + place
    return out


def _empty(
    x: Tensor,
    size: Sides,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    ceil: bool,
    indices: bool,
) -> Any:
    """torch refuses to pool nothing where samples or channels are none."""
    spatial = tuple(x.shape[2:])
    room = windows.extended(spatial, size, stride, pairs, dilation, ceil)
    shape = (*x.shape[:2], *windows.lengths(spatial, size, stride, room, dilation))
    out = x.new_zeros(shape) + x.sum()  # the gradient of nothing is nothing, not an error
    return (out, torch.zeros(shape, dtype=torch.int64, device=x.device)) if indices else out


_AVG: Final[tuple[Kernel, ...]] = (
    functional.avg_pool1d,
    functional.avg_pool1d,
    functional.avg_pool2d,
    functional.avg_pool3d,
)


def avg_pool(x: Tensor, size: Sides, stride: Sides, pairs: Pairs, ceil: bool, include: bool) -> Any:
    one = (1,) * len(size)
    if not x.numel():
        return _empty(x, size, stride, pairs, one, ceil, False)
    if len(size) == 3 and x.element_size() == 2:  # torch has no such kernel on the CPU
        return avg_pool(x.float(), size, stride, pairs, ceil, include).to(x.dtype)
    if all(low == high for low, high in pairs):
        padding = tuple(low for low, _ in pairs)
        return _AVG[len(size)](x, size, stride, padding, ceil, include)
    spatial = tuple(x.shape[2:])
    room = windows.extended(spatial, size, stride, pairs, one, ceil)
    mean = _AVG[len(size)](pad_with(x, ((0, 0), (0, 0), *room), 0.0), size, stride)
    counts = windows.counts_of(spatial, size, stride, pairs, room, include)
    area = float(np.prod(size))
    return mean * torch.from_numpy(area / counts).to(x)


def _adaptive(name: str) -> Kernel:
    pools: Any = tuple(getattr(functional, f"adaptive_{name}_pool{n}d") for n in (1, 1, 2, 3))

    def kernel(x: Tensor, sizes: Sides) -> Any:
        if not x.numel():
            return x.new_zeros((*x.shape[:2], *sizes)) + x.sum()
        return pools[len(sizes)](x, sizes)

    return kernel


# --- Resizing ---------------------------------------------------------------------------------

_LINEAR: Final = ("linear", "linear", "bilinear", "trilinear")


def resample(x: Tensor, sizes: Sides, method: str, align: bool) -> Tensor:
    if not x.numel():
        return x.new_zeros((*x.shape[:2], *sizes)) + x.sum()
    axes = len(sizes)
    if method == "nearest":
        sides = zip(x.shape[2:], sizes, strict=True)
        if axes <= 3 and all(_agrees(side, size) for side, size in sides):
            return functional.interpolate(x, sizes, mode="nearest")
        for axis, size in enumerate(sizes, 2):
            table = torch.from_numpy(resizing.nearest(x.shape[axis], size))
            x = x.index_select(axis, table.to(x.device))
        return x
    if method == "linear" and axes <= 3:
        return functional.interpolate(x, sizes, mode=_LINEAR[axes], align_corners=align)
    if method == "cubic" and axes <= 2:
        flat = x if axes == 2 else x[..., None]  # torch has it for two axes
        target = sizes if axes == 2 else (*sizes, 1)
        out = functional.interpolate(flat, target, mode="bicubic", align_corners=align)
        return out if axes == 2 else out[..., 0]
    # torch has these for fewer axes only; both weigh each axis by itself.
    for axis, size in enumerate(sizes, 2):
        rows = x.movedim(axis, -1)
        out = resample(rows.reshape(-1, 1, rows.shape[-1]), (size,), method, align)
        x = out.reshape(*rows.shape[:-1], size).movedim(-1, axis)
    return x


@lru_cache(maxsize=256)
def _agrees(side: int, size: int) -> bool:
    """True where torch's quotient in float32 finds the same values as the exact one."""
    ratio = np.float32(side) / np.float32(size)
    found = np.floor(np.arange(size, dtype=np.float32) * ratio).astype(np.int64)
    return bool((np.minimum(found, side - 1) == resizing.nearest(side, size)).all())


KERNELS: Final[dict[str, Kernel]] = {
    "pad_with": pad_with,
    "accumulate_at": accumulate_at,
    "conv": conv,
    "conv_transpose": conv_transpose,
    "max_pool": _max_pool(""),
    "max_pool_indices": _max_pool("_with_indices"),
    "avg_pool": avg_pool,
    "adaptive_avg_pool": _adaptive("avg"),
    "adaptive_max_pool": _adaptive("max"),
    "resample": resample,
}
