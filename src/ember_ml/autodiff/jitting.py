"""jit: a function compiled by the engine of its tensors."""

from __future__ import annotations

from typing import Any

__all__ = ["jit"]


def jit(*args: Any, **kwargs: Any) -> Any:
    """To be written."""
    raise NotImplementedError
