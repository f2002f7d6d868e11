"""When values are computed: some engines wait until they are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ember_ml.tensor.core import Tensor

__all__ = ["LATER", "compute_now"]

# Engines that compute a value when it is read.
LATER: Final = frozenset(("mlx",))


def compute_now(tensors: Iterable[Tensor]) -> None:
    """Have MLX compute tensors here, which others do by themselves.

    It computes an array when it is read, only in the thread that made it, and keeps all that it
    comes from until then: sums over an epoch would hold every batch.
    """
    for x in tensors:
        if x.backend in LATER:
            x.detach().numpy()
