"""When values are read to find mistakes: out-of-range indices, integer division by zero.

Engines that do not notice such mistakes themselves need a look at the values. On the CPU that is
cheap; on an accelerator it waits for all work that is queued, so there it must be asked for.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import Final

from ember_ml.backend.scope import Scope
from ember_ml.errors import DomainError

__all__ = ["mode", "use_checks"]

MODES: Final = ("cpu", "all", "none")
ENVIRONMENT_VARIABLE: Final = "EMBER_ML_CHECKS"

_chosen: ContextVar[str | None] = ContextVar("ember_ml_checks", default=None)


def mode() -> str:
    """Where values are checked in this thread or task: "cpu", "all" devices or "none"."""
    return _chosen.get() or _checked(os.environ.get(ENVIRONMENT_VARIABLE) or "cpu")


def _checked(name: str) -> str:
    if name not in MODES:
        raise DomainError(f"checks are one of {', '.join(MODES)}, not {name!r}")
    return name


class use_checks(Scope):
    """A scope in which values are checked on the "cpu" (the default), on "all" devices or not.

    Compiled code never reads values, whatever is chosen here.

    >>> with use_checks("all"):
    ...     mode()
    'all'
    """

    variable = _chosen

    def __init__(self, choice: str) -> None:
        super().__init__(_checked(choice))
