"""Cases and mistakes of everyday ops: scatter, updates, arranging, products, bits."""

from __future__ import annotations

from typing import Final

from ember_ml.testing import cases_moves, cases_products, cases_scatter, cases_updates
from ember_ml.testing.case import Case
from ember_ml.testing.mistake import Mistake

__all__ = ["EVERYDAY", "MISTAKES"]

EVERYDAY: Final[tuple[Case, ...]] = (
    *cases_scatter.SCATTER,
    *cases_scatter.SEGMENTS,
    *cases_moves.MOVES,
    *cases_updates.UPDATES,
    *cases_products.PRODUCTS,
)

MISTAKES: Final[tuple[Mistake, ...]] = (
    *cases_scatter.MISTAKES,
    *cases_moves.MISTAKES,
    *cases_updates.MISTAKES,
    *cases_products.MISTAKES,
)
