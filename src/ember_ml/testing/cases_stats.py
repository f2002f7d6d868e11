"""Statistics: quantiles, order, counts, covariance, and reductions that leave NaN out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml.dtypes import DType, float32, float64, int32, to_dtype
from ember_ml.dtypes import bool as bool_
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample
from ember_ml.testing.cases_numeric import NUMERIC_CASES, beside
from ember_ml.testing.mistakes_stats import MISTAKES

__all__ = ["MISTAKES", "STATISTICS"]

_AXES: Final[dict[str, dict[str, Any]]] = {
    "": {},
    "axis": {"axis": 1},
    "kept": {"axis": (0, 2), "keepdims": True},
}
_SHAPE: Final = (2, 3, 4)


def _floating(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.kind in "biu" else x


def _inputs(op: str, low: float = -4, high: float = 4) -> Callable[[DType], list[Inputs]]:
    """A plain sample, and for floats one with NaN: one, and a whole line."""

    def make(dtype: DType) -> list[Inputs]:
        runs: list[Inputs] = [(sample(op, _SHAPE, dtype, low, high),)]
        if dtype.is_floating:
            holes = sample(op + "holes", _SHAPE, dtype, low, high)
            holes[0, 1, 2] = np.nan
            runs.append((holes,))
        return runs

    return make


def _hollow(op: str) -> Callable[[DType], list[Inputs]]:
    """As above, and with NaN in all of a line."""

    def make(dtype: DType) -> list[Inputs]:
        runs = _inputs(op, 0, 3)(dtype)
        if dtype.is_floating:
            lines = sample(op + "lines", _SHAPE, dtype, 0.5, 2)
            lines[1, :, 1] = lines[:, 2, :] = np.nan
            runs.append((lines,))
        return runs

    return make


def _plain(op: str, low: float = -4, high: float = 4) -> Callable[[DType], list[Inputs]]:
    return lambda dtype: [(sample(op, _SHAPE, dtype, low, high),)]


def _reductions(
    op: str,
    reference: Callable[..., Any],
    inputs: Callable[[DType], list[Inputs]],
    axes: dict[str, dict[str, Any]] = _AXES,
    ulps: float = 64,
) -> list[Case]:
    return [
        Case(
            op,
            lambda xp, x, options=options: getattr(xp, op)(x, **options),
            lambda x, options=options: reference(x, **options),
            inputs,
            accepted(op),
            law(op),
            ulps=ulps,
            label=label,
        )
        for label, options in axes.items()
    ]


def _of_floats(reference: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, **options: reference(_floating(x), **options)


# --- Quantiles ------------------------------------------------------------------------------

_METHODS: Final = ("lower", "higher", "nearest", "midpoint", "median_unbiased", "weibull")


# JAX compiles each method anew.
_SINGLE: Final = (int32, float32, float64)


def _quantiles() -> list[Case]:
    cases: list[Case] = []
    for op in ("median", "nanmedian"):
        cases += _reductions(op, _of_floats(getattr(np, op)), _hollow(op))
    for op in ("quantile", "percentile", "nanquantile", "nanpercentile"):
        scale = 100.0 if op.endswith("percentile") else 1.0
        reference = getattr(np, op)
        runs: list[tuple[str, Any, dict[str, Any]]] = [
            ("", 0.25, {}),
            ("several", [0.0, 0.3, 0.5, 0.95, 1.0], {"axis": 1}),
            ("kept", [0.1, 0.9], {"axis": (0, 2), "keepdims": True}),
            *((m, [0.2, 0.5, 0.8], {"axis": -1, "method": m}) for m in _METHODS),
        ]
        # The others go the same ways, and each way is compiled anew.
        for label, q, options in runs[: {"quantile": 9, "nanquantile": 4}.get(op, 2)]:
            parts = (np.array(q) * scale).tolist()
            cases.append(
                Case(
                    op,
                    lambda xp, x, op=op, q=parts, o=options: getattr(xp, op)(x, q, **o),
                    lambda x, f=reference, q=parts, o=options: f(_floating(x), q, **o),
                    _hollow(op) if op.startswith("nan") else _inputs(op),
                    _SINGLE if label in _METHODS else accepted(op),
                    law(op),
                    label=label,
                )
            )
    cases.append(
        Case(
            "quantile",
            lambda xp, x: xp.quantile(x, xp.asarray([[0.25, 0.5], [0.75, 1.0]]), axis=1),
            lambda x: np.quantile(_floating(x), [[0.25, 0.5], [0.75, 1.0]], axis=1),
            _inputs("quantile"),
            accepted("quantile"),
            law("quantile"),
            label="table",
        )
    )
    return cases


# --- Order and counts -----------------------------------------------------------------------


def _topk(x: Array, k: int, axis: int = -1, largest: bool = True) -> tuple[Array, Array]:
    lines = np.moveaxis(x, axis, -1)
    if largest:  # sorted from behind and turned round, equal values keep their order
        order = lines.shape[-1] - 1 - np.argsort(lines[..., ::-1], stable=True)[..., ::-1]
    else:
        order = np.argsort(lines, stable=True)
    order = np.moveaxis(order[..., :k], -1, axis)
    return np.take_along_axis(x, order, axis), order


def _ties(dtype: DType) -> list[Inputs]:
    """Whole numbers, so that many are equal: in a short line, and in a long one with NaN."""
    if dtype.is_complex:
        return [(sample("short", _SHAPE, dtype, 0, 3),)]
    short = np.round(sample("short", _SHAPE, dtype, 0, 3).astype(np.float64)).astype(dtype.numpy)
    long = np.round(sample("long", (3, 400), dtype, 0, 9).astype(np.float64)).astype(dtype.numpy)
    if dtype.is_floating:
        long[1, ::70] = np.nan
        long[2, 5:9] = np.inf
        long[2, ::2] *= np.array(-1).astype(dtype.numpy)  # zeros of both signs among them
    return [(short,), (long,)]


def _mode(x: Array, axis: Any = None, keepdims: bool = False) -> tuple[Array, Array]:
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    rest = [a for a in range(x.ndim) if a not in axes]
    lines = np.transpose(x, (*rest, *axes)).reshape(*(x.shape[a] for a in rest), -1)
    values = np.empty(lines.shape[:-1], x.dtype)
    counts = np.empty(lines.shape[:-1], np.int64)
    for place in np.ndindex(*lines.shape[:-1]):
        found, often = np.unique(lines[place], return_counts=True)
        best = -1 if found.dtype.kind == "f" and np.isnan(found[-1]) else np.argmax(often)
        values[place], counts[place] = found[best], often[best]
    if keepdims:
        shape = [1 if a in axes else n for a, n in enumerate(x.shape)]
        return values.reshape(shape), counts.reshape(shape)
    return values, counts


def _topk_case(label: str, k: int, **options: Any) -> Case:
    shown = {name: value for name, value in options.items() if name != "sorted"}
    return Case(
        "topk",
        lambda xp, x: xp.topk(x, k, **options),
        lambda x: _topk(x, k, **shown),
        _ties,
        accepted("topk"),
        lambda dtype: None,
        label=label,
    )


# Quarters of whole numbers, so that bins of a half have edges in every dtype.
def _quarters(dtype: DType) -> list[Inputs]:
    steps = np.array([-8, 8, 0, 1, 3, 3, -5, -7, 2, 6, 6, 5, -1, 8, -8, 4])
    if not dtype.is_floating:
        return [
            (
                np.clip(steps, 0, 1 if dtype.bits == 8 and dtype.name == "bool" else 8).astype(
                    dtype.numpy
                ),
            )
        ]
    values = (steps / 4).astype(dtype.numpy)
    return [(values,), (values[:0],), (values[2:3],)]


def _histogram(label: str, **options: Any) -> Case:
    def expect(x: Array) -> Any:
        x = _floating(x)
        shown = dict(options)
        if "weights" in shown:
            shown["weights"] = np.array(shown["weights"])[: x.size]
        return tuple(np.histogram(x, **shown))

    def run(xp: Any, x: Any) -> Any:
        given = dict(options)
        if "weights" in given:
            given["weights"] = given["weights"][: x.size]
        return tuple(xp.histogram(x, **given))

    inputs = _quarters
    if "density" in options or "weights" in options:  # of nothing, density is NaN

        def inputs(dtype: DType) -> list[Inputs]:
            return _quarters(dtype)[:1]

    return Case(
        "histogram", run, expect, inputs, accepted("histogram"), lambda dtype: None, label=label
    )


def _indices(dtype: DType) -> list[Inputs]:
    return [(sample("bins", (20,), dtype, 0, 6),), (np.zeros((0,), dtype.numpy),)]


_SHARES: Final = [0.5, 1.0, 2.0, 0.25] * 5


def _counts() -> list[Case]:
    bincount = [
        Case("bincount", lambda xp, x: xp.bincount(x), lambda x: np.bincount(x.astype(np.int64)),
             _indices, accepted("bincount"), law("bincount")),
        Case("bincount", lambda xp, x: xp.bincount(x, minlength=9),
             lambda x: np.bincount(x.astype(np.int64), minlength=9), _indices,
             accepted("bincount"), law("bincount"), label="longer"),
        Case("bincount", lambda xp, x: xp.bincount(x, _SHARES),
             lambda x: np.bincount(x.astype(np.int64), _SHARES), lambda d: _indices(d)[:1],
             accepted("bincount"), lambda dtype: float32, label="weights"),
        Case("bincount", lambda xp, x: xp.bincount(x, [1, 2] * 10),
             lambda x: np.bincount(x.astype(np.int64), [1, 2] * 10), lambda d: _indices(d)[:1],
             accepted("bincount"), law("bincount"), label="whole"),
    ]  # fmt: skip
    digitize = [
        Case(
            "digitize",
            lambda xp, x, b=b, right=right: xp.digitize(
                x, xp.astype(xp.asarray(b), x.dtype), right=right
            ),
            lambda x, b=b, right=right: np.digitize(x, b, right=right),
            _plain("digitize", 0, 5),
            accepted("digitize") if b[0] < b[1] and not right else _SINGLE,
            law("digitize"),
            label=f"{'falls' if b[0] > b[1] else 'rises'}{'-right' if right else ''}",
        )
        for b in ([1, 2, 4], [4, 2, 1])
        for right in (False, True)
    ]
    return [
        _topk_case("", 3),
        _topk_case("smallest", 2, largest=False),
        _topk_case("axis", 2, axis=0, sorted=False),
        *(
            Case(
                "mode",
                lambda xp, x, o=options: xp.mode(x, **o),
                lambda x, o=options: _mode(x, **o),
                lambda dtype: _ties(dtype)[:1] + _inputs("mode", 0, 2)(dtype),
                accepted("mode"),
                lambda dtype: None,
                label=label,
            )
            for label, options in _AXES.items()
        ),
        *bincount,
        _histogram("", bins=4),
        _histogram("range", bins=8, range=(-1.0, 3.0)),
        _histogram("edges", bins=[-1.0, 0.0, 0.25, 2.0]),
        _histogram("density", bins=4, density=True),
        _histogram("weights", bins=4, weights=[0.5, 1.0, 2.0, 0.25] * 4),
        *digitize,
    ]


# --- Spread ---------------------------------------------------------------------------------

_TIMES: Final = [1, 2, 1, 3, 1]
_IMPORTANCE: Final = [0.5, 1.0, 2.0, 1.0, 0.25]


_PLANE: Final = (np.arange(1.0, 16).reshape(5, 3) / 4).tolist()


def _table(dtype: DType) -> list[Inputs]:
    return [(sample("table", (3, 5), dtype, -4, 4),)]


def _spread() -> list[Case]:
    runs: list[tuple[str, str, dict[str, Any]]] = [
        ("cov", "", {}),
        ("cov", "columns", {"rowvar": False, "bias": True}),
        ("cov", "times", {"fweights": _TIMES, "ddof": 2}),
        ("cov", "weights", {"fweights": _TIMES, "aweights": _IMPORTANCE}),
        ("corrcoef", "", {}),
        ("corrcoef", "columns", {"rowvar": False}),
    ]
    cases = [
        Case(
            op,
            lambda xp, x, op=op, o=options: getattr(xp, op)(x, **o),
            lambda x, op=op, o=options: getattr(np, op)(_floating(x), **o),
            _table,
            # Of truth values a row may be constant, whose correlation rounding decides.
            _SINGLE if label else tuple(d for d in accepted(op) if op == "cov" or d is not bool_),
            law(op),
            ulps=64,
            label=label,
        )
        for op, label, options in runs
    ]
    return [
        *cases,
        Case("cov", lambda xp, x: xp.cov(x[0], x[1]),
             lambda x: np.cov(_floating(x[0]), _floating(x[1])), _table, accepted("cov"),
             law("cov"), ulps=64, label="two"),
        Case("cov", lambda xp, x: xp.cov(x[0]), lambda x: np.cov(_floating(x[0])), _table,
             accepted("cov"), law("cov"), ulps=64, label="one"),
        Case("average", lambda xp, x: xp.average(x, 1, beside(xp, [1.0, 2.0, 0.5, 0.25, 1.0], x)),
             lambda x: np.average(x, 1, [1.0, 2.0, 0.5, 0.25, 1.0]), _table,
             accepted("average"), law("average"), ulps=64, label="weights"),
        Case("average", lambda xp, x: xp.average(x[:, None], (2, 0), beside(xp, _PLANE, x)),
             lambda x: np.average(_floating(x)[:, None], (2, 0), np.array(_PLANE)),
             _table, _SINGLE, law("average"), ulps=64, label="axes"),
        Case("average", lambda xp, x: xp.average(x, weights=xp.ones_like(x), keepdims=True),
             lambda x: np.average(_floating(x), keepdims=True), _table, accepted("average"),
             law("average"), ulps=64, label="all"),
        Case("average", lambda xp, x: xp.average(x, 0), lambda x: np.average(_floating(x), 0),
             _table, accepted("average"), law("average"), ulps=64),
        Case("gaussian", lambda xp, x: xp.gaussian(x), lambda x: _bell(x), _inputs("gaussian"),
             accepted("gaussian"), law("gaussian")),
        Case("gaussian", lambda xp, x: xp.gaussian(x, 1.5, std=2.0), lambda x: _bell(x, 1.5, 2.0),
             _inputs("gaussian"), accepted("gaussian"), law("gaussian"), label="moved"),
    ]  # fmt: skip


def _bell(x: Array, mean: float = 0.0, std: float = 1.0) -> Array:
    out: Array = np.exp(-(((_floating(x) - mean) / std) ** 2) / 2) / (std * np.sqrt(2 * np.pi))
    return out


# --- Reductions by other names, and those that leave NaN out --------------------------------


def _accumulated(op: str, reference: Callable[..., Any]) -> Callable[..., Any]:
    def expect(x: Array, **options: Any) -> Any:
        if x.dtype.kind in "biu":
            x = x.astype(law(op)(to_dtype(x.dtype)).numpy)
        return reference(x, **options)

    return expect


_FLAT: Final[dict[str, dict[str, Any]]] = {"": {}, "axis": {"axis": 1}}
_ONE: Final[dict[str, dict[str, Any]]] = {"": {}, "axis": {"axis": 1, "keepdims": True}}


def _named() -> list[Case]:
    cases: list[Case] = []
    for op in ("sum", "prod"):
        cases += _reductions(
            f"reduce_{op}", _accumulated(f"reduce_{op}", getattr(np, op)), _plain(op, 0.5, 2)
        )
        cases += _reductions(
            f"nan{op}", _accumulated(f"nan{op}", getattr(np, f"nan{op}")), _hollow(op)
        )
        cases += _reductions(
            f"cum{op}", _accumulated(f"cum{op}", getattr(np, f"cum{op}")), _plain(op, 0.5, 2), _FLAT
        )
        cases += _reductions(
            f"nancum{op}", _accumulated(f"nancum{op}", getattr(np, f"nancum{op}")), _hollow(op),
            _FLAT,
        )  # fmt: skip
    for op in ("max", "min"):
        reference = getattr(np, op)
        cases += _reductions(f"reduce_{op}", reference, _inputs(op))
        cases += _reductions(f"a{op}", reference, _inputs(op))
        cases += _reductions(f"nan{op}", getattr(np, f"nan{op}"), _hollow(op))
        cases += _reductions(f"nanarg{op}", getattr(np, f"nanarg{op}"), _inputs(op), _ONE)
    for op in ("all", "any"):
        cases += _reductions(f"reduce_{op}", getattr(np, op), _inputs(op, 0, 2))
    for op in ("mean", "var", "std"):
        cases += _reductions(f"reduce_{op}", _of_floats(getattr(np, op)), _inputs(op))
        cases += _reductions(f"nan{op}", _of_floats(getattr(np, f"nan{op}")), _hollow(op))
    for op in ("nanvar", "nanstd", "var", "std"):
        cases += _reductions(
            op, _of_floats(getattr(np, op)), _inputs(op), {"ddof": {"axis": 1, "ddof": 1}}
        )
    cases += _reductions("ptp", np.ptp, _inputs("ptp", 0, 9))
    cases += _reductions("reduce_logsumexp", _of_floats(_logsumexp), _inputs("lse"))
    return cases


def _logsumexp(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


def _numbers(dtype: DType) -> list[Inputs]:
    x = sample("numbers", (2, 3), dtype, -4, 4)
    if dtype.is_floating:
        x[0] = (np.nan, np.inf, -np.inf)
    return [(x,)]


def _to_num(**options: Any) -> Case:
    def expect(x: Array) -> Any:
        return np.nan_to_num(x, **options)

    return Case(
        "nan_to_num",
        lambda xp, x: xp.nan_to_num(x, **options),
        expect,
        _numbers,
        accepted("nan_to_num"),
        law("nan_to_num"),
    )


STATISTICS: Final[tuple[Case, ...]] = (
    *NUMERIC_CASES,
    *_quantiles(),
    *_counts(),
    *_spread(),
    *_named(),
    _to_num(nan=1.5, posinf=9.0, neginf=-8.0),
)
