"""The loss of most classifiers in one step: rows of scores, and a class for each.

`losses.cross_entropy` asks here first. What is not this very case, or fails, goes its long way,
which finds out what is wrong and says it.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

from typing import Any, Final

from ember_ml import dtypes
from ember_ml.autodiff.nodes import recorded_one
from ember_ml.backend.spec import Spec
from ember_ml.tensor.core import GradTensor, Tensor

# isort: split
from ember_ml.tensor.cell import Cell, fill  # after core, which sets `blank`

__all__ = ["of_rows"]

_DTYPES: Final = frozenset((dtypes.float32, dtypes.float64))
_PLAIN: Final[Any] = Tensor
_GRAD: Final[Any] = GradTensor
_INT64: Final[Any] = dtypes.int64
_REDUCTIONS: Final = ("mean", "sum", "none")


def of_rows(scores: Any, classes: Any, ignored: Any, reduction: Any) -> Tensor | None:
    """The cross-entropy of scores `(n, classes)` and class numbers `(n,)`; None for other input."""
    needed = type(scores) is _GRAD
    if (not needed and type(scores) is not _PLAIN) or type(classes) is not _PLAIN:
        return None
    rows: Cell = scores
    numbers: Cell = classes
    spec: Spec = rows._spec
    kind: Spec = numbers._spec
    kernel = spec.backend.overrides.get("losses.of_rows")
    if (
        kernel is None
        or spec.dtype not in _DTYPES
        or kind.dtype is not _INT64
        or kind.backend is not spec.backend
        or kind.device != spec.device
        or reduction not in _REDUCTIONS
    ):
        return None
    native, places = rows.native, numbers.native
    shape, length = native.shape, places.shape
    if len(shape) != 2 or len(length) != 1 or shape[0] != length[0] or not length[0]:
        return None
    try:
        loss, slope = kernel(native, places, ignored, reduction, needed)
    except Exception:
        return None
    if spec.settles and type(loss) is not spec.native_type:
        loss = spec.backend.settle_native(loss, spec)
    if needed:
        return recorded_one("losses.of_rows", loss, spec, scores, (slope, places, reduction))
    return fill(loss, spec)
