"""Columns brought to a range, by their extremes or by their quantiles."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from ember_ml import ops
from ember_ml.errors import DomainError
from ember_ml.features.base import MatrixExtractor
from ember_ml.features.data import check_finite
from ember_ml.features.moments import centered, widened
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = [
    "MaxAbsScale",
    "MinMaxScale",
    "RobustScale",
    "max_abs_features",
    "min_max_features",
    "robust_features",
]


class _Scale(MatrixExtractor):
    """`(x - center_) / scale_`: what the scalers here have in common. NaN is left out in `fit`."""

    LEARNED: ClassVar[Any] = {**MatrixExtractor.LEARNED, "center_": Tensor, "scale_": Tensor}

    center_: Tensor
    scale_: Tensor

    def _samples(self, x: TensorLike) -> tuple[Tensor, Tensor]:
        """The samples of `fit`, and where they are NaN."""
        sample = self._sample(x)
        check_finite(f"{type(self).__name__}.fit", sample, nan=True)
        wide = widened(sample)
        return wide, ops.isnan(wide)

    def extract(self, data: TensorLike, /) -> Tensor:
        """The columns of `data`, scaled."""
        x = self._matrix("transform", data)
        return centered(x, self.center_) / convert.cast(self.scale_, x.dtype)

    def inverse_transform(self, x: TensorLike, /) -> Tensor:
        """The data of which `x` are the scaled columns."""
        self._require_fitted("inverse_transform")
        found = self._features("inverse_transform", x, self.n_features_in_)
        return centered(found * convert.cast(self.scale_, found.dtype), -self.center_)


def _usable(scale: Tensor) -> Tensor:
    """A scale, and 1 in the place of what only rounding tells from zero."""
    tiny = scale < 10 * ops.finfo(scale.dtype).eps
    return ops.where(tiny, ops.ones_like(scale), scale)


def _extremes(x: Tensor, missing: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest value of each column; NaN where a column has none."""
    infinite = ops.full_like(x, ops.inf)
    least = ops.min(ops.where(missing, infinite, x), axis=0)
    largest = ops.max(ops.where(missing, -infinite, x), axis=0)
    none = ops.all(missing, axis=0)
    nothing = ops.full_like(least, ops.nan)
    return ops.where(none, nothing, least), ops.where(none, nothing, largest)


class MinMaxScale(_Scale):
    """Bring the extremes of each column to a range, [0, 1] unless told otherwise.

    >>> from ember_ml.nn import features
    >>> features.min_max_features().fit_transform([[1.0], [2.0], [5.0]]).tolist()
    [[0.0], [0.25], [1.0]]
    """

    OPTIONS = ("low", "high")
    LEARNED: ClassVar[Any] = {**_Scale.LEARNED, "data_min_": Tensor, "data_max_": Tensor}

    data_min_: Tensor
    data_max_: Tensor

    def __init__(self, low: float = 0.0, high: float = 1.0) -> None:
        if not low < high:
            raise DomainError(f"MinMaxScale got the range from {low} to {high}; low is the lesser")
        self.low = float(low)
        self.high = float(high)

    def fit(self, x: TensorLike, /) -> Self:
        """Learn the extremes of the columns of `x`."""
        self.data_min_, self.data_max_ = _extremes(*self._samples(x))
        self.scale_ = _usable(self.data_max_ - self.data_min_) / (self.high - self.low)
        self.center_ = self.data_min_ - self.scale_ * self.low
        return self


class MaxAbsScale(_Scale):
    """Divide each column by the largest of its values, signs left out; zeros stay zeros.

    >>> from ember_ml.nn import features
    >>> features.max_abs_features().fit_transform([[1.0], [-4.0]]).tolist()
    [[0.25], [-1.0]]
    """

    LEARNED: ClassVar[Any] = {**_Scale.LEARNED, "max_abs_": Tensor}

    max_abs_: Tensor

    def fit(self, x: TensorLike, /) -> Self:
        """Learn the largest value of each column of `x`."""
        sample, missing = self._samples(x)
        self.max_abs_ = _extremes(ops.abs(sample), missing)[1]
        self.scale_ = _usable(self.max_abs_)
        self.center_ = ops.zeros_like(self.scale_)
        return self


class RobustScale(_Scale):
    """Subtract the median of each column, and divide by the distance of two of its quantiles.

    A few values far off change neither. The quantiles, in per cent, are 25 and 75.

    >>> from ember_ml.nn import features
    >>> features.robust_features().fit_transform([[1.0], [2.0], [3.0], [4.0], [999.0]]).tolist()
    [[-1.0], [-0.5], [0.0], [0.5], [498.0]]
    """

    OPTIONS = ("low", "high")

    def __init__(self, low: float = 25.0, high: float = 75.0) -> None:
        if not 0.0 <= low < high <= 100.0:
            raise DomainError(
                f"RobustScale got the quantiles {low} and {high}; they rise, between 0 and 100"
            )
        self.low = float(low)
        self.high = float(high)

    def fit(self, x: TensorLike, /) -> Self:
        """Learn median and quantiles of the columns of `x`."""
        sample, missing = self._samples(x)
        # Sorted behind all values, NaN are out of the way of each quantile.
        ordered = ops.sort(ops.where(missing, ops.full_like(sample, ops.inf), sample), axis=0)
        there = ops.logical_not(missing)
        last = ops.sum(convert.cast(there, ops.int64), axis=0) - 1
        self.center_ = _quantile(ordered, last, 50.0)
        spread = _quantile(ordered, last, self.high) - _quantile(ordered, last, self.low)
        self.scale_ = _usable(spread)
        return self


def _quantile(ordered: Tensor, last: Tensor, percent: float) -> Tensor:
    """A quantile of each column, between the two values next to it; NaN of columns without any."""
    place = convert.cast(last, ordered.dtype) * (percent / 100.0)
    below = ops.maximum(ops.floor(place), ops.zeros_like(place))
    share = place - below
    first = convert.cast(below, ops.int64)
    second = ops.minimum(first + 1, ops.maximum(last, ops.zeros_like(last)))
    nothing = ops.full_like(place, ops.nan)
    low = ops.take_along_axis(ordered, first[None, :], axis=0)[0]
    low = ops.where(last < 0, nothing, low)
    high = ops.take_along_axis(ordered, second[None, :], axis=0)[0]
    return low + (high - low) * share


def min_max_features(low: float = 0.0, high: float = 1.0) -> MinMaxScale:
    """A MinMaxScale that is not fitted yet."""
    return MinMaxScale(low, high)


def max_abs_features() -> MaxAbsScale:
    """A MaxAbsScale that is not fitted yet."""
    return MaxAbsScale()


def robust_features(low: float = 25.0, high: float = 75.0) -> RobustScale:
    """A RobustScale that is not fitted yet."""
    return RobustScale(low, high)
