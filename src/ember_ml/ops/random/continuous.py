"""Distributions of real numbers."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, sqrt
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.backend import aligned
from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, DTypeError
from ember_ml.ops import elementwise as el
from ember_ml.ops import searching
from ember_ml.ops.random import rejection
from ember_ml.ops.random.generator import Generator
from ember_ml.ops.random.normals import inverse_normal, normal_mass
from ember_ml.ops.random.request import Array, Parameter, Request, request
from ember_ml.ops.registry import FLOATING, REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill
from ember_ml.typing import DTypeLike, ShapeLike, TensorLike

__all__ = [
    "beta",
    "exponential",
    "gamma",
    "gumbel",
    "laplace",
    "normal",
    "truncated_normal",
    "uniform",
]

# From this share of the normal numbers on, drawing again what lies outside is the quicker way.
_REJECTS: Final = 0.25


@op("random.uniform", accepts=REAL_FLOATING, standard=False, creates=True)
def uniform(
    shape: ShapeLike | None = None,
    low: TensorLike = 0.0,
    high: TensorLike = 1.0,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    generator: Generator | Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """Numbers from `low` up to but without `high`, all equally likely.

    >>> x = uniform((2, 3), -1, 1)
    >>> x.shape, bool((x >= -1).all()), bool((x < 1).all())
    ((2, 3), True, True)
    """
    call = request("random.uniform", shape, (low, high), dtype, device, generator, native)
    low, high = call.parameters
    if not call.numeric:
        width = el.subtract(high, low)
        call.require("high - low", width, _positive_finite, "positive and finite")
    elif not 0 < high - low < inf:
        raise DomainError(
            f"ops.random.uniform got low={low!r} and high={high!r}; "
            f"low must be below high, at a finite distance"
        )
    else:
        width = high - low
    drawn = _location_scale(call, "unit", low, width)
    if call.run is call.spec and call.numeric and low == 0.0 and high == 1.0:
        return drawn
    return el.minimum(drawn, _below(high, call))


def _positive_finite(value: Any) -> Any:
    return (value > 0) & (value < inf)


def _below(high: Parameter, call: Request) -> Parameter:
    """The largest values of the result's dtype below a bound, which rounding can meet."""
    dtype = call.spec.dtype
    if not isinstance(high, Tensor):
        return _number_below(high, dtype)
    # A bound of the rounding: gradients go through what was drawn.
    high = fill(high._spec.backend.detach(high.native), high._spec)
    bound = convert.cast(high, dtype)
    under = el.less(convert.cast(bound, call.run.dtype), high)
    return searching.where(under, bound, el.nextafter(bound, -inf))


def _number_below(number: float, dtype: DType) -> float:
    kind = np.dtype(f"i{dtype.numpy.itemsize}")
    rounded = np.array(number, dtype.numpy)
    value = float(rounded)
    if value < number:
        return value
    bits = int(rounded.view(kind))
    # The bits of positive numbers grow with them, those of negative ones shrink.
    step = bits - 1 if value > 0 else bits + 1 if value < 0 else int(np.iinfo(kind).min) + 1
    return float(np.array(step, kind).view(dtype.numpy))


# --- Draws of location 0 and scale 1 -------------------------------------------------------------


