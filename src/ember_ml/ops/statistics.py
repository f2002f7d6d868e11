"""Statistics: weighted averages, spread, covariance, running totals, the bell curve."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.ops import dispatch
from ember_ml.ops.axes import axes_of, axis_of
from ember_ml.ops.registry import BOOLEAN, FLOATING, NUMERIC, REAL, REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import Axis, DTypeLike, TensorLike

__all__: list[str] = [
    "amax",
    "amin",
    "average",
    "corrcoef",
    "cov",
    "cumprod",
    "cumsum",
    "gaussian",
    "ptp",
]


@op(accepts=REAL | BOOLEAN, standard=False)
def amax(x: TensorLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The largest value over `axis`: another name of `max`.

    >>> amax([1, 5, 3]).item()
    5
    """
    return dispatch.reduce("max", x, axis, keepdims)


@op(accepts=REAL | BOOLEAN, standard=False)
def amin(x: TensorLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The smallest value over `axis`: another name of `min`.

    >>> amin([1, 5, 3]).item()
    1
    """
    return dispatch.reduce("min", x, axis, keepdims)


@op(accepts=REAL, standard=False)
def ptp(x: TensorLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The largest value over `axis` less the smallest.

    >>> ptp([[1, 5], [3, 2]], axis=0).tolist()
    [2, 3]
    """
    tensor = dispatch.lifted("ptp", x)
    options: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
    return ops.max(tensor, **options) - ops.min(tensor, **options)


@op(accepts=FLOATING, lift="float", standard=False)
def average(
    x: TensorLike,
    /,
    axis: Axis = None,
    weights: TensorLike | None = None,
    *,
    keepdims: bool = False,
) -> Tensor:
    """The mean over `axis`, where each value counts by its weight.

    `weights` have the shape of `x`, or the axes that are averaged over, in the order of `axis`.
    Where they add to zero the result is what the division gives.

    >>> average([1.0, 2.0, 4.0], weights=[2, 1, 1]).item()
    2.0
    """
    if weights is None:
        return ops.mean(dispatch.lifted("average", x), axis=axis, keepdims=keepdims)
    home = dispatch.home_of("average", (x, weights))
    tensor = dispatch.lifted("average", convert.to_tensor(x, home))
    shares = convert.to_tensor(weights, home)
    axes = axes_of("average", axis, tensor.ndim)
    if shares.shape != tensor.shape:
        if shares.shape != tuple(tensor.shape[one] for one in axes):
            raise ShapeError(
                f"ops.average got shape {tensor.shape} and weights {shares.shape} for axis {axis}; "
                f"weights have the same shape, or that of the axes averaged over"
            )
        shares = ops.permute_dims(shares, sorted(range(len(axes)), key=axes.__getitem__))
        sides = (side if place in axes else 1 for place, side in enumerate(tensor.shape))
        shares = ops.reshape(shares, tuple(sides))
    if not shares.dtype.is_complex and shares.dtype is not tensor.dtype:
        shares = convert.cast(shares, dtypes.promote(shares.dtype, tensor.dtype, "average"))
    total = ops.sum(tensor * shares, axis=axes, keepdims=keepdims)
    weight = ops.sum(ops.broadcast_to(shares, tensor.shape), axis=axes, keepdims=keepdims)
    return total / weight


# --- Covariance -----------------------------------------------------------------------------


@op(accepts=FLOATING, lift="float", standard=False)
def cov(
    x: TensorLike,
    /,
    y: TensorLike | None = None,
    *,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: TensorLike | None = None,
    aweights: TensorLike | None = None,
) -> Tensor:
    """The covariance of variables, which are rows (columns without `rowvar`) of observations.

    Sums are divided by the number of observations less `ddof`, which is one unless `bias` is true.
    `fweights` says how often an observation was made, `aweights` how much it counts.

    >>> cov([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    matrix = _covariance("cov", x, y, rowvar, bias, ddof, fweights, aweights)
    return matrix[0, 0] if matrix.shape == (1, 1) else matrix


@op(accepts=FLOATING, lift="float", standard=False)
def corrcoef(x: TensorLike, /, y: TensorLike | None = None, *, rowvar: bool = True) -> Tensor:
    """The correlation of variables: their covariance in units of their deviations.

    >>> corrcoef([[0.0, 1.0, 2.0], [4.0, 2.0, 0.0]]).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    matrix = _covariance("corrcoef", x, y, rowvar, False, None, None, None)
    deviations = ops.sqrt(ops.real(ops.linalg.diagonal(matrix)))
    # One after the other: the product of two small deviations may vanish.
    out = matrix / deviations[:, None] / deviations[None, :]
    if not out.dtype.is_complex:
        out = ops.clip(out, -1, 1)  # rounding leads a little beyond
    return out[0, 0] if out.shape == (1, 1) else out


def _covariance(
    name: str,
    x: TensorLike,
    y: TensorLike | None,
    rowvar: bool,
    bias: bool,
    ddof: int | None,
    fweights: TensorLike | None,
    aweights: TensorLike | None,
) -> Tensor:
    home = dispatch.home_of(name, (x, y, fweights, aweights))
    rows = _variables(name, x, home, rowvar)
    if y is not None:
        others = _variables(name, y, home, rowvar)
        if others.shape[1] != rows.shape[1]:
            raise ShapeError(
                f"ops.{name} got {rows.shape[1]} and {others.shape[1]} observations; "
                f"there must be as many of both"
            )
        rows = ops.concat([rows, others], axis=0)
    correction = (0 if bias else 1) if ddof is None else ddof
    shares = _shares(name, rows, home, fweights, aweights)
    if shares is None:
        centred = rows - ops.mean(rows, axis=1, keepdims=True)
        products = ops.matmul(centred, ops.matrix_transpose(_conj(centred)))
        return ops.divide(products, max(rows.shape[1] - correction, 0))
    total = ops.sum(shares)
    centred = rows - ops.sum(rows * shares, axis=1, keepdims=True) / total
    products = ops.matmul(centred * shares, ops.matrix_transpose(_conj(centred)))
    if aweights is None:
        return products / ops.maximum(total - correction, 0)
    again = convert.cast(convert.to_tensor(aweights, home), shares.dtype)
    return products / ops.maximum(total - correction * ops.sum(shares * again) / total, 0)


def _conj(x: Tensor) -> Tensor:
    return ops.conj(x) if x.dtype.is_complex else x


def _variables(name: str, x: TensorLike, home: Any, rowvar: bool) -> Tensor:
    tensor = dispatch.lifted(name, convert.to_tensor(x, home))
    if tensor.ndim > 2:
        raise ShapeError(f"ops.{name} takes one or two axes, not shape {tensor.shape}")
    if tensor.ndim < 2:
        return ops.reshape(tensor, (1, -1))
    return tensor if rowvar else ops.matrix_transpose(tensor)


def _shares(name: str, rows: Tensor, home: Any, *weights: TensorLike | None) -> Tensor | None:
    """The product of the weights of observations, in a real dtype; None where there are none."""
    out: Tensor | None = None
    real = dtypes.real_of(rows.dtype)
    for place, one in enumerate(weights):
        if one is None:
            continue
        tensor = convert.to_tensor(one, home)
        if place == 0 and not tensor.dtype.is_integer:
            raise DTypeError(f"ops.{name} takes whole numbers as fweights, not {tensor.dtype}")
        if tensor.shape != (rows.shape[1],):
            raise ShapeError(
                f"ops.{name} got weights of shape {tensor.shape} for {rows.shape[1]} observations"
            )
        if home.checks_values(tensor.native) and bool((tensor.numpy() < 0).any()):
            raise DomainError(f"ops.{name} takes no negative weights")
        tensor = convert.cast(tensor, real)
        out = tensor if out is None else out * tensor
    return out


# --- Densities and running totals -----------------------------------------------------------


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def gaussian(x: TensorLike, /, mean: TensorLike = 0.0, std: TensorLike = 1.0) -> Tensor:
    """The density of the normal distribution with this mean and standard deviation.

    >>> round(gaussian(0.0).item(), 6), round(gaussian(3.0, mean=1.0, std=2.0).item(), 6)
    (0.398942, 0.120985)
    """
    if isinstance(std, int | float | np.number) and not std > 0:
        raise DomainError(f"ops.gaussian takes a positive std, not {std}")
    home = dispatch.home_of("gaussian", (x, mean, std))
    z = (dispatch.lifted("gaussian", convert.to_tensor(x, home)) - mean) / std
    return ops.divide(ops.exp(z * z * -0.5) * (1 / math.sqrt(2 * math.pi)), std)


@op(accepts=NUMERIC | BOOLEAN, lift="sum", standard=False)
def cumsum(x: TensorLike, /, axis: int | None = None, *, dtype: DTypeLike = None) -> Tensor:
    """The running sum along an axis, or of the flattened tensor.

    >>> cumsum([[1, 2], [3, 4]]).tolist()
    [1, 3, 6, 10]
    """
    return _running("cumsum", ops.cumulative_sum, x, axis, dtype)


@op(accepts=NUMERIC | BOOLEAN, lift="sum", standard=False)
def cumprod(x: TensorLike, /, axis: int | None = None, *, dtype: DTypeLike = None) -> Tensor:
    """The running product along an axis, or of the flattened tensor.

    >>> cumprod([[1, 2], [3, 4]]).tolist()
    [1, 2, 6, 24]
    """
    return _running("cumprod", ops.cumulative_prod, x, axis, dtype)


def _running(name: str, run: Any, x: TensorLike, axis: int | None, dtype: DTypeLike) -> Tensor:
    tensor = convert.to_tensor(x)
    if axis is None:
        tensor, axis = ops.reshape(tensor, (-1,)), 0
    if tensor.dtype is dtypes.bool and dtype is None:
        tensor = convert.cast(tensor, dtypes.int64)
    out: Tensor = run(tensor, axis=axis_of(name, axis, tensor.ndim), dtype=dtype)
    return out
