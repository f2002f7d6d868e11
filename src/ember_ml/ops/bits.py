"""Operations on the bits of integers."""

from __future__ import annotations

__all__: list[str] = []