def _unit(draws: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    return _filled(draws.random, shape, dtype)


def _normal(draws: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    return _filled(draws.standard_normal, shape, dtype)


def _exponential(draws: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    return _filled(draws.standard_exponential, shape, dtype)


def _gumbel(draws: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    return _cast(draws.gumbel(size=shape), dtype)


def _laplace(draws: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    return _cast(draws.laplace(size=shape), dtype)


def _filled(draw: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """Numbers drawn straight into memory that engines take as it is."""
    out = aligned.empty(shape, dtype)
    draw(dtype=dtype, out=out)
    return out


def _cast(values: Any, dtype: Any) -> Array:
    return aligned.cast(np.asarray(values), dtype)


_ON_HOST: Final[dict[str, Callable[..., Array]]] = {
    "unit": _unit,
    "normal": _normal,
    "exponential": _exponential,
    "gumbel": _gumbel,
    "laplace": _laplace,
}


def _location_scale(call: Request, kind: str, location: Parameter, scale: Parameter) -> Tensor:
    """What is drawn, times `scale`, plus `location`; gradients pass to both."""
    source = call.arrays()
    if source is not None:
        return _moved(call, getattr(source, kind)(call.shape, call.run), location, scale)
    array = _ON_HOST[kind](call.host(), call.shape, call.run.dtype.numpy)
    if not call.numeric:
        return _moved(call, call.standard(array), location, scale)
    if scale != 1.0 or location != 0.0:
        with np.errstate(all="ignore"):
            array *= scale
            array += location
    return call.tensor(array)


def _moved(call: Request, drawn: Tensor, location: Parameter, scale: Parameter) -> Tensor:
    if isinstance(scale, Tensor) or scale != 1.0:
        drawn = el.multiply(drawn, scale)
    if isinstance(location, Tensor) or location != 0.0:
        drawn = el.add(drawn, location)
    return call.finish(drawn)


def _not_negative(value: Any) -> Any:
    return (value >= 0) & (value < inf)


def _finite(value: Any) -> Any:
    return (value > -inf) & (value < inf)


# --- The distributions ---------------------------------------------------------------------------


@op("random.normal", accepts=FLOATING, standard=False, creates=True)
def normal(
    shape: ShapeLike | None = None,
    mean: TensorLike = 0.0,
    std: TensorLike = 1.0,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    generator: Generator | Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """Normal numbers; complex ones have half of the variance in each part.

    >>> normal((2, 3)).shape
    (2, 3)
    >>> normal(mean=ops.asarray([0.0, 1.0, 2.0]), std=0.1).shape
    (3,)
    """
    call = request("random.normal", shape, (mean, std), dtype, device, generator, native)
    mean, std = call.parameters
    call.require("mean", mean, _finite, "finite")
    call.require("std", std, _not_negative, "finite and not negative")
    if call.spec.dtype.is_complex:
        return _complex_normal(call, mean, std)
    return _location_scale(call, "normal", mean, std)


def _complex_normal(call: Request, mean: Parameter, std: Parameter) -> Tensor:
    part = call.spec.with_dtype(dtypes.real_of(call.spec.dtype))
    source = call.arrays()
    if source is None:
        pairs = _normal(call.host(), (*call.shape, 2), part.dtype.numpy)
        pairs *= sqrt(0.5)
        drawn = call.standard(pairs.view(call.spec.dtype.numpy)[..., 0])
    else:
        real, imaginary = (source.normal(call.shape, part) for _ in range(2))
        drawn = el.multiply(el.add(real, el.multiply(imaginary, 1j)), sqrt(0.5))
    return _moved(call, drawn, mean, std)


@op("random.truncated_normal", accepts=REAL_FLOATING, standard=False, creates=True)
def truncated_normal(
    shape: ShapeLike | None = None,
    mean: TensorLike = 0.0,
    std: TensorLike = 1.0,
    lower: float = -2.0,
    upper: float = 2.0,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    generator: Generator | Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """Normal numbers from `lower` to `upper`, which are counted in deviations from the mean.

    >>> bool(ops.all(ops.abs(truncated_normal((100,))) <= 2))
    True
    """
    name = "random.truncated_normal"
    call = request(name, shape, (mean, std), dtype, device, generator, native)
    mean, std = call.parameters
    call.require("mean", mean, _finite, "finite")
    call.require("std", std, _not_negative, "finite and not negative")
    lower, upper = (_deviation(name, bound) for bound in (lower, upper))
    # The upper tail by way of the lower one, which floating numbers tell apart further out.
    flips = lower > 0
    near, far = (-upper, -lower) if flips else (lower, upper)
    least, most = normal_mass(near), normal_mass(far)
    if not least < most:
        raise DomainError(
            f"ops.{name} got lower={lower!r} and upper={upper!r}; lower must be below upper, "
            f"with some probability between them"
        )
    source = call.arrays()
    if source is not None:
        from ember_ml import ops

        share = el.add(el.multiply(source.fine(call.shape, call.run), most - least), least)
        bound = 1 - 2.0**-24 if call.run.dtype is dtypes.float32 else 1 - 2.0**-53
        cut = el.clip(inverse_normal(ops, el.minimum(share, bound)), near, far)
        return _moved(call, el.negative(cut) if flips else cut, mean, std)
    draws = call.host()
    if most - least >= _REJECTS:
        array = _normal(draws, call.shape, call.run.dtype.numpy)
        _redraw(draws, array.reshape(-1), near, far)
    else:
        shares = draws.random(call.shape) * (most - least) + least
        with np.errstate(divide="ignore"):
            array = _cast(np.clip(inverse_normal(np, shares), near, far), call.run.dtype.numpy)
    if flips:
        np.negative(array, out=array)
    return _moved(call, call.standard(array), mean, std)


def _deviation(name: str, bound: Any) -> float:
    if isinstance(bound, int | float | np.integer | np.floating):
        return float(bound)
    raise DTypeError(f"ops.{name} takes numbers for lower and upper, not {type(bound).__name__}")


def _redraw(draws: Any, flat: Array, low: float, high: float) -> None:
    """Draw anew what lies outside of two bounds, until nothing does."""
    outside = np.flatnonzero((flat < low) | (flat > high))
    while outside.size:
        again = draws.standard_normal(outside.size, dtype=flat.dtype)
        flat[outside] = again
        outside = outside[(again < low) | (again > high)]


@op("random.exponential", accepts=REAL_FLOATING, standard=False, creates=True)
def exponential(
    shape: ShapeLike | None = None,
    scale: TensorLike = 1.0,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    generator: Generator | Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """Times between events that come at random; `scale` is their mean.

    >>> bool(ops.all(exponential((4,), 2.0) >= 0))
    True
    """
    call = request("random.exponential", shape, (scale,), dtype, device, generator, native)
    (scale,) = call.parameters
    call.require("scale", scale, _not_negative, "finite and not negative")
    return _location_scale(call, "exponential", 0.0, scale)


@op("random.gumbel", accepts=REAL_FLOATING, standard=False, creates=True)
def gumbel(
    shape: ShapeLike | None = None,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    generator: Generator | Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """Gumbel numbers: added to logits, the largest is at a class drawn by them.

    >>> gumbel((2,)).shape
    (2,)
    """
    return _by_location("random.gumbel", shape, loc, scale, dtype, device, generator, native)


@op("random.laplace", accepts=REAL_FLOATING, standard=False, creates=True)
def laplace(
    shape: ShapeLike | None = None,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    generator: Generator | Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """Laplace numbers: exponential ones on both sides of `loc`.

    >>> laplace((2,), 0.0, 3.0).shape
    (2,)
    """
    return _by_location("random.laplace", shape, loc, scale, dtype, device, generator, native)


def _by_location(name: str, shape: Any, loc: Any, scale: Any, *options: Any) -> Tensor:
    call = request(name, shape, (loc, scale), *options)
    loc, scale = call.parameters
    call.require("loc", loc, _finite, "finite")
    call.require("scale", scale, _not_negative, "finite and not negative")
    return _location_scale(call, name.partition(".")[2], loc, scale)


@op("random.gamma", accepts=REAL_FLOATING, standard=False, creates=True)
def gamma(
    shape: ShapeLike | None = None,
    concentration: TensorLike = 1.0,
    scale: TensorLike = 1.0,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    generator: Generator | Tensor | None = None,
) -> Tensor:
    """Gamma numbers: of mean `concentration * scale`. No gradient passes.

    >>> gamma((3,), 2.0).shape
    (3,)
    """
    parameters = (concentration, scale)
    call = request("random.gamma", shape, parameters, dtype, device, generator, False)
    for label, value in zip(("concentration", "scale"), call.parameters, strict=True):
        call.require(label, value, _positive_finite, "positive and finite")
    source = call.arrays()
    if source is not None:
        call.require_constant()
        alpha, scale = (rejection.tensor_of(p, call.run) for p in call.parameters)
        made = rejection.gamma(source, alpha, call.shape, call.run)
        return call.constant(call.finish(el.multiply(made, scale)))
    draws, (alpha, scale) = call.host(), call.hosted()
    return call.constant(call.tensor(np.asarray(draws.gamma(alpha, scale, call.shape))))


@op("random.beta", accepts=REAL_FLOATING, standard=False, creates=True)
def beta(
    shape: ShapeLike | None = None,
    a: TensorLike = 1.0,
    b: TensorLike = 1.0,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    generator: Generator | Tensor | None = None,
) -> Tensor:
    """Beta numbers, from 0 to 1, of mean `a / (a + b)`. No gradient passes.

    >>> x = beta((3,), 2.0, 5.0)
    >>> bool(ops.all((x >= 0) & (x <= 1)))
    True
    """
    call = request("random.beta", shape, (a, b), dtype, device, generator, False)
    for label, value in zip("ab", call.parameters, strict=True):
        call.require(label, value, _positive_finite, "positive and finite")
    source = call.arrays()
    if source is not None:
        call.require_constant()
        # Of logarithms, since both gamma numbers may be below all floating ones.
        first, second = (
            rejection.log_gamma(source, rejection.tensor_of(p, call.run), call.shape, call.run)
            for p in call.parameters
        )
        odds = el.exp(el.subtract(second, first))
        return call.constant(call.finish(el.reciprocal(el.add(odds, 1.0))))
    draws, (a, b) = call.host(), call.hosted()
    return call.constant(call.tensor(np.asarray(draws.beta(a, b, call.shape))))
