"""grad and its kin: functions made of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final

from ember_ml.autodiff import backward, tape
from ember_ml.autodiff.calls import Call, Outcome
from ember_ml.errors import GradientError
from ember_ml.tensor.core import GradTensor, Tensor, fill, fill_grad

__all__ = ["grad", "value_and_grad"]

# How many derivatives are being taken, one within the other, and whether one is on the tape.
_NESTING: Final[ContextVar[tuple[int, bool]]] = ContextVar("ember_ml nesting", default=(0, False))


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
        return _value_and_grad(
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

    >>> from ember_ml import ops
    >>> grad(lambda x: x**3)(ops.asarray(2.0)).item()
    12.0
    >>> grad(grad(lambda x: x**3))(ops.asarray(2.0)).item()
    12.0
    """

    @wraps(fn)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, grads = _value_and_grad(
            Call("grad", fn, argnums, args, kwargs), has_aux, allow_unused
        )
        return (grads, value[1]) if has_aux else grads

    return differentiated


def _value_and_grad(call: Call, has_aux: bool, allow_unused: bool) -> tuple[Any, Any]:
    depth, taping = _NESTING.get()
    gradients = call.backend.gradients
    connected = any(type(t) is GradTensor for t in call.tensors)
    keeper = tape.KEEPER.get()
    moved = keeper is not None and any(keeper.moves(t._spec) for t in call.tensors)
    if gradients.transforms and not taping and not connected and not moved:
        return _transformed(call, has_aux, allow_unused)
    token = _NESTING.set((depth + 1, not call.backend.records))
    try:
        leaves = [_alias(t) for t in call.tensors]
        if tape.is_grad_enabled():
            value, aux = call.loss(call.run(leaves), has_aux)
        else:
            with tape.enable_grad():
                value, aux = call.loss(call.run(leaves), has_aux)
        create = depth > 0 or connected
        found = _pulled(call, leaves, value, create, allow_unused)
    finally:
        _NESTING.reset(token)
    if not create:
        value = value.detach() if type(value) is GradTensor else value
        aux = _detached(aux)
    return ((value, aux) if has_aux else value), call.tree(found)


def _alias(x: Tensor) -> Tensor:
    """A tensor of the same values as an input to differentiate by, and by it alone."""
    spec = x._spec
    if spec.backend.records:
        return fill_grad(spec.backend.gradients.alias(x.native), spec)
    if type(x) is GradTensor:
        return tape.recorded("copy", x.native, spec, (x,))
    return tape.leaf(x.native, spec)


def _pulled(
    call: Call, leaves: list[Tensor], value: Tensor, create: bool, allow_unused: bool
) -> list[Tensor]:
    spec = value._spec
    backend = spec.backend
    if type(value) is not GradTensor:
        natives: list[Any] = [None] * len(leaves)
    elif backend.records:
        one = spec.scalar(1.0)
        natives = backend.gradients.pull_back(
            [value.native], [one], [x.native for x in leaves], create
        )
        made = fill_grad if create else fill
        found = [
            None if n is None else made(n, x._spec) for n, x in zip(natives, leaves, strict=True)
        ]
        return _complete(call, leaves, found, allow_unused)
    else:
        seed = fill(spec.scalar(1.0), spec)
        pulled = backward.pull_back({value._node: seed}, [x._node for x in leaves], create=create)
        return _complete(call, leaves, [pulled.get(x._node) for x in leaves], allow_unused)
    return _complete(call, leaves, natives, allow_unused)


def _complete(
    call: Call, leaves: Sequence[Tensor], found: Sequence[Tensor | None], allow_unused: bool
) -> list[Tensor]:
    out: list[Tensor] = []
    for place, (x, g) in enumerate(zip(leaves, found, strict=True)):
        if g is None:
            if not allow_unused:
                raise GradientError(
                    f"{call.name}: the result does not depend on {call.path(place)} by ops that "
                    f"have gradients; give allow_unused=True for zeros"
                )
            spec = x._spec
            g = fill(spec.backend.full(x.shape, 0, spec), spec)
        out.append(g)
    return out


def _transformed(call: Call, has_aux: bool, allow_unused: bool) -> tuple[Any, Any]:
    """By the engine's own transform."""
    specs = [t._spec for t in call.tensors]
    outcome = Outcome()

    def function(natives: Sequence[Any]) -> list[Any]:
        result = call.run([fill(n, spec) for n, spec in zip(natives, specs, strict=True)])
        value, aux = call.loss(result, has_aux)
        return outcome.natives((value, aux))

    outs, grads = call.backend.gradients.value_and_grad(function, [t.native for t in call.tensors])
    value, aux = outcome.tree(outs)
    found = [fill(g, spec) for g, spec in zip(grads, specs, strict=True)]
    return ((value, aux) if has_aux else value), call.tree(found)


def _detached(aux: Any) -> Any:
    from ember_ml import tree

    if aux is None:
        return None
    return tree.map(lambda x: x.detach() if type(x) is GradTensor else x, aux)
