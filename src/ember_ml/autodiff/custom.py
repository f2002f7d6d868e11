"""Gradients that users decide: stop_gradient and custom_gradient."""

from __future__ import annotations

from typing import Any

__all__ = ["custom_gradient", "stop_gradient"]


def custom_gradient(*args: Any, **kwargs: Any) -> Any:
    """To be written."""
    raise NotImplementedError


def stop_gradient(*args: Any, **kwargs: Any) -> Any:
    """To be written."""
    raise NotImplementedError
