"""Gradients of arranging: cases where those of the values do not suit."""

from __future__ import annotations

from typing import Final

from ember_ml.testing.gradients import GradientCase

__all__ = ["ARRANGING"]

ARRANGING: Final[tuple[GradientCase, ...]] = ()
