"""Cases of gradients: what moves elements, indexing, updates, scatter.

Most ops of this chapter have cases that follow from those of their values. Here are keys of every
kind, indices that stand several times, and values that broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.testing.case import Array, sample
from ember_ml.testing.gradients import GradientCase, derived

__all__ = ["ARRANGING"]


def _floats(name: str, *shape: int) -> Array:
    return sample(name, shape, dtypes.float64, -2.0, 2.0)


_MASK = np.array(
    [[True, False, True, True], [False, False, True, False], [True, True, False, True]]
)
# Keys for a tensor of shape (3, 4, 2).
_KEYS: Final[dict[str, Any]] = {
    "int": 1,
    "negative": (-1, -2),
    "slice": slice(1, 3),
    "steps": (slice(None, None, 2), slice(3, 0, -2)),
    "reversed": slice(None, None, -1),
    "none": (None, 1, None, slice(2)),
    "ellipsis": (..., 1),
    "nothing": slice(2, 2),
    "all": (1, 2, 0),
    "mask": _MASK,
    "mask0": np.array([True, False, True]),
    "truth": True,
    "array": [2, 0, 2, 2],
    "below": [-1, 2, 0],
    "array2": np.array([[0, 1], [1, 1]]),
    "pair": ([0, 0, 1], [3, 3, 2]),
    "inner": (slice(None), [1, 1, 3]),
    "apart": ([0, 2, 2], slice(1, 3), [1, 0, 0]),
    "beside": (1, [0, 3, 0]),
    "grid": (np.array([[0], [2]]), np.array([[1, 1, 3]])),
    "mixed": (slice(None, None, -1), None, [1, 1]),
}
# Of these, those that name no element twice: which value stays elsewhere is not said.
_ONCE: Final = [key for key in _KEYS if key not in {
    "array", "below", "array2", "pair", "inner", "apart", "beside", "grid", "mixed",
}]  # fmt: skip


def _reading(key: Any) -> Callable[..., Any]:
    return lambda xp, x: x[key]


def _reads() -> list[GradientCase]:
    made = []
    for label, key in _KEYS.items():
        if label != "nothing":  # whose gradient is all zeros, and whose sum has no values
            made.append(GradientCase("getitem", _reading(key), (_floats(label, 3, 4, 2),), label))
    return made


def _updating(name: str, key: Any) -> Callable[..., Any]:
    return lambda xp, x, v: getattr(xp, name)(x, key, v)


def _writes() -> list[GradientCase]:
    x = _floats("target", 3, 4, 2)
    made = [
        GradientCase("index_update", lambda xp, x: xp.index_update(x, 1, 5.0), (x,), "number"),
        GradientCase(
            "index_update",
            lambda xp, x, v: xp.index_update(x, ([0, 2], slice(1, 3)), v),
            (x, _floats("v", 1, 1, 2, 1, 1)),
            "leading",
        ),
        GradientCase(
            "index_add", _updating("index_add", [0, 0, 1]), (x, _floats("rows", 3, 1, 2)), "spread"
        ),
    ]
    for label, key in _KEYS.items():
        shape = x[key].shape
        value = _floats(label, *shape)
        if label in _ONCE:
            inputs = (x, value)
            made.append(GradientCase("index_update", _updating("index_update", key), inputs, label))
            made.append(
                GradientCase(
                    "index_update",
                    _updating("index_update", key),
                    (x, np.array(0.5)),
                    label + "0d",
                )
            )
        if label != "truth":
            made.append(GradientCase("index_add", _updating("index_add", key), (x, value), label))
    return made


_INDICES = np.array([[1, 0, 1], [2, 2, -1]])

ARRANGING: Final[tuple[GradientCase, ...]] = (
    *_reads(),
    *_writes(),
    *derived("index_update"),
    *derived("index_add"),
    GradientCase("astype", lambda xp, x: xp.astype(x, x.dtype) * 2.0, (_floats("cast", 3),)),
    *derived("take"),
    GradientCase(
        "take", lambda xp, x: xp.take(x, _INDICES, axis=1), (_floats("take", 2, 3, 2),), "repeats"
    ),
    *derived("take_along_axis"),
    GradientCase(
        "take_along_axis",
        lambda xp, x: xp.take_along_axis(x, _INDICES, axis=1),
        (_floats("along", 2, 3),),
        "repeats",
    ),
    GradientCase(
        "take_along_axis",
        lambda xp, x: xp.take_along_axis(x, _INDICES, axis=1),
        (_floats("spread", 1, 3),),
        "spread",
    ),
    *derived("repeat"),
    GradientCase(
        "repeat",
        lambda xp, x: xp.repeat(x, np.array([2, 0, 3]), axis=1),
        (_floats("repeat", 2, 3),),
        "uneven",
    ),
    GradientCase(
        "repeat", lambda xp, x: xp.repeat(x, 3, axis=0), (_floats("repeat", 2, 3),), "even"
    ),
    *derived("embedding"),
    GradientCase(
        "embedding",
        lambda xp, x: xp.embedding([[1, 0, 1], [2, 2, 1]], x),
        (_floats("table", 4, 2),),
        "repeats",
    ),
    *derived("scatter_mul"),
    GradientCase(
        "scatter_mul",
        lambda xp, x: xp.scatter_mul(x, [0, 0, 2, 2, 2], 4),
        (np.array([2.0, 0.0, 0.0, 3.0, 0.0]),),
        "zeros",
        # Where several factors are zero, second derivatives are left out; where one is, half.
        second=False,
    ),
    # With N=1 the result is all ones, which depend on nothing.
    *(case for case in derived("linalg.vander") if not case.label.startswith("one")),
    *derived("scatter_nd"),
    GradientCase(
        "scatter_nd",
        lambda xp, x: xp.scatter_nd([[1], [1], [3]], x, (4, 2)),
        (_floats("nd", 3, 2),),
        "repeats",
    ),
)
