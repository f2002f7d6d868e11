"""Elementwise ops: each on every dtype, in three shapes, on edge values, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample

__all__ = ["ELEMENTWISE"]

_EDGES: Final = (0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"))


def _unary_inputs(op: str, low: float, high: float) -> Callable[[DType], list[Inputs]]:
    def make(dtype: DType) -> list[Inputs]:
        shapes = ((2, 3), (), (0, 3))
        runs: list[Inputs] = [(sample(f"{op}{s}", s, dtype, low, high),) for s in shapes]
        if dtype.is_floating:
            runs.append((np.array(_EDGES, dtype=np.float64).astype(dtype.numpy),))
        return runs

    return make


def _binary_inputs(
    op: str, low: float, high: float, low2: float, high2: float
) -> Callable[[DType], list[Inputs]]:
    def make(dtype: DType) -> list[Inputs]:
        pairs = (((2, 3), (2, 3)), ((), ()), ((2, 1), (3,)), ((0, 3), (3,)), ((), (2,)))
        runs: list[Inputs] = [
            (
                sample(f"{op}a{a}", a, dtype, low, high),
                sample(f"{op}b{b}", b, dtype, low2, high2),
            )
            for a, b in pairs
        ]
        if dtype.is_floating:
            edges = np.array(_EDGES, dtype=np.float64).astype(dtype.numpy)
            runs.append((edges[:, None].copy(), edges[None, :].copy()))
        return runs

    return make


# Reference and range of the sample. References get float64 and complex128, integers as they are.
_UNARY: Final[dict[str, tuple[Callable[..., Any], float, float]]] = {
    "abs": (np.abs, -9, 9),
    "acos": (np.arccos, -0.9, 0.9),
    "acosh": (np.arccosh, 1.1, 9),
    "asin": (np.arcsin, -0.9, 0.9),
    "asinh": (np.arcsinh, -9, 9),
    "atan": (np.arctan, -9, 9),
    "atanh": (np.arctanh, -0.9, 0.9),
    "bitwise_invert": (np.invert, -9, 9),
    "ceil": (np.ceil, -9, 9),
    "conj": (np.conj, -9, 9),
    "cos": (np.cos, -9, 9),
    "cosh": (np.cosh, -4, 4),
    "exp": (np.exp, -4, 4),
    "expm1": (np.expm1, -4, 4),
    "floor": (np.floor, -9, 9),
    "imag": (np.imag, -9, 9),
    "isfinite": (np.isfinite, -9, 9),
    "isinf": (np.isinf, -9, 9),
    "isnan": (np.isnan, -9, 9),
    "log": (np.log, 0.1, 9),
    "log1p": (np.log1p, -0.5, 9),
    "log2": (np.log2, 0.1, 9),
    "log10": (np.log10, 0.1, 9),
    "logical_not": (np.logical_not, -2, 2),
    "negative": (np.negative, -9, 9),
    "positive": (np.positive, -9, 9),
    "real": (np.real, -9, 9),
    "reciprocal": (lambda x: 1.0 / x, 0.5, 9),
    "round": (np.round, -9, 9),
    "sign": (np.sign, -9, 9),
    "signbit": (lambda x: np.signbit(np.where(np.isnan(x), 0.0, x)), -9, 9),
    "sin": (np.sin, -9, 9),
    "sinh": (np.sinh, -4, 4),
    "square": (np.square, -9, 9),
    "sqrt": (np.sqrt, 0.1, 9),
    "tan": (np.tan, -1.2, 1.2),
    "tanh": (np.tanh, -4, 4),
    "trunc": (np.trunc, -9, 9),
}


def _floor_divide(x: Array, y: Array) -> Array:
    if x.dtype.kind != "f":
        return np.floor_divide(x, y)
    # With one infinite operand the standard gives the quotient: an infinity, or a signed zero.
    quotient = np.divide(x, y)
    one_infinite = (np.isinf(x) != np.isinf(y)) & ~np.isnan(x) & ~np.isnan(y)
    return np.where(one_infinite, quotient, np.floor_divide(x, y))


def _remainder(x: Array, y: Array) -> Array:
    return np.remainder(x, y)


_BINARY: Final[dict[str, tuple[Callable[..., Any], float, float, float, float]]] = {
    "add": (np.add, -9, 9, -9, 9),
    "atan2": (np.arctan2, -9, 9, -9, 9),
    "bitwise_and": (np.bitwise_and, -9, 9, -9, 9),
    "bitwise_left_shift": (np.left_shift, -3, 3, 0, 3),
    "bitwise_or": (np.bitwise_or, -9, 9, -9, 9),
    "bitwise_right_shift": (np.right_shift, -9, 9, 0, 3),
    "bitwise_xor": (np.bitwise_xor, -9, 9, -9, 9),
    "copysign": (lambda x, y: np.copysign(x, np.where(np.isnan(y), 1.0, y)), -9, 9, -9, 9),
    "divide": (np.true_divide, -9, 9, 1, 9),
    "equal": (np.equal, -2, 2, -2, 2),
    "floor_divide": (_floor_divide, -9, 9, 1, 4),
    "greater": (np.greater, -2, 2, -2, 2),
    "greater_equal": (np.greater_equal, -2, 2, -2, 2),
    "hypot": (np.hypot, -9, 9, -9, 9),
    "less": (np.less, -2, 2, -2, 2),
    "less_equal": (np.less_equal, -2, 2, -2, 2),
    "logaddexp": (np.logaddexp, -9, 9, -9, 9),
    "logical_and": (np.logical_and, -2, 2, -2, 2),
    "logical_or": (np.logical_or, -2, 2, -2, 2),
    "logical_xor": (np.logical_xor, -2, 2, -2, 2),
    "maximum": (np.maximum, -9, 9, -9, 9),
    "minimum": (np.minimum, -9, 9, -9, 9),
    "multiply": (np.multiply, -9, 9, -9, 9),
    "not_equal": (np.not_equal, -2, 2, -2, 2),
    "pow": (np.power, 0.5, 3, 0, 3),
    "remainder": (_remainder, -9, 9, 1, 4),
    "subtract": (np.subtract, -9, 9, -9, 9),
}


def _unary(op: str) -> Case:
    reference, low, high = _UNARY[op]

    def expect(x: Array) -> Any:
        # Integers and truth values that run as floats reach the reference as float64.
        lifted = x.dtype.kind in "biu" and op not in _KEEPS
        return reference(x.astype(np.float64) if lifted else x)

    return Case(
        op,
        lambda xp, x: getattr(xp, op)(x),
        expect,
        _unary_inputs(op, low, high),
        accepted(op),
        law(op),
    )


_KEEPS: Final = (
    "abs bitwise_invert ceil conj floor imag isfinite isinf isnan logical_not negative positive "
    "real round sign square trunc"
).split()


def _binary(op: str) -> Case:
    reference, *bounds = _BINARY[op]
    floats = op in ("atan2", "copysign", "divide", "hypot", "logaddexp")

    def expect(x: Array, y: Array) -> Any:
        if floats and x.dtype.kind in "biu":
            x, y = x.astype(np.float64), y.astype(np.float64)
        elif x.dtype.kind == "b" and op in ("floor_divide", "remainder", "pow"):
            x, y = x.astype(np.int64), y.astype(np.int64)
        return reference(x, y)

    def inputs(dtype: DType) -> list[Inputs]:
        runs = _binary_inputs(op, *bounds)(dtype)
        if dtype is dtypes.bool and op in ("floor_divide", "remainder"):
            return [(a, np.ones_like(b)) for a, b in runs]  # False divides as zero
        if dtype.is_complex and op == "pow":
            return runs[:4]
        return runs

    return Case(
        op,
        lambda xp, x, y: getattr(xp, op)(x, y),
        expect,
        inputs,
        accepted(op),
        law(op),
        ulps=64 if op in ("pow", "remainder") else 16,
    )


def _nextafter(dtype: DType) -> Case:
    run = law("nextafter")(dtype).numpy

    def expect(x: Array, y: Array) -> Any:
        return np.nextafter(x.astype(run), y.astype(run)).astype(np.float64)

    return Case(
        "nextafter",
        lambda xp, x, y: xp.nextafter(x, y),
        expect,
        _binary_inputs("nextafter", -9, 9, -9, 9),
        (dtype,),
        law("nextafter"),
        ulps=0.25,
        label="exact",
    )


def _clip() -> list[Case]:
    real = accepted("clip")

    def values(dtype: DType) -> list[Inputs]:
        return [(sample(f"clip{s}", s, dtype, -9, 9),) for s in ((2, 3), (), (0, 3))]

    def bounds(dtype: DType) -> list[Inputs]:
        low, high = np.array([1, 2, 3], dtype.numpy), np.array([4, 5, 6], dtype.numpy)
        return [(sample("clip", (2, 3), dtype, 0, 9), low, high)]

    return [
        Case("clip", lambda xp, x: xp.clip(x, 2, 5), lambda x: np.clip(x, 2, 5), values, real),
        Case("clip", lambda xp, x: xp.clip(x), lambda x: x, values, real, label="none"),
        Case(
            "clip",
            lambda xp, x: xp.clip(x, max=3),
            lambda x: np.minimum(x, 3),
            values,
            real,
            label="max",
        ),
        Case("clip", lambda xp, x, a, b: xp.clip(x, a, b), np.clip, bounds, real, label="arrays"),
    ]


def _scalars() -> list[Case]:
    """Python scalars are weak: they take the dtype of the tensor, on either side."""
    values: Callable[[DType], list[Inputs]] = lambda dtype: [  # noqa: E731 - used four times below
        (sample(f"scalar{s}", s, dtype, 1, 9),) for s in ((2, 3), (), (0, 3))
    ]
    numeric = tuple(d for d in dtypes.ALL if d is not dtypes.bool)
    floats = tuple(d for d in dtypes.ALL if d.is_floating or d.is_complex)
    return [
        Case("add", lambda xp, x: x + 2, lambda x: x + 2, values, numeric, label="scalar"),
        Case("subtract", lambda xp, x: 9 - x, lambda x: 9 - x, values, numeric, label="scalar"),
        Case("multiply", lambda xp, x: 0.5 * x, lambda x: 0.5 * x, values, floats, label="scalar"),
        Case("pow", lambda xp, x: x**2, lambda x: x**2, values, numeric, label="scalar", ulps=64),
        Case("divide", lambda xp, x: 1 / x, lambda x: 1 / x, values, floats, label="scalar"),
    ]


ELEMENTWISE: Final[tuple[Case, ...]] = (
    *map(_unary, _UNARY),
    *map(_binary, _BINARY),
    *map(_nextafter, accepted("nextafter")),
    *_clip(),
    *_scalars(),
)
