"""GradientTape: a block in which what happens to watched tensors is recorded."""

from __future__ import annotations

from typing import Any

__all__ = ["GradientTape"]


def GradientTape(*args: Any, **kwargs: Any) -> Any:
    """To be written."""
    raise NotImplementedError
