"""Special functions against the C library's, through Python's `math`, and their own definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml.dtypes import DType
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample

__all__ = ["SPECIAL"]


def _each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    def expect(x: Array) -> Array:
        return np.array([function(float(v)) for v in x.reshape(-1)], float).reshape(x.shape)

    return expect


def _lgamma(x: float) -> float:
    return math.inf if x <= 0 and x == round(x) else math.lgamma(x)


def _digamma(x: float) -> float:
    """By the recurrence and the asymptotic series, which at 20 is exact to the last place."""
    if math.isnan(x) or x == -math.inf or (x < 0 and x == round(x)):
        return math.nan
    if x == 0:
        return -math.copysign(math.inf, x)
    if x == math.inf:
        return x
    steps = []
    while x < 20:
        steps.append(-1 / x)
        x += 1
    tail = [1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760]
    steps += [math.log(x), -0.5 / x, *(-c / x ** (2 * k + 2) for k, c in enumerate(tail))]
    return math.fsum(steps)


def _erfinv(x: float) -> float:
    """By bisection of erf, or of erfc where that tells more."""
    if not -1 <= x <= 1:
        return math.nan
    if abs(x) == 1:
        return math.copysign(math.inf, x)
    size, low, high = abs(x), 0.0, 6.0
    for _ in range(200):
        middle = (low + high) / 2
        below = math.erf(middle) < size if size < 0.5 else math.erfc(middle) > 1 - size
        low, high = (middle, high) if below else (low, middle)
    return math.copysign(low, x)


_EDGES: Final = (0.0, -0.0, 1.0, -1.0, 2.0, math.inf, math.nan)


def _inputs(op: str, low: float, high: float) -> Callable[[DType], list[Inputs]]:
    def make(dtype: DType) -> list[Inputs]:
        runs: list[Inputs] = [
            (sample(f"{op}{s}", s, dtype, low, high),) for s in ((5, 8), (), (0, 3))
        ]
        if dtype.is_floating:
            runs.append((np.array(_EDGES).astype(dtype.numpy),))
        return runs

    return make


_FUNCTIONS: Final[dict[str, tuple[Callable[[float], float], float, float]]] = {
    "erf": (math.erf, -3, 3),
    "erfc": (math.erfc, -3, 3),
    "erfinv": (_erfinv, -0.99, 0.99),
    "lgamma": (_lgamma, -4, 12),
    "digamma": (_digamma, -2, 12),
}


def _cases(op: str) -> list[Case]:
    function, low, high = _FUNCTIONS[op]

    def run(xp: Any, x: Any) -> Any:
        return getattr(xp, op)(x)

    return [Case(op, run, _each(function), _inputs(op, low, high), accepted(op), law(op))]


SPECIAL: Final[tuple[Case, ...]] = tuple(case for op in _FUNCTIONS for case in _cases(op))
