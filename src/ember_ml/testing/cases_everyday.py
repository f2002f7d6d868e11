"""Cases and mistakes of everyday."""

from __future__ import annotations

from typing import Final

from ember_ml.testing.case import Case
from ember_ml.testing.mistake import Mistake

__all__ = ["EVERYDAY", "MISTAKES"]

EVERYDAY: Final[tuple[Case, ...]] = ()

MISTAKES: Final[tuple[Mistake, ...]] = ()
