"""Numbers along a line and beside each other: interpolation, slopes, areas, closeness."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.autodiff.tape import constant
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.ops import dispatch
from ember_ml.ops.axes import axes_of, axis_of, broadcast
from ember_ml.ops.registry import ANY, FLOATING, REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill
from ember_ml.typing import Axis, TensorLike

__all__: list[str] = [
    "allclose",
    "cumulative_logsumexp",
    "gradient",
    "interp",
    "isclose",
    "logsumexp",
    "trapezoid",
]


# --- Lines ----------------------------------------------------------------------------------


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def interp(
    x: TensorLike,
    xp: TensorLike,
    fp: TensorLike,
    /,
    left: TensorLike | None = None,
    right: TensorLike | None = None,
    period: float | None = None,
) -> Tensor:
    """The values at `x` of the line through the points (xp, fp), where `xp` rises.

    Beyond the points it is `left` and `right`, or the first and last of `fp`. With a `period`, `x`
    and `xp` are taken round it, and `xp` may come in any order.

    >>> interp([0.5, 2.0, 9.0], [0.0, 1.0, 2.0], [0.0, 10.0, 40.0]).tolist()
    [5.0, 40.0, 40.0]
    """
    given = dispatch.aligned("interp", x, xp, fp)
    at, places, values = (dispatch.lifted("interp", one) for one in given)
    if places.ndim != 1 or places.shape != values.shape or not places.shape[0]:
        raise ShapeError(
            f"ops.interp takes points xp and fp of one axis, as many of both, "
            f"not {places.shape} and {values.shape}"
        )
    if period is not None:
        at, places, values = _round(at, places, values, float(period))
        left = right = None
    count = places.shape[0]
    # Slopes of the place itself come from what follows.
    found = ops.searchsorted(constant(places), constant(at), side="right")
    low = ops.clip(found - 1, 0, max(count - 2, 0))
    high = ops.clip(low + 1, 0, count - 1)
    x0, x1, f0, f1 = (
        ops.take(line, index, axis=0)
        for line, index in ((places, low), (places, high), (values, low), (values, high))
    )
    inner = _between(at, x0, x1, f0, f1)
    below = values[0] if left is None else left
    above = values[-1] if right is None else right
    out = ops.where(at < places[0], below, ops.where(at > places[-1], above, inner))
    return ops.where(ops.isnan(at), at, out)


@np.errstate(all="ignore")  # infinite values have no difference, and need none
def _between(x: Tensor, x0: Tensor, x1: Tensor, f0: Tensor, f1: Tensor) -> Tensor:
    gap = x1 - x0
    share = (x - x0) / ops.where(gap == 0, 1.0, gap)
    inner = f0 * (1 - share) + f1 * share
    # At the ends of a line, and along a level one, an infinite value makes no NaN.
    level = ops.where(ops.logical_or(share == 0, f0 == f1), f0, inner)
    level = ops.where(share == 1, f1, level)
    return ops.where(ops.isfinite(f0 + f1), inner, level)


def _round(x: Tensor, places: Tensor, values: Tensor, period: float) -> tuple[Tensor, ...]:
    """Points of one period in order, with the last one before them and the first one behind."""
    if not period:
        raise DomainError("ops.interp takes a period that is not zero")
    size = abs(period)
    places = ops.remainder(places, size)
    order = ops.argsort(constant(places))
    places, values = ops.take(places, order, axis=0), ops.take(values, order, axis=0)
    places = ops.concat([places[-1:] - size, places, places[:1] + size])
    return ops.remainder(x, size), places, ops.concat([values[-1:], values, values[:1]])


@op(accepts=FLOATING, lift="float", standard=False)
def gradient(
    x: TensorLike,
    /,
    *spacing: TensorLike,
    axis: Axis = None,
    edge_order: int = 1,
) -> Any:
    """Slopes along each axis by central differences; one tensor, or a tuple for several axes.

    `spacing` is nothing (one), a number for all axes, or a number or the coordinates for each.
    `edge_order` 2 makes the ends exact for parabolas.

    >>> gradient([1.0, 4.0, 9.0, 16.0]).tolist()
    [3.0, 4.0, 6.0, 7.0]
    >>> gradient([1.0, 4.0, 9.0], [0.0, 1.0, 3.0]).tolist()
    [3.0, 2.8333332538604736, 2.5]
    """
    home = dispatch.home_of("gradient", (x, *spacing))
    tensor = dispatch.lifted("gradient", convert.to_tensor(x, home))
    axes = axes_of("gradient", axis, tensor.ndim)
    if edge_order not in (1, 2):
        raise DomainError(f"ops.gradient takes edge_order 1 or 2, not {edge_order!r}")
    if len(spacing) not in (0, 1, len(axes)):
        raise ShapeError(f"ops.gradient got {len(spacing)} spacings for {len(axes)} axes")
    given = spacing or (1.0,)
    each = given * len(axes) if len(given) == 1 else given
    slopes = tuple(
        _slope(tensor, place, step, edge_order, home)
        for place, step in zip(axes, each, strict=True)
    )
    return slopes[0] if len(slopes) == 1 else slopes


def _slope(x: Tensor, axis: int, spacing: TensorLike, edge_order: int, home: Any) -> Tensor:
    side = x.shape[axis]
    if side < edge_order + 1:
        raise ShapeError(
            f"ops.gradient got shape {x.shape}; axis {axis} needs {edge_order + 1} values or more"
        )
    steps = _steps(x, axis, spacing, home)

    def part(start: int | None, stop: int | None) -> Tensor:
        return x[(*(slice(None),) * axis, slice(start, stop))]

    def step(start: int | None, stop: int | None) -> Any:
        return steps[(slice(start, stop), *(None,) * (x.ndim - 1 - axis))]

    # The slope of the parabola through a value and its neighbours.
    before, behind = step(None, -1), step(1, None)
    inner = (
        part(None, -2) * (-behind / (before * (before + behind)))
        + part(1, -1) * ((behind - before) / (before * behind))
        + part(2, None) * (before / (behind * (before + behind)))
    )
    if edge_order == 1:
        first = (part(1, 2) - part(None, 1)) / step(None, 1)
        last = (part(-1, None) - part(-2, -1)) / step(-1, None)
        return ops.concat([first, inner, last], axis=axis)
    a, b = step(None, 1), step(1, 2)
    first = (
        part(None, 1) * (-(2 * a + b) / (a * (a + b)))
        + part(1, 2) * ((a + b) / (a * b))
        + part(2, 3) * (-a / (b * (a + b)))
    )
    a, b = step(-2, -1 if side > 2 else None), step(-1, None)
    last = (
        part(-3, -2) * (b / (a * (a + b)))
        + part(-2, -1) * (-(a + b) / (a * b))
        + part(-1, None) * ((2 * b + a) / (b * (a + b)))
    )
    return ops.concat([first, inner, last], axis=axis)


def _steps(x: Tensor, axis: int, spacing: TensorLike, home: Any) -> Tensor:
    """The distances of neighbours along an axis, one less than there are values."""
    real = dtypes.real_of(x.dtype)
    tensor = convert.to_tensor(spacing, home)
    if tensor.dtype.is_complex:
        raise DTypeError(f"ops.gradient takes real spacings, not {tensor.dtype}")
    side = x.shape[axis]
    if not tensor.ndim:
        return ops.broadcast_to(convert.cast(tensor, real), (side - 1,))
    if tensor.shape != (side,):
        raise ShapeError(
            f"ops.gradient got coordinates of shape {tensor.shape} for an axis of {side} values"
        )
    return ops.diff(convert.cast(tensor, real))


@op(accepts=FLOATING, lift="float", standard=False)
def trapezoid(
    y: TensorLike, /, x: TensorLike | None = None, dx: float = 1.0, *, axis: int = -1
) -> Tensor:
    """The area below the line through values along an axis: at `x`, or `dx` apart.

    >>> trapezoid([1.0, 2.0, 3.0]).item(), trapezoid([1.0, 2.0, 3.0], x=[0.0, 1.0, 3.0]).item()
    (4.0, 6.5)
    """
    home = dispatch.home_of("trapezoid", (y, x))
    values = dispatch.lifted("trapezoid", convert.to_tensor(y, home))
    place = axis_of("trapezoid", axis, values.ndim)
    before = (slice(None),) * place
    pairs = values[(*before, slice(1, None))] + values[(*before, slice(None, -1))]
    if x is None:
        return ops.sum(pairs, axis=place) * (dx * 0.5)
    at = dispatch.lifted("trapezoid", convert.to_tensor(x, home))
    if at.ndim == 1:
        if at.shape[0] != values.shape[place]:
            raise ShapeError(
                f"ops.trapezoid got {at.shape[0]} places for shape {values.shape} along {place}"
            )
        steps = ops.reshape(ops.diff(at), (-1, *(1,) * (values.ndim - 1 - place)))
    else:
        steps = ops.diff(at, axis=place)
    broadcast("trapezoid", (pairs.shape, steps.shape))
    return ops.sum(pairs * steps, axis=place) * 0.5


# --- Closeness ------------------------------------------------------------------------------


@op(accepts=ANY, result="bool", arity=2, standard=False)
def isclose(
    x1: TensorLike,
    x2: TensorLike,
    /,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    *,
    equal_nan: bool = False,
) -> Tensor:
    """True where |x1 - x2| is at most atol + rtol |x2|; infinities are close to themselves only.

    >>> isclose([1.0, 2.0, ops.inf], [1.000001, 2.1, ops.inf]).tolist()
    [True, False, True]
    """
    spec, natives, _ = dispatch.operands("isclose", x1, x2)
    a, b = (fill(native, spec) for native in natives)
    equal = ops.equal(a, b)
    if not (a.dtype.is_floating or a.dtype.is_complex):
        # float32 would miss differences of large whole numbers.
        wide = spec.backend.supports(dtypes.float64, spec.device)
        a, b = (convert.cast(one, dtypes.float64 if wide else dtypes.float32) for one in (a, b))
    finite = ops.logical_and(ops.isfinite(a), ops.isfinite(b))
    close = ops.logical_or(equal, ops.logical_and(finite, _near(a, b, rtol, atol)))
    if not equal_nan:
        return close
    return ops.logical_or(close, ops.logical_and(ops.isnan(a), ops.isnan(b)))


@np.errstate(all="ignore")  # infinities have no difference, and need none
def _near(a: Tensor, b: Tensor, rtol: float, atol: float) -> Tensor:
    return ops.abs(a - b) <= atol + rtol * ops.abs(b)


@op(accepts=ANY, result="bool", arity=2, standard=False)
def allclose(
    x1: TensorLike,
    x2: TensorLike,
    /,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    *,
    equal_nan: bool = False,
) -> Tensor:
    """True where all values are close, as a 0-d tensor, which `if` and `assert` take as it is.

    A tensor and no Python bool, so that it can be traced and does not wait for a device.

    >>> bool(allclose([1.0, 2.0], [1.0, 2.000001]))
    True
    """
    return ops.all(isclose(x1, x2, rtol, atol, equal_nan=equal_nan))


# --- Sums of exponentials -------------------------------------------------------------------


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def logsumexp(
    x: TensorLike, /, axis: Axis = None, *, b: TensorLike | None = None, keepdims: bool = False
) -> Tensor:
    """log(sum(b exp(x))) over `axis`, without overflow; `b` are weights, one unless given.

    >>> logsumexp([1000.0, 1000.0]).item() - 1000
    0.69317626953125
    >>> logsumexp([-ops.inf, -ops.inf]).item()
    -inf
    """
    if b is None:
        tensor = dispatch.lifted("logsumexp", x)
        axes = axes_of("logsumexp", axis, tensor.ndim)
        if not math.prod(tensor.shape[a] for a in axes):
            return ops.sum(tensor, axis=axes, keepdims=keepdims) - ops.inf
        return dispatch.call("logsumexp", tensor, axes, keepdims)
    given = dispatch.aligned("logsumexp", x, b)
    tensor, weights = (dispatch.lifted("logsumexp", one) for one in given)
    shape = broadcast("logsumexp", (tensor.shape, weights.shape))
    tensor, weights = ops.broadcast_to(tensor, shape), ops.broadcast_to(weights, shape)
    axes = axes_of("logsumexp", axis, tensor.ndim)
    return _weighted_logsumexp(tensor, weights, axes, keepdims)


@np.errstate(all="ignore")  # sums of infinities, logarithms of negative sums
def _weighted_logsumexp(
    tensor: Tensor, weights: Tensor, axes: tuple[int, ...], keepdims: bool
) -> Tensor:
    # What counts nothing must not set the scale, nor make NaN of an infinity.
    tensor = ops.where(weights == 0, -ops.inf, tensor)
    largest = constant(ops.max(tensor, axis=axes, keepdims=True))
    largest = ops.where(ops.isfinite(largest), largest, 0.0)
    total = ops.sum(weights * ops.exp(tensor - largest), axis=axes, keepdims=keepdims)
    shift = largest if keepdims else ops.reshape(largest, total.shape)
    return ops.log(total) + shift


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def cumulative_logsumexp(x: TensorLike, /, axis: int | None = None) -> Tensor:
    """The running log(sum(exp(x))) along an axis, or of the flattened tensor.

    >>> cumulative_logsumexp([0.0, 0.0]).tolist()
    [0.0, 0.6931471824645996]
    """
    tensor = dispatch.lifted("cumulative_logsumexp", x)
    if axis is None:
        tensor, axis = ops.reshape(tensor, (-1,)), 0
    place = axis_of("cumulative_logsumexp", axis, tensor.ndim)
    return dispatch.call("cumulative_logsumexp", tensor, place)
