"""Control flow of torch: what make_fx records, and what transforms of functions wrap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor

from ember_ml.backend.control import Control
from ember_ml.backend.torch.tracing import is_fake, is_traced

if TYPE_CHECKING:
    from ember_ml.backend.contract import NativeArray
    from ember_ml.backend.control import Function, Natives

__all__ = ["TorchControl"]


class TorchControl(Control):
    """torch's operators of higher order under make_fx; masks under vmap."""

    def number(self, native: NativeArray) -> Any:
        if is_fake(native):
            return None  # where shapes are symbols, item() would give one more
        try:
            return native.item()
        except Exception:
            # Constants have values while make_fx traces, and so has all under torch.func.grad:
            # only the attempt tells.
            if is_traced(native):
                return None
            raise

    def cond(
        self, pred: NativeArray, true_fn: Function, false_fn: Function, natives: Natives
    ) -> list[NativeArray]:
        if is_functorch_wrapped_tensor(pred) or not _is_recording():
            return super().cond(pred, true_fn, false_fn, natives)
        from ember_ml.backend.torch import recording

        return recording.cond(pred, true_fn, false_fn, natives)

    def while_loop(
        self, cond_fn: Function, body_fn: Function, natives: Natives, name: str
    ) -> list[NativeArray]:
        if is_functorch_wrapped_tensor(cond_fn(*natives)[0]):
            return self._masked(cond_fn, body_fn, natives, name)
        if not _is_recording():
            return super().while_loop(cond_fn, body_fn, natives, name)
        from ember_ml.backend.torch import recording

        return recording.while_loop(cond_fn, body_fn, natives)

    def _masked(
        self, cond_fn: Function, body_fn: Function, natives: Natives, name: str
    ) -> list[NativeArray]:
        """The loop of a batch: as many steps as its slowest, the others stay as they are."""
        state = list(natives)
        while True:
            (goes_on,) = cond_fn(*state)
            some = goes_on
            while is_functorch_wrapped_tensor(some):
                some = get_unwrapped(some)
            going = self.number(some.any())
            if going is None:  # both vmap and make_fx are looking on
                return super().while_loop(cond_fn, body_fn, natives, name)
            if not going:
                return state
            state = self.select(goes_on, body_fn(*state), state)

    def rows(self, native: NativeArray) -> Sequence[NativeArray]:
        # One op, whose gradient is one op: slices would each add up an array of the whole size.
        rows: Sequence[NativeArray] = native.unbind(0)
        return rows

    def batch(
        self, function: Function, natives: Natives, axes: Sequence[int | None], size: int
    ) -> list[NativeArray] | None:
        if not size:
            return None

        def run(*inner: NativeArray) -> tuple[NativeArray, ...]:
            return tuple(function(*inner))

        batched = torch.func.vmap(run, in_dims=tuple(axes), randomness="different")
        try:
            # What is the same for all examples comes as one place in memory for all.
            return [n.contiguous() if 0 in n.stride() else n for n in batched(*natives)]
        except Exception:  # a value was read; where the mistake is the caller's, a loop says so
            return None


def _is_recording() -> bool:
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None
