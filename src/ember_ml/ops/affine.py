"""Linear maps as layers have them: weights are laid out as `(out, in)`."""

from __future__ import annotations

from typing import Any

from ember_ml.autodiff.tape import recorded
from ember_ml.errors import ShapeError
from ember_ml.ops import dispatch
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, blank
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


def applied(x: Any, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The same by a layer, whose weight and bias fit each other: only what differs is asked."""
    spec = weight._spec
    kind = type(x)
    if (kind is Tensor or kind is GradTensor) and x._spec is spec:
        try:
            kernel, result = spec.kernels["linear"]
        except KeyError:
            kernel, result = spec.backend.entry(spec, "linear")
        try:
            native = kernel(x.native, weight.native, None if bias is None else bias.native)
        except Exception:
            return linear(x, weight, bias)  # which explains it
        if result.settles and type(native) is not result.native_type:
            native = result.backend.settle_native(native, result)
        if (kind is Tensor and type(weight) is Tensor and type(bias) is not GradTensor) or (
            # An engine's own record tells by the result whether gradients are needed, as they are
            # not where nothing is recorded.
            result.records and not native.requires_grad
        ):
            out = blank()
            out.native = native
            out._spec = result
            return out
        return recorded("linear", native, result, (x, weight, bias))
    return linear(x, weight, bias)


def _shape(x: Any) -> tuple[int, ...]:
    shape: tuple[int, ...] = x.native.shape if isinstance(x, Tensor) else convert.to_tensor(x).shape
    return shape
