"""Losses: how far predictions are from targets."""

from __future__ import annotations

__all__: list[str] = []
