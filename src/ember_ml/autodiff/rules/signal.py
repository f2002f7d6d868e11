"""Gradients of signal."""

from __future__ import annotations

__all__: list[str] = []
