"""Short cuts through the rules of what small networks are made of.

In a walk that is not recorded these run instead of the rules over `ops`, with native arrays and
the kernels of their dtype, `xp`: a tensor around each step would cost more than the step. They are
for real numbers; where one gives NotImplemented, the rule goes on. A node keeps the shape of what
its rule does not want to see.
"""

from __future__ import annotations

from math import isfinite, prod
from typing import Any

import numpy as np

# The rules that are cut short.
from ember_ml.autodiff.rules import (  # noqa: F401
    activations,
    elementwise,
    losses,
    products,
    reduction,
)
from ember_ml.autodiff.tape import RULES, Node, Pull

__all__: list[str] = []


def _shortcut(name: str, *pulls: Pull) -> None:
    RULES[name] = RULES[name].shortened(pulls)


def _summed(xp: Any, g: Any, shape: tuple[int, ...]) -> Any:
    """The gradient of an operand that may have been broadcast."""
    have = g.shape
    if have == shape:
        return g
    ahead = len(have) - len(shape)
    if ahead == 1 and have[1:] == shape:  # a bias
        return xp.sum(g, axis=0, keepdims=False)
    axes = tuple(
        i for i, side in enumerate(have) if i < ahead or (shape[i - ahead] == 1 and side != 1)
    )
    # With its axes: NumPy would give a scalar where none is left.
    return xp.reshape(xp.sum(g, axis=axes, keepdims=True), shape)


# --- Sums and products --------------------------------------------------------------------------


def _add1(xp: Any, g: Any, node: Node) -> Any:
    shape = node.kept[0]
    return g if g.shape == shape else _summed(xp, g, shape)


def _add2(xp: Any, g: Any, node: Node) -> Any:
    shape = node.kept[1]
    return g if g.shape == shape else _summed(xp, g, shape)


def _subtract2(xp: Any, g: Any, node: Node) -> Any:
    return _summed(xp, xp.negative(g), node.kept[1])


def _multiply1(xp: Any, g: Any, node: Node) -> Any:
    a, b = node.kept
    return _summed(xp, xp.multiply(g, b), a.shape)


def _multiply2(xp: Any, g: Any, node: Node) -> Any:
    a, b = node.kept
    return _summed(xp, xp.multiply(g, a), b.shape)


def _matmul1(xp: Any, g: Any, node: Node) -> Any:
    a, b = node.kept
    if len(a.shape) == 2 == len(b.shape):
        return xp.matmul(g, xp.matrix_transpose(b))
    return NotImplemented


def _matmul2(xp: Any, g: Any, node: Node) -> Any:
    a, b = node.kept
    if len(a.shape) == 2 == len(b.shape):
        return xp.matmul(xp.matrix_transpose(a), g)
    return NotImplemented


def _linear_x(xp: Any, g: Any, node: Node) -> Any:
    return xp.matmul(g, node.kept[1])


def _linear_weight(xp: Any, g: Any, node: Node) -> Any:
    return xp.matmul(xp.matrix_transpose(_flat(xp, g)), _flat(xp, node.kept[0]))


def _linear_bias(xp: Any, g: Any, node: Node) -> Any:
    return xp.sum(_flat(xp, g), axis=0, keepdims=False)


def _flat(xp: Any, x: Any) -> Any:
    shape = x.shape
    return x if len(shape) == 2 else xp.reshape(x, (prod(shape[:-1]), shape[-1]))


_shortcut("linear", _linear_x, _linear_weight, _linear_bias)
_shortcut("add", _add1, _add2)
_shortcut("subtract", _add1, _subtract2)
_shortcut("multiply", _multiply1, _multiply2)
_shortcut("matmul", _matmul1, _matmul2)


# --- Functions of one operand -------------------------------------------------------------------


def _relu(xp: Any, g: Any, node: Node) -> Any:
    if type(g) is not np.ndarray:
        return NotImplemented
    # The result is not negative, so its sign is the slope: half the cost of a comparison in NumPy,
    # and a tenth of a choice. Infinity times no slope would be NaN: then it is to be a choice.
    found = np.multiply(g, xp.sign(node.facts[2]))
    return found if isfinite(np.add.reduce(found, None)) else NotImplemented


def _tanh(xp: Any, g: Any, node: Node) -> Any:
    return xp.subtract(g, xp.multiply(g, xp.square(node.facts[2])))


def _sigmoid(xp: Any, g: Any, node: Node) -> Any:
    y = node.facts[2]
    return xp.multiply(g, xp.subtract(y, xp.square(y)))


def _exp(xp: Any, g: Any, node: Node) -> Any:
    return xp.multiply(g, node.facts[2])


def _square(xp: Any, g: Any, node: Node) -> Any:
    (x,) = node.kept
    return xp.multiply(g, xp.add(x, x))


_shortcut("relu", _relu)
_shortcut("tanh", _tanh)
_shortcut("sigmoid", _sigmoid)
_shortcut("exp", _exp)
_shortcut("square", _square)


# --- Reductions of all axes ---------------------------------------------------------------------


def _sum(xp: Any, g: Any, node: Node) -> Any:
    axis, keepdims = node.facts[1]
    return xp.filled(g, node.kept[0]) if axis is None and not keepdims else NotImplemented


def _mean(xp: Any, g: Any, node: Node) -> Any:
    axis, keepdims = node.facts[1]
    if axis is not None or keepdims:
        return NotImplemented
    (shape,) = node.kept
    return xp.filled(xp.multiply(g, 1 / (prod(shape) or 1)), shape)


_shortcut("sum", _sum)
_shortcut("mean", _mean)


# --- A loss ---------------------------------------------------------------------------------------


def _of_rows(xp: Any, g: Any, node: Node) -> Any:
    slope, _, how = node.facts[1]
    return NotImplemented if how == "none" else xp.multiply(slope, g)


_shortcut("losses.of_rows", _of_rows)
