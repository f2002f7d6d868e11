"""Averages and spread that keep their digits: what is learned of many values of few digits."""

from __future__ import annotations

from dataclasses import dataclass

from ember_ml import dtypes, ops
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

__all__ = ["Moments", "centered", "moments", "widened"]


@dataclass(frozen=True, slots=True)
class Moments:
    """Of each column: how many values there are, their average and their variance."""

    count: Tensor
    mean: Tensor
    var: Tensor

    def merged(self, other: Moments) -> Moments:
        """The moments of two sets of values together (Chan, Golub and LeVeque, 1979)."""
        count = self.count + other.count
        one = ops.maximum(count, 1.0)
        mine, step = self.count / one, other.count / one
        shift = other.mean - self.mean
        mean = self.mean + shift * step
        var = self.var * mine + other.var * step + shift * shift * mine * step

        def known(both: Tensor, first: Tensor, second: Tensor) -> Tensor:
            # A column without values has NaN for its average, which must not spread.
            found = ops.where(other.count == 0, first, both)
            return ops.where(self.count == 0, second, found)

        return Moments(count, known(mean, self.mean, other.mean), known(var, self.var, other.var))

    def spread(self) -> Tensor:
        """The standard deviation of each column, and 1 for columns of equal values."""
        # Equal values have no more variance than the rounding of their average can leave.
        slip = self.count * ops.finfo(self.var.dtype).eps
        off = slip * self.mean
        flat = self.var <= slip * self.var + off * off
        return ops.sqrt(ops.where(flat, ops.ones_like(self.var), self.var))


def widened(x: Tensor) -> Tensor:
    """In float64, or in float32 on devices that have no float64.

    The sum of a million float32 values has lost three of its seven digits.
    """
    spec = x._spec
    wide = spec.backend.supports(dtypes.float64, spec.device)
    return convert.cast(x, dtypes.float64 if wide else dtypes.float32)


def moments(x: Tensor, *, finite: bool = False) -> Moments:
    """The moments of each column of a matrix, NaN left out; quicker where all is `finite`."""
    if finite:
        mean = ops.mean(x, axis=0)
        off = x - mean
        slip = ops.mean(off, axis=0)
        var = ops.mean(off * off, axis=0) - slip * slip
        return Moments(ops.full_like(mean, float(x.shape[0])), mean, var)
    there = ops.logical_not(ops.isnan(x))
    count = convert.cast(ops.sum(convert.cast(there, dtypes.int64), axis=0), x.dtype)
    zero = ops.zeros_like(x)
    mean = ops.sum(ops.where(there, x, zero), axis=0) / count
    off = ops.where(there, x - mean, zero)
    # The second pass tells how far the average is off, and takes that out of the variance.
    slip = ops.sum(off, axis=0)
    return Moments(count, mean, (ops.sum(off * off, axis=0) - slip * slip / count) / count)


def centered(x: Tensor, mean: Tensor) -> Tensor:
    """`x - mean` in the dtype of `x`, for a `mean` with more digits than that dtype has.

    The average is subtracted in two parts; the first difference is exact for values near it.
    """
    if mean.dtype is x.dtype:
        return x - mean
    high = convert.cast(mean, x.dtype)
    low = convert.cast(mean - convert.cast(high, mean.dtype), x.dtype)
    return (x - high) - low
