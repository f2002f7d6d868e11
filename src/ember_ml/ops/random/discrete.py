"""Distributions of integers and of truth values."""

from __future__ import annotations

from math import nextafter
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.backend.contract import Backend
from ember_ml.errors import DomainError, DTypeError
from ember_ml.ops import data_types, dispatch
from ember_ml.ops import elementwise as el
from ember_ml.ops.random import rejection
from ember_ml.ops.random.arrays import ArraySource
from ember_ml.ops.random.generator import Generator
from ember_ml.ops.random.request import Array, Request, request, values_of
from ember_ml.ops.registry import ANY, INTEGRAL, REAL, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import DTypeLike, ShapeLike, TensorLike

__all__ = ["bernoulli", "binomial", "draw_range", "poisson", "randint"]

_NUMBERS: Final = (int, float, np.integer, np.floating)
_LIMB: Final = 31
_MASK: Final = (1 << _LIMB) - 1


def _probability(value: Any) -> Any:
    return (value >= 0) & (value <= 1)


@op("random.bernoulli", accepts=ANY, standard=False, creates=True)
def bernoulli(
    shape: ShapeLike | None = None,
    p: TensorLike = 0.5,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    generator: Generator | Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """True with probability `p`; with another dtype than bool, ones and zeros.

    >>> bernoulli((3,), 1.0).tolist(), bernoulli(2, 0.0, dtype="int8").tolist()
    ([True, True, True], [0, 0])
    """
    name = "random.bernoulli"
    call = request(name, shape, (p,), dtype, device, generator, native, dtypes.bool)
    (p,) = call.parameters
    call.require("p", p, _probability, "from 0 to 1")
    source = call.arrays()
    if source is None and call.numeric:
        return call.tensor(np.asarray(call.host().random(call.shape) < p))
    call.require_constant()
    at = dtypes.float32
    if isinstance(p, Tensor):
        p = p if p.dtype is dtypes.float64 else convert.cast(p, at)
        at = p.dtype
    spec = call.spec.with_dtype(at)
    if source is not None:
        level = source.fine(call.shape, spec)
    else:
        # Rounded, a number just below one would be one, and not below p=1.
        bound = 1 - 2.0**-24 if at is dtypes.float32 else 1 - 2.0**-53
        values = np.minimum(call.host().random(call.shape), bound).astype(at.numpy)
        level = convert.asarray(np.asarray(values), at, spec.device, backend=spec.backend)
    return call.constant(call.finish(el.less(level, p)))


@op("random.binomial", accepts=REAL, standard=False, creates=True)
def binomial(
    shape: ShapeLike | None = None,
    n: TensorLike = 1,
    p: TensorLike = 0.5,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    generator: Generator | Tensor | None = None,
) -> Tensor:
    """How many of `n` trials succeed, each with probability `p`.

    >>> binomial((2,), 5, 1.0).tolist()
    [5, 5]
    """
    call = request(
        "random.binomial", shape, (n, p), dtype, device, generator, False, dtypes.default_int
    )
    n, p = call.parameters
    call.require("n", n, lambda v: (v >= 0) & (v < 2.0**63) & (v == np.floor(v)), "a count")
    call.require("p", p, _probability, "from 0 to 1")
    source = call.arrays()
    if source is not None:
        spec = rejection.counting(call.spec)
        n, p = (rejection.tensor_of(value, spec) for value in (n, p))
        return _counted(call, rejection.binomial(source, n, p, call.shape, spec))
    draws, (n, p) = call.host(), call.hosted()
    return _integers(call, draws.binomial(np.asarray(n).astype(np.int64), p, call.shape))


@op("random.poisson", accepts=REAL, standard=False, creates=True)
def poisson(
    shape: ShapeLike | None = None,
    rate: TensorLike = 1.0,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    generator: Generator | Tensor | None = None,
) -> Tensor:
    """How many events come where `rate` are expected.

    >>> poisson((2,), 0.0).tolist()
    [0, 0]
    """
    call = request(
        "random.poisson", shape, (rate,), dtype, device, generator, False, dtypes.default_int
    )
    # NumPy draws int64, and refuses rates whose draws could pass it.
    call.require("rate", call.parameters[0], lambda v: (v >= 0) & (v < 9.2e18), "from 0 to 9.2e18")
    source = call.arrays()
    if source is not None:
        spec = rejection.counting(call.spec)
        rate = rejection.tensor_of(call.parameters[0], spec)
        return _counted(call, rejection.poisson(source, rate, call.shape, spec))
    draws, (rate,) = call.host(), call.hosted()
    return _integers(call, draws.poisson(rate, call.shape))


def _integers(call: Request, values: Any) -> Tensor:
    """Counts in the result's dtype, where it holds them."""
    array = np.asarray(values)
    if array.size:
        _require_held(call, int(array.max()))
    return call.constant(call.tensor(array))


def _counted(call: Request, counts: Tensor) -> Tensor:
    """The same of counts on the engine; where they cannot be looked at, the largest stands for
    those beyond it.
    """
    call.require_constant()
    dtype = call.spec.dtype
    if dtype.is_integer and counts.size:
        if counts._spec.backend.checks_values(counts.native):
            _require_held(call, int(values_of(call.op, counts).max()))
        else:
            largest = data_types.iinfo(dtype).max
            # float64 has no numbers just below 2**63.
            held = float(largest) if largest <= 1 << 53 else nextafter(float(largest), 0.0)
            counts = el.minimum(counts, held)
    return call.constant(convert.cast(counts, dtype))


def _require_held(call: Request, largest: int) -> None:
    dtype = call.spec.dtype
    if dtype.is_integer and not dtypes.fits(largest, dtype):
        raise DomainError(f"ops.{call.op} drew {largest}, which is out of the range of {dtype}")


# --- Integers of a range -------------------------------------------------------------------------


@op("random.randint", accepts=INTEGRAL, standard=False, creates=True)
def randint(
    low: TensorLike,
    high: TensorLike = None,
    shape: ShapeLike | None = None,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    generator: Generator | Tensor | None = None,
    native: bool = False,
) -> Tensor:
    """Integers from `low` up to but without `high`; one bound alone is the upper one.

    >>> x = randint(10, shape=(4,))
    >>> x.dtype, bool(ops.all((x >= 0) & (x < 10)))
    (ember_ml.int64, True)
    """
    name = "random.randint"
    bounds = (0, low) if high is None else (low, high)
    if not (type(bounds[0]) is int and type(bounds[1]) is int):
        bounds = _bounds(name, bounds)
    # Integers of 64 bits do not go through floats: they are parameters of no dtype.
    kept = tuple(b for b in bounds if isinstance(b, Tensor))
    call = request(name, shape, kept, dtype, device, generator, native, dtypes.default_int)
    _require_range(call, *bounds)
    return draw_range(call, *bounds)


def draw_range(call: Request, low: Any, high: Any) -> Tensor:
    """Integers between two bounds that are checked."""
    source = call.arrays()
    if source is not None:
        return _ranged(call, source, low, high)
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        low, high = (_objects(call.op, bound) for bound in (low, high))
    made = call.host().integers(low, high, call.shape, call.spec.dtype.numpy)
    return call.tensor(np.asarray(made))


def _bounds(name: str, bounds: tuple[Any, Any]) -> tuple[Any, Any]:
    """Bounds as Python's integers, or as tensors of integers on one backend."""
    home = dispatch.home_of(name, tuple(b for b in bounds if not isinstance(b, _NUMBERS)))
    low, high = (_bound(name, bound, home) for bound in bounds)
    return low, high


def _bound(name: str, value: Any, home: Backend) -> Any:
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, _NUMBERS):
        raise DTypeError(f"ops.{name} takes integer bounds, not {value!r}")
    tensor = convert.to_tensor(value, home)
    if not tensor.dtype.is_integer:
        raise DTypeError(f"ops.{name} takes integer bounds, not {tensor.dtype}")
    return tensor


