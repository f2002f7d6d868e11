"""Steps of losses in fewer passes."""

from __future__ import annotations

import math
from typing import Any, Final

import mlx.core as mx

from ember_ml.backend import checks, dlpack, selection
from ember_ml.backend.contract import Kernel
from ember_ml.backend.mlx.hosting import evaluated, host_view
from ember_ml.backend.mlx.summation import KERNELS as SUMS
from ember_ml.backend.portable import alignment
from ember_ml.errors import DTypeError, GradientError, OutOfBoundsError, ShapeError

__all__ = ["OVERRIDES"]

Array = Any  # mx.array; its operators are untyped

_LONG: Final = 256


def of_rows(
    scores: Array, classes: Array, ignored: int | None, reduction: str, sloped: bool
) -> tuple[Array, None]:
    """The cross-entropy of rows of scores; MLX or our record finds the slope.

    Where the classes can be read, those that do not exist or are ignored are left to the long way.
    """
    if scores.dtype != mx.float32:
        raise DTypeError("mx.logsumexp computes float64 in float32")
    if scores.shape[1] > _LONG and _is_on_cpu(scores):
        raise ShapeError("there it adds one value after another: see summation.py")
    kept: Any = None
    if _is_read(classes):
        _require_classes(classes, scores.shape[1], ignored)
    elif ignored is not None:
        if sloped:
            raise GradientError("the rule of our record knows nothing of rows that are ignored")
        kept = classes != ignored
        classes = mx.where(kept, classes, 0)
    picked = mx.take_along_axis(scores, classes[:, None], axis=1)
    losses = mx.logsumexp(scores, axis=1) - picked.squeeze(1)
    if kept is not None:
        losses = mx.where(kept, losses, 0.0)
    if reduction == "none":
        return losses, None
    loss = SUMS["sum"](losses)
    if reduction != "mean":
        return loss, None
    if kept is None:
        loss = loss / len(losses)
    else:
        # The mean of nothing is NaN, but no row has a slope then.
        count = mx.sum(kept)
        loss = mx.where(count > 0, loss / mx.maximum(count, 1), mx.array(math.nan, loss.dtype))
    return loss, None


def _is_read(classes: Array) -> bool:
    """True where values may be read to find mistakes: see Backend.checks_values."""
    where = checks.mode()
    if where == "none":
        return False
    return (where == "all" or _is_on_cpu(classes)) and evaluated(classes)


def _is_on_cpu(x: Array) -> bool:
    return bool(x.__dlpack_device__()[0] == dlpack.CPU)


def _require_classes(classes: Array, width: int, ignored: int | None) -> None:
    values = host_view(classes)
    if values.item(values.argmin()) < 0 or values.item(values.argmax()) >= width:
        raise OutOfBoundsError("there is no such class")
    if ignored is not None and ignored >= 0 and (values == ignored).any():
        raise OutOfBoundsError("a class is ignored")


# --- Alignments -----------------------------------------------------------------------------------


def alignments(
    first: Array, heard: Array, skips: Array, live: Array, wall: Array, keep: bool
) -> tuple[Array, None]:
    """See backend/portable/alignment.py; here a frame takes half as many steps."""
    if first.dtype != mx.float32:  # mx.logsumexp computes float64 in float32
        kernels = selection.load("mlx").kernels
        return alignment.alignments(kernels, first, heard, skips, live, wall, keep)
    current, total, never = first, wall[:, :1] * 0, wall[:, :1]
    for t, (row, counts) in enumerate(zip(heard, live, strict=True), 1):
        padded = mx.concatenate([wall, current], 1)
        ways = mx.stack([current, padded[:, 1:-1], mx.where(skips, padded[:, :-2], never)])
        current = mx.where(counts, mx.maximum(mx.logsumexp(ways, 0) + row, never), current)
        if not t % alignment.SHIFT:
            most = mx.stop_gradient(mx.max(current, axis=1, keepdims=True))  # it cancels
            current, total = current - most, total + most
    return current + total, None


OVERRIDES: Final[dict[str, Kernel]] = {
    "losses.of_rows": of_rows,
    "alignments": alignments,
}
