"""What users hold: tensors, how they are made, moved, shared and shown."""

from ember_ml.tensor.core import EmberTensor, Tensor
from ember_ml.tensor.storage import Storage
from ember_ml.tensor.windows import TensorView, TensorViewMut

__all__ = ["EmberTensor", "Storage", "Tensor", "TensorView", "TensorViewMut"]
