"""Control flow that compiles: batching, loops, branches."""

from __future__ import annotations

__all__: list[str] = []
