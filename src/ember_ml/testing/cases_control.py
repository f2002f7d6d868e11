"""Cases and mistakes of control."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import AxisError, DomainError, DTypeError, OutOfBoundsError, ShapeError
from ember_ml.testing.case import Array, Case, Inputs, sample
from ember_ml.testing.mistake import Mistake

__all__ = ["CONTROL", "MISTAKES"]

_NUMERIC: Final = tuple(d for d in dtypes.ALL if d is not dtypes.bool)


def _rows(dtype: DType) -> list[Inputs]:
    return [(sample("rows", (3, 2), dtype, -9, 9),)]


def _none(dtype: DType) -> list[Inputs]:
    return [(sample("none", (0, 2), dtype, -9, 9),)]


def _small(dtype: DType) -> list[Inputs]:
    return [(sample("small", (5, 2), dtype, 0, 3),)]


def _moves(
    op: str,
    run: Callable[..., Any],
    expect: Callable[..., Any],
    label: str = "",
    inputs: Callable[[DType], list[Inputs]] = _rows,
) -> Case:
    """A case that only moves values, so that every dtype has it."""
    return Case(op, run, expect, inputs, dtypes.ALL, label=label)


def _cond(pred: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda xp, x: xp.cond(pred(x), lambda x: xp.flip(x, axis=0), lambda x: x[:, ::-1], x)


def _shifted(x: Array) -> tuple[Array, Array]:
    return x[-1], np.concatenate([x[:1], x[:-1]])


def _while(xp: Any, x: Any) -> Any:
    def body(carry: Any) -> Any:
        return {"i": carry["i"] + 1, "x": xp.roll(carry["x"], 1, axis=0)}

    return xp.while_loop(lambda carry: carry["i"] < 2, body, {"i": 0, "x": x})["x"]


CONTROL: Final[tuple[Case, ...]] = (
    _moves("cond", _cond(lambda x: True), lambda x: x[::-1], "true"),
    _moves("cond", _cond(lambda x: x.ndim == 1), lambda x: x[:, ::-1], "false"),
    _moves("cond", _cond(lambda x: (x == x).any()), lambda x: x[::-1], "tensor"),
    _moves(
        "switch",
        lambda xp, x: xp.switch(1, [lambda x: x, lambda x: x[1:], lambda x: x[:1]], x),
        lambda x: x[1:],
    ),
    _moves("while_loop", _while, lambda x: np.roll(x, 2, axis=0)),
    _moves(
        "fori_loop",
        lambda xp, x: xp.fori_loop(0, 2, lambda i, c: xp.roll(c, 1, axis=0), x),
        lambda x: np.roll(x, 2, axis=0),
    ),
    _moves("scan", lambda xp, x: xp.scan(lambda c, x: (x, c), x[0], x), _shifted),
    _moves(
        "scan",
        lambda xp, x: xp.scan(lambda c, x: (x, c), x[-1], x, reverse=True),
        lambda x: (x[0], np.concatenate([x[1:], x[-1:]])),
        "reverse",
    ),
    _moves(
        "scan",
        lambda xp, x: xp.scan(lambda c, x: (c, x), xp.zeros_like(x), x),
        lambda x: (x, x),
        "empty",
        _none,
    ),
    _moves("map_fn", lambda xp, x: xp.map_fn(lambda row: row[::-1], x), lambda x: x[:, ::-1]),
    _moves(
        "map_fn", lambda xp, x: xp.map_fn(lambda row: row[0], x), lambda x: x[:, 0], "empty", _none
    ),
    _moves(
        "associative_scan",
        lambda xp, x: xp.associative_scan(lambda a, b: a, x),
        lambda x: np.broadcast_to(x[:1], x.shape),
        "first",
    ),
    Case(
        "associative_scan",
        lambda xp, x: xp.associative_scan(lambda a, b: a + b, x, axis=0),
        lambda x: np.cumsum(x, axis=0, dtype=x.dtype),
        _small,
        _NUMERIC,
        label="sum",
    ),
    _moves("vmap", lambda xp, x: xp.vmap(lambda row: row[::-1])(x), lambda x: x[:, ::-1]),
    _moves(
        "vmap",
        lambda xp, x: xp.vmap(lambda a, b: (a, b[0]), in_axes=(1, None), out_axes=(1, 0))(x, x),
        lambda x: (x, np.broadcast_to(x[0], (2, 2))),
        "axes",
    ),
    _moves("vmap", lambda xp, x: xp.vmap(lambda row: row)(x), lambda x: x, "empty", _none),
    _moves(
        "vectorize",
        lambda xp, x: xp.vectorize(lambda row: row[::-1], signature="(n)->(n)")(x),
        lambda x: x[:, ::-1],
    ),
)


def _carry(body: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda xp: xp.fori_loop(0, 2, lambda i, c: body(xp, c), {"h": xp.ones((2,))})


MISTAKES: Final[tuple[Mistake, ...]] = (
    Mistake(
        "cond-many",
        ShapeError,
        lambda xp: xp.cond(xp.ones((2,)) > 0, lambda: 1, lambda: 2),
        ("ops.cond", "(2,)", "ops.any"),
    ),
    Mistake(
        "cond-text",
        DTypeError,
        lambda xp: xp.cond(True, lambda x: x, lambda x: x, {"name": "text"}),
        ("ops.cond", "operands[0]['name']"),
    ),
    Mistake(
        "switch-beyond",
        OutOfBoundsError,
        lambda xp: xp.switch(2, [lambda: 1, lambda: 2]),
        ("ops.switch", "2 branches"),
    ),
    Mistake("switch-float", DTypeError, lambda xp: xp.switch(1.0, [lambda: 1]), ("float32",)),
    Mistake("switch-many", ShapeError, lambda xp: xp.switch([0, 1], [lambda: 1]), ("ops.switch",)),
    Mistake("switch-nothing", DomainError, lambda xp: xp.switch(0, []), ("ops.switch",)),
    Mistake(
        "while-many",
        ShapeError,
        lambda xp: xp.while_loop(lambda c: c > 0, lambda c: c, xp.ones((3,))),
        ("ops.while_loop", "(3,)"),
    ),
    Mistake(
        "carry-dtype",
        DTypeError,
        _carry(lambda xp, c: {"h": c["h"] > 0}),
        ("ops.fori_loop", "carry['h']", "float32[2]", "bool[2]"),
    ),
    Mistake(
        "carry-shape",
        ShapeError,
        _carry(lambda xp, c: {"h": c["h"][:1]}),
        ("carry['h']", "float32[2]", "float32[1]"),
    ),
    Mistake(
        "carry-tree",
        ShapeError,
        _carry(lambda xp, c: [c["h"]]),
        ("ops.fori_loop", "a dict with keys 'h'", "a list of 1"),
    ),
    Mistake(
        "fori-float",
        DTypeError,
        lambda xp: xp.fori_loop(0, 2.5, lambda i, c: c, 0),
        ("ops.fori_loop", "upper", "float32"),
    ),
    Mistake(
        "fori-many",
        ShapeError,
        lambda xp: xp.fori_loop(xp.asarray([1]), 2, lambda i, c: c, 0),
        ("lower", "(1,)"),
    ),
    Mistake(
        "scan-lengths",
        ShapeError,
        lambda xp: xp.scan(lambda c, x: (c, x), 0, {"a": xp.ones((2,)), "b": xp.ones((3,))}),
        ("ops.scan", "xs['a'] of 2", "xs['b'] of 3"),
    ),
    Mistake(
        "scan-length",
        ShapeError,
        lambda xp: xp.scan(lambda c, x: (c, x), 0, xp.ones((2,)), 3),
        ("length of 3", "xs of 2"),
    ),
    Mistake("scan-0d", ShapeError, lambda xp: xp.scan(lambda c, x: (c, x), 0, 1.0), ("xs is 0-d",)),
    Mistake("scan-nothing", DomainError, lambda xp: xp.scan(lambda c, x: (c, x), 0), ("length",)),
    Mistake("scan-negative", DomainError, lambda xp: xp.scan(lambda c, x: (c, x), 0, None, -1)),
    Mistake(
        "scan-no-pair",
        ShapeError,
        lambda xp: xp.scan(lambda c, x: c, xp.ones((3,)), xp.ones((2,))),
        ("ops.scan", "(carry, y)"),
    ),
    Mistake(
        "associative-lengths",
        ShapeError,
        lambda xp: xp.associative_scan(lambda a, b: a, (xp.ones((2, 3)), xp.ones((2,))), axis=-1),
        ("ops.associative_scan", "xs[0] of length 3", "xs[1] of 2"),
    ),
    Mistake(
        "associative-axis",
        AxisError,
        lambda xp: xp.associative_scan(lambda a, b: a, xp.ones((2,)), axis=1),
    ),
    Mistake(
        "associative-result",
        ShapeError,
        lambda xp: xp.associative_scan(lambda a, b: a[:, :1], xp.ones((4, 2))),
        ("ops.associative_scan",),
    ),
    Mistake(
        "vmap-sizes",
        ShapeError,
        lambda xp: xp.vmap(lambda x, y: x)(xp.ones((2,)), y=xp.ones((3,))),
        ("ops.vmap", "2 of args[0]", "3 of kwargs['y']"),
    ),
    Mistake(
        "vmap-axis",
        AxisError,
        lambda xp: xp.vmap(lambda x: x, in_axes=1)(xp.ones((2,))),
        ("ops.vmap", "args[0]", "(2,)"),
    ),
    Mistake(
        "vmap-inner",
        ShapeError,
        lambda xp: xp.vmap(lambda x: xp.matmul(x, x))(xp.ones((4, 2, 3))),
        ("ops.matmul", "float32[2, 3]"),
    ),
    Mistake("vmap-no-batch", DomainError, lambda xp: xp.vmap(lambda: 1)(), ("ops.vmap",)),
    Mistake(
        "vectorize-core",
        ShapeError,
        lambda xp: xp.vectorize(lambda x: x, signature="(n,n)->()")(xp.ones((2, 3))),
        ("ops.vectorize", "axis n", "args[0]"),
    ),
    Mistake(
        "vectorize-signature",
        DomainError,
        lambda xp: xp.vectorize(lambda x: x, signature="n->n"),
        ("ops.vectorize", "n->n"),
    ),
)
