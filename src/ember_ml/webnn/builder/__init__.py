"""MLGraphBuilder: 95 ops in families, each of which adds to one graph."""

from __future__ import annotations

from ember_ml.webnn.builder.activations import Activations
from ember_ml.webnn.builder.binary import Binary
from ember_ml.webnn.builder.convolution import Convolution
from ember_ml.webnn.builder.gathering import Gathering
from ember_ml.webnn.builder.logical import Logical
from ember_ml.webnn.builder.making import Making
from ember_ml.webnn.builder.moving import Moving
from ember_ml.webnn.builder.normalization import Normalization
from ember_ml.webnn.builder.pooling import Pooling
from ember_ml.webnn.builder.products import Products
from ember_ml.webnn.builder.quantizing import Quantizing
from ember_ml.webnn.builder.recurrent import Recurrent
from ember_ml.webnn.builder.reductions import Reductions
from ember_ml.webnn.builder.resampling import Resampling
from ember_ml.webnn.builder.triangular import Triangular
from ember_ml.webnn.builder.unary import Unary

__all__ = ["MLGraphBuilder"]


class MLGraphBuilder(
    Making,
    Unary,
    Binary,
    Logical,
    Activations,
    Reductions,
    Quantizing,
    Triangular,
    Convolution,
    Gathering,
    Moving,
    Normalization,
    Pooling,
    Products,
    Recurrent,
    Resampling,
):
    """Builds an MLGraph: inputs and constants, ops over them, and `build` at the end."""
