"""The parts of networks on NumPy."""

from __future__ import annotations

from typing import Final

from ember_ml.backend.contract import Kernel
from ember_ml.backend.numpy import windows
from ember_ml.backend.portable.network import KERNELS

__all__ = ["NOISY", "OVERRIDES", "WIDE"]

OVERRIDES: Final[dict[str, Kernel]] = {**windows.KERNELS}

# Kernels of several steps: 16-bit floats are computed in float32, and rounded once.
WIDE: Final = frozenset(KERNELS) - {
    "relu",
    "relu6",
}
# They meet infinities on their way, which are values here and no warnings.
NOISY: Final = WIDE
