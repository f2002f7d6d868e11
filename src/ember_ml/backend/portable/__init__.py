"""Kernels for engines that lack one, written once over settled kernels."""

from typing import Final

from ember_ml.backend.contract import Kernel
from ember_ml.backend.portable import (
    alignment,
    arithmetic,
    bits,
    contraction,
    exponentials,
    network,
    ordering,
    random,
    signal,
    special,
    standard,
)

__all__ = ["KERNELS"]

KERNELS: Final[dict[str, Kernel]] = {
    **alignment.KERNELS,
    **arithmetic.KERNELS,
    **bits.KERNELS,
    **contraction.KERNELS,
    **exponentials.KERNELS,
    **network.KERNELS,
    **ordering.KERNELS,
    **random.KERNELS,
    **signal.KERNELS,
    **special.KERNELS,
    **standard.KERNELS,
}