def _require_range(call: Request, low: Any, high: Any) -> None:
    """Raise DomainError for bounds that are no range of the dtype, if they can be looked at."""
    dtype = call.spec.dtype
    first, last = low, high
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        for bound in (low, high):
            if isinstance(bound, Tensor) and not (
                bound.size and bound._spec.backend.checks_values(bound.native)
            ):
                return
        first, last = (_objects(call.op, bound) for bound in (low, high))
        ordered = bool(np.all(first < last))
        first, last = int(first.min()), int(last.max())
    else:
        ordered = low < high
    if not ordered:
        raise DomainError(
            f"ops.{call.op} got bounds {_brief(low)}, {_brief(high)}; low must be below high"
        )
    if not (dtypes.fits(first, dtype) and dtypes.fits(last - 1, dtype)):
        raise DomainError(
            f"ops.{call.op} got bounds {_brief(low)}, {_brief(high)}, "
            f"some of which are out of the range of {dtype}"
        )


def _objects(op: str, bound: Any) -> Array:
    """A bound as an array of Python's integers: in NumPy, int64 and uint64 meet in float64."""
    return (values_of(op, bound) if isinstance(bound, Tensor) else np.asarray(bound)).astype(object)


def _brief(bound: Any) -> str:
    return f"{bound.dtype}{list(bound.shape)}" if isinstance(bound, Tensor) else str(bound)


