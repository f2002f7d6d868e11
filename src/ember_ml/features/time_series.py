"""Sequences, each brought to average zero and variance one."""

from __future__ import annotations

from typing import Any

from ember_ml import ops
from ember_ml.errors import DomainError, DTypeError
from ember_ml.features import data as given
from ember_ml.features.base import FeatureExtractor
from ember_ml.tensor import convert
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
        kept = None
        if mask is not None:
            kept = ops.astype(convert.to_tensor(mask, x._spec.backend), ops.bool)
            kept = ops.broadcast_to(kept, x.shape)
        off = self._centered(x, kept)
        # A second time, since the average of many values of few digits is off by some of them.
        off = self._centered(off, kept)
        var = self._mean(off * off, kept)
        # Told by the values themselves: rounding leaves equal ones a variance of their own.
        flat = self._largest(x, kept) <= -self._largest(-x, kept)
        # Replaced before the root, whose slope at zero is infinite.
        spread = ops.sqrt(ops.where(flat, ops.ones_like(var), var + self.epsilon))
        return ops.where(flat, ops.zeros_like(x), off / spread)

    def _mean(self, x: Tensor, kept: Tensor | None) -> Tensor:
        if kept is None:
            return ops.mean(x, axis=self.axis, keepdims=True)
        count = ops.sum(ops.astype(kept, x.dtype), axis=self.axis, keepdims=True)
        values = ops.where(kept, x, ops.zeros_like(x))
        total = ops.sum(values, axis=self.axis, keepdims=True)
        return total / ops.maximum(count, ops.ones_like(count))

    def _centered(self, x: Tensor, kept: Tensor | None) -> Tensor:
        off = x - self._mean(x, kept)
        return off if kept is None else ops.where(kept, off, ops.zeros_like(off))

    def _largest(self, x: Tensor, kept: Tensor | None) -> Tensor:
        if kept is not None:
            x = ops.where(kept, x, ops.full_like(x, -ops.inf))
        return ops.max(x, axis=self.axis, keepdims=True)
