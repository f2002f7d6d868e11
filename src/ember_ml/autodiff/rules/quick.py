"""Short cuts through the rules of what small networks are made of.

In a walk that is not recorded these run instead of the rules over `ops`, with native arrays and
the kernels of their dtype, `xp`: a tensor around each step would cost more than the step. They are
for real numbers; where one gives NotImplemented, the rule goes on. A node keeps the shape of what
its rule does not want to see.

This is a file of the compiled core: see ember_ml/compiled.py.
"""

from __future__ import annotations

from math import isfinite, prod
from typing import Any, Final

import numpy as np

from ember_ml.autodiff.nodes import RULES, Node, Pull

# The rules that are cut short.
from ember_ml.autodiff.rules import (  # noqa: F401
    activations,
    elementwise,
    losses,
    products,
    reduction,
)
from ember_ml.backend.numpy import products as numpy_products
from ember_ml.backend.numpy.products import added_rows, product

__all__: list[str] = []

# Constants, which compiled code holds at hand.
_ARRAY: Final[Any] = np.ndarray
_MULTIPLY: Final[Any] = np.multiply
_SIGN: Final[Any] = np.sign
# Elements from which a comparison with zero is quicker than a sign.
_LONG: Final = 2048
# NumPy's kernel for products of matrices: where it is the one, it is called without detours.
_MATMUL: Final[Any] = numpy_products.matmul
# Lengths may be such as vary in an exported graph, which compiled code would take for plain ints.
_PROD: Final[Any] = prod


def _shortcut(name: str, *pulls: Pull) -> None:
    RULES[name] = RULES[name].shortened(pulls)


def _summed(xp: Any, g: Any, shape: Any) -> Any:
    """The gradient of an operand that may have been broadcast."""
    have = g.shape
    if have == shape:
        return g
    ahead = len(have) - len(shape)
    if ahead == 1 and have[1:] == shape:  # a bias
        return _rows(xp, g)
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
        matmul = xp.matmul
        return product(g, b.T) if matmul is _MATMUL else matmul(g, xp.matrix_transpose(b))
    return NotImplemented


def _matmul2(xp: Any, g: Any, node: Node) -> Any:
    a, b = node.kept
    if len(a.shape) == 2 == len(b.shape):
        matmul = xp.matmul
        return product(a.T, g) if matmul is _MATMUL else matmul(xp.matrix_transpose(a), g)
    return NotImplemented


def _linear_x(xp: Any, g: Any, node: Node) -> Any:
    weight = node.kept[1]
    matmul = xp.matmul
    return product(g, weight) if matmul is _MATMUL and g.ndim == 2 else matmul(g, weight)


def _linear_weight(xp: Any, g: Any, node: Node) -> Any:
    rows, x = _flat(xp, g), _flat(xp, node.kept[0])
    matmul = xp.matmul
    return product(rows.T, x) if matmul is _MATMUL else matmul(xp.matrix_transpose(rows), x)


def _linear_bias(xp: Any, g: Any, node: Node) -> Any:
    return _rows(xp, _flat(xp, g))


def _rows(xp: Any, g: Any) -> Any:
    """The sum over the first axis."""
    if type(g) is _ARRAY and g.ndim == 2 and g.dtype.char in "fd":
        return added_rows(g)
    return xp.sum(g, axis=0, keepdims=False)


def _flat(xp: Any, x: Any) -> Any:
    shape = x.shape
    return x if len(shape) == 2 else xp.reshape(x, (_PROD(shape[:-1]), shape[-1]))


_shortcut("linear", _linear_x, _linear_weight, _linear_bias)
_shortcut("add", _add1, _add2)
_shortcut("subtract", _add1, _subtract2)
_shortcut("multiply", _multiply1, _multiply2)
_shortcut("matmul", _matmul1, _matmul2)


# --- Functions of one operand -------------------------------------------------------------------


def _relu(xp: Any, g: Any, node: Node) -> Any:
    if type(g) is not _ARRAY:
        return NotImplemented
    # The result is not negative, so its sign is the slope: a quicker call than a comparison, whose
    # loop is the quicker one, since it does not branch. Both take a tenth of a choice. Infinity
    # times no slope would be NaN: then it is to be a choice. The product with itself tells, in half
    # the time of a sum; where it overflows, the choice is taken for nothing.
    y = node.facts[2]
    found = _MULTIPLY(g, _SIGN(y) if g.size < _LONG or g.dtype.char not in "fd" else y != 0)
    row = found.ravel("K")
    return found if isfinite(row.dot(row)) else NotImplemented


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
    count: Any = _PROD(shape) or 1
    return xp.filled(xp.multiply(g, 1 / count), shape)


_shortcut("sum", _sum)
_shortcut("mean", _mean)


# --- A loss ---------------------------------------------------------------------------------------


def _of_rows(xp: Any, g: Any, node: Node) -> Any:
    slope, _, how = node.facts[1]
    if how == "none" or slope is None:
        return NotImplemented
    # Mostly the loss is the end of it, and its gradient 1.
    return slope if g.item() == 1.0 else xp.multiply(slope, g)


_shortcut("losses.of_rows", _of_rows)
