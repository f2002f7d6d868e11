"""What users hold: tensors, how they are made, moved and shown."""

from ember_ml.tensor.core import EmberTensor, Tensor

__all__ = ["EmberTensor", "Tensor"]
