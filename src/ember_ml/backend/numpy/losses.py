"""Steps of losses in fewer passes.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from ember_ml.backend.numpy.kernels import hush, unhush
from ember_ml.backend.spec import Kernel, NativeArray
from ember_ml.errors import OutOfBoundsError

__all__ = ["OVERRIDES"]

Array = NativeArray
# Constants, which compiled code holds at hand.
_HUSH: Final[Any] = hush
_UNHUSH: Final[Any] = unhush
_CONTIGUOUS: Final[Any] = np.ascontiguousarray
_HIGHEST: Final[Any] = np.maximum.reduce
_TOTAL: Final[Any] = np.add.reduce
_EXP: Final[Any] = np.exp
_LOG: Final[Any] = np.log
_DIVIDE: Final[Any] = np.divide
_MULTIPLY: Final[Any] = np.multiply

# Up to here a call of NumPy costs more than what it computes, and its quickest ones are not those
# that one would write: a reduction takes as long as three products or five look-ups.
_SMALL: Final = 4096


def of_rows(
    scores: Array, classes: Array, ignored: Any, reduction: Any, sloped: bool
) -> tuple[Any, Array | None]:
    """The cross-entropy of rows of scores, and where asked for its slope, which shares the work.

    Rows to be ignored are left to the long way, as are classes that do not exist.
    """
    token = _HUSH()
    try:
        return _of_rows(scores, classes, ignored, reduction, sloped)
    finally:
        _UNHUSH(token)


def _of_rows(
    scores: Array, classes: Array, ignored: Any, reduction: Any, sloped: bool
) -> tuple[Any, Array | None]:
    count, width = scores.shape
    if classes.item(classes.argmin()) < 0 or classes.item(classes.argmax()) >= width:
        raise OutOfBoundsError("there is no such class")
    if ignored is not None and ignored >= 0 and (classes == ignored).any():
        raise OutOfBoundsError("a class is ignored")
    # What follows is in the order of the scores, and its rows are found by their places in memory.
    scores = _CONTIGUOUS(scores)
    small = scores.size <= _SMALL
    known = (_kept if small else _Constants)(count, width, scores.dtype.char)
    if small:
        highest = scores.ravel()[known.starts + scores.argmax(1)].reshape(count, 1)
    else:
        highest = _HIGHEST(scores, 1, keepdims=True)
    shifted = scores - highest
    powers = _EXP(shifted)
    total = powers.dot(known.row) if small else _TOTAL(powers, 1)
    places = known.starts + classes
    losses = _LOG(total) - shifted.ravel()[places]
    slope = None
    if sloped:
        slope = _DIVIDE(powers, total.reshape(count, 1), powers)
        flat = slope.ravel()  # no copy: it is contiguous
        flat[places] = flat[places] - known.one
    if reduction == "none":
        return losses, slope
    loss = losses.dot(known.column) if small else _TOTAL(losses)
    if reduction == "mean":
        loss = loss / known.count
        if slope is not None:
            _MULTIPLY(slope, known.part, slope)
    return loss, slope


class _Constants:
    """What the loss needs of the shape and dtype of scores alone.

    Numbers are arrays without axes beside arrays: those NumPy takes as they are.
    """

    __slots__ = ("column", "count", "one", "part", "row", "starts")

    def __init__(self, count: int, width: int, dtype: str) -> None:
        self.starts = np.arange(0, count * width, width)  # of rows, among all scores
        # Products with these add up.
        self.row: Array = np.ones(width, dtype)
        self.column: Array = np.ones(count, dtype)
        self.one, self.part = np.array(1, dtype), np.array(1 / count, dtype)
        self.count = self.one.dtype.type(count)


_kept: Final[Any] = lru_cache(64)(_Constants)


OVERRIDES: Final[dict[str, Kernel]] = {"losses.of_rows": of_rows}
