"""Reductions that pass over NaN."""

from __future__ import annotations

__all__: list[str] = []
