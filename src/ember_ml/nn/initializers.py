"""Initializers: the values that parameters begin with, the same on every backend for a seed.

An initializer is called with a shape. It draws from `generator`, or from the stream of
`em.ops.random.set_seed`. Shapes are as PyTorch lays weights out: `(out, in, *kernel)`.

>>> from ember_ml import nn
>>> nn.initializers.get("he_normal")
HeNormal(mode='fan_in', nonlinearity='relu', negative_slope=0.0)
>>> nn.Linear(3, 2, weight_init="orthogonal", bias_init="zeros").bias.tolist()
[0.0, 0.0]
"""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar, Final, TypeVar

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.backend.selection import use_backend
from ember_ml.dtypes import DTypeLike
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.nn import config
from ember_ml.ops.random.generator import Generator
from ember_ml.tensor.core import Tensor

__all__ = [
    "Constant",
    "Dirac",
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "Identity",
    "Initializer",
    "KaimingNormal",
    "KaimingUniform",
    "LecunNormal",
    "LecunUniform",
    "Normal",
    "Ones",
    "Orthogonal",
    "Sparse",
    "TruncatedNormal",
    "Uniform",
    "UniformFan",
    "VarianceScaling",
    "XavierNormal",
    "XavierUniform",
    "Zeros",
    "calculate_gain",
    "fans",
    "get",
]

Self = TypeVar("Self", bound="Initializer")


class Initializer:
    """A function from a shape to a tensor, with a config."""

    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = object.__new__(cls)
        made._arguments = (args, kwargs)
        return made

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        config.known(cls)

    def __call__(
        self,
        shape: tuple[int, ...],
        *,
        dtype: DTypeLike = None,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not say what its values are")

    def get_config(self) -> dict[str, Any]:
        """The arguments that it was made with."""
        return config.config_of(self)

    @classmethod
    def from_config(cls: type[Self], config_: dict[str, Any], /) -> Self:
        """An initializer of the same arguments."""
        made: Self = config.make(cls, config_)
        return made

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in config.arguments(self).items())
        return f"{type(self).__name__}({said})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.get_config() == other.get_config()

    def __hash__(self) -> int:
        return hash((type(self), repr(self)))


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many inputs and outputs a weight of this shape connects.

    >>> fans((8, 3, 5, 5))
    (75, 200)
    """
    if len(shape) < 2:
        raise ShapeError(f"fans are of weights with two axes or more, not of shape {shape}")
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


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
        return _placed(values, dtype, device)


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


# --- By fans ----------------------------------------------------------------------------------

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


# --- By way of host memory, so that every backend gets the same bits ----------------------------


class Orthogonal(Initializer):
    """`gain` times a matrix whose rows, or columns where they are fewer, are orthonormal.

    Axes behind the first count as one. It is the Q of a QR decomposition of normal numbers, with
    the signs that make it uniform among such matrices.

    >>> w = Orthogonal()((2, 5))
    >>> ops.allclose(w @ w.T, ops.eye(2), atol=1e-6)
    True
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
        if len(shape) < 2:
            raise ShapeError(f"{self!r} makes weights of two axes or more, not of shape {shape}")
        rows, columns = shape[0], math.prod(shape[1:])
        drawn = _host("normal", (max(rows, columns), min(rows, columns)), generator)
        q, r = np.linalg.qr(drawn)
        q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
        values = (q if rows >= columns else q.T).reshape(shape)
        return _placed(values * self.gain, dtype, device)


class Sparse(Initializer):
    """Normal of deviation `std`, with a share `sparsity` of each column zero.

    >>> int(ops.sum(Sparse(0.5)((4, 3)) == 0))
    6
    """

    def __init__(self, sparsity: float, std: float = 0.01) -> None:
        if not 0 <= sparsity <= 1:
            raise DomainError(f"Sparse got sparsity={sparsity}; it is a share, from 0 to 1")
        self.sparsity = sparsity
        self.std = std

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
        values = _host("normal", shape, generator) * self.std
        ranks = np.argsort(_host("uniform", shape, generator), axis=0)
        zeros = math.ceil(self.sparsity * shape[0])
        np.put_along_axis(values, ranks[:zeros], 0.0, axis=0)
        return _placed(values, dtype, device)


def _host(
    distribution: str, shape: tuple[int, ...], generator: Generator | None
) -> np.ndarray[Any, Any]:
    """Draws in host memory, in float64, from the same stream as any other."""
    with use_backend("numpy"):
        draw = getattr(ops.random, distribution)
        drawn: Tensor = draw(shape, dtype="float64", generator=generator)
    return drawn.numpy()


def _placed(values: np.ndarray[Any, Any], dtype: DTypeLike, device: str | None) -> Tensor:
    wanted = dtypes.default_float if dtype is None else dtypes.to_dtype(dtype)
    return ops.asarray(np.ascontiguousarray(values.astype(wanted.numpy)), device=device)


# --- By name ------------------------------------------------------------------------------------

_BY_NAME: Final[dict[str, type[Initializer]]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower(): cls
    for cls in (
        Constant,
        Dirac,
        GlorotNormal,
        GlorotUniform,
        HeNormal,
        HeUniform,
        Identity,
        LecunNormal,
        LecunUniform,
        Normal,
        Ones,
        Orthogonal,
        TruncatedNormal,
        Uniform,
        UniformFan,
        VarianceScaling,
        Zeros,
    )
} | {
    "xavier_uniform": GlorotUniform,
    "xavier_normal": GlorotNormal,
    "kaiming_uniform": HeUniform,
    "kaiming_normal": HeNormal,
}


def get(name: str | Initializer | None, /) -> Initializer | None:
    """The initializer of a name, with its defaults; an initializer, or None, is itself.

    >>> get("glorot_uniform")
    GlorotUniform(gain=1.0)
    """
    if name is None or isinstance(name, Initializer):
        return name
    if not isinstance(name, str):
        raise DTypeError(
            f"nn.initializers.get takes a name or an initializer, not {type(name).__name__}"
        )
    found = _BY_NAME.get(name)
    if found is None:
        raise DomainError(f"no initializer is called {name!r}; there are {', '.join(_BY_NAME)}")
    made: Initializer = found()
    return made
