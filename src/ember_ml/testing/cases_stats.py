"""Cases and mistakes of stats."""

from __future__ import annotations

from typing import Final

from ember_ml.testing.case import Case
from ember_ml.testing.cases_special import SPECIAL
from ember_ml.testing.mistake import Mistake

__all__ = ["MISTAKES", "STATISTICS"]

STATISTICS: Final[tuple[Case, ...]] = (*SPECIAL,)

MISTAKES: Final[tuple[Mistake, ...]] = ()
