"""Convolution and pooling on JAX: XLA has windows, with gaps on either side, in one piece."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax

from ember_ml.backend.contract import Backend, Kernel, NativeArray
from ember_ml.backend.portable import windows
from ember_ml.backend.portable.window_gradients import LARGEST

__all__ = ["KERNELS", "LARGEST", "STEPS", "largest"]

Sides = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

_SPATIAL: Final = "DHW"


def pad_with(x: NativeArray, pairs: Pairs, value: float) -> NativeArray:
    return jnp.pad(x, pairs, constant_values=value)


def accumulate_at(x: NativeArray, key: tuple[Any, ...], value: NativeArray) -> NativeArray:
    return x.at[key].add(value)


def _numbers(axes: int, last: bool) -> tuple[str, str, str]:
    names = _SPATIAL[3 - axes :]
    images = f"N{names}C" if last else f"NC{names}"
    return images, f"OI{names}", images


def _with_bias(x: NativeArray, bias: NativeArray | None, last: bool) -> NativeArray:
    if bias is None:
        return x
    return x + (bias if last else bias.reshape(-1, *(1,) * (x.ndim - 2)))


def conv(
    x: NativeArray,
    weight: NativeArray,
    bias: NativeArray | None,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    groups: int,
    last: bool,
) -> NativeArray:
    out = lax.conv_general_dilated(
        x,
        weight,
        stride,
        pairs,
        rhs_dilation=dilation,
        dimension_numbers=_numbers(len(stride), last),
        feature_group_count=groups,
        precision=lax.Precision.HIGHEST,  # accelerators multiply float32 in fewer bits
    )
    return _with_bias(out, bias, last)


def conv_transpose(
    x: NativeArray,
    weight: NativeArray,
    bias: NativeArray | None,
    stride: Sides,
    pairs: Pairs,
    more: Sides,
    dilation: Sides,
    groups: int,
    last: bool,
) -> NativeArray:
    """A convolution of the input with gaps, by the windows turned round."""
    channels, inner, *kernel = weight.shape
    axes = len(kernel)
    turned = jnp.flip(weight, tuple(range(2, 2 + axes)))
    turned = turned.reshape(groups, channels // groups, inner, *kernel).swapaxes(1, 2)
    turned = turned.reshape(groups * inner, channels // groups, *kernel)
    room = []
    for size, gap, (low, high), extra in zip(kernel, dilation, pairs, more, strict=True):
        reach = (size - 1) * gap
        room.append((reach - low, reach - high + extra))
    out = lax.conv_general_dilated(
        x,
        turned,
        (1,) * axes,
        room,
        lhs_dilation=stride,
        rhs_dilation=dilation,
        dimension_numbers=_numbers(axes, last),
        feature_group_count=groups,
        precision=lax.Precision.HIGHEST,
    )
    return _with_bias(out, bias, last)


def _reduced(
    x: NativeArray, start: float, join: Any, size: Sides, stride: Sides, pairs: Pairs, gaps: Sides
) -> NativeArray:
    return lax.reduce_window(
        x,
        start,
        join,
        (1, 1, *size),
        (1, 1, *stride),
        ((0, 0), (0, 0), *pairs),
        window_dilation=(1, 1, *gaps),
    )


def max_pool(
    x: NativeArray, size: Sides, stride: Sides, pairs: Pairs, dilation: Sides, ceil: bool
) -> NativeArray:
    room = windows.extended(x.shape[2:], size, stride, pairs, dilation, ceil)
    return _reduced(x, -jnp.inf, lax.max, size, stride, room, dilation)


def largest(name: str, backend: Backend) -> Kernel:
    """A pool of largest values; of several the first has the gradient, as in torch.

    XLA knows only that of windows without gaps, and JAX shares it out between largest values.
    """
    xp = backend.kernels
    forward = max_pool if name == "max_pool" else backend.portable(name)
    picked = LARGEST[name][0]

    @partial(jax.custom_jvp, nondiff_argnums=(1,))
    def pool(x: NativeArray, options: tuple[Any, ...]) -> NativeArray:
        return forward(x, *options)

    @pool.defjvp
    def slope(options: tuple[Any, ...], primals: Any, tangents: Any) -> Any:
        (x,), (v,) = primals, tangents
        y = pool(x, options)
        return y, picked(xp, v, x, y, *options)

    def kernel(x: NativeArray, *options: Any) -> NativeArray:
        if name == "max_pool" and options[3] == (1,) * len(options[3]):
            return max_pool(x, *options)
        return pool(x, options)

    return kernel


def avg_pool(
    x: NativeArray, size: Sides, stride: Sides, pairs: Pairs, ceil: bool, include: bool
) -> NativeArray:
    one = (1,) * len(size)
    room = windows.extended(x.shape[2:], size, stride, pairs, one, ceil)
    total = _reduced(x, 0.0, lax.add, size, stride, room, one)
    counts = windows.counts_of(x.shape[2:], size, stride, pairs, room, include)
    if (counts == math.prod(size)).all():
        return total / math.prod(size)
    return total / counts.astype(x.dtype)


KERNELS: Final[dict[str, Kernel]] = {
    kernel.__name__: kernel for kernel in (conv, conv_transpose, avg_pool)
}
# Steps of portable kernels, which are compiled with these.
STEPS: Final[dict[str, Kernel]] = {"pad_with": pad_with, "accumulate_at": accumulate_at}
