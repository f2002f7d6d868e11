"""`ops.stats`: every op that tells something of a sample, wherever it is defined."""

from __future__ import annotations

__all__: list[str] = []
