"""What many rules do with shapes."""

from __future__ import annotations

from typing import Any

from ember_ml.ops.dispatch import call, reduce
from ember_ml.tensor.core import Tensor

__all__ = ["spread", "summed_to"]


def summed_to(g: Tensor, x: Any) -> Tensor:
    """The gradient of an operand that was broadcast: summed over what it was repeated along."""
    shape: tuple[int, ...] = x.shape
    have: tuple[int, ...] = g.shape
    if have == shape:
        return g
    ahead = len(have) - len(shape)
    axes = tuple(
        i for i, side in enumerate(have) if i < ahead or (shape[i - ahead] == 1 and side != 1)
    )
    g = reduce("sum", g, axes, False)
    return g if g.shape == shape else call("reshape", g, shape)


def spread(g: Tensor, x: Any, axis: Any, keepdims: bool) -> Tensor:
    """The gradient of a reduction, in a shape that broadcasts to that of its operand."""
    if keepdims or axis is None or axis == 0:
        return g  # shapes are aligned at their ends
    ndim = len(x.shape)
    axes = axis if isinstance(axis, tuple) else (axis,)
    places = {a % ndim for a in axes}
    return call("reshape", g, tuple(1 if i in places else s for i, s in enumerate(x.shape)))
