"""Signals: windows, frames, spectra and back, cepstra."""

from __future__ import annotations

__all__: list[str] = []
