"""The cases of the conformance kit, chapter by chapter."""

from __future__ import annotations

from typing import Final

from ember_ml.testing.case import Case
from ember_ml.testing.cases_arrays import ARRAYS
from ember_ml.testing.cases_elementwise import ELEMENTWISE
from ember_ml.testing.cases_linalg import FOURIER, LINEAR_ALGEBRA
from ember_ml.testing.cases_reduction import REDUCTIONS

__all__ = ["CASES"]

CASES: Final[tuple[Case, ...]] = (
    *ELEMENTWISE,
    *REDUCTIONS,
    *ARRAYS,
    *LINEAR_ALGEBRA,
    *FOURIER,
)
