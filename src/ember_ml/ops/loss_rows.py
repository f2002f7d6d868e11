"""The loss of most classifiers in one step: rows of scores, and a class for each.

`losses.cross_entropy` asks here first. What is not this very case, or fails, goes its long way,
which finds out what is wrong and says it.
"""

from __future__ import annotations

from typing import Any, Final

from ember_ml import dtypes
from ember_ml.autodiff.tape import recorded_one
from ember_ml.tensor.core import GradTensor, Tensor, fill

__all__ = ["of_rows"]

_DTYPES: Final = frozenset((dtypes.float32, dtypes.float64))
_TENSORS: Final = (Tensor, GradTensor)


def of_rows(scores: Any, classes: Any, ignored: int | None, reduction: str) -> Tensor | None:
    """The cross-entropy of scores `(n, classes)` and class numbers `(n,)`; None for other input."""
    if type(scores) not in _TENSORS or type(classes) is not Tensor:
        return None
    spec, kind = scores._spec, classes._spec
    kernel = spec.backend.overrides.get("losses.of_rows")
    if (
        kernel is None
        or spec.dtype not in _DTYPES
        or kind.dtype is not dtypes.int64
        or kind.backend is not spec.backend
        or not kind.device == spec.device == "cpu"  # where the engine looks at the classes itself
    ):
        return None
    native, places = scores.native, classes.native
    if len(native.shape) != 2 or native.shape[:1] != places.shape or not places.shape[0]:
        return None
    needed = type(scores) is GradTensor
    try:
        loss, slope = kernel(native, places, ignored, reduction, needed)
    except Exception:
        return None
    if spec.settles and type(loss) is not spec.native_type:
        loss = spec.backend.settle_native(loss, spec)
    if needed:
        return recorded_one("losses.of_rows", loss, spec, scores, (slope, places, reduction))
    return fill(loss, spec)
