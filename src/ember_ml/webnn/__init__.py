"""The W3C Web Neural Network interface, snake_case, over ember_ml graphs."""

from ember_ml.webnn.builder import MLGraphBuilder
from ember_ml.webnn.context import MLContext
from ember_ml.webnn.descriptors import MLOperandDescriptor, MLTensorDescriptor
from ember_ml.webnn.errors import (
    InvalidStateError,
    MLTypeError,
    NotSupportedError,
    OperationError,
    UnknownError,
)
from ember_ml.webnn.graph import MLGraph
from ember_ml.webnn.ml import ML
from ember_ml.webnn.operand import MLOperand
from ember_ml.webnn.tensors import MLDeviceTensor, MLTensor
from ember_ml.webnn.timeline import MLContextLostInfo

__all__ = [
    "ML",
    "InvalidStateError",
    "MLContext",
    "MLContextLostInfo",
    "MLDeviceTensor",
    "MLGraph",
    "MLGraphBuilder",
    "MLOperand",
    "MLOperandDescriptor",
    "MLTensor",
    "MLTensorDescriptor",
    "MLTypeError",
    "NotSupportedError",
    "OperationError",
    "UnknownError",
]
