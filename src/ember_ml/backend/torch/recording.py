"""Branches and loops that make_fx records, with the tensors that their functions close over.

torch's operators take functions of their operands alone: a tensor of the surrounding trace that
such a function uses besides would be stored in its graph as it is now, a constant. So functions
are traced twice: first to find those tensors, then with each replaced by one more operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

if TYPE_CHECKING:
    from ember_ml.backend.contract import NativeArray
    from ember_ml.backend.control import Function, Natives

__all__ = ["cond", "while_loop"]


class _Watch(TorchFunctionMode):
    """Sees every call of torch: finds tensors from elsewhere, and puts others in their place."""

    def __init__(
        self, given: Iterable[torch.Tensor], instead: dict[int, torch.Tensor] | None = None
    ) -> None:
        super().__init__()
        # Tensors are kept with their ids, since an id is given again after its object has gone.
        self._known = {id(t): t for t in given}
        self._instead = instead or {}
        self.found: dict[int, torch.Tensor] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        args = tree_map_only(torch.Tensor, self.replaced, args)
        named: dict[str, Any] = tree_map_only(torch.Tensor, self.replaced, kwargs or {})
        out = func(*args, **named)
        made = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        if made:  # else it was a look at a shape or a dtype, which uses no values
            for used in tree_leaves((args, named)):
                if isinstance(used, torch.Tensor):
                    self.use(used)
            self._known.update((id(t), t) for t in made)
        return out

    def replaced(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor to use for one that came up."""
        return self._instead.get(id(tensor), tensor)

    def use(self, tensor: torch.Tensor) -> torch.Tensor:
        """Note a tensor from elsewhere."""
        if id(tensor) not in self._known:
            self.found[id(tensor)] = tensor
        return tensor


def _captured(functions: Sequence[Function], natives: Natives) -> list[torch.Tensor]:
    """The tensors that functions use besides their operands."""
    found: dict[int, torch.Tensor] = {}
    for function in functions:

        def run(*operands: NativeArray, function: Function = function) -> list[NativeArray]:
            with _Watch(operands) as watch:
                out = [watch.use(native) for native in function(*operands)]
            found.update(watch.found)
            # Torch refuses results that are operands or lie in their memory.
            return [native.clone() for native in out]

        make_fx(run)(*natives)
    return list(found.values())


def _closed(
    function: Function, count: int, captured: Sequence[torch.Tensor]
) -> Callable[..., tuple[NativeArray, ...]]:
    """A function whose captured tensors are operands, behind the first `count`."""

    def run(*operands: NativeArray) -> tuple[NativeArray, ...]:
        instead = {id(t): o for t, o in zip(captured, operands[count:], strict=True)}
        with _Watch(operands, instead) as watch:
            return tuple([watch.replaced(o).clone() for o in function(*operands[:count])])

    return run


def cond(
    pred: NativeArray, true_fn: Function, false_fn: Function, natives: Natives
) -> list[NativeArray]:
    """A recorded branch."""
    from torch._higher_order_ops.cond import cond_op

    captured = _captured((true_fn, false_fn), natives)
    count = len(natives)
    functions = [_closed(function, count, captured) for function in (true_fn, false_fn)]
    run: Any = cond_op
    return list(run(pred, *functions, (*natives, *captured)))


def while_loop(cond_fn: Function, body_fn: Function, natives: Natives) -> list[NativeArray]:
    """A recorded loop."""
    from torch._higher_order_ops.while_loop import while_loop_op

    captured = _captured((cond_fn, body_fn), natives)
    count = len(natives)
    goes_on, body = [_closed(function, count, captured) for function in (cond_fn, body_fn)]
    return list(
        while_loop_op(
            lambda *operands: goes_on(*operands)[0], body, tuple(natives), tuple(captured)
        )
    )
