"""What the cases of convolution, pooling and resizing share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample

__all__ = ["EVERY", "FLOATS", "Shape", "case", "of", "pairs_of", "sides_of", "wrong"]

Shape = tuple[int, ...]
FLOATS: Final = tuple(d for d in dtypes.ALL if d.is_floating)
EVERY: Final = accepted("conv2d")


def of(seed: str, *runs: tuple[Shape, ...]) -> Callable[[DType], list[Inputs]]:
    """Inputs of the given shapes."""

    def make(dtype: DType) -> list[Inputs]:
        return [
            tuple(sample(f"{seed}{i}{s}", s, dtype, -2, 2) for i, s in enumerate(shapes))
            for shapes in runs
        ]

    return make


def case(
    op: str,
    inputs: Callable[[DType], list[Inputs]],
    expect: Callable[..., Any],
    options: dict[str, Any] | None = None,
    label: str = "",
    over: tuple[DType, ...] = FLOATS,
    result: Callable[[DType], DType | None] | None = None,
) -> Case:
    """A case whose reference gets the options of the op."""
    given = options or {}

    def reference(*arrays: Array) -> Any:
        return expect(*(np.asarray(a, np.float64) for a in arrays), **given)

    return Case(
        op,
        lambda xp, *arrays: getattr(xp, op)(*arrays, **given),
        reference,
        inputs,
        over,
        result or law(op),
        400,  # sums of some fifty products, which may cancel: as for products of matrices
        label,
    )


def sides_of(value: Any, count: int) -> Any:
    """A value for each axis."""
    return (value,) * count if isinstance(value, int) else value


def pairs_of(padding: Any, spatial: Shape, extent: Shape, stride: Shape) -> list[tuple[int, int]]:
    """Padding as (before, after) for each axis."""
    if padding == "same":
        totals = [
            max((-(-n // s) - 1) * s + e - n, 0)
            for n, e, s in zip(spatial, extent, stride, strict=True)
        ]
        return [(t // 2, t - t // 2) for t in totals]
    each = sides_of(0 if padding == "valid" else padding, len(spatial))
    return [(p, p) if isinstance(p, int) else p for p in each]


def wrong(op: str, *shapes: Shape, **options: Any) -> Callable[[Any], Any]:
    """A call that is a mistake."""
    return lambda xp: getattr(xp, op)(*(xp.ones(s) for s in shapes), **options)
