"""Convolutions over one, two and three spatial axes, and their transposes."""

from __future__ import annotations

__all__: list[str] = []
