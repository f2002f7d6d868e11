"""Interpolation, differences and numbers that are close."""

from __future__ import annotations

__all__: list[str] = []
