"""Values scaled by how many inputs or outputs a weight connects."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final

from ember_ml import ops
from ember_ml.dtypes import DTypeLike
from ember_ml.errors import DomainError
from ember_ml.nn.initializers.base import Initializer, fans
from ember_ml.ops.random.generator import Generator
from ember_ml.tensor.core import Tensor

__all__ = [
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "KaimingNormal",
    "KaimingUniform",
    "LecunNormal",
    "LecunUniform",
    "UniformFan",
    "VarianceScaling",
    "XavierNormal",
    "XavierUniform",
    "calculate_gain",
]

# Deviation of a normal distribution cut at two deviations.
_CUT: Final = 0.87962566103423978


class VarianceScaling(Initializer):
    """Values of variance `scale / fan`, where the fan is that of `mode`.

    Modes are "fan_in", "fan_out" and "fan_avg"; distributions are "normal", "uniform" and
    "truncated_normal", which is cut at two deviations and has the same variance.

    >>> VarianceScaling(2.0, "fan_in", "uniform")((4, 6)).shape
    (4, 6)
    """

    def __init__(
        self, scale: float = 1.0, mode: str = "fan_in", distribution: str = "truncated_normal"
    ) -> None:
        if not scale >= 0:
            raise DomainError(f"VarianceScaling got scale={scale}; it must not be negative")
        _require("VarianceScaling", "mode", mode, ("fan_in", "fan_out", "fan_avg"))
        known = ("normal", "uniform", "truncated_normal")
        _require("VarianceScaling", "distribution", distribution, known)
        self.scale = scale
        self.mode = mode
        self.distribution = distribution

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        return _by_fan(shape, self.scale, self.mode, self.distribution, dtype, device, generator)


class _Glorot(Initializer):
    _distribution: ClassVar[str]

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
        scale = self.gain**2
        return _by_fan(shape, scale, "fan_avg", self._distribution, dtype, device, generator)


class GlorotUniform(_Glorot):
    """Uniform within `±gain · √(6 / (fan_in + fan_out))`; also XavierUniform.

    >>> GlorotUniform()((4, 6)).shape
    (4, 6)
    """

    _distribution = "uniform"


class GlorotNormal(_Glorot):
    """Normal of deviation `gain · √(2 / (fan_in + fan_out))`; also XavierNormal.

    >>> GlorotNormal()((4, 6)).shape
    (4, 6)
    """

    _distribution = "normal"


class _He(Initializer):
    _distribution: ClassVar[str]

    def __init__(
        self, mode: str = "fan_in", nonlinearity: str = "relu", negative_slope: float = 0.0
    ) -> None:
        _require(type(self).__name__, "mode", mode, ("fan_in", "fan_out", "fan_avg"))
        self.mode = mode
        self.nonlinearity = nonlinearity
        self.negative_slope = negative_slope
        self._scale = calculate_gain(nonlinearity, negative_slope) ** 2

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        return _by_fan(shape, self._scale, self.mode, self._distribution, dtype, device, generator)


class HeUniform(_He):
    """Uniform within `±gain · √(3 / fan)`; also KaimingUniform.

    The gain is that of `calculate_gain(nonlinearity, negative_slope)`.

    >>> HeUniform()((4, 6)).shape
    (4, 6)
    """

    _distribution = "uniform"


class HeNormal(_He):
    """Normal of deviation `gain / √fan`; also KaimingNormal.

    The gain is that of `calculate_gain(nonlinearity, negative_slope)`.

    >>> HeNormal("fan_out", "tanh")((4, 6)).shape
    (4, 6)
    """

    _distribution = "normal"


class LecunUniform(Initializer):
    """Uniform within `±√(3 / fan_in)`.

    >>> LecunUniform()((4, 6)).shape
    (4, 6)
    """

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        return _by_fan(shape, 1.0, "fan_in", "uniform", dtype, device, generator)


class LecunNormal(Initializer):
    """Normal of deviation `1 / √fan_in`, cut at two deviations.

    >>> LecunNormal()((4, 6)).shape
    (4, 6)
    """

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        return _by_fan(shape, 1.0, "fan_in", "truncated_normal", dtype, device, generator)


XavierUniform = GlorotUniform
XavierNormal = GlorotNormal
KaimingUniform = HeUniform
KaimingNormal = HeNormal


def _by_fan(
    shape: tuple[int, ...],
    scale: float,
    mode: str,
    distribution: str,
    dtype: DTypeLike,
    device: str | None,
    generator: Generator | None,
) -> Tensor:
    inputs, outputs = fans(shape)
    fan = {"fan_in": inputs, "fan_out": outputs, "fan_avg": (inputs + outputs) / 2}[mode]
    std = math.sqrt(scale / fan) if fan else 0.0
    draw = ops.random
    if distribution == "uniform":
        bound = math.sqrt(3.0) * std
        return draw.uniform(shape, -bound, bound, dtype=dtype, device=device, generator=generator)
    if distribution == "normal":
        return draw.normal(shape, 0.0, std, dtype=dtype, device=device, generator=generator)
    return draw.truncated_normal(
        shape, 0.0, std / _CUT, dtype=dtype, device=device, generator=generator
    )


_GAINS: Final = {
    "linear": 1.0,
    "identity": 1.0,
    "conv": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3.0,
    "relu": math.sqrt(2.0),
    "selu": 0.75,
}


def calculate_gain(nonlinearity: str, negative_slope: float = 0.01) -> float:
    """By how much weights are scaled before an activation, as PyTorch has it.

    >>> calculate_gain("leaky_relu", 1.0), calculate_gain("linear")
    (1.0, 1.0)
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1.0 + negative_slope**2))
    _require("calculate_gain", "nonlinearity", nonlinearity, (*_GAINS, "leaky_relu"))
    return _GAINS[nonlinearity]


def _require(who: str, what: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise DomainError(f"{who} takes {what} {', '.join(known)}, not {value!r}")


class UniformFan(Initializer):
    """Uniform within ±1/√fan_in: what PyTorch's layers begin with.

    `fan_in` is for biases, whose shape does not tell it.
    """

    def __init__(self, fan_in: int | None = None) -> None:
        self.fan_in = fan_in

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        fan = fans(shape)[0] if self.fan_in is None else self.fan_in
        bound = 1.0 / math.sqrt(fan) if fan else 0.0
        return ops.random.uniform(
            shape, -bound, bound, dtype=dtype, device=device, generator=generator
        )
