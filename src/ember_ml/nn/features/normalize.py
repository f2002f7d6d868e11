"""Rows, or columns, of length one."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from ember_ml import ops
from ember_ml.errors import AxisError, DomainError, ShapeError
from ember_ml.features.base import MatrixExtractor
from ember_ml.features.data import check_finite
from ember_ml.features.moments import widened
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["Norm", "Normalize", "normalize_features"]

Norm = Literal["l1", "l2", "max"]


class Normalize(MatrixExtractor):
    """Divide each row by its norm: the sum ("l1") or the root of the sum of squares ("l2") of its
    values, or the largest of them, without their signs. A row of zeros stays.

    With axis=1, each row is divided by its own norm, those of `fit` are only kept, as `norms_`,
    for the way back. With axis=0, columns are divided by the norms that they had in `fit`.

    >>> from ember_ml.nn import features
    >>> features.normalize_features().fit_transform([[3.0, 4.0], [0.0, 0.0]]).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """

    OPTIONS = ("norm", "axis")
    LEARNED: ClassVar[Any] = {**MatrixExtractor.LEARNED, "norms_": Tensor}

    norms_: Tensor

    def __init__(self, norm: Norm = "l2", *, axis: int = 1) -> None:
        self.norm: Norm = norm
        self.axis = axis
        self._check()

    def _check(self) -> None:
        if self.norm not in ("l1", "l2", "max"):
            raise DomainError(f"Normalize has norms 'l1', 'l2' and 'max', not {self.norm!r}")
        if self.axis not in (0, 1):
            raise AxisError(f"Normalize divides rows (axis=1) or columns (axis=0), not {self.axis}")

    def fit(self, x: TensorLike, /, *, norm: Norm | None = None, axis: int | None = None) -> Self:
        """Learn the norms of `x`; options given here stay."""
        self.norm = self.norm if norm is None else norm
        self.axis = self.axis if axis is None else axis
        self._check()
        sample = self._sample(x)
        check_finite("Normalize.fit", sample)
        # A row has few values, a column may have many, whose sum would lose digits.
        self.norms_ = self.norms(sample if self.axis == 1 else widened(sample))
        return self

    def norms(self, x: Tensor, /) -> Tensor:
        """What `x` is divided by: its norms over the axis, and 1 in the place of zeros."""
        if self.norm == "l2":
            # Divided by the largest first, squares neither overflow nor vanish.
            largest = _ones_for_zeros(ops.max(ops.abs(x), axis=self.axis, keepdims=True))
            inner = x / largest
            squares = ops.sum(inner * inner, axis=self.axis, keepdims=True)
            found = ops.squeeze(largest * ops.sqrt(_ones_for_zeros(squares)), axis=self.axis)
        elif self.norm == "l1":
            found = ops.sum(ops.abs(x), axis=self.axis)
        else:
            found = ops.max(ops.abs(x), axis=self.axis)
        return _ones_for_zeros(found)

    def extract(self, data: TensorLike, /) -> Tensor:
        """The rows or columns of `data`, divided by their norms."""
        x = self._matrix("transform", data)
        norms = self.norms(x) if self.axis == 1 else convert.cast(self.norms_, x.dtype)
        return x / ops.expand_dims(norms, axis=self.axis)

    def inverse_transform(self, x: TensorLike, /, norms: TensorLike = None) -> Tensor:
        """The data of which `x` are the normalised rows or columns.

        With axis=1 these are the rows that `fit` was given, unless their `norms` are.
        """
        self._require_fitted("inverse_transform")
        found = self._features("inverse_transform", x, self.n_features_in_)
        lengths = self.norms_ if norms is None else convert.to_tensor(norms, found._spec.backend)
        other = found.shape[1 - self.axis]
        if lengths.shape != (other,):
            raise ShapeError(
                f"Normalize.inverse_transform got shape {found.shape} and has norms of shape "
                f"{lengths.shape}; give norms= of these rows, as Normalize.norms gives them"
            )
        return found * ops.expand_dims(convert.cast(lengths, found.dtype), axis=self.axis)


def _ones_for_zeros(norms: Tensor) -> Tensor:
    return ops.where(norms == 0, ops.ones_like(norms), norms)


def normalize_features(norm: Norm = "l2", *, axis: int = 1) -> Normalize:
    """A Normalize that is not fitted yet.

    >>> from ember_ml.nn import features
    >>> features.normalize_features("max").fit_transform([[2.0, -4.0]]).tolist()
    [[0.5, -1.0]]
    """
    return Normalize(norm, axis=axis)
