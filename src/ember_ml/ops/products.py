"""Products beyond the standard: dot, inner, outer, einsum."""

from __future__ import annotations

__all__: list[str] = []
