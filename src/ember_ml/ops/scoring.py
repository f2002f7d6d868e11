"""What losses share: how they read their inputs, and how they reduce what comes of them."""

from __future__ import annotations

from typing import Any, Final

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, DTypeError, OutOfBoundsError, ShapeError
from ember_ml.ops import dispatch, elementwise, manipulation, reduction
from ember_ml.ops.registry import REGISTRY
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = [
    "REDUCTIONS",
    "checked_reduction",
    "class_targets",
    "fraction",
    "operands",
    "picked",
    "reduced",
    "require_classes",
    "same_shape",
    "softplus",
]

REDUCTIONS: Final = ("mean", "sum", "none")
_HALVES: Final = (dtypes.float16, dtypes.bfloat16)


def operands(name: str, *inputs: TensorLike) -> tuple[list[Tensor], DType]:
    """Inputs in one dtype in which to compute, and the dtype of the loss.

    16-bit floats are computed in float32: sums and exponentials leave their range soon.
    """
    tensors = dispatch.aligned(name, *inputs)
    run = REGISTRY[name].run_dtype(tensors[0].dtype)
    wide = dtypes.float32 if run in _HALVES else run
    return [convert.cast(t, wide) for t in tensors], run


def same_shape(name: str, first: Tensor, *others: Tensor) -> None:
    """Raise ShapeError for shapes that differ; numbers go with any shape.

    Shapes that merely broadcast are refused: (n, 1) beside (n,) makes n * n differences.
    """
    for other in others:
        if first.shape != other.shape and first.ndim and other.ndim:
            raise ShapeError(
                f"ops.{name} got shapes {first.shape} and {other.shape}, which must be equal; "
                f"reshape one of them"
            )


def checked_reduction(name: str, choice: str, *more: str) -> None:
    """Raise DomainError for a reduction that does not exist."""
    if choice not in (*REDUCTIONS, *more):
        listed = ", ".join((*REDUCTIONS, *more))
        raise DomainError(f"ops.{name} takes reduction {listed}, not {choice!r}")


def fraction(name: str, value: float, what: str) -> float:
    """A number from 0 to 1."""
    if not 0 <= value <= 1:
        raise DomainError(f"ops.{name} got {what}={value}; it lies between 0 and 1")
    return float(value)


def reduced(values: Tensor, choice: str, dtype: DType) -> Tensor:
    """The losses of all elements as their mean, their sum, or as they are."""
    if choice == "mean":
        values = reduction.mean(values)
    elif choice == "sum":
        values = reduction.sum(values)
    return convert.cast(values, dtype)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)) that neither overflows nor loses small values."""
    return elementwise.logaddexp(x, 0.0)


def class_targets(name: str, targets: TensorLike, scores: Tensor, axis: int) -> Tensor:
    """Targets that are class numbers, of the shape of the scores without their class axis."""
    home = dispatch.home_of(name, (scores, targets))
    chosen: Tensor = convert.to_tensor(targets, home)
    if not chosen.size and isinstance(targets, list | tuple):
        chosen = convert.cast(chosen, dtypes.int64)
    if not chosen.dtype.is_integer:
        raise DTypeError(
            f"ops.{name} takes class numbers as integer targets, not {chosen.dtype}; probabilities "
            f"go to categorical_crossentropy"
        )
    dispatch.same_device(name, scores.device, chosen.device)
    wanted = (*scores.shape[:axis], *scores.shape[axis + 1 :])
    if chosen.shape != wanted:
        raise ShapeError(
            f"ops.{name} got targets of shape {chosen.shape} for scores of shape {scores.shape} "
            f"with classes along axis {axis}; the targets' shape must be {wanted}"
        )
    return convert.cast(chosen, dtypes.int64)


def require_classes(name: str, targets: Tensor, count: int, ignored: int | None) -> None:
    """Raise OutOfBoundsError for a class that does not exist, where values may be read."""
    if not targets.size or not targets._spec.backend.checks_values(targets.native):
        return
    values: Any = targets.numpy()
    wrong = (values < 0) | (values >= count)
    if ignored is not None:
        wrong &= values != ignored
    if wrong.any():
        raise OutOfBoundsError(
            f"ops.{name} got class {int(values[wrong][0])} among its targets; "
            f"there are classes 0 to {count - 1}"
        )


def picked(x: Tensor, classes: Tensor, axis: int) -> Tensor:
    """For each place, the element of its class along an axis; classes are checked already."""
    places = manipulation.expand_dims(classes, axis)
    return manipulation.squeeze(dispatch.call("take_along_axis", x, places.native, axis), axis)
