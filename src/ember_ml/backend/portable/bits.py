"""Bits for engines that cannot count them."""

from __future__ import annotations

from typing import Final

from ember_ml.backend.contract import Kernel, Kernels, NativeArray

__all__ = ["KERNELS"]


def popcount(xp: Kernels, x: NativeArray) -> NativeArray:
    """Sums of neighbouring pairs, fours and eights of bits, all in one integer.

    The masks have no sign bit, so that shifts of signed integers need no care.
    """
    bits = xp.dtype(x).bits

    def mask(byte: int) -> NativeArray:
        return xp.full((), int.from_bytes(bytes([byte]) * (bits // 8), "big"), x)

    def shifted(value: NativeArray, count: int) -> NativeArray:
        return xp.bitwise_right_shift(value, xp.full((), count, x))

    pairs = xp.subtract(x, xp.bitwise_and(shifted(x, 1), mask(0x55)))
    fours = xp.add(xp.bitwise_and(pairs, mask(0x33)), xp.bitwise_and(shifted(pairs, 2), mask(0x33)))
    eights = xp.bitwise_and(xp.add(fours, shifted(fours, 4)), mask(0x0F))
    if bits == 8:
        return eights
    # The highest byte of this product is the sum of all bytes.
    return shifted(xp.multiply(eights, mask(0x01)), bits - 8)


KERNELS: Final[dict[str, Kernel]] = {"popcount": popcount}
