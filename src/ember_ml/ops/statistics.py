"""Statistics: averages, spread, quantiles, order, counts, correlation."""

from __future__ import annotations

__all__: list[str] = []
