"""Gradients in torch's own graph, by torch.autograd.grad: torch.func costs twice on small nets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.autograd import graph

from ember_ml.backend.gradients import FREED, Gradients, Natives, PullBack
from ember_ml.backend.torch.tracing import is_fake
from ember_ml.errors import EmberError, GradientError

if TYPE_CHECKING:
    from ember_ml.backend.contract import Kernel, NativeArray
    from ember_ml.backend.gradients import Function

__all__ = ["TorchGradients"]


class TorchGradients(Gradients):
    """torch records by itself; here it is asked."""

    def is_recording(self) -> bool:
        return torch.is_grad_enabled()

    def alias(self, native: NativeArray) -> NativeArray:
        if native.requires_grad:
            return native.view_as(native)  # within another derivative: connected, and apart
        return native.detach().requires_grad_()

    def is_apart(self, native: NativeArray) -> bool:
        return native.grad_fn is not None and not native._is_view()

    def reaches_beyond(self, results: Natives, inputs: Natives) -> bool:
        own = {id(x) for x in inputs}
        stack = [x.grad_fn for x in results if x.grad_fn is not None]
        seen = set(stack)
        while stack:
            node = stack.pop()
            variable = getattr(node, "variable", None)  # of a node at which gradients end
            if variable is not None:
                if id(variable) not in own:
                    return True
                continue
            for above, _ in node.next_functions:
                if above is not None and above not in seen:
                    seen.add(above)
                    stack.append(above)
        return any(x.grad_fn is None and id(x) not in own for x in results)

    def pull_back(
        self, results: Natives, gradients: Natives, inputs: Natives, create: bool, retain: bool
    ) -> list[Any]:
        if not create:
            gradients = _own(gradients)
        try:
            if _ENGINE is None or create or not all(map(_is_plain, results)):
                found = torch.autograd.grad(
                    results,
                    inputs,
                    gradients,
                    retain_graph=retain or create,
                    create_graph=create,
                    allow_unused=True,
                )
            else:
                found = _ENGINE.run_backward(
                    tuple(results),
                    tuple(gradients),
                    retain,
                    False,
                    tuple(inputs),
                    allow_unreachable=True,
                    accumulate_grad=False,
                )
        except RuntimeError as error:
            raise self.explained(error) or error from error
        return list(found) if create else _apart(found, gradients)

    def backward(
        self,
        result: NativeArray,
        gradient: NativeArray,
        inputs: Natives | None,
        retain: bool,
        create: bool,
    ) -> None:
        if not create:
            gradient = gradient.clone()  # also one number: torch may give a view of it to a leaf
        try:
            result.backward(gradient, retain_graph=retain, create_graph=create, inputs=inputs)
        except RuntimeError as error:
            raise self.explained(error) or error from error

    def explained(self, error: Exception) -> Exception | None:
        text = str(error)
        if not isinstance(error, RuntimeError) or isinstance(error, EmberError):
            return None
        if "a second time" in text:
            return GradientError(FREED)
        if "modified by an inplace operation" in text:
            return GradientError(
                "a tensor that a gradient needs was written to after it was used; "
                f"write to a .copy() instead ({text.partition('Hint')[0].strip()})"
            )
        if "in-place" in text or "inplace" in text or "leaf" in text:
            return GradientError(
                f"this write would lose gradients; write to a .copy() instead ({text})"
            )
        return None

    def pull_rows(
        self, result: NativeArray, rows: NativeArray, inputs: Natives, create: bool
    ) -> list[Any] | None:
        try:
            found = torch.autograd.grad(
                result,
                inputs,
                rows,
                retain_graph=True,
                create_graph=create,
                allow_unused=True,
                is_grads_batched=True,
            )
        except RuntimeError:  # an op that vmap does not know; where it is no such thing, a loop
            return None  # fails as well
        return list(found) if create else _apart(found, (rows,))

    def attached(
        self, outs: Natives, again: Callable[[Natives | None], PullBack], inputs: Natives
    ) -> list[Any]:
        made = _Attached.apply(again, tuple(outs), *inputs)  # type: ignore[no-untyped-call]  # torch's
        return list(made)

    def refusing(self, kernel: Kernel, text: str) -> Kernel:
        def run(*args: Any, **options: Any) -> Any:
            inputs = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
            if not inputs or not torch.is_grad_enabled():
                return kernel(*args, **options)
            with torch.no_grad():
                out = kernel(*args, **options)
            many = isinstance(out, tuple | list)
            given = tuple(out) if many else (out,)
            outs = _Refused.apply(text, given, *inputs)  # type: ignore[no-untyped-call]  # torch's
            return type(out)(outs) if many else outs[0]

        return run

    def checkpoint(self, function: Function, natives: Natives, offload: bool) -> list[Any]:
        from torch._C._functorch import is_functorch_wrapped_tensor
        from torch.utils import checkpoint as checkpoints

        if any(is_functorch_wrapped_tensor(native) for native in natives):
            return function(natives)  # in a batch of torch's, which nothing outlives

        def run(*given: Any) -> tuple[Any, ...]:
            return tuple(function(given))

        # What is given goes through the hooks of `keeping`, so that there is nothing to offload.
        # Early stopping is an exception in the midst of an op, which ops would explain to users.
        with checkpoints.set_checkpoint_early_stop(False):
            return list(checkpoints.checkpoint(run, *natives, use_reentrant=False))

    def keeping(
        self, pack: Callable[[NativeArray], Any], unpack: Callable[[Any], NativeArray]
    ) -> AbstractContextManager[Any]:
        return graph.saved_tensors_hooks(pack, unpack)


# What torch.autograd.grad calls, behind questions that are answered here: a sixth of the time of a
# small network. None where a version of torch has it elsewhere.
_ENGINE: Final[Any] = getattr(getattr(torch.autograd, "Variable", None), "_execution_engine", None)


def _is_plain(result: NativeArray) -> bool:
    """True on the CPU, where the engine runs in the thread that calls it, with its context."""
    return type(result) is torch.Tensor and result.is_cpu


class _Refused(torch.autograd.Function):
    """Results that are there already, and that have no gradient."""

    @staticmethod
    def forward(ctx: Any, text: str, outs: tuple[Any, ...], *inputs: Any) -> tuple[Any, ...]:
        ctx.text = text
        made = tuple(out.detach() for out in outs)
        ctx.mark_non_differentiable(*[o for o in made if not o.is_floating_point()])
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise GradientError(ctx.text)


class _Attached(torch.autograd.Function):
    """Results that are there already, with a gradient of their own."""

    @staticmethod
    def forward(ctx: Any, again: Any, outs: tuple[Any, ...], *inputs: Any) -> tuple[Any, ...]:
        ctx.again = again
        ctx.save_for_backward(*inputs)
        # Objects of their own: the pull-back holds `outs`, and would hold the graph that holds it.
        return tuple(out.detach() for out in outs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        inputs = ctx.saved_tensors  # raises where one was written to meanwhile
        pull = ctx.again(inputs if torch.is_grad_enabled() else None)
        return (None, None, *pull(gradients))


def _own(seeds: Natives) -> list[Any]:
    """The gradients of results in memory of our own: those of inputs may be parts of it, as of
    ops.concat, and are to be written to. Of one element there is no other part than the whole.
    """
    return [g.clone() if type(g) is torch.Tensor and g.numel() > 1 else g for g in seeds]


def _apart(found: Natives, seeds: Natives) -> list[Any]:
    """torch hands one tensor to several inputs, or one element of memory for all."""
    out: list[Any] = []
    places: set[Any] | None = None
    for g in found:
        if g is not None:
            if places is None:
                places = {_place(seed) for seed in seeds}
            place = _place(g)
            # One element for all has no memory yet where it is traced: see compiling.py.
            spread = type(g) is torch.Tensor and g.dim() and 0 in g.stride()
            if place in places or spread:
                g = g.clone(memory_format=torch.contiguous_format)
            else:
                places.add(place)
        out.append(g)
    return out


def _place(native: NativeArray) -> Any:
    """Where the memory of a tensor begins."""
    if type(native) is torch.Tensor:
        return native.data_ptr()
    if is_fake(native):
        return native.untyped_storage()._cdata, native.storage_offset()
    return id(native)
