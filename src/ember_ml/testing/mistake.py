"""One mistake of the conformance kit: a wrong call and its error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ember_ml.errors import EmberError

__all__ = ["Mistake"]


@dataclass(frozen=True)
class Mistake:
    """A wrong call, its error, and what the message must say."""

    label: str
    error: type[EmberError]
    run: Callable[[Any], Any]
    facts: tuple[str, ...] = ()
