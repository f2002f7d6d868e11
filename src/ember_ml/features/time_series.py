"""Sequences, each brought to average zero and variance one."""

from __future__ import annotations

from typing import Any

from ember_ml import ops
from ember_ml.errors import DomainError, DTypeError
from ember_ml.features import data as given
from ember_ml.features.base import FeatureExtractor
from ember_ml.features.moments import is_constant
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["TimeSeriesFeatures"]


class TimeSeriesFeatures(FeatureExtractor):
    """Standardise each sequence along its own time axis: 1, of (batch, time, ...).

    A sequence of equal values becomes zeros. `epsilon` is added to the variance.

    >>> from ember_ml.features import TimeSeriesFeatures
    >>> TimeSeriesFeatures().extract([[1.0, 3.0, 1.0, 3.0], [5.0, 5.0, 5.0, 5.0]]).tolist()
    [[-1.0, 1.0, -1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]
    """

    OPTIONS = ("axis", "epsilon")

    def __init__(self, *, axis: int = 1, epsilon: float = 0.0) -> None:
        if isinstance(axis, bool) or not isinstance(axis, int):
            raise DTypeError(f"TimeSeriesFeatures takes one axis as an integer, not {axis!r}")
        if not epsilon >= 0.0:
            raise DomainError(f"TimeSeriesFeatures takes epsilon from zero up, not {epsilon}")
        self.axis = axis
        self.epsilon = float(epsilon)

    def extract(self, data: Any, /, mask: TensorLike = None) -> Tensor:
        """The sequences, standardised; where `mask` is false, values count for nothing and are 0.

        `mask` is of the shape of `data`, or broadcasts to it.
        """
        x = given.floats("TimeSeriesFeatures.extract", data)
        if mask is None:
            mean = ops.mean(x, axis=self.axis, keepdims=True)
            off = x - mean
            var = ops.mean(off * off, axis=self.axis, keepdims=True)
            return off / self._spread(var, mean, x.shape[self.axis])
        kept = ops.broadcast_to(ops.astype(ops.asarray(mask), ops.bool), x.shape)
        zero = ops.zeros_like(x)
        count = ops.sum(ops.astype(kept, x.dtype), axis=self.axis, keepdims=True)
        count = ops.maximum(count, ops.ones_like(count))
        mean = ops.sum(ops.where(kept, x, zero), axis=self.axis, keepdims=True) / count
        off = ops.where(kept, x - mean, zero)
        var = ops.sum(off * off, axis=self.axis, keepdims=True) / count
        return off / self._spread(var, mean, x.shape[self.axis])

    def _spread(self, var: Tensor, mean: Tensor, length: int) -> Tensor:
        # Replaced before the root, whose slope at zero is infinite.
        flat = is_constant(var, mean, float(length))
        one = ops.ones_like(var)
        return ops.sqrt(ops.where(flat, one, var + self.epsilon))
