"""Reductions that leave NaN out; where nothing else is there they give NaN, without a warning.

Medians and quantiles of this kind are in quantiles.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml import ops
from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import dispatch
from ember_ml.ops.axes import axis_of
from ember_ml.ops.registry import ANY, BOOLEAN, FLOATING, NUMERIC, REAL, REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import Axis, DTypeLike, TensorLike

__all__: list[str] = [
    "nan_to_num",
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
]


def _filled(x: Tensor, value: float) -> tuple[Tensor, Tensor | None]:
    """`x` with a value in the place of NaN, and where NaN stood; None where it cannot stand."""
    if not (x.dtype.is_floating or x.dtype.is_complex):
        return x, None
    nans = ops.isnan(x)
    return ops.where(nans, value, x), nans


@op(accepts=ANY, lift="sum", standard=False)
def nansum(
    x: TensorLike, /, axis: Axis = None, *, dtype: DTypeLike = None, keepdims: bool = False
) -> Tensor:
    """The sum over `axis` of what is not NaN; zero where nothing else is there.

    >>> nansum([1.0, ops.nan, 2.0]).item()
    3.0
    """
    filled, _ = _filled(convert.to_tensor(x), 0)
    return ops.sum(filled, axis=axis, dtype=dtype, keepdims=keepdims)


@op(accepts=ANY, lift="sum", standard=False)
def nanprod(
    x: TensorLike, /, axis: Axis = None, *, dtype: DTypeLike = None, keepdims: bool = False
) -> Tensor:
    """The product over `axis` of what is not NaN; one where nothing else is there.

    >>> nanprod([3.0, ops.nan, 2.0]).item()
    6.0
    """
    filled, _ = _filled(convert.to_tensor(x), 1)
    return ops.prod(filled, axis=axis, dtype=dtype, keepdims=keepdims)


@op(accepts=FLOATING, lift="float", standard=False)
def nanmean(x: TensorLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The average over `axis` of what is not NaN.

    >>> nanmean([1.0, ops.nan, 3.0]).item()
    2.0
    """
    filled, nans = _filled(dispatch.lifted("nanmean", x), 0)
    options: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
    return ops.sum(filled, **options) / _known(filled, nans, options)


def _known(x: Tensor, nans: Any, options: dict[str, Any]) -> Tensor:
    """How many values over the axes are not NaN, in the real dtype of `x`."""
    real = ops.real(x).dtype if x.dtype.is_complex else x.dtype
    return convert.cast(ops.count_nonzero(ops.logical_not(nans), **options), real)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def nanvar(
    x: TensorLike,
    /,
    axis: Axis = None,
    *,
    correction: float = 0.0,
    ddof: float | None = None,
    keepdims: bool = False,
) -> Tensor:
    """The variance over `axis` of what is not NaN; `ddof` is NumPy's name of `correction`.

    NaN also where no more values are there than `correction`.

    >>> nanvar([1.0, ops.nan, 3.0]).item(), nanvar([1.0, ops.nan, 3.0], ddof=1).item()
    (1.0, 2.0)
    """
    filled, nans = _filled(dispatch.lifted("nanvar", x), 0)
    return _variance(filled, nans, axis, correction if ddof is None else ddof, keepdims)


@np.errstate(all="ignore")  # infinities have no mean to differ from
def _variance(filled: Tensor, nans: Any, axis: Axis, less: float, keepdims: bool) -> Tensor:
    options: dict[str, Any] = {"axis": axis, "keepdims": True}
    mean = ops.sum(filled, **options) / _known(filled, nans, options)
    squares = ops.where(nans, 0, ops.square(filled - mean))
    options["keepdims"] = keepdims
    count = _known(filled, nans, options)
    free = count - less
    return ops.sum(squares, **options) / ops.where(free > 0, free, ops.nan)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def nanstd(
    x: TensorLike,
    /,
    axis: Axis = None,
    *,
    correction: float = 0.0,
    ddof: float | None = None,
    keepdims: bool = False,
) -> Tensor:
    """The standard deviation over `axis` of what is not NaN.

    >>> nanstd([1.0, ops.nan, 3.0]).item()
    1.0
    """
    deviation = nanvar(x, axis, correction=correction, ddof=ddof, keepdims=keepdims)
    return dispatch.unary("root", deviation)


