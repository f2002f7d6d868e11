"""Gradients of pooling."""

from __future__ import annotations

__all__: list[str] = []
