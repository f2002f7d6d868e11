"""Convolution and the steps of pooling on MLX, whose channels come last."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import mlx.core as mx

from ember_ml.backend.contract import Backend, Kernel
from ember_ml.backend.mlx.elementwise import batched
from ember_ml.backend.portable.window_gradients import LARGEST

__all__ = ["CONVOLUTIONS", "KERNELS", "LARGEST", "convolution", "largest"]

Array = Any  # mx.array; its operators are untyped
Sides = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def pad_with(x: Array, pairs: Pairs, value: float) -> Array:
    if not any(map(any, pairs)):
        return x
    return mx.pad(x, list(pairs), constant_values=mx.array(value, dtype=x.dtype))


def accumulate_at(x: Array, key: tuple[Any, ...], value: Array) -> Array:
    return x.at[key].add(value)


def fits(*args: Any) -> bool:
    """True where MLX has the convolution: it has groups over one or two axes only."""
    x, weight, groups = args[0], args[1], args[-2]
    return bool(x.size and weight.size and (groups == 1 or len(weight.shape) < 5))


def conv(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    groups: int,
    last: bool,
) -> Array:
    x, weight = batched(x, weight), batched(weight, x)
    images = x if last else mx.moveaxis(x, 1, -1)
    out = mx.conv_general(
        images,
        mx.moveaxis(weight, 1, -1),
        stride=stride,
        padding=([low for low, _ in pairs], [high for _, high in pairs]),
        kernel_dilation=dilation,
        groups=groups,
    )
    if bias is not None:
        out = out + bias
    return out if last else mx.moveaxis(out, -1, 1)


def transposes(*args: Any) -> bool:
    """True where MLX has the transposed convolution: it cuts nothing off."""
    weight, pairs, more, dilation = args[1], args[4], args[5], args[6]
    room = zip(weight.shape[2:], dilation, pairs, more, strict=True)
    # The gradient by its input is too short where more is added than a step.
    if any(extra >= step for extra, step in zip(more, args[3], strict=True)):
        return False
    return fits(*args) and all(
        low <= (size - 1) * gap and high - extra <= (size - 1) * gap
        for size, gap, (low, high), extra in room
    )


def conv_transpose(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sides,
    pairs: Pairs,
    more: Sides,
    dilation: Sides,
    groups: int,
    last: bool,
) -> Array:
    x, weight = batched(x, weight), batched(weight, x)
    channels, inner, *kernel = weight.shape
    turned = weight.reshape(groups, channels // groups, inner, *kernel).swapaxes(1, 2)
    turned = turned.reshape(groups * inner, channels // groups, *kernel)
    reach = [(size - 1) * gap for size, gap in zip(kernel, dilation, strict=True)]
    before = [r - low for r, (low, _) in zip(reach, pairs, strict=True)]
    after = [r - high + e for r, (_, high), e in zip(reach, pairs, more, strict=True)]
    out = mx.conv_general(
        x if last else mx.moveaxis(x, 1, -1),
        mx.moveaxis(turned, 1, -1),
        stride=1,
        padding=(before, after),
        kernel_dilation=dilation,
        input_dilation=stride,
        groups=groups,
        flip=True,
    )
    if bias is not None:
        out = out + bias
    return out if last else mx.moveaxis(out, -1, 1)


KERNELS: Final[dict[str, Kernel]] = {"pad_with": pad_with, "accumulate_at": accumulate_at}
CONVOLUTIONS: Final[dict[str, tuple[Kernel, Kernel]]] = {
    "conv": (conv, fits),
    "conv_transpose": (conv_transpose, transposes),
}


def convolution(name: str, portable: Kernel) -> Kernel:
    """The kernel of a convolution, portable where MLX has none for its arguments."""
    own, suits = CONVOLUTIONS[name]
    return lambda *args: own(*args) if suits(*args) else portable(*args)


def largest(name: str, backend: Backend) -> Kernel:
    """A pool of largest values; of several the first has the gradient, as in torch.

    MLX gives it to the last of those that it compares, or shares it out.
    """
    xp, forward = backend.kernels, backend.portable(name)
    picked, pulled = LARGEST[name]

    @lru_cache(maxsize=64)
    def pool(*options: Any) -> Kernel:
        @mx.custom_function
        def kernel(x: Array) -> Array:
            return forward(x, *options)

        kernel.vjp(lambda x, g, y: pulled(xp, g, x, y, *options))
        kernel.jvp(lambda x, v: picked(xp, v, x, forward(x, *options), *options))
        made: Kernel = kernel
        return made

    return lambda x, *options: pool(*options)(x)
