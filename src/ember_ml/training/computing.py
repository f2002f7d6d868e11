"""When values are computed: some engines wait until they are read."""

from __future__ import annotations

from collections.abc import Iterable

from ember_ml.tensor.core import Tensor

__all__ = ["compute_now"]


def compute_now(tensors: Iterable[Tensor]) -> None:
    """Have MLX compute tensors here, which others do by themselves.

    It computes an array when it is read, only in the thread that made it, and keeps all that it
    comes from until then: sums over an epoch would hold every batch.
    """
    for x in tensors:
        if x.backend == "mlx":
            x.detach().numpy()
