"""The meaning of each ONNX operator over `ember_ml.ops`, a file for each chapter."""

from ember_ml.graph.executors.operators import (
    activations,
    arithmetic,
    attention,
    control,
    convolution,
    fused,
    imaging,
    indexing,
    logic,
    losses,
    normalization,
    pooling,
    quantization,
    random,
    recurrent,
    reductions,
    regions,
    scattering,
    shaping,
    signal,
    slicing,
)
from ember_ml.graph.executors.operators.registry import OPERATORS, Operator, find

__all__ = ["OPERATORS", "Operator", "find"]
