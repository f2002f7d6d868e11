"""Gradients of special functions."""

from __future__ import annotations

import math
from typing import Final

from ember_ml import dtypes, ops
from ember_ml.autodiff.rules.table import rule
from ember_ml.backend.portable.special import Maths, trigamma
from ember_ml.ops.dispatch import unary
from ember_ml.tensor.core import Tensor

__all__: list[str] = []

_BELL: Final = 2 / math.sqrt(math.pi)


def _bell(x: Tensor) -> Tensor:
    """The derivative of erf."""
    return ops.exp(-ops.square(x)) * _BELL


rule("erf", lambda g, y, x: g * _bell(x))
rule("erfc", lambda g, y, x: -(g * _bell(x)))
rule("erfinv", lambda g, y, x: g * (ops.exp(ops.square(y)) / _BELL), inputs=False, output=True)


# --- Gamma ------------------------------------------------------------------------------------


def _maths(wide: bool) -> Maths:
    """The portable formulas over tensors, so that they are recorded and differentiated again."""
    return Maths(
        wide=wide,
        number=float,
        abs=ops.abs,
        exp=ops.exp,
        floor=ops.floor,
        log=ops.log,
        minimum=ops.minimum,
        sin=ops.sin,
        sqrt=ops.sqrt,
        where=ops.where,
    )


def _digamma(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    slope: Tensor = trigamma(_maths(x.dtype is dtypes.float64), x)
    return g * slope


rule("lgamma", lambda g, y, x: g * unary("digamma", x))
rule("digamma", _digamma)
