"""Cases and mistakes of decompositions."""

from __future__ import annotations

from typing import Final

from ember_ml.testing.case import Case
from ember_ml.testing.mistake import Mistake

__all__ = ["DECOMPOSITIONS", "MISTAKES"]

DECOMPOSITIONS: Final[tuple[Case, ...]] = ()

MISTAKES: Final[tuple[Mistake, ...]] = ()
