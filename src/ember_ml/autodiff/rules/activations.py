"""Gradients of activations. At a corner the slope is that of the left side, as torch has it."""

from __future__ import annotations

from typing import Any

from ember_ml.autodiff.rules.choosing import gated
from ember_ml.autodiff.rules.table import rule
from ember_ml.ops.dispatch import binary
from ember_ml.tensor.core import Tensor

__all__: list[str] = []


def _relu(g: Tensor, y: Tensor, x: Any) -> Tensor:
    return gated(binary("not_equal", y, 0.0), g)  # NaN is no zero


def _sigmoid(g: Tensor, y: Tensor, x: Any) -> Tensor:
    slope = binary("multiply", y, binary("subtract", 1.0, y))
    return binary("multiply", g, slope)


rule("relu", _relu, inputs=False, output=True)
rule("sigmoid", _sigmoid, inputs=False, output=True)
