"""Gradients of sums, extremes and averages."""

from __future__ import annotations

from ember_ml import ops
from ember_ml.autodiff.rules.shapes import spread
from ember_ml.autodiff.rules.table import rule

__all__: list[str] = []

rule(
    "sum",
    lambda g, y, x, axis, keepdims: ops.broadcast_to(spread(g, x, axis, keepdims), x.shape),
    inputs=False,
)
