"""Memory: how much is used, and how to use less of it."""

from __future__ import annotations

__all__: list[str] = []
