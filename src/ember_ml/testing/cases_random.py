"""Cases and mistakes of random."""

from __future__ import annotations

from typing import Final

from ember_ml.testing.case import Case
from ember_ml.testing.mistake import Mistake

__all__ = ["MISTAKES", "RANDOM"]

RANDOM: Final[tuple[Case, ...]] = ()

MISTAKES: Final[tuple[Mistake, ...]] = ()
