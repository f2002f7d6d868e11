"""Rules by which type checkers follow the markers of a tensor through its methods.

A rule is a decorator. For type checkers it says what becomes of `Tensor[Float32, Cpu, Rank2]`:
see typed.pyi. At run time it gives the method back untouched. A subclass that overrides a method
with a rule repeats the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = [
    "arithmetic",
    "average",
    "comparison",
    "division",
    "expanding",
    "extreme",
    "indexing",
    "lowering",
    "matmul",
    "moving",
    "position",
    "reshaping",
    "rows",
    "squeezing",
    "to",
    "total",
    "truth",
    "variance",
]

F = TypeVar("F", bound=Callable[..., Any])


def untouched(method: F) -> F:
    """The method as it is."""
    return method


arithmetic = division = comparison = matmul = untouched
extreme = total = average = variance = truth = position = untouched
indexing = lowering = rows = expanding = squeezing = reshaping = untouched
moving = to = untouched
