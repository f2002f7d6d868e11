"""What users hold: tensors, how they are made, moved, shared and shown."""

from ember_ml.tensor.core import EmberTensor, Tensor
from ember_ml.tensor.homes import TensorView, TensorViewMut
from ember_ml.tensor.storage import Storage

__all__ = ["EmberTensor", "Storage", "Tensor", "TensorView", "TensorViewMut"]
