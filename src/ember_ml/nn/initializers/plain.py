"""Values that no fan scales."""

from __future__ import annotations

import numpy as np

from ember_ml import ops
from ember_ml.dtypes import DTypeLike
from ember_ml.errors import DomainError, ShapeError
from ember_ml.nn.initializers.base import Initializer, placed
from ember_ml.ops.random.generator import Generator
from ember_ml.tensor.core import Tensor

__all__ = [
    "Constant",
    "Dirac",
    "Identity",
    "Normal",
    "Ones",
    "TruncatedNormal",
    "Uniform",
    "Zeros",
]


# --- Without chance ---------------------------------------------------------------------------


class Constant(Initializer):
    """One value everywhere.

    >>> Constant(0.5)((2,)).tolist()
    [0.5, 0.5]
    """

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        return ops.full(shape, float(self.value), dtype=dtype, device=device)


class Zeros(Initializer):
    """Zeros.

    >>> Zeros()((2,)).tolist()
    [0.0, 0.0]
    """

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        return ops.zeros(shape, dtype=dtype, device=device)


class Ones(Initializer):
    """Ones.

    >>> Ones()((2,)).tolist()
    [1.0, 1.0]
    """

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        return ops.ones(shape, dtype=dtype, device=device)


class Identity(Initializer):
    """`gain` times the identity matrix, for weights of two axes.

    >>> Identity()((2, 3)).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        if len(shape) != 2:
            raise ShapeError(f"{self!r} makes weights of two axes, not of shape {shape}")
        return ops.eye(*shape, dtype=dtype, device=device) * self.gain


class Dirac(Initializer):
    """A convolution that passes its channels through, in each of `groups` groups.

    >>> Dirac()((2, 2, 3))[0].tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """

    def __init__(self, groups: int = 1) -> None:
        self.groups = groups

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        if not 3 <= len(shape) <= 5:
            raise ShapeError(f"{self!r} makes weights of convolutions, not of shape {shape}")
        if shape[0] % self.groups:
            raise ShapeError(f"{self!r} got shape {shape}; the groups must divide {shape[0]}")
        values = np.zeros(shape)
        middle = tuple(size // 2 for size in shape[2:])
        each = shape[0] // self.groups
        for group in range(self.groups):
            for place in range(min(each, shape[1])):
                values[(group * each + place, place, *middle)] = 1.0
        return placed(values, dtype, device)


# --- By chance --------------------------------------------------------------------------------


class Uniform(Initializer):
    """Uniform from `low` to `high`.

    >>> bool(ops.all(ops.abs(Uniform(-0.5, 0.5)((100,))) <= 0.5))
    True
    """

    def __init__(self, low: float = 0.0, high: float = 1.0) -> None:
        self.low = low
        self.high = high

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        return ops.random.uniform(
            shape, self.low, self.high, dtype=dtype, device=device, generator=generator
        )


class Normal(Initializer):
    """Normal with a mean and a deviation.

    >>> Normal(3.0, std=0.0)((2,)).tolist()
    [3.0, 3.0]
    """

    def __init__(self, mean: float = 0.0, std: float = 1.0) -> None:
        self.mean = mean
        self.std = std

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        return ops.random.normal(
            shape, self.mean, self.std, dtype=dtype, device=device, generator=generator
        )


class TruncatedNormal(Initializer):
    """Normal, drawn again where it is below `low` or above `high`, as PyTorch's trunc_normal_.

    The limits are values, not deviations.

    >>> bool(ops.all(ops.abs(TruncatedNormal(std=0.5, low=-1.0, high=1.0)((100,))) <= 1))
    True
    """

    def __init__(
        self, mean: float = 0.0, std: float = 1.0, low: float = -2.0, high: float = 2.0
    ) -> None:
        if not std > 0 or not low < high:
            raise DomainError(
                f"TruncatedNormal got std={std}, low={low} and high={high}; std must be above "
                f"zero, and low below high"
            )
        self.mean = mean
        self.std = std
        self.low = low
        self.high = high

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        return ops.random.truncated_normal(
            shape,
            self.mean,
            self.std,
            (self.low - self.mean) / self.std,
            (self.high - self.mean) / self.std,
            dtype=dtype,
            device=device,
            generator=generator,
        )
