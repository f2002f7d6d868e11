"""Kernels for engines that lack one, written once over settled kernels."""

from typing import Final

from ember_ml.backend.contract import Kernel
from ember_ml.backend.portable import network, special, standard

__all__ = ["KERNELS"]

KERNELS: Final[dict[str, Kernel]] = {
    **standard.KERNELS,
    **special.KERNELS,
    **network.KERNELS,
}
