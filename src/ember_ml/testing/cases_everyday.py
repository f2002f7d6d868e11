"""Cases and mistakes of everyday ops: scatter, updates, arranging, products, bits."""

from __future__ import annotations

from typing import Final

from ember_ml.testing import cases_scatter
from ember_ml.testing.case import Case
from ember_ml.testing.mistake import Mistake

__all__ = ["EVERYDAY", "MISTAKES"]

EVERYDAY: Final[tuple[Case, ...]] = (*cases_scatter.SCATTER, *cases_scatter.SEGMENTS)

MISTAKES: Final[tuple[Mistake, ...]] = (*cases_scatter.MISTAKES,)
