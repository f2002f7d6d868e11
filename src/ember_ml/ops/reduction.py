"""Functions that summarise axes: sums, extremes, averages, truth, and running totals."""

from __future__ import annotations

import builtins

from ember_ml import dtypes
from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import dispatch, manipulation, reducing
from ember_ml.ops.axes import axes_of, axis_of, integer_of
from ember_ml.ops.dispatch import reduce
from ember_ml.ops.registry import ANY, BOOLEAN, FLOATING, NUMERIC, REAL, REAL_FLOATING, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill
from ember_ml.typing import Axis, DTypeLike, TensorLike

__all__ = [
    "all",
    "any",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "var",
]


@op(accepts=ANY, lift="bool", result="bool")
@reducing.truth
def all(x: TensorLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """True where all values over `axis` are true or not zero.

    >>> all([[True, False], [True, True]], axis=0).tolist()
    [True, False]
    """
    return reduce("all", x, axis, keepdims)


@op(accepts=ANY, lift="bool", result="bool")
@reducing.truth
def any(x: TensorLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """True where any value over `axis` is true or not zero.

    >>> any([[True, False], [False, False]], axis=0).tolist()
    [True, False]
    """
    return reduce("any", x, axis, keepdims)


@op(accepts=ANY, result="index")
@reducing.index
def count_nonzero(x: TensorLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """How many values over `axis` are not zero.

    >>> count_nonzero([0, 3, 4]).item()
    2
    """
    return reduce("count_nonzero", x, axis, keepdims)


@op(accepts=REAL | BOOLEAN)
@reducing.extreme
def max(x: TensorLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest value over `axis`; NaN where there is one.

    >>> max([[1, 5], [3, 2]], axis=0).tolist()
    [3, 5]
    """
    return reduce("max", x, axis, keepdims)


@op(accepts=REAL | BOOLEAN)
@reducing.extreme
def min(x: TensorLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The smallest value over `axis`; NaN where there is one.

    >>> min([[1, 5], [3, 2]], axis=0).tolist()
    [1, 2]
    """
    return reduce("min", x, axis, keepdims)


@op(accepts=ANY, lift="sum")
@reducing.total
def sum(
    x: TensorLike, /, *, axis: Axis = None, dtype: DTypeLike = None, keepdims: bool = False
) -> Tensor:
    """The sum over `axis`; small integers are added in 64 bits.

    >>> sum([[1, 2], [3, 4]], axis=0).tolist()
    [4, 6]
    """
    if dtype is None:
        return reduce("sum", x, axis, keepdims)
    return _in_dtype("sum", x, axis, dtype, keepdims)


@op(accepts=ANY, lift="sum")
@reducing.total
def prod(
    x: TensorLike, /, *, axis: Axis = None, dtype: DTypeLike = None, keepdims: bool = False
) -> Tensor:
    """The product over `axis`; small integers are multiplied in 64 bits.

    >>> prod([[1, 2], [3, 4]], axis=0).tolist()
    [3, 8]
    """
    if dtype is None:
        return reduce("prod", x, axis, keepdims)
    return _in_dtype("prod", x, axis, dtype, keepdims)


def _in_dtype(name: str, x: TensorLike, axis: Axis, dtype: DTypeLike, keepdims: bool) -> Tensor:
    wanted = dtypes.to_dtype(dtype)
    out = reduce(name, convert.cast(convert.to_tensor(x), wanted), axis, keepdims)
    return convert.cast(out, wanted)


@op(accepts=FLOATING, lift="float")
@reducing.average
def mean(x: TensorLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Average over `axis`; integers are promoted to the default float.

    >>> mean([1, 3]).item()
    2.0
    """
    return reduce("mean", x, axis, keepdims)


@op(accepts=REAL_FLOATING, lift="float")
@reducing.variance
def var(
    x: TensorLike,
    /,
    *,
    axis: Axis = None,
    correction: float = 0.0,
    keepdims: bool = False,
    ddof: float | None = None,
) -> Tensor:
    """Variance over `axis`, divided by the count less `correction`, which NumPy calls `ddof`.

    >>> var([1.0, 3.0]).item(), var([1.0, 3.0], correction=1).item()
    (1.0, 2.0)
    """
    tensor = convert.to_tensor(x)
    less = correction if ddof is None else ddof
    return dispatch.call("var", tensor, axes_of("var", axis, tensor.ndim), less, keepdims)


@op(accepts=REAL_FLOATING, lift="float")
@reducing.variance
def std(
    x: TensorLike,
    /,
    *,
    axis: Axis = None,
    correction: float = 0.0,
    keepdims: bool = False,
    ddof: float | None = None,
) -> Tensor:
    """Standard deviation over `axis`: the root of the variance.

    >>> std([1.0, 3.0]).item()
    1.0
    """
    less = correction if ddof is None else ddof
    return dispatch.unary("root", var(x, axis=axis, correction=less, keepdims=keepdims))


@op(accepts=NUMERIC, lift="sum")
def cumulative_sum(
    x: TensorLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike = None,
    include_initial: bool = False,
) -> Tensor:
    """The running sum along an axis; `include_initial` puts a zero before it.

    >>> cumulative_sum([1, 2, 3]).tolist()
    [1, 3, 6]
    """
    return _cumulative("cumulative_sum", x, axis, dtype, 0 if include_initial else None)


@op(accepts=NUMERIC, lift="sum")
def cumulative_prod(
    x: TensorLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike = None,
    include_initial: bool = False,
) -> Tensor:
    """The running product along an axis; `include_initial` puts a one before it.

    >>> cumulative_prod([1, 2, 3]).tolist()
    [1, 2, 6]
    """
    return _cumulative("cumulative_prod", x, axis, dtype, 1 if include_initial else None)


def _cumulative(
    name: str, x: TensorLike, axis: int | None, dtype: DTypeLike, initial: int | None
) -> Tensor:

    tensor = convert.to_tensor(x)
    wanted = None if dtype is None else dtypes.to_dtype(dtype)
    if wanted is not None:
        tensor = convert.cast(tensor, wanted)
    if axis is None:
        if tensor.ndim > 1:
            raise ShapeError(f"ops.{name} of shape {tensor.shape} takes an axis")
        tensor = manipulation.reshape(tensor, (-1,))
        axis = 0
    place = axis_of(name, axis, tensor.ndim)
    out = dispatch.call(name, tensor, place)
    if wanted is not None:
        out = convert.cast(out, wanted)
    if initial is None:
        return out
    spec = out._spec
    side = (*out.shape[:place], 1, *out.shape[place + 1 :])
    return manipulation.concat(
        [fill(spec.backend.full(side, initial, spec), spec), out], axis=place
    )


@op(accepts=NUMERIC)
def diff(
    x: TensorLike,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: TensorLike | None = None,
    append: TensorLike | None = None,
) -> Tensor:
    """The n-th differences between neighbours along an axis.

    Values to `prepend` and `append` have the shape of `x` besides that axis, or are one number.

    >>> diff([1, 4, 9]).tolist()
    [3, 5]
    >>> diff([1, 4, 9], prepend=0).tolist()
    [1, 3, 5]
    """
    tensor = convert.to_tensor(x)
    place = axis_of("diff", axis, tensor.ndim)
    times = integer_of("diff", n, "n")
    if times < 0:
        raise DomainError(f"ops.diff got n={times}; a count is not negative")
    if prepend is not None or append is not None:
        given = [part for part in (prepend, x, append) if part is not None]
        side = (*tensor.shape[:place], 1, *tensor.shape[place + 1 :])
        # A number stands for a slice of it, as in NumPy.
        parts = [
            part if part.ndim else manipulation.broadcast_to(part, side)
            for part in dispatch.aligned("diff", *given)
        ]
        tensor = manipulation.concat(parts, axis=place)
    before = (slice(None),) * place
    for _ in builtins.range(times):
        tensor = tensor[(*before, slice(1, None))] - tensor[(*before, slice(None, -1))]
    return tensor
