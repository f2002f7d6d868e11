"""MLGraphBuilder: 95 ops in families, each of which adds to one graph."""

from __future__ import annotations

from ember_ml.webnn.builder.making import Making
from ember_ml.webnn.builder.unary import Unary

__all__ = ["MLGraphBuilder"]


class MLGraphBuilder(Making, Unary):
    """Builds an MLGraph: inputs and constants, ops over them, and `build` at the end."""
