"""Gradients of what reduces and orders: cases where those of the values do not suit.

Values that are to be ordered are far apart, since at ties there is no difference to compare with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml.testing.case import Array
from ember_ml.testing.gradients import GradientCase, derived

__all__ = ["REDUCTION"]


def _draw(seed: int, *shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return np.random.Generator(np.random.Philox(seed)).uniform(low, high, shape)


def _apart(seed: int, *shape: int) -> Array:
    """Distinct values in no order."""
    size = int(np.prod(shape))
    order = np.random.Generator(np.random.Philox(seed)).permutation(size)
    return (order * 0.25 - size / 8 + 0.1).reshape(shape)


def _beside(xp: Any, values: Any, x: Any) -> Any:
    return xp.astype(xp.asarray(values), x.dtype)


def _case(op: str, label: str, run: Callable[..., Any], *inputs: Array) -> GradientCase:
    return GradientCase(op, run, inputs, label)


# --- Sums, products, running totals ---------------------------------------------------------

# One zero along an axis, two, none.
_ZEROS: Final = np.array([[1.5, 0.0, -0.5, 2.0], [0.0, 1.25, 0.0, 3.0], [1.0, -2.0, 0.5, 0.75]])

_PRODUCTS: Final = (
    *derived("prod"),
    _case("prod", "zeros", lambda xp, x: xp.prod(x, axis=1), _ZEROS),
    _case("prod", "zeros-all", lambda xp, x: xp.prod(x, keepdims=True), _ZEROS[[0, 2]]),
    _case("prod", "zero-axes", lambda xp, x: xp.prod(x, axis=(2, -3)), _ZEROS.reshape(3, 2, 2)),
    _case("prod", "number", lambda xp, x: xp.prod(x), np.array(1.5)),
    *derived("cumulative_prod"),
    _case("cumulative_prod", "zeros", lambda xp, x: xp.cumulative_prod(x, axis=1), _ZEROS),
    _case("cumulative_prod", "columns", lambda xp, x: xp.cumulative_prod(x, axis=0), _ZEROS),
    _case("cumulative_prod", "long", lambda xp, x: xp.cumulative_prod(x),
          _draw(1, 37, low=0.8, high=1.3)),
    *derived("diff"),
    _case("diff", "sides", lambda xp, x, a, b: xp.diff(x, n=2, prepend=a, append=b),
          _draw(2, 3, 4), _draw(3, 3, 1), _draw(4, 3, 2)),
)  # fmt: skip

_EXTREMES: Final = (
    *derived("max"),
    _case("max", "number", lambda xp, x: xp.max(x), np.array(1.5)),
    _case("max", "axes", lambda xp, x: xp.max(x, axis=(-1, 0), keepdims=True), _apart(5, 2, 3, 4)),
    *derived("mean"),
    _case("mean", "number", lambda xp, x: xp.mean(x), np.array(1.5)),
    _case("mean", "first-kept", lambda xp, x: xp.mean(x, axis=0, keepdims=True), _draw(6, 3, 4)),
)

_EXPONENTIALS: Final = (
    *derived("logsumexp"),
    _case("logsumexp", "far", lambda xp, x: xp.logsumexp(x, axis=1, keepdims=True),
          np.array([[95.0, 96.5, -95.0], [-95.0, -96.0, -97.0]])),
    _case("logsumexp", "shares", lambda xp, x, b: xp.logsumexp(x, 1, b=b),
          _draw(7, 3, 4), _draw(8, 3, 4, low=0.5)),
    *derived("cumulative_logsumexp"),
    _case("cumulative_logsumexp", "axis", lambda xp, x: xp.cumulative_logsumexp(x, 0),
          _draw(9, 5, 3)),
    # The steps of central differences are a few units in the last place of these values.
    _case("cumulative_logsumexp", "far", lambda xp, x: xp.cumulative_logsumexp(x),
          np.array([-90.0, 3.0, 95.0, 94.0, -40.0, 96.0])),
)  # fmt: skip


# --- Along a line ---------------------------------------------------------------------------

_AT: Final = np.array([[0.2, 1.7, -3.0], [2.6, 9.0, 4.1]])
_KNOTS: Final = np.array([0.0, 1.0, 2.5, 4.5])

_LINES: Final = (
    _case("interp", "points", lambda xp, x, p, f: xp.interp(x, p, f), _AT, _KNOTS, _draw(10, 4)),
    _case("interp", "sides", lambda xp, x, p, f: xp.interp(x, p, f, left=-1.0, right=3.0),
          _AT, _KNOTS, _draw(11, 4)),
    _case("interp", "period", lambda xp, x, p, f: xp.interp(x, p, f, period=5.0),
          _AT + 0.05, _KNOTS[::-1] + 0.3, _draw(12, 4)),
    _case("interp", "one", lambda xp, x, p, f: xp.interp(x, p, f),
          _AT, np.array([1.0]), np.array([2.0])),
    *derived("gradient"),
    _case("gradient", "places", lambda xp, x, at: xp.gradient(x, at, axis=1, edge_order=2),
          _draw(13, 2, 5), np.array([0.0, 0.5, 1.5, 1.75, 3.0])),
    *derived("trapezoid"),
    _case("trapezoid", "at", lambda xp, y, x: xp.trapezoid(y, x), _draw(14, 2, 4), _KNOTS),
    _case("trapezoid", "table", lambda xp, y, x: xp.trapezoid(y, x, axis=0),
          _draw(15, 3, 2), _draw(16, 3, 2)),
)  # fmt: skip


# --- Order ----------------------------------------------------------------------------------

_QUARTERS: Final = np.array([0.1, 0.37, 0.8])

_ORDER: Final = (
    *derived("sort"),
    _case("sort", "columns", lambda xp, x: xp.sort(x, axis=0, descending=True), _apart(17, 5, 3)),
    _case("topk", "", lambda xp, x: xp.topk(x, 3), _apart(18, 2, 3, 4)),
    _case("topk", "smallest", lambda xp, x: xp.topk(x, 2, axis=0, largest=False), _apart(19, 5, 3)),
    _case("topk", "none", lambda xp, x: (xp.topk(x, 0)[0], x), _apart(20, 4)),
    _case("mode", "", lambda xp, x: xp.mode(x), _apart(21, 3, 4)),
    _case("mode", "axis", lambda xp, x: xp.mode(x, axis=(0, 2), keepdims=True),
          _apart(22, 2, 3, 4)),
    *derived("quantile"),
    _case("quantile", "places", lambda xp, x, q: xp.quantile(x, q, axis=1),
          _apart(23, 2, 5), _QUARTERS),
    _case("quantile", "weibull-places",
          lambda xp, x, q: xp.quantile(x, q, axis=1, method="weibull"), _apart(24, 2, 5),
          _QUARTERS + 0.1),
    *derived("percentile"),
    _case("percentile", "places", lambda xp, x, q: xp.percentile(x, q), _apart(25, 7),
          _QUARTERS * 100),
    *derived("nanquantile"),
    _case("nanquantile", "places", lambda xp, x, q: xp.nanquantile(x, q, axis=0),
          _apart(26, 5, 2), _QUARTERS),
    *(
        _case(op, label, lambda xp, x, op=op: _values(getattr(xp, op)(x)), values)
        for op in ("unique_all", "unique_counts", "unique_inverse", "unique_values")
        for label, values in (("", _apart(27, 2, 3)), ("line", _apart(28, 5)))
    ),
    _case("nan_to_num", "", lambda xp, x: xp.nan_to_num(x), _draw(29, 2, 3)),
)  # fmt: skip


def _values(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) else found


# --- Bins and shares ------------------------------------------------------------------------

_DATA: Final = [-2.0, 2.0, 0.1, 0.3, 0.8, -1.3, 1.5, 7.0]
_BINS: Final = [0, 2, 5, 2, 2, 0, 1, 5]

_SHARES: Final = (
    _case("bincount", "", lambda xp, w: xp.bincount(xp.asarray(_BINS), w), _draw(30, 8)),
    _case("bincount", "longer", lambda xp, w: xp.bincount(xp.asarray(_BINS), w, minlength=9),
          _draw(31, 8)),
    # Values of the sample decide on bins alone: gradients are those by weights and by edges.
    _case("histogram", "weights",
          lambda xp, w: xp.histogram(_beside(xp, _DATA, w), 4, weights=w).counts, _draw(32, 8)),
    _case("histogram", "density",
          lambda xp, w: xp.histogram(
              _beside(xp, _DATA, w), 4, range=(-3.0, 2.0), weights=w, density=True).counts,
          _draw(33, 8, low=0.5)),
    _case("histogram", "edges",
          lambda xp, w, e: xp.histogram(_beside(xp, _DATA, w), e, weights=w, density=True),
          _draw(34, 8, low=0.5), np.array([-2.5, -0.5, 0.5, 3.0])),
    *derived("average"),
    _case("average", "shares", lambda xp, x, w: xp.average(x, 1, w),
          _draw(35, 3, 5), _draw(36, 5, low=0.5)),
    _case("average", "table", lambda xp, x, w: xp.average(x, (0, 1), w, keepdims=True),
          _draw(37, 3, 2), _draw(38, 3, 2, low=0.5)),
    *derived("cov"),
    _case("cov", "both", lambda xp, x, y, w: xp.cov(x, y, aweights=w),
          _draw(39, 2, 5), _draw(40, 5), _draw(41, 5, low=0.5)),
    *derived("corrcoef"),
    _case("corrcoef", "both", lambda xp, x, y: xp.corrcoef(x, y), _draw(42, 2, 5), _draw(43, 5)),
    *derived("gaussian"),
    _case("gaussian", "all", lambda xp, x, m, s: xp.gaussian(x, m, s),
          _draw(44, 2, 3), _draw(45, 3), _draw(46, 2, 1, low=0.5)),
)  # fmt: skip


REDUCTION: Final[tuple[GradientCase, ...]] = (
    *_PRODUCTS,
    *_EXTREMES,
    *_EXPONENTIALS,
    *_LINES,
    *_ORDER,
    *_SHARES,
)
