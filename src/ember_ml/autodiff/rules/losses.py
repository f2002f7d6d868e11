"""Gradients of losses."""

from __future__ import annotations

from typing import Any, Final

from ember_ml import ops
from ember_ml.autodiff import backward, tape
from ember_ml.autodiff.rules.table import rule
from ember_ml.autodiff.tape import RULES, Rule
from ember_ml.backend.portable import alignment as portable
from ember_ml.tensor import convert
from ember_ml.tensor.core import GradTensor, Tensor, fill

__all__: list[str] = []


def _of_rows(g: Tensor, y: Any, scores: Tensor, slope: Any, classes: Any, reduction: str) -> Tensor:
    """Probabilities less one for the class of each row: of ops, to be differentiated again."""
    count = scores.shape[0]
    truth = ops.one_hot(convert.wrap(classes, scores._spec.backend), scores.shape[1])
    found = ops.softmax(scores, axis=1) - convert.cast(truth, scores.dtype)
    if reduction == "none":
        return found * ops.expand_dims(g, -1)
    return found * (g / count if reduction == "mean" else g)


rule("losses.of_rows", _of_rows)


# --- Alignments -----------------------------------------------------------------------------------


class _Ops:
    """`ops` as the portable kernel calls them."""

    exp = staticmethod(ops.exp)
    log = staticmethod(ops.log)
    max = staticmethod(ops.max)
    maximum = staticmethod(ops.maximum)
    where = staticmethod(ops.where)

    @staticmethod
    def concat(parts: list[Tensor], axis: int) -> Tensor:
        return ops.concat(parts, axis=axis)


_OPS: Final = _Ops()


def _alignments(
    g: Tensor, needs: tuple[bool, ...], y: Any, first: Any, heard: Any, *args: Any, create: bool
) -> list[Tensor | None]:
    (*arrays, kept), spec = args, g._spec
    if not create and (kernel := spec.backend.overrides.get("alignments_grad")) is not None:
        both = kernel(first.native, heard.native, *arrays, g.native, kept)
        return [fill(native, spec) for native in both]
    # By the steps one after the other on the tape, whose rules can be differentiated.
    start = tape.next_order()
    inputs = [x if type(x) is GradTensor else tape.alias(x.native, spec) for x in (first, heard)]
    skips, live, wall = [convert.wrap(array, spec.backend) for array in arrays]
    with tape.set_grad_enabled(True):
        last, _ = portable.alignments(_OPS, inputs[0], inputs[1], skips, live, wall, False)
    found = backward.pull_back({last._node: g}, create=create, since=start)
    return [found.pop(x._node, None) for x in inputs]


RULES["alignments"] = Rule("alignments", (), _alignments, True, False, told=True)
