"""Steps of losses that torch does in one pass, with a gradient of its own."""

from __future__ import annotations

from typing import Final

import torch
from torch.nn.functional import cross_entropy

from ember_ml.backend.contract import Kernel
from ember_ml.errors import DeviceError

__all__ = ["OVERRIDES"]

Tensor = torch.Tensor
# torch has no way to ignore nothing; no class is this number.
_NO_CLASS: Final = -(1 << 62)


def of_logits(
    logits: Tensor,
    classes: Tensor,
    weights: Tensor | None,
    ignored: int | None,
    smoothing: float,
    axis: int,
    reduction: str,
) -> Tensor:
    """The cross-entropy of class numbers, checked already."""
    return cross_entropy(
        # torch has classes along axis 1, or 0 of one axis.
        logits.movedim(axis, min(1, logits.ndim - 1)),
        classes,
        weights,
        ignore_index=_NO_CLASS if ignored is None else ignored,
        reduction=reduction,
        label_smoothing=smoothing,
    )


def of_rows(
    scores: Tensor, classes: Tensor, ignored: int | None, reduction: str, sloped: bool
) -> tuple[Tensor, None]:
    """The same for rows of scores; torch looks at the classes and has the slope itself."""
    if not scores.is_cpu:
        raise DeviceError("elsewhere it does not look")
    number = _NO_CLASS if ignored is None else ignored
    return cross_entropy(scores, classes, ignore_index=number, reduction=reduction), None


OVERRIDES: Final[dict[str, Kernel]] = {
    "losses.of_rows": of_rows,
    "losses.of_logits": of_logits,
}
