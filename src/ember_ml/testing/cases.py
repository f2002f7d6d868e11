"""The cases of the conformance kit, chapter by chapter."""

from __future__ import annotations

from typing import Final

from ember_ml.testing.case import Case
from ember_ml.testing.cases_arrays import ARRAYS
from ember_ml.testing.cases_control import CONTROL
from ember_ml.testing.cases_decompositions import DECOMPOSITIONS
from ember_ml.testing.cases_elementwise import ELEMENTWISE
from ember_ml.testing.cases_everyday import EVERYDAY
from ember_ml.testing.cases_linalg import FOURIER, LINEAR_ALGEBRA
from ember_ml.testing.cases_losses import LOSSES
from ember_ml.testing.cases_network import NETWORK
from ember_ml.testing.cases_random import RANDOM
from ember_ml.testing.cases_reduction import REDUCTIONS
from ember_ml.testing.cases_signal import SIGNALS
from ember_ml.testing.cases_stats import STATISTICS

__all__ = ["CASES"]

CASES: Final[tuple[Case, ...]] = (
    *ELEMENTWISE,
    *REDUCTIONS,
    *ARRAYS,
    *LINEAR_ALGEBRA,
    *FOURIER,
    *STATISTICS,
    *DECOMPOSITIONS,
    *EVERYDAY,
    *NETWORK,
    *SIGNALS,
    *LOSSES,
    *RANDOM,
    *CONTROL,
)
