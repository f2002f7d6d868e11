"""A call on an engine without a compiler, which keeps what em.jit promises elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ember_ml import dtypes, tree
from ember_ml.autodiff.compiling import arguments, draws
from ember_ml.autodiff.compiling.state import picture, put
from ember_ml.autodiff.compiling.trace import Call, foreign_write
from ember_ml.backend import writes
from ember_ml.backend.compiling import under_trace
from ember_ml.tensor.core import GradTensor, Tensor

__all__ = ["run"]


def run(function: Callable[..., Any], name: str, call: Call, static: Any, raw: bool) -> Any:
    """Call a function as it is: all or nothing of its state is written, and nothing else."""
    backend, state = call.backend, call.state
    args, kwargs = _with_tensors(call, static) if raw else (call.args, call.kwargs)
    own = state.roots[: len(state.roots) - len(call.captured)]
    kept = [(root, root.native, backend.copy(root.native)) for root in own]
    shown = [picture(one, _itself) for one in call.trees]
    others = [*call.tensors, *[root.holder for root in state.roots[len(own) :]]]
    before = [x.native for x in others]
    writes.STATE.watching = True
    since = writes.STATE.serial
    stream = draws.lazy_streams(backend.spec(dtypes.uint32), state.generators)
    try:
        with under_trace(), draws.scope(stream):
            result = function(*args, **kwargs)
        mine = [native for _, native, _ in kept]
        for place, (x, native) in enumerate(zip(others, before, strict=True)):
            if x.native is not native:
                x.native = native
            elif not writes.changed(native, since) or any(
                backend.shares_memory(native, one) for one in mine
            ):
                continue
            if any(x is root.holder for root in own):
                continue
            raise foreign_write(name, _said(call, place))
    except BaseException:
        for root, native, copied in kept:
            root.rollback(native, copied)
        for one, before_it in zip(call.trees, shown, strict=True):
            put(one, before_it, _itself)
        raise
    inputs = [*before, *[root.native for root in state.roots]]
    found, structure = tree.flatten(result)
    if not any(type(x) is GradTensor for x in call.tensors) and any(
        root.leaf
        and (
            root.native is not native
            or writes.changed(native, since)
            or root.holder.grad is not root.grad
        )
        for root, native, _ in kept
    ):  # what came of leaves that are others now
        found = [x.detach() if type(x) is GradTensor else x for x in found]
    return tree.unflatten(structure, [_apart(leaf, inputs) for leaf in found])


def _apart(leaf: Any, inputs: list[Any]) -> Any:
    """A result that shares no memory with what was given."""
    if not isinstance(leaf, Tensor):
        return leaf
    if type(leaf) is not Tensor and type(leaf) is not GradTensor:
        return leaf.copy()  # a view
    native, backend = leaf.native, leaf._spec.backend
    # Arrays with memory of their own, and of nobody else, are most.
    if getattr(native, "base", None) is None and not any(native is one for one in inputs):
        return leaf
    return leaf.copy() if any(backend.shares_memory(native, one) for one in inputs) else leaf


def _with_tensors(call: Call, static: Any) -> tuple[list[Any], dict[str, Any]]:
    """Arguments in which arrays are tensors, as they are where a function is traced."""
    count = arguments.counter()
    args = [
        arguments.build(arguments.template(v, count, place in static), call.tensors, call.objects)
        for place, v in enumerate(call.args)
    ]
    kwargs = {
        name: arguments.build(
            arguments.template(v, count, name in static), call.tensors, call.objects
        )
        for name, v in call.kwargs.items()
    }
    return args, kwargs


def _said(call: Call, place: int) -> str:
    paths = arguments.named(call.args, call.kwargs)
    if place < len(paths):
        return paths[place]
    return f"'{call.captured[place - len(call.tensors)][0]}'"


def _itself(leaf: Any) -> Any:
    return leaf
