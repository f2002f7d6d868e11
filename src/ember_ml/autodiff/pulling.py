"""One pass forward and back: what gradients.py makes functions of.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ember_ml import structure
from ember_ml.autodiff import runs, tape
from ember_ml.autodiff.calls import Call, Outcome
from ember_ml.autodiff.runs import NESTING, Run
from ember_ml.tensor import homes
from ember_ml.tensor.core import GradTensor, fill

__all__ = ["value_and_grad"]


def value_and_grad(
    call: Call, has_aux: Any, allow_unused: Any, pull: Any = None
) -> tuple[Any, Any]:
    """What a call gives, a number, and its gradients; `pull` stands in for `runs.pulled`."""
    gradients = call.backend.gradients
    if not gradients.prepared:
        gradients.prepare()
    keeper = tape.KEEPER.get()
    moved = keeper is not None and any(keeper.moves(t._spec) for t in call.tensors)
    plain = not (call.connected or call.owned or moved)
    if gradients.transforms and call.tensors and plain:
        outcome = None if NESTING.get()[1] else _transformed(call, has_aux, allow_unused)
        if outcome is not None:
            return outcome
    run = Run(call)
    with run as inputs:
        value, aux = call.loss(call.run(inputs), has_aux)
        create = run.is_connected((value,) if aux is None else (value, *structure.apart(aux)[0]))
        spec = value._spec
        one = fill(spec.scalar(1.0), spec)
        found: Any
        if pull is None:
            found = runs.pulled((value,), (one,), inputs, create=create)
        else:
            found = pull((value,), (one,), inputs, create=create)
    if not create:
        if type(value) is GradTensor:
            # The record goes, and with it whoever shared the memory, unless it came from outside.
            native = value.native
            inside = gradients.is_apart(native) if spec.records else bool(value._node.parents)
            if inside and homes.home_of(value) is None:
                # Only off torch's own record: another engine may be differentiating all of this.
                value = fill(spec.backend.detach(native) if spec.records else native, spec)
            else:
                value = runs.shown(call, value)
        if aux is not None:
            aux = runs.shown(call, aux)
    grads = call.tree(runs.completed(call, found, allow_unused))
    return ((value, aux) if has_aux else value), grads


class _ConnectedError(Exception):
    """A function gave a tensor that is on our tape, of which the engine knows nothing."""


def _transformed(call: Call, has_aux: Any, allow_unused: Any) -> tuple[Any, Any] | None:
    """By the engine's own transform; None where our tape must do it: the function uses tensors that
    need gradients by themselves, and not as its arguments, or an argument seems not to be used.
    """
    specs = [t._spec for t in call.tensors]
    outcome = Outcome()

    def function(natives: Sequence[Any]) -> list[Any]:
        result = call.run([fill(n, spec) for n, spec in zip(natives, specs, strict=True)])
        value, aux = call.loss(result, has_aux)
        outs = outcome.natives((value, aux), call.backend)
        if outcome.connected:
            raise _ConnectedError
        return outs

    try:
        outs, grads = call.backend.gradients.value_and_grad(
            function, [t.native for t in call.tensors]
        )
    except _ConnectedError:
        return None
    if not allow_unused and any(g is None for g in grads):
        # Engines also leave out what was used for no element: our tape tells the two apart.
        return None
    value, aux = outcome.tree(outs)
    found = [None if g is None else fill(g, spec) for g, spec in zip(grads, specs, strict=True)]
    grads_tree = call.tree(runs.completed(call, found, allow_unused))
    return ((value, aux) if has_aux else value), grads_tree
