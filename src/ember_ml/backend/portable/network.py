"""The parts of networks, and how many of their arguments are arrays, or None in place of one."""

from __future__ import annotations

from typing import Final

from ember_ml.backend.contract import Kernel
from ember_ml.backend.portable import (
    activations,
    affine,
    attention,
    normalization,
    recurrent,
    resizing,
    window_gradients,
    windows,
)

__all__ = ["ARRAYS", "KERNELS"]

KERNELS: Final[dict[str, Kernel]] = {
    **activations.KERNELS,
    **affine.KERNELS,
    **attention.KERNELS,
    **normalization.KERNELS,
    **recurrent.KERNELS,
    **windows.KERNELS,
    **resizing.KERNELS,
    **window_gradients.KERNELS,
}
# Options follow the arrays: Python values that can be hashed.
ARRAYS: Final[dict[str, int]] = {
    **dict.fromkeys(activations.KERNELS, 1),
    "prelu": 2,
    "linear": 3,
    "scaled_dot_product_attention": 4,
    "rope": 3,
    "layer_norm": 3,
    "rms_norm": 2,
    "group_norm": 3,
    "batch_norm": 5,
    "batch_norm_training": 5,
    "normalize": 1,
    "recurrent": recurrent.ARRAYS,
    **dict.fromkeys(windows.KERNELS, 1),
    "conv": 3,
    "conv_transpose": 3,
    "resample": 1,
    **window_gradients.ARRAYS,
}
