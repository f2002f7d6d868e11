"""Activations against their formulas in float64, on edge values and at large arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml.dtypes import DType
from ember_ml.errors import AxisError, DomainError, DTypeError, ShapeError
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample
from ember_ml.testing.mistake import Mistake

__all__ = ["ACTIVATIONS", "MISTAKES"]

_INFINITIES: Final = (float("inf"), float("-inf"))
_FINITE: Final = (0.0, -0.0, 1.0, -1.0, float("nan"), 100.0, -100.0, -1000.0, 3.0, -3.0)
_SHAPES: Final = ((2, 3), (), (0, 3))


def _inputs(op: str, edges: tuple[float, ...]) -> Callable[[DType], list[Inputs]]:
    def make(dtype: DType) -> list[Inputs]:
        runs: list[Inputs] = [(sample(f"{op}{s}", s, dtype, -4, 4),) for s in _SHAPES]
        if dtype.is_floating:
            runs.append((np.array(edges, dtype=np.float64).astype(dtype.numpy),))
        return runs

    return make


def _case(
    op: str,
    formula: Callable[[Array], Any],
    options: dict[str, Any] | None = None,
    edges: tuple[float, ...] = _FINITE + _INFINITIES,
    label: str = "",
    ulps: float = 16,
) -> Case:
    given = options or {}
    return Case(
        op,
        lambda xp, x: getattr(xp, op)(x, **given),
        lambda x: formula(np.asarray(x, np.float64)),
        _inputs(op, edges),
        accepted(op),
        law(op),
        ulps,
        label,
    )


# --- The formulas -----------------------------------------------------------------------------


def _sigmoid(x: Array) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def _softplus(x: Array) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _erf(x: Array) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _gelu(x: Array) -> Any:
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)))


def _gelu_tanh(x: Array) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _relu6(x: Array) -> Array:
    return np.clip(x, 0, 6)


_SCALE: Final = 1.0507009873554805
_ALPHA: Final = 1.6732632423543773

_POINTWISE: Final = (
    _case("relu", lambda x: np.maximum(x, 0)),
    _case("relu6", _relu6),
    _case("relu_squared", lambda x: np.square(np.maximum(x, 0))),
    _case("leaky_relu", lambda x: np.where(x >= 0, x, 0.01 * x)),
    _case("leaky_relu", lambda x: np.where(x >= 0, x, 0.3 * x), {"negative_slope": 0.3},
          label="slope"),
    _case("threshold", lambda x: np.where(x <= 0.5, -7, x), {"threshold": 0.5, "value": -7}),
    _case("hard_tanh", lambda x: np.clip(x, -1, 1)),
    _case("hard_tanh", lambda x: np.clip(x, -0.5, 2), {"min_val": -0.5, "max_val": 2},
          label="range"),
    _case("hard_sigmoid", lambda x: _relu6(x + 3) / 6),
    _case("hard_swish", lambda x: x * _relu6(x + 3) / 6),
    _case("hard_shrink", lambda x: np.where(np.abs(x) <= 0.5, 0, x)),
    _case("hard_shrink", lambda x: np.where(np.abs(x) <= 2, 0, x), {"lambd": 2}, label="two"),
    _case("soft_shrink", lambda x: x - np.clip(x, -0.5, 0.5)),
    _case("soft_shrink", lambda x: x - np.clip(x, -2, 2), {"lambd": 2}, label="two"),
    _case("sigmoid", _sigmoid),
    _case("log_sigmoid", lambda x: -_softplus(-x)),
    _case("softplus", lambda x: np.where(x > 20, x, _softplus(x))),
    _case("softplus", lambda x: np.where(2 * x > 1, x, _softplus(2 * x) / 2),
          {"beta": 2, "threshold": 1}, label="beta"),
    _case("softsign", lambda x: x / (1 + np.abs(x))),
    _case("tanhshrink", lambda x: x - np.tanh(x)),
    _case("lecun_tanh", lambda x: 1.7159 * np.tanh(2 * x / 3)),
    _case("elu", lambda x: _elu(x, 1)),
    _case("elu", lambda x: _elu(x, 0.4), {"alpha": 0.4}, label="alpha"),
    _case("selu", lambda x: _SCALE * _elu(x, _ALPHA)),
    _case("celu", lambda x: _elu(x, 1)),
    _case("celu", lambda x: np.where(x > 0, x, 0.4 * np.expm1(np.minimum(x, 0) / 0.4)),
          {"alpha": 0.4}, label="alpha"),
    _case("silu", lambda x: x * _sigmoid(x)),
    _case("mish", lambda x: x * np.tanh(_softplus(x))),
    # In torch's fused kernel 1 + erf(x) cancels below zero: its errors are those of x in units of
    # the last place, not of the small result; and gelu(inf) is NaN in float32 alone.
    _case("gelu", _gelu, edges=_FINITE, ulps=64),
    _case("gelu", _gelu, {"approximate": False}, edges=_FINITE, label="false", ulps=64),
    _case("gelu", _gelu_tanh, {"approximate": "tanh"}, edges=_FINITE, label="tanh"),
)  # fmt: skip


# --- Along an axis ----------------------------------------------------------------------------


def _log_softmax(x: Array, axis: int) -> Any:
    if not x.size:
        return x
    shifted = x - np.max(x, axis=axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def _softmax(x: Array, axis: int) -> Any:
    return np.exp(_log_softmax(x, axis))


def _rows(op: str) -> Callable[[DType], list[Inputs]]:
    def make(dtype: DType) -> list[Inputs]:
        shapes = ((2, 4), (4,), (0, 4), (2, 0), (2, 3, 4))
        runs: list[Inputs] = [(sample(f"{op}{s}", s, dtype, -4, 4),) for s in shapes]
        if dtype.is_floating:
            inf, nan = float("inf"), float("nan")
            rows = [
                [1000.0, 1000.0, 999.0, -1000.0],
                [-inf, 0.0, 1.0, -inf],
                [-inf, -inf, -inf, -inf],
                [nan, 0.0, 0.0, 0.0],
                [inf, 0.0, 0.0, 0.0],
            ]
            runs.append((np.array(rows, np.float64).astype(dtype.numpy),))
        return runs

    return make


def _along(op: str, formula: Callable[[Array, int], Any], axis: int = -1) -> Case:
    def run(xp: Any, x: Any) -> Any:
        return getattr(xp, op)(x) if axis == -1 else getattr(xp, op)(x, axis=axis)

    def inputs(dtype: DType) -> list[Inputs]:
        # Along the first axis, the last row would make NaN of all columns.
        return [x for x in _rows(op)(dtype) if axis == -1 or x[0].shape in ((2, 4), (4,))]

    return Case(op, run, lambda x: formula(np.asarray(x, np.float64), axis), inputs, accepted(op),
                law(op), label="" if axis == -1 else f"axis{axis}")  # fmt: skip


def _gated(gate: Callable[[Array], Array]) -> Callable[[Array, int], Array]:
    def formula(x: Array, axis: int) -> Array:
        value, gates = np.split(x, 2, axis)
        return value * gate(gates)

    return formula


def _halved(op: str, formula: Callable[[Array, int], Any], axis: int = -1, **options: Any) -> Case:
    def run(xp: Any, x: Any) -> Any:
        return getattr(xp, op)(x, axis=axis, **options)

    def inputs(dtype: DType) -> list[Inputs]:
        shapes = ((2, 4), (4,), (0, 4)) if axis == -1 else ((2, 3),)
        return [(sample(f"{op}{s}", s, dtype, -4, 4),) for s in shapes]

    label = "-".join(([] if axis == -1 else [f"axis{axis}"]) + list(map(str, options.values())))
    return Case(op, run, lambda x: formula(np.asarray(x, np.float64), axis), inputs, accepted(op),
                law(op), label=label)  # fmt: skip


_ALONG: Final = (
    _along("softmax", _softmax),
    _along("softmax", _softmax, 0),
    _along("softmin", lambda x, axis: _softmax(-x, axis)),
    _along("log_softmax", _log_softmax),
    _along("log_softmax", _log_softmax, 0),
    _halved("glu", _gated(_sigmoid)),
    _halved("glu", _gated(_sigmoid), 0),
    _halved("swiglu", _gated(lambda x: x * _sigmoid(x))),
    _halved("swiglu", _gated(lambda x: x * _sigmoid(x)), 0),
    _halved("geglu", _gated(_gelu)),
    _halved("geglu", _gated(_gelu_tanh), 0, approximate="tanh"),
)


def _prelu(x: Array, weight: Array) -> Array:
    x, weight = np.asarray(x, np.float64), np.asarray(weight, np.float64)
    shape = (-1, *(1,) * (x.ndim - 2)) if x.ndim > 1 else x.shape and (1,)
    return np.where(x >= 0, x, x * weight.reshape(shape))


def _prelu_inputs(dtype: DType) -> list[Inputs]:
    pairs: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((2, 3), (3,)), ((2, 3), (1,)), ((2, 3, 2), (3,)), ((3,), ()), ((), (1,)), ((0, 3), (3,)),
    )  # fmt: skip
    return [
        (sample(f"prelu{a}", a, dtype, -4, 4), sample(f"weight{b}", b, dtype, 0.1, 2))
        for a, b in pairs
    ]


ACTIVATIONS: Final[tuple[Case, ...]] = (
    *_POINTWISE,
    *_ALONG,
    Case("prelu", lambda xp, x, w: xp.prelu(x, w), _prelu, _prelu_inputs, accepted("prelu"),
         law("prelu")),
)  # fmt: skip


def _no_number(op: str, option: str, value: Any, /, **others: Any) -> Mistake:
    return Mistake(f"{op}-{option}-{value}", DTypeError,
                   lambda xp: getattr(xp, op)(xp.ones(2), **{option: value}, **others),
                   (f"ops.{op} ", option, repr(value)))  # fmt: skip


MISTAKES: Final[tuple[Mistake, ...]] = (
    *(_no_number(op, option, value)
      for op, option in (("leaky_relu", "negative_slope"), ("elu", "alpha"), ("celu", "alpha"),
                         ("softplus", "beta"), ("softplus", "threshold"), ("hard_tanh", "min_val"),
                         ("hard_tanh", "max_val"), ("hard_shrink", "lambd"),
                         ("soft_shrink", "lambd"))
      for value in ("a", "1", None)),
    _no_number("threshold", "threshold", "a", value=0.0),
    _no_number("threshold", "value", None, threshold=0.0),
    Mistake("elu-huge", DomainError, lambda xp: xp.elu(xp.ones(2), 10**400), ("ops.elu", "alpha")),
    Mistake("softmax-axis", AxisError, lambda xp: xp.softmax(xp.ones((2, 3)), axis=2),
            ("ops.softmax", "axis 2")),
    Mistake("softmax-0d", AxisError, lambda xp: xp.softmax(xp.ones(())), ("ops.softmax",)),
    Mistake("log_softmax-axis", AxisError, lambda xp: xp.log_softmax(xp.ones((2, 3)), axis=-3)),
    Mistake("glu-odd", ShapeError, lambda xp: xp.glu(xp.ones((2, 3))), ("ops.glu", "(2, 3)")),
    Mistake("swiglu-odd", ShapeError, lambda xp: xp.swiglu(xp.ones((3,)))),
    Mistake("geglu-axis", AxisError, lambda xp: xp.geglu(xp.ones((2,)), axis=1)),
    Mistake("prelu-weights", ShapeError, lambda xp: xp.prelu(xp.ones((2, 3)), xp.ones((2,))),
            ("ops.prelu", "[2, 3]", "(2,)")),
    Mistake("prelu-matrix", ShapeError, lambda xp: xp.prelu(xp.ones((2, 3)), xp.ones((1, 3)))),
    Mistake("gelu-approximate", DomainError, lambda xp: xp.gelu(xp.ones(2), approximate="erf"),
            ("ops.gelu", "'erf'")),
    Mistake("softplus-beta", DomainError, lambda xp: xp.softplus(xp.ones(2), beta=0)),
    Mistake("celu-alpha", DomainError, lambda xp: xp.celu(xp.ones(2), alpha=0)),
    Mistake("hard_tanh-range", DomainError, lambda xp: xp.hard_tanh(xp.ones(2), 2, 1)),
    Mistake("soft_shrink-negative", DomainError, lambda xp: xp.soft_shrink(xp.ones(2), -1)),
    Mistake("activation-name", DomainError, lambda xp: xp.get_activation("rely"),
            ("'rely'", "relu", "softmax")),
    Mistake("activation-number", DTypeError, lambda xp: xp.get_activation(3), ("3",)),
)  # fmt: skip