@op(accepts=REAL | BOOLEAN, standard=False)
def nanmax(x: TensorLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The largest value over `axis` that is not NaN.

    >>> nanmax([1.0, ops.nan, 3.0]).item()
    3.0
    """
    return _nan_extreme("max", x, axis, keepdims)


@op(accepts=REAL | BOOLEAN, standard=False)
def nanmin(x: TensorLike, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The smallest value over `axis` that is not NaN.

    >>> nanmin([1.0, ops.nan, 3.0]).item()
    1.0
    """
    return _nan_extreme("min", x, axis, keepdims)


def _nan_extreme(name: str, x: TensorLike, axis: Axis, keepdims: bool) -> Tensor:
    filled, nans = _filled(convert.to_tensor(x), -ops.inf if name == "max" else ops.inf)
    out = dispatch.reduce(name, filled, axis, keepdims)
    if nans is None:
        return out
    return ops.where(ops.all(nans, axis=axis, keepdims=keepdims), ops.nan, out)


@op(accepts=REAL | BOOLEAN, result="index", standard=False)
def nanargmax(x: TensorLike, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """The index of the first largest value that is not NaN; DomainError where there is none.

    >>> nanargmax([1.0, ops.nan, 3.0]).item()
    2
    """
    return _nan_place("nanargmax", x, axis, keepdims)


@op(accepts=REAL | BOOLEAN, result="index", standard=False)
def nanargmin(x: TensorLike, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """The index of the first smallest value that is not NaN; DomainError where there is none.

    >>> nanargmin([1.0, ops.nan, 3.0]).item()
    0
    """
    return _nan_place("nanargmin", x, axis, keepdims)


def _nan_place(name: str, x: TensorLike, axis: int | None, keepdims: bool) -> Tensor:
    largest = name == "nanargmax"
    tensor = convert.to_tensor(x)
    if not tensor.dtype.is_floating:
        find = ops.argmax if largest else ops.argmin
        return find(tensor, axis=axis, keepdims=keepdims)
    if axis is not None:
        axis = axis_of(name, axis, tensor.ndim)
    if (tensor.size if axis is None else tensor.shape[axis]) == 0:
        raise ShapeError(f"ops.{name} got shape {tensor.shape}; nothing has no {name[6:]}imum")
    nans = ops.isnan(tensor)
    known = ops.logical_not(nans)
    reads = tensor._spec.backend.checks_values(tensor.native)
    if tensor.size and reads and bool(ops.any(ops.all(nans, axis=axis))):
        raise DomainError(f"ops.{name} got shape {tensor.shape} with nothing but NaN in a line")
    filled = ops.where(nans, -ops.inf if largest else ops.inf, tensor)
    extreme = (ops.max if largest else ops.min)(filled, axis=axis, keepdims=True)
    # Where the extreme is infinite, a NaN that was filled in may stand before it.
    return ops.argmax(ops.logical_and(known, filled == extreme), axis=axis, keepdims=keepdims)


@op(accepts=NUMERIC | BOOLEAN, lift="sum", standard=False)
def nancumsum(x: TensorLike, /, axis: int | None = None, *, dtype: DTypeLike = None) -> Tensor:
    """The running sum along an axis, or of the flattened tensor, where NaN counts as zero.

    >>> nancumsum([1.0, ops.nan, 2.0]).tolist()
    [1.0, 1.0, 3.0]
    """
    return ops.cumsum(_filled(convert.to_tensor(x), 0)[0], axis, dtype=dtype)


@op(accepts=NUMERIC | BOOLEAN, lift="sum", standard=False)
def nancumprod(x: TensorLike, /, axis: int | None = None, *, dtype: DTypeLike = None) -> Tensor:
    """The running product along an axis, or of the flattened tensor, where NaN counts as one.

    >>> nancumprod([3.0, ops.nan, 2.0]).tolist()
    [3.0, 3.0, 6.0]
    """
    return ops.cumprod(_filled(convert.to_tensor(x), 1)[0], axis, dtype=dtype)


@op(accepts=REAL | BOOLEAN, standard=False)
def nan_to_num(
    x: TensorLike,
    /,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """NaN as a number, infinities as numbers: without any, the largest and smallest of the dtype.

    >>> nan_to_num([1.0, ops.nan, ops.inf], posinf=9.0).tolist()
    [1.0, 0.0, 9.0]
    """
    tensor = dispatch.lifted("nan_to_num", x)
    if not tensor.dtype.is_floating:
        return tensor.copy()
    limits = ops.finfo(tensor.dtype)
    out = ops.where(ops.isnan(tensor), nan, tensor)
    out = ops.where(out == ops.inf, limits.max if posinf is None else posinf, out)
    return ops.where(out == -ops.inf, limits.min if neginf is None else neginf, out)
