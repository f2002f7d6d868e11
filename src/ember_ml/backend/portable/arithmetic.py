"""Elementwise functions outside of the standard, for engines that lack them."""

from __future__ import annotations

import math
from typing import Final

from ember_ml.backend.contract import Kernel, Kernels, NativeArray
from ember_ml.backend.portable.standard import choose

__all__ = ["KERNELS", "sinc_slope"]


def _known(name: str) -> Kernel:
    """An extreme of two that passes over NaN."""

    def kernel(xp: Kernels, x: NativeArray, y: NativeArray) -> NativeArray:
        out = getattr(xp, name)(x, y)
        if not xp.dtype(x).is_floating:
            return out
        return choose(xp, xp.isnan(x), y, choose(xp, xp.isnan(y), x, out))

    return kernel


def exp2(xp: Kernels, x: NativeArray) -> NativeArray:
    return xp.pow(xp.full((), 2, x), x)


def cbrt(xp: Kernels, x: NativeArray) -> NativeArray:
    """A power, whose exponent is not quite a third, and a step of Newton's method."""
    size = xp.abs(x)
    edge = xp.logical_or(xp.equal(x, xp.full((), 0, x)), xp.logical_not(xp.isfinite(x)))
    inner = choose(xp, edge, xp.full((), 1, x), size)
    root = xp.pow(inner, xp.full((), 1 / 3, x))
    square = xp.square(root)
    excess = xp.subtract(root, xp.divide(inner, square))
    root = xp.subtract(root, xp.multiply(excess, xp.full((), 1 / 3, x)))
    return choose(xp, edge, x, xp.copysign(root, x))


def sinc(xp: Kernels, x: NativeArray) -> NativeArray:
    zero = xp.equal(x, xp.full((), 0, x))
    one = xp.full((), 1, x)
    angle = xp.multiply(choose(xp, zero, one, x), xp.full((), math.pi, x))
    return choose(xp, zero, one, xp.divide(xp.sin(angle), angle))


def sinc_slope(where: Kernel, cos: Kernel, x: NativeArray, y: NativeArray) -> NativeArray:
    """The derivative of sinc, y: (cos(pi x) - y) / x, which cancels near zero: there, its series.

    It takes whatever has operators, tensors as well.
    """
    square = x * x
    small = square < 0.0025
    wide = where(small, x * 0.0 + 1.0, x)
    far = (cos(wide * math.pi) - y) / wide
    angle = where(small, square, x * 0.0) * math.pi**2
    series = ((angle * (1 / 45360) - 1 / 840) * angle + 1 / 30) * angle - 1 / 3
    return where(small, series * x * math.pi**2, far)


KERNELS: Final[dict[str, Kernel]] = {
    "cbrt": cbrt,
    "exp2": exp2,
    "fmax": _known("maximum"),
    "fmin": _known("minimum"),
    "sinc": sinc,
}
