"""Neural networks over ops, and the tensor module under the name that models use."""

from ember_ml.nn import modules, tensor

__all__ = ["modules", "tensor"]
