"""The gradient of recurrent layers, which are one kernel for all of their steps."""

from __future__ import annotations

from typing import Any, Final

from ember_ml import ops
from ember_ml.autodiff import backward, tape
from ember_ml.autodiff.tape import RULES, Rule
from ember_ml.backend.portable import recurrent as portable
from ember_ml.tensor.core import GradTensor, Tensor, fill

__all__: list[str] = []


class _Ops:
    """`ops` as the portable kernel calls them."""

    linear = staticmethod(ops.linear)
    relu = staticmethod(ops.relu)
    sigmoid = staticmethod(ops.sigmoid)
    tanh = staticmethod(ops.tanh)
    where = staticmethod(ops.where)

    @staticmethod
    def stack(rows: list[Tensor], axis: int) -> Tensor:
        return ops.stack(rows, axis=axis)

    @staticmethod
    def concat(parts: list[Tensor], axis: int) -> Tensor:
        return ops.concat(parts, axis=axis)


_OPS: Final = _Ops()


def _pull(
    g: list[Tensor | None], needs: tuple[bool, ...], y: Any, *args: Any, create: bool
) -> list[Tensor | None]:
    operands, (kind, kept) = args[: portable.ARRAYS], args[portable.ARRAYS :]
    if create:
        return _differentiable(g, operands, kind)
    spec = operands[0]._spec
    kernel, _ = spec.backend.entry(spec, "recurrent_grad")
    grads = [None if one is None else one.native for one in g]
    grads += [None] * (3 - len(grads))
    natives = [None if x is None else x.native for x in operands]
    found = kernel(*natives, *grads, kind, kept)
    return [
        fill(native, spec) if native is not None and needed else None
        for native, needed in zip(found, needs, strict=True)
    ]


def _differentiable(
    g: list[Tensor | None], operands: tuple[Any, ...], kind: str
) -> list[Tensor | None]:
    """By the steps one after the other on the tape, whose rules can be differentiated."""
    start = tape.next_order()
    with tape.set_grad_enabled(True):
        results = portable.recurrent(_OPS, *operands, kind, False)[:3]
    seeds = {
        result._node: one
        for result, one in zip(results, g, strict=False)
        if one is not None and type(result) is GradTensor
    }
    found = backward.pull_back(seeds, create=True, since=start)
    # Taken out: what is connected stands for all places of the same tensor at once.
    return [found.pop(x._node, None) if type(x) is GradTensor else None for x in operands]


RULES["recurrent"] = Rule("recurrent", (), _pull, keeps_inputs=True, keeps_output=True, told=True)
