"""Choices within rules, by values: what is not chosen lets neither NaN nor infinity through."""

from __future__ import annotations

from ember_ml import ops
from ember_ml.tensor.core import Tensor, fill

__all__ = ["cleared", "gated", "has_none"]


def gated(mask: Tensor, g: Tensor) -> Tensor:
    """A gradient where the mask is true, zero elsewhere."""
    if type(g) is Tensor and type(mask) is Tensor:
        return _chosen(mask, g, g.native, g._spec.scalar(0.0))
    return ops.where(mask, g, 0.0)


def cleared(mask: Tensor, g: Tensor) -> Tensor:
    """Zero where the mask is true, the gradient elsewhere."""
    if type(g) is Tensor and type(mask) is Tensor:
        return _chosen(mask, g, g._spec.scalar(0.0), g.native)
    return ops.where(mask, 0.0, g)


def _chosen(mask: Tensor, like: Tensor, a: object, b: object) -> Tensor:
    """The short way to `where`, for tensors of one backend that need no gradients."""
    spec = like._spec
    native = spec.kernel("where")(mask.native, a, b)
    if type(native) is not spec.native_type:
        native = spec.backend.settle_native(native, spec)
    return fill(native, spec)


def has_none(mask: Tensor) -> bool:
    """True where nothing is chosen and that costs nothing to know: values lie in host memory."""
    return mask._spec.backend.name == "numpy" and not mask.native.any()
