"""Splitting, joining, padding and turning beyond the standard."""

from __future__ import annotations

__all__: list[str] = []
