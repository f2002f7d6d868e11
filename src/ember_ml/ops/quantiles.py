"""Values below which a part of a sample lies: medians, quantiles, percentiles; with NaN left out.

Where the places in order are known beforehand (a `q` that has values, and no NaN to leave out) they
are counted on the host in float64, and each engine selects them in its quickest way. Otherwise they
are tensors themselves, and the sorted values are gathered at them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.errors import DomainError, DTypeError
from ember_ml.ops import dispatch
from ember_ml.ops.axes import axes_of
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor
from ember_ml.typing import Axis, TensorLike

__all__: list[str] = [
    "median",
    "nanmedian",
    "nanpercentile",
    "nanquantile",
    "percentile",
    "quantile",
]

# The place of quantile q among n values is n q + alpha + q (1 - alpha - beta), counted from one.
# "linear" and its kin, where alpha and beta are one, take (n - 1) q from zero, which rounds less.
_PLOTTING: Final = {
    "hazen": (0.5, 0.5),
    "interpolated_inverted_cdf": (0.0, 1.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
    "weibull": (0.0, 0.0),
}

# The function that makes a whole place of one between two; `round` takes halves to the even one.
_WHOLE: Final = {"lower": "floor", "higher": "ceil", "nearest": "round"}
_METHODS: Final = ("linear", "midpoint", *_WHOLE, *_PLOTTING)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def median(x: TensorLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The middle value over `axis`, or the mean of the two in the middle; NaN where there is one.

    >>> median([3, 1, 2, 10]).item()
    2.5
    """
    return _quantile("median", x, 0.5, axis, "linear", keepdims, skips=False)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def quantile(
    x: TensorLike,
    q: TensorLike,
    /,
    axis: Axis = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
) -> Tensor:
    """The values below which the parts `q` (from 0 to 1) of `x` lie; the axes of `q` come first.

    `method` says what stands between two values: "linear" (the default), "lower", "higher",
    "nearest", "midpoint", or one of NumPy's continuous estimates such as "median_unbiased".

    >>> quantile([1.0, 2.0, 4.0], [0.5, 0.75]).tolist()
    [2.0, 3.0]
    >>> quantile([1.0, 2.0, 4.0], 0.75, method="lower").item()
    2.0
    """
    return _quantile("quantile", x, q, axis, method, keepdims, skips=False)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def percentile(
    x: TensorLike,
    q: TensorLike,
    /,
    axis: Axis = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
) -> Tensor:
    """Quantiles with `q` from 0 to 100.

    >>> percentile([1.0, 2.0, 4.0], 50).item()
    2.0
    """
    return _quantile("percentile", x, q, axis, method, keepdims, skips=False)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def nanmedian(x: TensorLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The median of what is not NaN; NaN where nothing else is there.

    >>> nanmedian([3.0, ops.nan, 1.0]).item()
    2.0
    """
    return _quantile("nanmedian", x, 0.5, axis, "linear", keepdims, skips=True)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def nanquantile(
    x: TensorLike,
    q: TensorLike,
    /,
    axis: Axis = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
) -> Tensor:
    """The quantiles of what is not NaN; NaN where nothing else is there.

    >>> nanquantile([3.0, ops.nan, 1.0], [0.0, 1.0]).tolist()
    [1.0, 3.0]
    """
    return _quantile("nanquantile", x, q, axis, method, keepdims, skips=True)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def nanpercentile(
    x: TensorLike,
    q: TensorLike,
    /,
    axis: Axis = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
) -> Tensor:
    """Quantiles of what is not NaN with `q` from 0 to 100.

    >>> nanpercentile([3.0, ops.nan, 1.0], 50).item()
    2.0
    """
    return _quantile("nanpercentile", x, q, axis, method, keepdims, skips=True)


# --- How ------------------------------------------------------------------------------------


def _quantile(
    name: str,
    x: TensorLike,
    q: TensorLike,
    axis: Axis,
    method: str,
    keepdims: bool,
    *,
    skips: bool,
) -> Tensor:
    if method not in _METHODS:
        raise DomainError(f"ops.{name} takes method {', '.join(_METHODS)}, not {method!r}")
    home = dispatch.home_of(name, (x, q))
    tensor = dispatch.lifted(name, convert.to_tensor(x, home))
    lines, kept = lines_of(name, tensor, axis)
    scale = 100.0 if name.endswith("percentile") else 1.0
    parts = _parts(name, q, home, scale)
    if not lines.shape[-1]:
        nothing = ops.sum(lines, axis=-1, keepdims=True) + ops.nan
        out = ops.broadcast_to(nothing, (*lines.shape[:-1], parts.size))
    elif skips or isinstance(parts, Tensor) or type(lines.shape[-1]) is not int:
        # (A length that varies, in a function that is exported, gives places that vary too.)
        out = _gathered(lines, parts, method, skips)
    else:
        out = _selected(lines, parts.reshape(-1), method)
    shape = kept if keepdims else tuple(lines.shape[:-1])
    if not parts.shape:
        return ops.reshape(out, shape)
    return ops.reshape(ops.moveaxis(out, -1, 0), (*parts.shape, *shape))


def lines_of(name: str, x: Tensor, axis: Axis) -> tuple[Tensor, tuple[int, ...]]:
    """The axes to be reduced as one last axis, and the shape with ones in their places."""
    axes = axes_of(name, axis, x.ndim)
    kept = tuple(1 if place in axes else side for place, side in enumerate(x.shape))
    rest = [place for place in range(x.ndim) if place not in axes]
    order = (*rest, *axes)
    if order != tuple(range(x.ndim)):
        x = ops.permute_dims(x, order)
    sides = [side for place, side in enumerate(kept) if place in rest]
    length = 1
    for side in x.shape[len(rest) :]:
        length *= side
    return (x if len(axes) == 1 else ops.reshape(x, (*sides, length))), kept


def _parts(name: str, q: TensorLike, home: Any, scale: float) -> Any:
    """`q` between 0 and 1: as a NumPy array of float64, or as a tensor where it has no values."""
    if type(q) is float:
        if not 0 <= q <= scale:
            raise DomainError(f"ops.{name} takes q from 0 to {scale:g}, not {q}")
        return np.array(q / scale)
    tensor = convert.to_tensor(q, home)
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer):
        raise DTypeError(f"ops.{name} takes real numbers q, not {tensor.dtype}")
    # Numbers and lists are read as they are, also while a compiler traces, which makes constants
    # of them: in float32, 0.1 would miss its place.
    plain = _is_plain(q)
    if not plain and (
        type(tensor) is GradTensor or home.is_traced(tensor.native) or _hides(q, tensor)
    ):
        wide = dtypes.float64 if home.supports(dtypes.float64, tensor.device) else dtypes.float32
        return convert.cast(tensor, wide) / scale
    parts = np.asarray(q if plain else tensor.numpy(), np.float64) / scale
    if not np.all((parts >= 0) & (parts <= 1)):
        raise DomainError(f"ops.{name} takes q from 0 to {scale:g}, not {parts * scale}"[:200])
    return parts


def _is_plain(q: TensorLike) -> bool:
    if isinstance(q, list | tuple):
        return all(map(_is_plain, q))
    return isinstance(q, float | int | np.ndarray | np.generic)


def _hides(q: TensorLike, tensor: Tensor) -> bool:
    """True where a `q` may be differentiated by and would not tell: its values are read then."""
    return (
        isinstance(q, Tensor) and tensor.dtype.is_floating and tensor._spec.backend.gradients.hides
    )


def _places(xp: Any, parts: Any, count: Any, method: str) -> tuple[Any, Any, Any]:
    """The whole place below, the one above, and the weight of the latter.

    `xp` is NumPy or ops, which call these functions alike.
    """
    top = count - 1
    if method in _PLOTTING:
        alpha, beta = _PLOTTING[method]
        place = parts * count + (alpha - 1) + parts * (1 - alpha - beta)
    else:
        place = parts * top
    place = xp.maximum(xp.minimum(place, top), top * 0)
    if method in _WHOLE:
        place = getattr(xp, _WHOLE[method])(place)
    low = xp.floor(place)
    weight = place - low
    if method == "midpoint":
        weight = xp.ceil(weight) * 0.5
    high = xp.where(weight > 0, xp.minimum(low + 1, top), low)
    return low, high, weight


@np.errstate(all="ignore")  # NumPy warns of what infinities give
def _between(low: Tensor, high: Tensor, weight: Tensor) -> Tensor:
    """Weighted, and not by the difference, which infinities do not have."""
    mixed = low * (1 - weight) + high * weight
    return ops.where(low == high, low, mixed)


def _selected(lines: Tensor, parts: Any, method: str) -> Tensor:
    """Quantiles at places that are known: one selection for all of them."""
    count = lines.shape[-1]
    low, high, weight = _places(np, parts, float(count), method)
    first, second = low.astype(np.int64), high.astype(np.int64)
    if type(lines) is not GradTensor:
        places = (tuple(one.tolist()) for one in (first, second, weight))
        return dispatch.call("quantiles_at", lines, *places)
    # Of ops that are differentiated everywhere.
    ordered = ops.sort(lines, axis=-1)
    weights = convert.asarray(weight, dtype=lines.dtype, backend=lines._spec.backend)
    out = _between(ops.take(ordered, first, axis=-1), ops.take(ordered, second, axis=-1), weights)
    last = ordered[..., -1:]  # NaN sorts behind all
    return ops.where(ops.isnan(last), last, out)


def _gathered(lines: Tensor, parts: Any, method: str, skips: bool) -> Tensor:
    """Quantiles at places that depend on values: how many are not NaN, or a traced `q`."""
    spec = lines._spec
    wide = dtypes.float64 if spec.backend.supports(dtypes.float64, spec.device) else dtypes.float32
    q = ops.reshape(convert.asarray(parts, dtype=wide, backend=spec.backend), (-1,))
    nans = ops.count_nonzero(ops.isnan(lines), axis=-1, keepdims=True)
    count = convert.cast(lines.shape[-1] - nans, wide)
    places = count if skips else ops.full_like(count, lines.shape[-1])
    low, high, weight = _places(ops, q, places, method)
    ordered = ops.sort(lines, axis=-1)
    shape = (*lines.shape[:-1], q.shape[0])

    def at(place: Tensor) -> Tensor:
        index = ops.maximum(convert.cast(place, dtypes.int64), 0)
        return ops.take_along_axis(ordered, ops.broadcast_to(index, shape), axis=-1)

    out = _between(at(low), at(high), convert.cast(weight, lines.dtype))
    return out if skips else ops.where(nans > 0, ordered[..., -1:], out)
