"""Gradients of what only moves elements: shapes, axes, copies, casts."""

from __future__ import annotations

from ember_ml import ops
from ember_ml.autodiff.rules.shapes import summed_to
from ember_ml.autodiff.rules.table import rule
from ember_ml.tensor import convert

__all__: list[str] = []

rule("copy", lambda g, y, x: g, inputs=False)
rule(
    "astype",
    lambda g, y, x: convert.cast(
        ops.real(g) if g.dtype.is_complex and not x.dtype.is_complex else g, x.dtype
    ),
    inputs=False,
)
rule("to_device", lambda g, y, x: convert.to_device(g, x._spec.device), inputs=False)
rule("reshape", lambda g, y, x, shape: ops.reshape(g, x.shape), inputs=False)
rule("broadcast_to", lambda g, y, x, shape: summed_to(g, x), inputs=False)
