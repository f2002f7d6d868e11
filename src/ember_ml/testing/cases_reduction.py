"""Reductions: over all axes, one, a negative one, several, kept or not, of empty tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample

__all__ = ["REDUCTIONS"]

_AXES: Final[dict[str, dict[str, Any]]] = {
    "all-axes": {},
    "axis0": {"axis": 0},
    "last-kept": {"axis": -1, "keepdims": True},
    "two": {"axis": (0, 2)},
    "none-of-them": {"axis": ()},
}


def _inputs(op: str, *, empty: bool) -> Callable[[DType], list[Inputs]]:
    def make(dtype: DType) -> list[Inputs]:
        runs: list[Inputs] = [(sample(op, (2, 3, 4), dtype, 0.5, 2),)]
        if empty:
            runs.append((np.zeros((0, 3, 4), dtype.numpy),))
        if dtype.is_floating:
            edges = sample(op, (2, 3, 4), dtype, -2, 2)
            edges[0, 0, 0], edges[1, 1, 1], edges[1, 2, 3] = np.nan, np.inf, 0.0
            runs.append((edges,))
        return runs

    return make


def _in(accumulator: Callable[[DType], DType], reference: Callable[..., Any]) -> Any:
    """A reference that adds small integers in the accumulator's dtype."""

    def expect(x: Array, **options: Any) -> Any:
        if x.dtype.kind in "biu":
            x = x.astype(accumulator(dtypes.to_dtype(x.dtype)).numpy)
        return reference(x, **options)

    return expect


def _plain(reference: Callable[..., Any]) -> Any:
    return reference


_REFERENCES: Final[dict[str, tuple[Callable[..., Any], bool]]] = {
    "all": (np.all, True),
    "any": (np.any, True),
    "count_nonzero": (np.count_nonzero, True),
    "max": (np.max, False),
    "min": (np.min, False),
    "sum": (_in(law("sum"), np.sum), True),
    "prod": (_in(law("prod"), np.prod), True),
    "mean": (lambda x, **k: np.mean(x, dtype=None if x.dtype.kind == "c" else float, **k), True),
    "var": (lambda x, **k: np.var(x.astype(float), **k), False),
    "std": (lambda x, **k: np.std(x.astype(float), **k), False),
}


def _cases(op: str) -> list[Case]:
    reference, empty = _REFERENCES[op]
    return [
        Case(
            op,
            lambda xp, x, options=options: getattr(xp, op)(x, **options),
            lambda x, options=options: reference(x, **options),
            _inputs(op, empty=empty and label == "all-axes"),
            accepted(op),
            law(op),
            ulps=64,
            label=label,
        )
        for label, options in _AXES.items()
        if not (op == "count_nonzero" and label == "none-of-them")
    ]


def _finite(op: str, low: float = -2, high: float = 2) -> Callable[[DType], list[Inputs]]:
    return lambda dtype: [(sample(op, (2, 3, 4), dtype, low, high),)]


def _parts(dtype: DType) -> list[Inputs]:
    i = 1j if dtype.is_complex else 1.0
    rows = [[i, 2], [i, 0], [0, -0.0], [np.nan * i, 1], [np.inf, -1e-30 * i]]
    return [(np.array(rows, dtype.numpy),)]


_NUMERIC: Final = tuple(d for d in dtypes.ALL if d is not dtypes.bool)
_FLOATS: Final = tuple(d for d in dtypes.ALL if d.is_floating)


def _cumulative(op: str, reference: Callable[..., Any]) -> list[Case]:
    expect = _in(law(op), reference)

    def with_initial(x: Array) -> Array:
        out = expect(x, axis=-1)
        first = np.full((2, 3, 1), 0 if op.endswith("sum") else 1, out.dtype)
        return np.concatenate([first, out], axis=-1)

    return [
        Case(
            op,
            lambda xp, x: getattr(xp, op)(x, axis=1),
            lambda x: expect(x, axis=1),
            _finite(op),
            _NUMERIC,
            law(op),
            ulps=64,
        ),
        Case(
            op,
            lambda xp, x: getattr(xp, op)(x, axis=-1, include_initial=True),
            with_initial,
            _finite(op),
            _NUMERIC,
            law(op),
            ulps=64,
            label="initial",
        ),
        Case(
            op,
            lambda xp, x: getattr(xp, op)(x, dtype="float64"),
            lambda x: reference(x.astype(float)),
            lambda dtype: [(sample(op, (5,), dtype, 0, 2),), (np.zeros((0,), dtype.numpy),)],
            tuple(d for d in _NUMERIC if not d.is_complex),
            lambda dtype: dtypes.float64,
            ulps=64,
            label="dtype",
        ),
    ]


def _others() -> list[Case]:
    return [
        Case("sum", lambda xp, x: xp.sum(x, dtype="float64"), lambda x: np.sum(x, dtype=float),
             _finite("sum"), tuple(d for d in dtypes.ALL if not d.is_complex),
             lambda dtype: dtypes.float64, ulps=64, label="dtype"),
        *(
            Case(op, lambda xp, x, op=op: getattr(xp, op)(x, axis=1),
                 lambda x, op=op: getattr(np, op)(x, axis=1),
                 lambda dtype: [(np.full((2, 20_001), 0.1).astype(dtype.numpy),)],
                 (dtypes.float32, dtypes.float64), ulps=64, label="long")
            for op in ("sum", "mean")
        ),
        # A number is true by any of its parts, and so is NaN.
        *(
            Case(op, lambda xp, x, op=op: getattr(xp, op)(x, axis=1),
                 lambda x, op=op: getattr(np, op)(x, axis=1), _parts,
                 tuple(d for d in dtypes.ALL if d.is_inexact), law(op), label="parts")
            for op in ("all", "any", "count_nonzero")
        ),
        Case("var", lambda xp, x: xp.var(x, axis=1, correction=1),
             lambda x: np.var(x, axis=1, ddof=1), _finite("var"), _FLOATS, ulps=64,
             label="correction"),
        Case("std", lambda xp, x: xp.std(x, correction=0.5),
             lambda x: np.sqrt(np.var(x) * x.size / (x.size - 0.5)), _finite("std"), _FLOATS,
             ulps=64, label="correction"),
        Case("diff", lambda xp, x: xp.diff(x), np.diff, _finite("diff"), _NUMERIC),
        Case("diff", lambda xp, x: xp.diff(x, axis=0, n=2, prepend=x, append=x),
             lambda x: np.diff(x, axis=0, n=2, prepend=x, append=x), _finite("diff"), _NUMERIC,
             label="second"),
        Case("argmax", lambda xp, x: xp.argmax(x), np.argmax, _finite("argmax"),
             accepted("argmax"), law("argmax")),
        Case("argmax", lambda xp, x: xp.argmax(x, axis=1, keepdims=True),
             lambda x: np.argmax(x, axis=1, keepdims=True), _finite("argmax"),
             accepted("argmax"), law("argmax"), label="axis"),
        Case("argmin", lambda xp, x: xp.argmin(x, axis=-1), lambda x: np.argmin(x, axis=-1),
             _finite("argmin"), accepted("argmin"), law("argmin")),
        Case("argmin", lambda xp, x: xp.argmin(x, keepdims=True),
             lambda x: np.argmin(x, keepdims=True), _finite("argmin"),
             accepted("argmin"), law("argmin"), label="kept"),
    ]  # fmt: skip


REDUCTIONS: Final[tuple[Case, ...]] = (
    *(case for op in _REFERENCES for case in _cases(op)),
    *_cumulative("cumulative_sum", np.cumsum),
    *_cumulative("cumulative_prod", np.cumprod),
    *_others(),
)
