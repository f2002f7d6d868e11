"""Gathering from and writing into tensors at indices, as functions."""

from __future__ import annotations

__all__: list[str] = []
