"""Columns with average zero and variance one."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from ember_ml import ops
from ember_ml.features.base import MatrixExtractor
from ember_ml.features.data import check_finite
from ember_ml.features.moments import Moments, centered, moments, widened
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["Standardize", "standardize_features"]

_OPTIONAL = (Tensor, type(None))


class Standardize(MatrixExtractor):
    """Subtract the average of each column, and divide by its standard deviation.

    `(x - mean_) / scale_`, where `scale_` is the root of `var_` (over all samples, not one less)
    and 1 for columns of equal values. NaN is left out in `fit` and stays in `transform`. What is
    learned is float64, where the device has it; what is transformed keeps its dtype.

    >>> from ember_ml.nn import features
    >>> scaler = features.standardize_features().fit([[1.0, 5.0], [3.0, 5.0]])
    >>> scaler.mean_.tolist(), scaler.transform([[1.0, 5.0], [5.0, 6.0]]).tolist()
    ([2.0, 5.0], [[-1.0, 0.0], [3.0, 1.0]])
    """

    OPTIONS = ("with_mean", "with_std")
    LEARNED: ClassVar[Any] = {
        **MatrixExtractor.LEARNED,
        "n_samples_seen_": (int, Tensor),
        "mean_": _OPTIONAL,
        "var_": _OPTIONAL,
        "scale_": _OPTIONAL,
    }

    # How many samples there were; of each column, where NaN makes that differ.
    n_samples_seen_: int | Tensor
    mean_: Tensor | None
    var_: Tensor | None
    scale_: Tensor | None

    def __init__(self, *, with_mean: bool = True, with_std: bool = True) -> None:
        self.with_mean = with_mean
        self.with_std = with_std

    def fit(
        self, x: TensorLike, /, *, with_mean: bool | None = None, with_std: bool | None = None
    ) -> Self:
        """Learn average and spread of the columns of `x`; options given here stay."""
        self.with_mean = self.with_mean if with_mean is None else with_mean
        self.with_std = self.with_std if with_std is None else with_std
        sample = self._sample(x)
        self._learn(self._moments("fit", sample))
        return self

    def partial_fit(self, x: TensorLike, /) -> Self:
        """Learn from more samples, as if all had come in one call of `fit`."""
        if not self.is_fitted:
            return self.fit(x)
        more = self._moments("partial_fit", self._matrix("partial_fit", x).detach())
        self._learn(self._seen(more).merged(more))
        return self

    def _moments(self, call: str, sample: Tensor) -> Moments:
        finite = check_finite(f"Standardize.{call}", sample, nan=True)
        return moments(widened(sample), finite=finite)

    def _seen(self, like: Moments) -> Moments:
        count = self.n_samples_seen_
        if not isinstance(count, Tensor):
            count = ops.full_like(like.mean, float(count))
        zero = ops.zeros_like(like.mean)  # in the place of what no option asks for
        mean = zero if self.mean_ is None else self.mean_
        var = zero if self.var_ is None else self.var_
        return Moments(convert.cast(count, like.mean.dtype), mean, var)

    def _learn(self, found: Moments) -> None:
        counts = [int(count) for count in found.count.tolist()]
        equal = all(count == counts[0] for count in counts)
        self.n_samples_seen_ = counts[0] if equal else convert.cast(found.count, ops.int64)
        self.mean_ = found.mean if self.with_mean or self.with_std else None
        self.var_ = self.scale_ = None
        if self.with_std:
            self.var_, self.scale_ = found.var, found.spread()

    def extract(self, data: TensorLike, /) -> Tensor:
        """The columns of `data`, standardised."""
        x = self._matrix("transform", data)
        if self.with_mean and self.mean_ is not None:
            x = centered(x, self.mean_)
        return x if self.scale_ is None else x / convert.cast(self.scale_, x.dtype)

    def inverse_transform(self, x: TensorLike, /) -> Tensor:
        """The data of which `x` are the standardised columns."""
        self._require_fitted("inverse_transform")
        found = self._features("inverse_transform", x, self.n_features_in_)
        if self.scale_ is not None:
            found = found * convert.cast(self.scale_, found.dtype)
        if self.with_mean and self.mean_ is not None:
            found = centered(found, -self.mean_)
        return found


def standardize_features(*, with_mean: bool = True, with_std: bool = True) -> Standardize:
    """A Standardize that is not fitted yet.

    >>> from ember_ml.nn import features
    >>> features.standardize_features().fit_transform([[1], [3]]).tolist()
    [[-1.0], [1.0]]
    """
    return Standardize(with_mean=with_mean, with_std=with_std)
