"""Derivatives of functions that give more than a number: vjp, jvp, jacobian, hessian."""

from __future__ import annotations

from typing import Any

__all__ = ["hessian", "jacobian", "jvp", "vjp"]


def hessian(*args: Any, **kwargs: Any) -> Any:
    """To be written."""
    raise NotImplementedError


def jacobian(*args: Any, **kwargs: Any) -> Any:
    """To be written."""
    raise NotImplementedError


def jvp(*args: Any, **kwargs: Any) -> Any:
    """To be written."""
    raise NotImplementedError


def vjp(*args: Any, **kwargs: Any) -> Any:
    """To be written."""
    raise NotImplementedError
