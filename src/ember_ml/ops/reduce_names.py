"""Reductions by the names `reduce_*`, with `axis` and `keepdims` by position as well."""

from __future__ import annotations

from ember_ml import ops
from ember_ml.ops.dispatch import reduce
from ember_ml.ops.registry import ANY, BOOLEAN, FLOATING, REAL, REAL_FLOATING, op
from ember_ml.tensor.core import Tensor
from ember_ml.typing import Axis, TensorLike

__all__: list[str] = [
    "reduce_all",
    "reduce_any",
    "reduce_logsumexp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_std",
    "reduce_sum",
    "reduce_var",
]


@op(accepts=ANY, lift="bool", result="bool", standard=False)
def reduce_all(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """True where all values over `axis` are true.

    >>> reduce_all([[True, False], [True, True]], 0).tolist()
    [True, False]
    """
    return reduce("all", x, axis, keepdims)


@op(accepts=ANY, lift="bool", result="bool", standard=False)
def reduce_any(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """True where any value over `axis` is true.

    >>> reduce_any([[True, False], [False, False]], 0).tolist()
    [True, False]
    """
    return reduce("any", x, axis, keepdims)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def reduce_logsumexp(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The logarithm of the sum of the exponentials over `axis`.

    >>> reduce_logsumexp([0.0]).item()
    0.0
    """
    return ops.logsumexp(x, axis, keepdims=keepdims)


@op(accepts=REAL | BOOLEAN, standard=False)
def reduce_max(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest value over `axis`.

    >>> reduce_max([[1, 5], [3, 2]], 0).tolist()
    [3, 5]
    """
    return reduce("max", x, axis, keepdims)


@op(accepts=FLOATING, lift="float", standard=False)
def reduce_mean(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The average over `axis`.

    >>> reduce_mean([[1.0, 5.0], [3.0, 2.0]], 1).tolist()
    [3.0, 2.5]
    """
    return reduce("mean", x, axis, keepdims)


@op(accepts=REAL | BOOLEAN, standard=False)
def reduce_min(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The smallest value over `axis`.

    >>> reduce_min([[1, 5], [3, 2]], 0).tolist()
    [1, 2]
    """
    return reduce("min", x, axis, keepdims)


@op(accepts=ANY, lift="sum", standard=False)
def reduce_prod(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The product over `axis`.

    >>> reduce_prod([[1, 2], [3, 4]], 0).tolist()
    [3, 8]
    """
    return reduce("prod", x, axis, keepdims)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def reduce_std(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The standard deviation over `axis`.

    >>> reduce_std([1.0, 3.0]).item()
    1.0
    """
    return ops.std(x, axis=axis, keepdims=keepdims)


@op(accepts=ANY, lift="sum", standard=False)
def reduce_sum(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis`.

    >>> reduce_sum([[1, 2], [3, 4]], 0).tolist()
    [4, 6]
    """
    return reduce("sum", x, axis, keepdims)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def reduce_var(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The variance over `axis`.

    >>> reduce_var([1.0, 3.0]).item()
    1.0
    """
    return ops.var(x, axis=axis, keepdims=keepdims)
