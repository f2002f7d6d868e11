"""Pooling over windows: largest, average, adaptive."""

from __future__ import annotations

__all__: list[str] = []
