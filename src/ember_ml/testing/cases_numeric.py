"""Special functions, everyday arithmetic and calculus.

Special functions are compared with the C library's, through Python's `math`, or with their own
definitions; the rest with NumPy in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample

__all__ = ["NUMERIC_CASES", "beside"]


def _each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    def expect(x: Array) -> Array:
        return np.array([function(float(v)) for v in x.reshape(-1)], float).reshape(x.shape)

    return expect


def _lgamma(x: float) -> float:
    return math.inf if x <= 0 and x == round(x) else math.lgamma(x)


def _digamma(x: float) -> float:
    """By the recurrence and the asymptotic series, which at 20 is exact to the last place."""
    if math.isnan(x) or x == -math.inf or (x < 0 and x == round(x)):
        return math.nan
    if x == 0:
        return -math.copysign(math.inf, x)
    if x == math.inf:
        return x
    steps = []
    while x < 20:
        steps.append(-1 / x)
        x += 1
    tail = [1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760]
    steps += [math.log(x), -0.5 / x, *(-c / x ** (2 * k + 2) for k, c in enumerate(tail))]
    return math.fsum(steps)


def _erfinv(x: float) -> float:
    """By bisection of erf, or of erfc where that tells more."""
    if not -1 <= x <= 1:
        return math.nan
    if abs(x) == 1:
        return math.copysign(math.inf, x)
    size, low, high = abs(x), 0.0, 6.0
    for _ in range(200):
        middle = (low + high) / 2
        below = math.erf(middle) < size if size < 0.5 else math.erfc(middle) > 1 - size
        low, high = (middle, high) if below else (low, middle)
    return math.copysign(low, x)


_EDGES: Final = (0.0, -0.0, 1.0, -1.0, 2.0, math.inf, math.nan)


def _inputs(op: str, low: float, high: float) -> Callable[[DType], list[Inputs]]:
    def make(dtype: DType) -> list[Inputs]:
        runs: list[Inputs] = [
            (sample(f"{op}{s}", s, dtype, low, high),) for s in ((5, 8), (), (0, 3))
        ]
        if dtype.is_floating:
            runs.append((np.array(_EDGES).astype(dtype.numpy),))
        return runs

    return make


_FUNCTIONS: Final[dict[str, tuple[Callable[[float], float], float, float]]] = {
    "erf": (math.erf, -3, 3),
    "erfc": (math.erfc, -3, 3),
    "erfinv": (_erfinv, -0.99, 0.99),
    "lgamma": (_lgamma, -4, 12),
    "digamma": (_digamma, -2, 12),
}


def _cases(op: str) -> list[Case]:
    function, low, high = _FUNCTIONS[op]

    def run(xp: Any, x: Any) -> Any:
        return getattr(xp, op)(x)

    return [Case(op, run, _each(function), _inputs(op, low, high), accepted(op), law(op))]


# --- Arithmetic -----------------------------------------------------------------------------

_EDGES_OF_TWO: Final = (0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan)


def _floating(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.kind in "biu" else x


def _lerp(a: Array, b: Array) -> Array:
    a, b = _floating(a), _floating(b)
    return a + (b - a) * 0.25


_UNARY: Final[dict[str, tuple[Callable[..., Any], float, float]]] = {
    "absolute": (np.abs, -9, 9),
    "cbrt": (np.cbrt, -9, 9),
    "deg2rad": (np.deg2rad, -90, 90),
    "degrees": (np.degrees, -4, 4),
    "exp2": (np.exp2, -4, 4),
    "rad2deg": (np.rad2deg, -4, 4),
    "radians": (np.radians, -90, 90),
    "sinc": (np.sinc, -2, 2),
}
_BINARY: Final[dict[str, tuple[Callable[..., Any], float, float, float, float]]] = {
    "mod": (np.mod, -9, 9, 1, 5),
    "power": (np.power, 0.5, 3, 0, 3),
    "true_divide": (np.true_divide, -9, 9, 1, 5),
    "fmod": (np.fmod, -9, 9, 1, 5),
    "fmax": (np.fmax, -9, 9, -9, 9),
    "fmin": (np.fmin, -9, 9, -9, 9),
    "heaviside": (lambda a, b: np.heaviside(_floating(a), _floating(b)), -1, 1, -9, 9),
}


def _unary(op: str) -> Case:
    reference, low, high = _UNARY[op]

    def expect(x: Array) -> Any:
        return reference(x if op == "absolute" else _floating(x))

    return Case(
        op, lambda xp, x: getattr(xp, op)(x), expect, _inputs(op, low, high), accepted(op), law(op)
    )


def _binary(op: str) -> Case:
    reference, low, high, low2, high2 = _BINARY[op]

    def inputs(dtype: DType) -> list[Inputs]:
        runs: list[Inputs] = [
            (
                sample(f"{op}a{a}", a, dtype, low, high),
                sample(f"{op}b{b}", b, dtype, low2, high2),
            )
            for a, b in (((2, 3), (2, 3)), ((2, 1), (3,)), ((0, 3), (3,)))
        ]
        if dtype.is_floating and op not in ("power", "true_divide"):
            edges = np.array(_EDGES_OF_TWO).astype(dtype.numpy)
            runs.append((edges[:, None].copy(), edges[None, :].copy()))
        return runs

    return Case(
        op, lambda xp, x, y: getattr(xp, op)(x, y), reference, inputs, accepted(op), law(op)
    )


# --- Calculus -------------------------------------------------------------------------------


def _of(op: str, shape: tuple[int, ...], low: float, high: float, *more: float) -> Any:
    """Inputs of one shape, with `more` values at the front of floating ones."""

    def make(dtype: DType) -> list[Inputs]:
        x = sample(op, shape, dtype, low, high)
        if dtype.is_floating:
            x.reshape(-1)[: len(more)] = more
        return [(x,)]

    return make


def beside(xp: Any, values: list[Any], x: Any) -> Any:
    """A list as it is, or in the dtype of `x` where that is a float, which meets its like only."""
    return xp.asarray(values, dtype=x.dtype) if x.dtype.is_floating else values


_POINTS: Final = [0.0, 1.0, 2.0, 4.0]
_LEVELS: Final = [1.0, -2.0, 3.0, 0.5]


def _interp(**options: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def run(xp: Any, x: Any) -> Any:
        return xp.interp(x, beside(xp, _POINTS, x), beside(xp, _LEVELS, x), **options)

    return run, lambda x: np.interp(_floating(x), _POINTS, _LEVELS, **options)


def _gradient(*spacing: Any, **options: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def run(xp: Any, x: Any) -> Any:
        return xp.gradient(x, *spacing, **options)

    def expect(x: Array) -> Any:
        out = np.gradient(_floating(x), *spacing, **options)
        return tuple(out) if isinstance(out, list | tuple) else out

    return run, expect


def _logsumexp(x: Array, axis: Any = None, keepdims: bool = False, b: Any = 1.0) -> Any:
    x = _floating(x)
    largest = np.max(x, axis=axis, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0)
    out = np.log(np.sum(b * np.exp(x - largest), axis=axis, keepdims=True)) + largest
    return out if keepdims else np.squeeze(out, axis)


_CALCULUS: Final[list[tuple[str, str, Any, Any, Any]]] = [
    ("interp", "", *_interp(), _of("interp", (3, 4), -1, 5, 0.0, 4.0, math.nan, math.inf)),
    ("interp", "sides", *_interp(left=-1.0, right=9.0), _of("interp", (3, 4), -1, 5)),
    ("interp", "period", *_interp(period=3.0), _of("interp", (3, 4), -5, 5)),
    ("gradient", "", *_gradient(), _of("gradient", (4, 5), -4, 4)),
    ("gradient", "step", *_gradient(0.5, axis=1), _of("gradient", (4, 5), -4, 4)),
    ("gradient", "ends", *_gradient(axis=0, edge_order=2), _of("gradient", (4, 5), -4, 4)),
    (
        "gradient",
        "coordinates",
        *_gradient([0.0, 1.0, 3.0, 4.0], 2.0, edge_order=2),
        _of("gradient", (4, 5), -4, 4),
    ),
    (
        "trapezoid",
        "",
        lambda xp, x: xp.trapezoid(x),
        lambda x: np.trapezoid(_floating(x)),
        _of("trapezoid", (3, 4), -2, 2),
    ),
    (
        "trapezoid",
        "places",
        lambda xp, x: xp.trapezoid(x, beside(xp, [0.0, 1.0, 3.0], x), axis=0),
        lambda x: np.trapezoid(_floating(x), [0.0, 1.0, 3.0], axis=0),
        _of("trapezoid", (3, 4), -2, 2),
    ),
    (
        "trapezoid",
        "dx",
        lambda xp, x: xp.trapezoid(x, dx=0.5),
        lambda x: np.trapezoid(_floating(x), dx=0.5),
        _of("trapezoid", (3, 4), -2, 2),
    ),
    (
        "logsumexp",
        "",
        lambda xp, x: xp.logsumexp(x),
        _logsumexp,
        lambda dtype: [
            *_of("lse", (2, 3, 4), -4, 4)(dtype),
            *_of("lse", (2, 3, 4), 0, 1, math.nan)(dtype),
            *_of("lse", (), -4, 4)(dtype),
        ],
    ),
    (
        "logsumexp",
        "axes",
        lambda xp, x: xp.logsumexp(x, (0, 2), keepdims=True),
        lambda x: _logsumexp(x, (0, 2), keepdims=True),
        _of("lse", (2, 3, 4), -4, 4, math.inf),
    ),
    (
        "logsumexp",
        "nothing",
        lambda xp, x: xp.logsumexp(x, 1),
        lambda x: np.array([-np.inf, -np.inf]),
        lambda dtype: [(np.zeros((2, 0), dtype.numpy),)],
    ),
    (
        "logsumexp",
        "weights",
        lambda xp, x: xp.logsumexp(x, -1, b=beside(xp, [1.0, 0.0, 2.0, 0.5], x)),
        lambda x: _logsumexp(x, -1, b=np.array([1.0, 0.0, 2.0, 0.5])),
        _of("lse", (2, 3, 4), -4, 4),
    ),
    (
        "cumulative_logsumexp",
        "",
        lambda xp, x: xp.cumulative_logsumexp(x, 1),
        lambda x: np.logaddexp.accumulate(_floating(x), axis=1),
        _of("clse", (3, 4), -4, 4, -math.inf, -math.inf, 1.0, math.inf),
    ),
    (
        "cumulative_logsumexp",
        "flat",
        lambda xp, x: xp.cumulative_logsumexp(x),
        lambda x: np.logaddexp.accumulate(_floating(x).reshape(-1)),
        _of("clse", (3, 4), -4, 4),
    ),
]


# One way through an op is taken on every dtype, the others on these: JAX compiles each anew.
_SINGLE: Final = (dtypes.int32, dtypes.float32, dtypes.float64)


def _calculus() -> list[Case]:
    return [
        Case(op, run, expect, inputs, _SINGLE if label else accepted(op), law(op), 32, label)
        for op, label, run, expect, inputs in _CALCULUS
    ]


def _close_inputs(dtype: DType) -> list[Inputs]:
    x = sample("close", (3, 4), dtype, 0, 9)
    y = x.copy()
    if dtype is dtypes.bool:
        y[0, 0] = ~y[0, 0]
    else:
        y[0, 0] += dtype.numpy.type(1)
    if dtype.is_floating:
        x[1], y[1] = (math.inf, math.inf, math.nan, 1), (math.inf, -math.inf, math.nan, math.nan)
    return [(x, y)]


def _closeness() -> list[Case]:
    return [
        Case(
            op,
            lambda xp, x, y, op=op, options=options: getattr(xp, op)(x, y, **options),
            lambda x, y, op=op, options=options: getattr(np, op)(x, y, **options),
            _close_inputs,
            accepted(op),
            law(op),
            label=label,
        )
        for op in ("isclose", "allclose")
        for label, options in (
            ("", {}),
            ("nan", {"equal_nan": True, "atol": 0.5}),
            ("wide", {"rtol": 1.5, "atol": 3.0, "equal_nan": True}),
        )
    ]


NUMERIC_CASES: Final[tuple[Case, ...]] = (
    *(case for op in _FUNCTIONS for case in _cases(op)),
    *map(_unary, _UNARY),
    *map(_binary, _BINARY),
    Case(
        "lerp",
        lambda xp, x, y: xp.lerp(x, y, 0.25),
        _lerp,
        lambda dtype: [(sample("lerpa", (2, 3), dtype, -9, 9), sample("lerpb", (3,), dtype, 1, 9))],
        accepted("lerp"),
        law("lerp"),
    ),
    *_calculus(),
    *_closeness(),
)
