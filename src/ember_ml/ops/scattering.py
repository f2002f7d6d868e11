"""Scatter: values sent to indices and aggregated there; segments."""

from __future__ import annotations

__all__: list[str] = []
