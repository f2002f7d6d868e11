"""Dropout: each case draws from a known stream, and the reference from NumPy's Philox by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import AxisError, DomainError, DTypeError
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample
from ember_ml.testing.mistake import Mistake

__all__ = ["DROPPING", "MISTAKES"]

_SEED: Final = 20_240_607
_FLOATS: Final = tuple(d for d in dtypes.ALL if d.is_floating)
_SHAPES: Final = ((3, 4), (), (0, 2), (2, 3, 2))


def _kept(shape: tuple[int, ...], p: float) -> Array:
    draws = np.random.Generator(np.random.Philox(key=_SEED, counter=[0, 0, 0, 0]))
    return np.asarray(draws.random(shape) < 1 - p)


def _plain(x: Array, p: float, shape: tuple[int, ...]) -> Array:
    return np.asarray(np.where(_kept(shape, p), x / (1 - p), 0.0))


def _alpha(x: Array, p: float, shape: tuple[int, ...]) -> Array:
    """Values or the limit of SELU, scaled and moved so that a unit normal stays one."""
    limit = -1.0507009873554804934193349852946 * 1.6732632423543772848170429916717
    scale = 1 / math.sqrt((1 - p) * (1 + p * limit**2))
    return np.asarray(scale * np.where(_kept(shape, p), x, limit) - scale * p * limit)


_REFERENCES: Final = {"dropout": _plain, "alpha_dropout": _alpha}


def _inputs(*shapes: tuple[int, ...]) -> Callable[[DType], list[Inputs]]:
    return lambda dtype: [(sample(f"dropout{s}", s, dtype, -2, 2),) for s in shapes]


def _case(
    op: str,
    label: str,
    expect: Callable[[Array], Array],
    *shapes: tuple[int, ...],
    over: tuple[DType, ...] = _FLOATS,
    **options: Any,
) -> Case:
    def run(xp: Any, x: Any) -> Any:
        return getattr(xp, op)(x, generator=xp.random.Generator(_SEED), **options)

    def reference(x: Array) -> Array:
        return expect(np.asarray(x, np.float64))

    return Case(op, run, reference, _inputs(*shapes), over, law(op), 16, label)


def _cases(op: str) -> tuple[Case, ...]:
    drop = _REFERENCES[op]
    return (
        _case(op, "", lambda x: drop(x, 0.4, x.shape), *_SHAPES, over=accepted(op), p=0.4),
        _case(op, "axis", lambda x: drop(x, 0.25, (x.shape[0], 1)), (5, 4), p=0.25, axis=0),
        _case(op, "axes", lambda x: drop(x, 0.25, (2, 1, 3)), (2, 2, 3), p=0.25, axis=(0, -1)),
        _case(op, "none", lambda x: x, (3, 4), p=0),
        _case(op, "all", np.zeros_like, (3, 4), p=1),
        _case(op, "use", lambda x: x, (3, 4), p=0.5, training=False),
    )


DROPPING: Final[tuple[Case, ...]] = (*_cases("dropout"), *_cases("alpha_dropout"))


def _mistakes(op: str) -> tuple[Mistake, ...]:
    def call(*args: Any, **options: Any) -> Callable[[Any], Any]:
        return lambda xp: getattr(xp, op)(xp.ones((2, 3)), *args, **options)

    return (
        Mistake(f"{op}-p", DomainError, call(1.5), (f"ops.{op}", "p=1.5", "from 0 to 1")),
        Mistake(f"{op}-nan", DomainError, call(float("nan")), (f"ops.{op}",)),
        Mistake(f"{op}-text", DTypeError, call("half"), (f"ops.{op}", "str")),
        Mistake(f"{op}-axis", AxisError, call(0.5, axis=2), (f"ops.{op}",)),
        Mistake(f"{op}-complex", DTypeError,
                lambda xp: getattr(xp, op)(xp.ones(2, dtype="complex64")), ("complex64",)),
    )  # fmt: skip


MISTAKES: Final[tuple[Mistake, ...]] = (*_mistakes("dropout"), *_mistakes("alpha_dropout"))
