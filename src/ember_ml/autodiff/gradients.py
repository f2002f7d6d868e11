"""grad and its kin: functions made of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ember_ml.autodiff import pulling
from ember_ml.autodiff.calls import Call
from ember_ml.tensor.core import Tensor

__all__ = ["grad", "value_and_grad", "value_and_grad_by"]

# As `runs.pulled`: gradients of inputs from those of results.
Pull = Callable[..., list[Tensor | None]]


def value_and_grad(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    allow_unused: bool = False,
) -> Callable[..., tuple[Any, Any]]:
    """A function that gives what `fn` gives, one number, and its gradients by some arguments.

    Arguments may be trees of tensors; gradients have their shape. With `has_aux`, `fn` gives
    `(loss, aux)`, and so does the new function in place of the loss. A tensor that the loss does
    not depend on raises GradientError, or has a gradient of zeros with `allow_unused`.

    >>> from ember_ml import ops
    >>> loss, g = value_and_grad(lambda x: ops.sum(x * x))(ops.asarray([1.0, 2.0]))
    >>> loss.item(), g.tolist()
    (5.0, [2.0, 4.0])
    """

    @wraps(fn)
    def differentiated(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return pulling.value_and_grad(
            Call("value_and_grad", fn, argnums, args, kwargs), has_aux, allow_unused
        )

    return differentiated


def grad(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    allow_unused: bool = False,
) -> Callable[..., Any]:
    """A function that gives the gradients of `fn` by some arguments: see `value_and_grad`.

    With `has_aux`, it gives `(gradients, aux)`.

    >>> from ember_ml import ops
    >>> grad(lambda x: x * x * x)(ops.asarray(2.0)).item()
    12.0
    >>> grad(grad(lambda x: x * x * x))(ops.asarray(2.0)).item()
    12.0
    """

    @wraps(fn)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, grads = pulling.value_and_grad(
            Call("grad", fn, argnums, args, kwargs), has_aux, allow_unused
        )
        return (grads, value[1]) if has_aux else grads

    return differentiated


def value_and_grad_by(pull: Pull, fn: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """`value_and_grad(fn, has_aux=True)(*args)` with another way back through a record.

    `pull` is called as `runs.pulled` is, and not at all where an engine transforms the function.
    """
    return pulling.value_and_grad(Call("value_and_grad", fn, 0, args, {}), True, False, pull)