def _ranged(call: Request, source: ArraySource, low: Any, high: Any) -> Tensor:
    """Integers of a range by array ops: random bits times the width, of which the upper half."""
    spec = call.spec.with_dtype(dtypes.int64)
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        width: Any = el.subtract(_wrapped(high), _wrapped(low))
        limbs = [el.bitwise_and(el.bitwise_right_shift(width, _LIMB * i), _MASK) for i in (0, 1)]
        limbs.append(el.bitwise_and(el.bitwise_right_shift(width, 2 * _LIMB), 3))
    else:
        width = high - low
        limbs = [width & _MASK, width >> _LIMB & _MASK, width >> 2 * _LIMB]
        if width <= _MASK:
            limbs = limbs[:1]
    # As many bits again as the width has, and more: what is unfair is below 2**-31.
    bits = [source.bits(call.shape, spec) for _ in range(len(limbs) + 1)]
    value = _upper_product(bits, limbs)
    offset = _wrapped(low)
    moved = el.add(value, offset) if isinstance(low, Tensor) or low else value
    return convert.cast(moved, call.spec.dtype)


def _wrapped(bound: Any) -> Any:
    """A bound in int64, where the upper half of uint64 is negative."""
    if isinstance(bound, Tensor):
        return convert.cast(bound, dtypes.int64)
    return (bound + (1 << 63)) % (1 << 64) - (1 << 63)


def _upper_product(bits: list[Tensor], limbs: list[Any]) -> Tensor:
    """The product of two numbers in limbs of 31 bits, lowest first, without the limbs of `bits`."""
    columns: list[Any] = [0] * (len(bits) + len(limbs) + 1)
    for i, a in enumerate(bits):
        carry: Any = 0
        for j, b in enumerate(limbs):
            # Below 2**62 + 2 * 2**31: it fits int64.
            total = el.add(el.add(el.multiply(a, b), columns[i + j]), carry)
            columns[i + j] = el.bitwise_and(total, _MASK)
            carry = el.bitwise_right_shift(total, _LIMB)
        columns[i + len(limbs)] = carry
    value: Any = columns[len(bits)]
    for place in range(1, len(limbs)):
        value = el.bitwise_or(
            value, el.bitwise_left_shift(columns[len(bits) + place], _LIMB * place)
        )
    return value  # type: ignore[no-any-return]  # columns begin as zeros, and end as tensors
