"""Images resized, by the nearest pixel or bilinearly."""

from __future__ import annotations

__all__: list[str] = []
