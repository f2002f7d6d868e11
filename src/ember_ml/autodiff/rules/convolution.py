"""Gradients of convolutions, and of the windows that they look through.

A convolution, its transpose and the sum over all windows that gives the gradient of the weights
are one form of three operands, seen from each of them: their rules lead from one to another.
"""

from __future__ import annotations

from typing import Any

from ember_ml import ops
from ember_ml.autodiff.rules.table import joint_rule, rule
from ember_ml.ops.dispatch import call, together
from ember_ml.tensor.core import Tensor

__all__: list[str] = []

Sides = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def _spatial(x: Any, last: bool) -> Sides:
    shape: Sides = x.shape
    return shape[1:-1] if last else shape[2:]


def _extents(kernel: Sides, dilation: Sides) -> list[int]:
    return [(size - 1) * gap + 1 for size, gap in zip(kernel, dilation, strict=True)]


def _forth(
    x: Tensor,
    weight: Tensor,
    out: Sides,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    groups: int,
    last: bool,
) -> Tensor:
    """The convolution that gives so many windows; others, behind the last, are left out."""
    options = (stride, pairs, dilation, groups, last)
    made = together("conv", (x, weight, None), *options)
    if _spatial(made, last) == out:
        return made
    spans = tuple(slice(0, count) for count in out)
    return made[(slice(None), *spans) if last else (slice(None), slice(None), *spans)]


def _back(
    g: Tensor,
    weight: Tensor,
    size: Sides,
    stride: Sides,
    pairs: Pairs,
    dilation: Sides,
    groups: int,
    last: bool,
) -> Tensor:
    """The transpose of a convolution of something of this size."""
    more = tuple(
        side - ((count - 1) * step + extent - low - high)
        for side, count, step, extent, (low, high) in zip(
            size,
            _spatial(g, last),
            stride,
            _extents(weight.shape[2:], dilation),
            pairs,
            strict=True,
        )
    )
    options = (stride, pairs, more, dilation, groups, last)
    return together("conv_transpose", (g, weight, None), *options)


def _across(x: Tensor, g: Tensor, kernel: Sides, *options: Any) -> Tensor:
    """The gradient of the weights."""
    return together("conv", (x, g), kernel, *options, kernel="conv_weight")


def _bias(g: Tensor, last: bool) -> Tensor:
    return ops.sum(g, axis=tuple(range(g.ndim - 1)) if last else (0, *range(2, g.ndim)))


@joint_rule("conv")
def _conv(
    g: Tensor,
    needs: tuple[bool, ...],
    y: Any,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *options: Any,
) -> list[Tensor | None]:
    last = options[-1]
    return [
        _back(g, weight, _spatial(x, last), *options) if needs[0] else None,
        _across(x, g, weight.shape[2:], *options) if needs[1] else None,
        _bias(g, last) if needs[2] else None,
    ]


@joint_rule("conv_transpose")
def _conv_transpose(
    g: Tensor,
    needs: tuple[bool, ...],
    y: Any,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sides,
    pairs: Pairs,
    more: Sides,
    *rest: Any,
) -> list[Tensor | None]:
    options = (stride, pairs, *rest)
    last = options[-1]
    return [
        _forth(g, weight, _spatial(x, last), *options) if needs[0] else None,
        _across(g, x, weight.shape[2:], *options) if needs[1] else None,
        _bias(g, last) if needs[2] else None,
    ]


@joint_rule("conv_weight")
def _conv_weight(
    v: Tensor,
    needs: tuple[bool, ...],
    y: Any,
    x: Tensor,
    g: Tensor,
    kernel: Sides,
    *options: Any,
) -> list[Tensor | None]:
    last = options[-1]
    return [
        _back(g, v, _spatial(x, last), *options) if needs[0] else None,
        _forth(x, v, _spatial(g, last), *options) if needs[1] else None,
    ]


rule(
    "unfold",
    lambda g, y, x, kernel, stride, pairs, dilation: call(
        "fold", g, x.shape[2:], kernel, stride, pairs, dilation
    ),
    inputs=False,
)
rule("fold", lambda g, y, x, size, *options: call("unfold", g, *options), inputs=False)
