"""Losses of numbers: how far predicted values are from true ones."""

from __future__ import annotations

import math
from typing import Any

from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import elementwise, scoring
from ember_ml.ops.axes import broadcast
from ember_ml.ops.reduction import any as any_of
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.ops.scoring import checked_reduction, reduced, same_shape
from ember_ml.ops.searching import where
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["gaussian_nll", "huber", "log_cosh", "mae", "mse", "poisson_nll", "smooth_l1"]


def _error(name: str, predictions: TensorLike, targets: TensorLike, reduction: str) -> Any:
    checked_reduction(name, reduction)
    (a, b), dtype = scoring.operands(name, predictions, targets)
    same_shape(name, a, b)
    return elementwise.subtract(a, b), dtype


@op("losses.mse", accepts=REAL_FLOATING, lift="float", arity=2, standard=False)
def mse(predictions: TensorLike, targets: TensorLike, /, *, reduction: str = "mean") -> Tensor:
    """The mean squared error.

    >>> mse([1.0, 2.0], [1.0, 4.0]).item()
    2.0
    """
    error, dtype = _error("losses.mse", predictions, targets, reduction)
    return reduced(elementwise.square(error), reduction, dtype)


@op("losses.mae", accepts=REAL_FLOATING, lift="float", arity=2, standard=False)
def mae(predictions: TensorLike, targets: TensorLike, /, *, reduction: str = "mean") -> Tensor:
    """The mean absolute error.

    >>> mae([1.0, 2.0], [1.0, 4.0]).item()
    1.0
    """
    error, dtype = _error("losses.mae", predictions, targets, reduction)
    return reduced(elementwise.abs(error), reduction, dtype)


@op("losses.huber", accepts=REAL_FLOATING, lift="float", arity=2, standard=False)
def huber(
    predictions: TensorLike,
    targets: TensorLike,
    /,
    *,
    delta: float = 1.0,
    reduction: str = "mean",
) -> Tensor:
    """Half the square of errors up to `delta`, a straight line beyond.

    >>> huber([0.0, 0.0], [1.0, 3.0], reduction="none").tolist()
    [0.5, 2.5]
    """
    if not delta > 0:
        raise DomainError(f"ops.losses.huber got delta={delta}; it must be positive")
    error, dtype = _error("losses.huber", predictions, targets, reduction)
    # Up to delta the error counts whole; what is beyond is added as a line.
    size = elementwise.abs(error)
    inner = elementwise.minimum(size, delta)
    outer = elementwise.subtract(size, inner)
    losses = elementwise.add(
        elementwise.multiply(elementwise.square(inner), 0.5), elementwise.multiply(outer, delta)
    )
    return reduced(losses, reduction, dtype)


@op("losses.smooth_l1", accepts=REAL_FLOATING, lift="float", arity=2, standard=False)
def smooth_l1(
    predictions: TensorLike,
    targets: TensorLike,
    /,
    *,
    beta: float = 1.0,
    reduction: str = "mean",
) -> Tensor:
    """The absolute error, rounded off below `beta`: `huber` divided by its delta.

    >>> smooth_l1([0.0, 0.0], [1.0, 3.0], beta=2.0, reduction="none").tolist()
    [0.25, 2.0]
    """
    if not beta >= 0:
        raise DomainError(f"ops.losses.smooth_l1 got beta={beta}; it must not be negative")
    error, dtype = _error("losses.smooth_l1", predictions, targets, reduction)
    size = elementwise.abs(error)
    if not beta:
        return reduced(size, reduction, dtype)
    inner = elementwise.minimum(size, beta)
    outer = elementwise.subtract(size, inner)
    losses = elementwise.add(elementwise.multiply(elementwise.square(inner), 0.5 / beta), outer)
    return reduced(losses, reduction, dtype)


@op("losses.log_cosh", accepts=REAL_FLOATING, lift="float", arity=2, standard=False)
def log_cosh(predictions: TensorLike, targets: TensorLike, /, *, reduction: str = "mean") -> Tensor:
    """The logarithm of the hyperbolic cosine of errors: a square that turns into a line.

    >>> log_cosh([0.0], [0.0]).item()
    0.0
    """
    error, dtype = _error("losses.log_cosh", predictions, targets, reduction)
    # cosh(e) - 1 is 2 sinh(e / 2) ** 2, which keeps small errors; the other way keeps large ones.
    small = elementwise.less(elementwise.abs(error), 1.0)
    near = elementwise.sinh(elementwise.multiply(where(small, error, 0.0), 0.5))
    close = elementwise.log1p(elementwise.multiply(elementwise.square(near), 2.0))
    size = elementwise.abs(error)
    far = elementwise.add(size, scoring.softplus(elementwise.multiply(size, -2.0)))
    losses = where(small, close, elementwise.subtract(far, math.log(2.0)))
    return reduced(losses, reduction, dtype)


@op("losses.poisson_nll", accepts=REAL_FLOATING, lift="float", arity=2, standard=False)
def poisson_nll(
    predictions: TensorLike,
    targets: TensorLike,
    /,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood of counts under Poisson distributions with predicted rates.

    Predictions are logarithms of rates; with `log_input=False` rates, to which `eps` is added
    before their logarithm is taken. `full` adds Stirling's approximation of the part that does
    not depend on predictions, for targets above 1.

    >>> poisson_nll([0.0], [3.0]).item()
    1.0
    """
    name = "losses.poisson_nll"
    checked_reduction(name, reduction)
    (rate, count), dtype = scoring.operands(name, predictions, targets)
    same_shape(name, rate, count)
    if log_input:
        losses = elementwise.subtract(elementwise.exp(rate), elementwise.multiply(count, rate))
    else:
        logs = elementwise.log(elementwise.add(rate, eps))
        losses = elementwise.subtract(rate, elementwise.multiply(count, logs))
    if full:
        large = elementwise.greater(count, 1.0)
        safe = where(large, count, 1.0)
        logs = elementwise.log(safe)
        stirling = safe * logs - safe + 0.5 * (logs + math.log(2 * math.pi))
        losses = elementwise.add(losses, where(large, stirling, 0.0))
    return reduced(losses, reduction, dtype)


@op("losses.gaussian_nll", accepts=REAL_FLOATING, lift="float", arity=3, standard=False)
def gaussian_nll(
    predictions: TensorLike,
    targets: TensorLike,
    variance: TensorLike,
    /,
    *,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood of values under normal distributions with predicted means.

    `variance` broadcasts to the predictions, and counts as at least `eps`; `full` adds the
    constant `log(2 pi) / 2`.

    >>> gaussian_nll([1.0], [3.0], [1.0]).item()
    2.0
    """
    name = "losses.gaussian_nll"
    checked_reduction(name, reduction)
    (mean, value, spread), dtype = scoring.operands(name, predictions, targets, variance)
    same_shape(name, mean, value)
    shape = mean.shape or value.shape
    if broadcast(name, [shape, spread.shape]) != shape:
        raise ShapeError(
            f"ops.{name} got variances of shape {spread.shape}, which do not broadcast to {shape}"
        )
    readable = spread.size and spread._spec.backend.checks_values(spread.native)
    if readable and bool(any_of(elementwise.less(spread, 0.0))):
        raise DomainError(f"ops.{name} got a negative variance")
    spread = elementwise.maximum(spread, eps)
    error = elementwise.square(elementwise.subtract(mean, value))
    losses = elementwise.multiply(
        elementwise.add(elementwise.log(spread), elementwise.divide(error, spread)), 0.5
    )
    if full:
        losses = elementwise.add(losses, 0.5 * math.log(2 * math.pi))
    return reduced(losses, reduction, dtype)
