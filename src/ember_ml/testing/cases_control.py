"""Cases and mistakes of control."""

from __future__ import annotations

from typing import Final

from ember_ml.testing.case import Case
from ember_ml.testing.mistake import Mistake

__all__ = ["CONTROL", "MISTAKES"]

CONTROL: Final[tuple[Case, ...]] = ()

MISTAKES: Final[tuple[Mistake, ...]] = ()
