"""Normalisation over the last axes: layer_norm, rms_norm."""

from __future__ import annotations

__all__: list[str] = []
