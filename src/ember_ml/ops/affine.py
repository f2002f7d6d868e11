"""Linear maps as layers have them: weights are laid out as `(out, in)`."""

from __future__ import annotations

from typing import Any

from ember_ml.errors import ShapeError
from ember_ml.ops import dispatch
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__: list[str] = ["linear"]


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def linear(x: TensorLike, weight: TensorLike, bias: TensorLike | None = None, /) -> Tensor:
    """`x @ weight.T + bias`, over the last axis of x, in one step.

    Shapes: x `(..., in)`, weight `(out, in)`, bias `(out,)`; the result is `(..., out)`.

    >>> linear([1.0, 2.0], [[1.0, 1.0], [0.0, 3.0]], [0.5, 0.5]).tolist()
    [3.5, 6.5]
    """
    inner, sides = _shape(x), _shape(weight)
    if len(sides) != 2 or not inner or inner[-1] != sides[1]:
        raise ShapeError(
            f"ops.linear got x of shape {tuple(inner)} and a weight of shape {tuple(sides)}; "
            f"it takes (..., in) and (out, in)"
        )
    # Engines would broadcast other shapes.
    if bias is not None and _shape(bias) != sides[:1]:
        raise ShapeError(
            f"ops.linear got a bias of shape {tuple(_shape(bias))} for a weight of shape "
            f"{tuple(sides)}; it takes {tuple(sides[:1])}"
        )
    return dispatch.together("linear", (x, weight, bias))


def _shape(x: Any) -> tuple[int, ...]:
    shape: tuple[int, ...] = x.native.shape if isinstance(x, Tensor) else convert.to_tensor(x).shape
    return shape
