"""Kernels for engines that lack one, written once over settled kernels."""

from typing import Final

from ember_ml.backend.contract import Kernel
from ember_ml.backend.portable import bits, contraction, standard

__all__ = ["KERNELS"]

KERNELS: Final[dict[str, Kernel]] = {
    **standard.KERNELS,
    **bits.KERNELS,
    **contraction.KERNELS,
}
