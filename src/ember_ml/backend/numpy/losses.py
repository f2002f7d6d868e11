"""Steps of losses in fewer passes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ember_ml.backend.contract import Kernel
from ember_ml.backend.numpy.kernels import quiet
from ember_ml.errors import OutOfBoundsError

__all__ = ["OVERRIDES"]

Array = np.ndarray[Any, Any]


def of_rows(
    scores: Array, classes: Array, ignored: int | None, reduction: str, sloped: bool
) -> tuple[Any, Array | None]:
    """The cross-entropy of rows of scores, and where asked for its slope, which shares the work.

    Rows to be ignored are left to the long way, as are classes that do not exist.
    """
    if np.minimum.reduce(classes) < 0:
        raise OutOfBoundsError("a class is negative")
    rows = np.arange(len(classes))
    shifted = scores - np.maximum.reduce(scores, 1, keepdims=True)
    powers = np.exp(shifted)
    total = np.add.reduce(powers, 1, keepdims=True)
    losses = np.log(total[:, 0]) - shifted[rows, classes]
    if ignored is not None and ignored >= 0 and (classes == ignored).any():
        raise OutOfBoundsError("a class is ignored")
    slope = None
    if sloped:
        slope = np.divide(powers, total, out=powers)
        slope[rows, classes] -= 1
    if reduction == "none":
        return losses, slope
    loss = np.add.reduce(losses)
    if reduction == "mean":
        count = scores.dtype.type(len(classes))
        loss = loss / count
        if slope is not None:
            slope /= count
    return loss, slope


OVERRIDES: Final[dict[str, Kernel]] = {"losses.of_rows": quiet(of_rows)}
