"""The cases of gradients: those of the chapters, and for all other ops those that follow."""

from __future__ import annotations

from typing import Final

from ember_ml.autodiff import rules
from ember_ml.autodiff.rules.table import CONSTANT, NO_GRADIENT
from ember_ml.ops.registry import REGISTRY
from ember_ml.testing.gradients import GradientCase, derived, has_float_result
from ember_ml.testing.gradients_arranging import ARRANGING
from ember_ml.testing.gradients_elementwise import ELEMENTWISE
from ember_ml.testing.gradients_linalg import LINALG
from ember_ml.testing.gradients_network import NETWORK
from ember_ml.testing.gradients_reduction import REDUCTION

__all__ = ["CASES"]

rules.load_all()

# Cases of their own, chapter by chapter.
_OWN: Final[tuple[GradientCase, ...]] = (
    *ELEMENTWISE,
    *REDUCTION,
    *ARRANGING,
    *LINALG,
    *NETWORK,
)


def _all() -> list[GradientCase]:
    own = {case.op for case in _OWN}
    rest = [
        case
        for op in REGISTRY
        if op not in own | CONSTANT and op not in NO_GRADIENT and has_float_result(op)
        for case in derived(op)
    ]
    return [*_OWN, *rest]


CASES: Final[list[GradientCase]] = _all()
