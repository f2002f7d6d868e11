"""Cases and mistakes of network."""

from __future__ import annotations

from typing import Final

from ember_ml.testing import cases_activations
from ember_ml.testing.case import Case
from ember_ml.testing.mistake import Mistake

__all__ = ["MISTAKES", "NETWORK"]

NETWORK: Final[tuple[Case, ...]] = (*cases_activations.ACTIVATIONS,)

MISTAKES: Final[tuple[Mistake, ...]] = (*cases_activations.MISTAKES,)
