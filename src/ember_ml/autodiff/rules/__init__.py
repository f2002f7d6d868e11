"""The rules by which ops are differentiated, chapter by chapter; see table.py for how they read."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from ember_ml.autodiff.tape import RULES, Rule
from ember_ml.errors import GradientError

__all__ = ["CHAPTERS", "find", "load_all"]

CHAPTERS: Final = (
    "elementwise",
    "special",
    "activations",
    "reduction",
    "ordering",
    "arranging",
    "indexing",
    "products",
    "linearalg",
    "signal",
    "convolution",
    "pooling",
    "normalization",
    "attention",
    "recurrent",
    "losses",
    "random",
    "control",
    "quick",
)


def load_all() -> None:
    """Read every chapter."""
    for chapter in CHAPTERS:
        import_module(f"ember_ml.autodiff.rules.{chapter}")


def find(name: str) -> Rule:
    """The rule of a kernel; one that raises where there is none."""
    load_all()
    found = RULES.get(name)
    if found is None:
        found = RULES[name] = Rule(name, (), _missing(name), False, False)
    return found


def _missing(name: str) -> Any:
    def refuse(*args: Any) -> Any:
        raise GradientError(f"ops.{name} has no gradient on backends without one of their own")

    return refuse
