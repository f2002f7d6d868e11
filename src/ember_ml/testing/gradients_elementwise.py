"""Gradients of elementwise ops where the cases of their values do not suit or do not suffice.

Those run on real numbers; complex ones are added here. What has a corner, or jumps, is taken
between its corners.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.testing.case import Array, sample
from ember_ml.testing.gradients import GradientCase, derived

__all__ = ["ELEMENTWISE"]


def _plane(seed: str, shape: tuple[int, ...], low: float = 0.3, high: float = 1.2) -> Array:
    """Complex numbers in the first quadrant, away from the axes: no branch cut is near."""
    return sample(seed, shape, dtypes.complex128, low, high)


def _line(seed: str, shape: tuple[int, ...], low: float, high: float) -> Array:
    return sample(seed, shape, dtypes.float64, low, high)


def _named(op: str) -> Callable[..., Any]:
    return lambda xp, *given: getattr(xp, op)(*given)


def _case(op: str, label: str, *inputs: Array, run: Callable[..., Any] | None = None) -> Any:
    return GradientCase(op, run or _named(op), inputs, label)


# --- Complex numbers --------------------------------------------------------------------------

_UNARY: Final = (
    "abs absolute acos acosh asin asinh atan atanh conj cos cosh exp expm1 imag log log10 log1p "
    "log2 negative positive real reciprocal sign sin sinh sqrt square tan tanh"
).split()
_BINARY: Final = "add divide multiply pow power subtract true_divide".split()


def _with_complex(op: str) -> tuple[GradientCase, ...]:
    if op in _UNARY:
        return (*derived(op), _case(op, "complex", _plane(op, (2, 3))))
    return (
        *derived(op),
        _case(op, "complex", _plane(f"{op}a", (2, 1)), _plane(f"{op}b", (3,))),
        _case(op, "mixed", _plane(f"{op}a", (3,)), _line(f"{op}b", (2, 3), 0.5, 2)),
    )


# --- Corners, steps and edges -----------------------------------------------------------------

_TRIPLE: Final = (
    _line("first", (2, 1), -2, 2),
    _line("second", (3,), -2, 2),
    _line("third", (2, 3), -2, 2),
)
# Halves are where round steps, whole numbers where the others do.
_STEPS: Final = np.array([[0.2, -0.7, 1.9], [-2.3, 3.4, -4.8]])


def _where(xp: Any, x: Any, y: Any) -> Any:
    return xp.where(xp.asarray([True, False, True]), x, y)


def _many(xp: Any, x: Any) -> Any:
    """Above some thousand elements NumPy's `where` takes another way."""
    wide = xp.broadcast_to(x, (1024, 3))
    return xp.sum(xp.where(wide > 0.5, wide * wide, 0.0), axis=0)


ELEMENTWISE: Final[tuple[GradientCase, ...]] = (
    *(case for op in (*_UNARY, *_BINARY) for case in _with_complex(op)),
    *(_case(op, "", _STEPS) for op in ("ceil", "floor", "round", "trunc")),
    *derived("where"),
    _case("where", "broadcast", _TRIPLE[0], _TRIPLE[1], run=_where),
    _case("where", "many", np.array([0.2, 0.7, 0.9]), run=_many),
    _case("nan_to_num", "", np.array([1.0, -2.0, 3.0])),
    *derived("lerp"),
    _case("lerp", "broadcast", *_TRIPLE),
    # By arrays of two other shapes: below, between and above them.
    *derived("clip"),
    _case("clip", "broadcast", _TRIPLE[2], np.array([[-0.9], [-0.4]]), np.array([0.3, 0.6, 1.1])),
    # Close to zero sinc is a difference of nearly equal terms.
    *derived("sinc"),
    _case("sinc", "small", np.array([0.0, 1e-3, -0.03, 0.04, 0.06, 0.5])),
    *derived("digamma"),
    _case("digamma", "all", np.array([0.1, 0.9, 1.4616, 2.0, 7.9, 30.0, -0.4, -1.5, -3.3])),
    *derived("lgamma"),
    _case("lgamma", "all", np.array([0.1, 0.9, 1.0, 2.0, 7.9, 30.0, -0.4, -1.5, -3.3])),
    *derived("logaddexp"),
    _case("logaddexp", "equal", np.array([0.5, 2.0, -3.0]), np.array([0.5, 2.0, -3.0])),
    _case("pow", "negative", np.array([-2.0, -1.5, 0.0, 0.0]),
          run=lambda xp, x: x ** xp.asarray([2.0, 3.0, 1.0, 2.0], dtype=x.dtype)),
    *derived("softmax"),
    _case("softmax", "large", np.array([[1000.0, 1000.5, 999.0], [-1e4, 0.0, 0.5]])),
    *derived("log_softmax"),
    _case("log_softmax", "large", np.array([[1000.0, 1000.5, 999.0], [-1e4, 0.0, 0.5]])),
)  # fmt: skip
