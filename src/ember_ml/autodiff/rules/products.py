"""Gradients of products: matmul, Einstein's notation, and the transpose that both need."""

from __future__ import annotations

import math
from typing import Any

from ember_ml import ops
from ember_ml.autodiff.rules.shapes import summed_to
from ember_ml.autodiff.rules.table import joint_rule, rule
from ember_ml.backend import pairs
from ember_ml.ops import contraction
from ember_ml.ops.dispatch import binary, unary
from ember_ml.tensor.core import Tensor

__all__: list[str] = []


def _transpose(g: Tensor, y: Any, x: Any) -> Tensor:
    return unary("matrix_transpose", g)


rule("matrix_transpose", _transpose, inputs=False)


# --- matmul -----------------------------------------------------------------------------------


def _adjoint(x: Tensor) -> Tensor:
    turned = unary("matrix_transpose", x)
    return unary("conj", turned) if x._spec.dtype.is_complex else turned


# Two matrices are what networks multiply all the time: nothing is asked of them but their axes.


def _matmul1(g: Tensor, y: Any, a: Tensor, b: Tensor) -> Tensor:
    if len(a.native.shape) == 2 and len(b.native.shape) == 2:
        return binary(pairs.MATMUL, g, _adjoint(b))
    return _first(g, a, b)


def _matmul2(g: Tensor, y: Any, a: Tensor, b: Tensor) -> Tensor:
    if len(a.native.shape) == 2 and len(b.native.shape) == 2:
        return binary(pairs.MATMUL, _adjoint(a), g)
    return _second(g, a, b)


rule("matmul", _matmul1, _matmul2)


def _first(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """By the first factor, where one is a vector or stacks are broadcast."""
    row, column = a.ndim == 1, b.ndim == 1
    g = _as_matrices(g, row, column)
    if column:
        # A product with one column is a product of pairs.
        side = ops.multiply(g, _conj(b))
    else:
        side = binary(pairs.MATMUL, g, _adjoint(b))
    return summed_to(ops.squeeze(side, -2) if row else side, a)


def _second(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
    row, column = a.ndim == 1, b.ndim == 1
    g = _as_matrices(g, row, column)
    if a.ndim > 2 and b.ndim <= 2:
        # One matrix beside a stack of others: a single product sums over the stack as well.
        count = math.prod(a.shape[:-1])
        tall, right = ops.reshape(a, (count, a.shape[-1])), ops.reshape(g, (count, g.shape[-1]))
        return ops.reshape(binary(pairs.MATMUL, _adjoint(tall), right), b.shape)
    turned = ops.expand_dims(_conj(a), -1) if row else _adjoint(a)
    side = ops.multiply(turned, g) if row else binary(pairs.MATMUL, turned, g)
    return summed_to(ops.squeeze(side, -1) if column else side, b)


def _linear_x(g: Tensor, y: Any, x: Any, weight: Tensor, bias: Any) -> Tensor:
    return binary(pairs.MATMUL, g, weight)


def _linear_weight(g: Tensor, y: Any, x: Tensor, weight: Any, bias: Any) -> Tensor:
    return binary(pairs.MATMUL, unary("matrix_transpose", _flat(g)), _flat(x))


def _linear_bias(g: Tensor, y: Any, x: Any, weight: Any, bias: Any) -> Tensor:
    return ops.sum(_flat(g), axis=0)


def _flat(x: Tensor) -> Tensor:
    """All rows of a stack in one matrix."""
    shape = x.shape
    return x if len(shape) == 2 else ops.reshape(x, (math.prod(shape[:-1]), shape[-1]))


rule("linear", _linear_x, _linear_weight, _linear_bias)


def _as_matrices(g: Tensor, row: bool, column: bool) -> Tensor:
    if row:
        g = ops.expand_dims(g, -1 if column else -2)
    return ops.expand_dims(g, -1) if column else g


def _conj(x: Tensor) -> Tensor:
    return ops.conj(x) if x.dtype.is_complex else x


# --- Einstein's notation ------------------------------------------------------------------------


@joint_rule("contract")
def _contract(g: Tensor, needs: tuple[bool, ...], y: Any, *given: Any) -> list[Tensor | None]:
    """A contraction of the gradient with all other operands, in other places."""
    *tensors, terms, output = given
    found: list[Tensor | None] = []
    for place, (x, term) in enumerate(zip(tensors, terms, strict=True)):
        if not needs[place]:
            found.append(None)
            continue
        others = [_conj(t) for i, t in enumerate(tensors) if i != place]
        labels = (output, *(t for i, t in enumerate(terms) if i != place))
        known = {label for one in labels for label in one}
        kept = tuple(label for label in term if label in known)
        side = contraction.contracted([g, *others], labels, kept)
        if kept != term:
            # What nobody else has was summed over alone.
            wide = tuple(n if label in known else 1 for label, n in zip(term, x.shape, strict=True))
            side = ops.broadcast_to(ops.reshape(side, wide), x.shape)
        found.append(side)
    return found
