"""Where torch differs from the standard in name, arguments or meaning."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

import torch

from ember_ml.backend.contract import Kernel
from ember_ml.backend.torch.tracing import is_traced, readable
from ember_ml.errors import LinAlgError, ShapeError

__all__ = ["ALIASES", "HOSTED", "OVERRIDES", "WHOLE"]

Tensor = torch.Tensor

ALIASES: Final = {
    "bitwise_invert": "bitwise_not",
    "cumulative_prod": "cumprod",
    "cumulative_sum": "cumsum",
    "equal": "eq",
    "permute_dims": "permute",
}
# Ops that torch lacks for a whole kind of dtypes, and that no gradient passes.
HOSTED: Final[dict[str, frozenset[str]]] = {
    "complex floating": frozenset(("isin", "unique_all")),
}


# --- Reductions -------------------------------------------------------------------------------


def _reduction(reduce: Kernel) -> Kernel:
    """A reduction in NumPy's manner: torch takes no axes for all axes, and 0-d for 1-d."""

    def kernel(x: Tensor, *, axis: Any = None, keepdims: bool = False) -> Any:
        if axis is None:
            if not keepdims:
                return reduce(x)
            axis = tuple(range(x.ndim))
        if isinstance(axis, tuple) and not axis:
            return x.clone()
        if not x.ndim:
            raise IndexError("a 0-d tensor has no axes")
        if isinstance(axis, list):
            raise TypeError("several axes are a tuple, not a list")
        return reduce(x, axis, keepdims)

    return kernel


def _extreme(name: str, reduce: Kernel) -> Kernel:
    run = _reduction(reduce)

    def kernel(x: Tensor, *, axis: Any = None, keepdims: bool = False) -> Any:
        try:
            if axis is None and not keepdims:
                return reduce(x)
            return run(x, axis=axis, keepdims=keepdims)
        except (IndexError, RuntimeError):
            _not_empty(name, x, axis)
            raise

    return kernel


def _not_empty(name: str, x: Tensor, axis: Any) -> None:
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    places = {a % x.ndim for a in axes if -x.ndim <= a < x.ndim}
    # Axes that are wrong are the mistake to tell of, which the caller does.
    if len(places) == len(axes) and not all(x.shape[a] for a in places):
        raise ShapeError(f"ops.{name} got shape {tuple(x.shape)}; nothing has no {name}imum")


def _prod(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    if axis is None:
        return torch.prod(x)
    if not isinstance(axis, tuple):
        return torch.prod(x, axis, keepdims)
    # torch multiplies along one axis at a time.
    axes = sorted({a % x.ndim for a in axis if -x.ndim <= a < x.ndim}, reverse=True)
    if len(axes) < len(axis):
        raise IndexError("an axis is given twice or out of range")
    for one in axes:
        x = torch.prod(x, one, keepdims)
    return x


def _truth(reduce: Kernel) -> Kernel:
    run = _reduction(reduce)

    def kernel(x: Tensor, *, axis: Any = None, keepdims: bool = False) -> Any:
        out = run(x, axis=axis, keepdims=keepdims)
        return out if out.dtype is torch.bool else out.to(torch.bool)  # uint8 stays uint8

    return kernel


_sum = _reduction(torch.sum)


def count_nonzero(x: Tensor, *, axis: Any = None, keepdims: bool = False) -> Any:
    # torch.count_nonzero keeps no axes.
    return _sum(torch.ne(x, 0).to(torch.int64), axis=axis, keepdims=keepdims)


def var(x: Tensor, axes: tuple[int, ...], correction: float, keepdims: bool) -> Any:
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    if axes and x.numel() and count > correction:
        return torch.var(x, axes, correction=correction, keepdim=keepdims)
    # Without degrees of freedom torch warns; without axes it takes all.
    squares = torch.square(x - _mean(x, axis=axes, keepdims=True))
    return _sum(squares, axis=axes, keepdims=keepdims) / max(count - correction, 0)


_mean = _reduction(torch.mean)


def root(x: Tensor) -> Tensor:
    """The square root whose slope at zero counts as zero; torch has infinity there."""
    if not x.requires_grad:
        return torch.sqrt(x)
    zero = x == 0
    return torch.sqrt(x.masked_fill(zero, 1)).masked_fill(zero, 0)


def argmax(x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    if axis is None:
        return _whole(torch.argmax(_sortable(x)), x, keepdims)
    return torch.argmax(_sortable(x), axis, keepdims)


def argmin(x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    if axis is None:
        return _whole(torch.argmin(_sortable(x)), x, keepdims)
    return torch.argmin(_sortable(x), axis, keepdims)


def _whole(index: Tensor, x: Tensor, keepdims: bool) -> Tensor:
    # Under vmap, torch itself keeps one axis of all that it reduces.
    return index.reshape((1,) * x.ndim) if keepdims else index


def _sortable(x: Tensor) -> Tensor:
    return x.to(torch.uint8) if x.dtype is torch.bool else x


# --- Moves ------------------------------------------------------------------------------------


def take(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    return x[(slice(None),) * axis + (indices,)]


def take_along_axis(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    # torch gathers at non-negative indices only.
    return torch.gather(x, axis, torch.where(indices < 0, indices + x.shape[axis], indices))


def embed(table: Tensor, indices: Tensor) -> Tensor:
    # A third of the time of an index; of non-negative indices only.
    inside = torch.where(indices < 0, indices + table.shape[0], indices)
    return torch.nn.functional.embedding(inside, table)


def embed_checked(table: Tensor, indices: Tensor) -> Tensor | None:
    """The same where torch looks itself whether indices lie within the table: on the CPU."""
    if not indices.is_cpu or is_traced(indices):
        return None
    try:
        return torch.embedding(table, indices)
    except IndexError:  # an index counted from the end, or one beyond
        return None


# --- Order and sets ---------------------------------------------------------------------------


def sort(x: Tensor, axis: int, descending: bool, stable: bool) -> Tensor:
    return torch.sort(x, dim=axis, descending=descending, stable=stable).values


def argsort(x: Tensor, axis: int, descending: bool, stable: bool) -> Tensor:
    return torch.argsort(x, dim=axis, descending=descending, stable=stable)


def searchsorted(x: Tensor, y: Tensor, side: str) -> Tensor:
    if not x.is_floating_point():
        return torch.searchsorted(x, y.contiguous(), side=side)
    # torch gets lost among NaNs, which count as the largest values.
    nans = torch.isnan(x)
    count = x.shape[0] - nans.sum()
    found = torch.searchsorted(torch.where(nans, torch.inf, x), y.contiguous(), side=side)
    last = count if side == "left" else x.shape[0]
    return torch.where(torch.isnan(y), last, torch.minimum(found, count))


def unique_all(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    flat = x.reshape(-1)
    order = torch.argsort(flat, stable=True)
    ordered = flat[order]
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    starts = torch.nonzero(first).reshape(-1)
    inverse = torch.empty_like(order)
    inverse[order] = torch.cumsum(first, 0) - 1
    ends = torch.full((1,), len(flat), dtype=torch.int64, device=x.device)
    counts = torch.diff(starts, append=ends)
    return ordered[starts], order[starts], inverse.reshape(x.shape), counts


def nonzero(x: Tensor) -> tuple[Tensor, ...]:
    return torch.nonzero(x, as_tuple=True)


def isin(x: Tensor, y: Tensor, invert: bool) -> Tensor:
    return torch.isin(_sortable(x), _sortable(y), invert=invert)


# --- Linear algebra ---------------------------------------------------------------------------


def cholesky(x: Tensor, upper: bool) -> Any:
    _require_finite("cholesky", x)
    try:
        return torch.linalg.cholesky(x, upper=upper)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # its stubs lack it
        raise LinAlgError(
            "ops.linalg.cholesky got a matrix that is not positive definite"
        ) from None


def solve(x: Tensor, y: Tensor) -> Any:
    # torch takes a matrix beside a stack of matrices for a stack of vectors.
    return torch.linalg.solve(x, y[(None,) * (x.ndim - y.ndim)])


def _finite(name: str) -> Kernel:
    """A factorisation that refuses infinities and NaNs, on which LAPACK may end the process."""
    factorise: Kernel = getattr(torch.linalg, name)

    def kernel(x: Tensor, *options: Any) -> Any:
        _require_finite(name, x)
        return factorise(x, *options)

    return kernel


def _require_finite(name: str, x: Tensor) -> None:
    if readable(x) and not bool(torch.isfinite(x).all()):
        raise LinAlgError(f"ops.linalg.{name} takes finite numbers, not NaN or infinity")


def _transform(name: str) -> Kernel:
    """A Fourier transform that takes tensors without elements, as MKL does not."""
    transform: Kernel = getattr(torch.fft, name)

    def kernel(x: Tensor, length: Any, axis: Any, norm: str) -> Any:
        if x.numel():
            return transform(x, length, axis, norm)
        axes = axis if isinstance(axis, tuple) else (axis,)
        out = transform(x.new_zeros([side or 1 for side in x.shape]), length, axis, norm)
        bounds = (side if i not in axes else None for i, side in enumerate(x.shape))
        return out[tuple(slice(bound) for bound in bounds)]

    return kernel


_TRANSFORMS: Final = "fft ifft rfft irfft hfft ihfft fftn ifftn rfftn irfftn".split()

OVERRIDES: Final[dict[str, Kernel]] = {
    **{
        kernel.__name__: kernel
        for kernel in (
            count_nonzero,
            var,
            root,
            argmax,
            argmin,
            take,
            take_along_axis,
            embed,
            embed_checked,
            sort,
            argsort,
            searchsorted,
            unique_all,
            nonzero,
            isin,
        )
    },
    "sum": _sum,
    "mean": _mean,
    "prod": _reduction(_prod),
    "max": _extreme("max", torch.amax),
    "min": _extreme("min", torch.amin),
    "all": _truth(torch.all),
    "any": _truth(torch.any),
    "matrix_transpose": attrgetter("mT"),
    "positive": torch.clone,  # torch.positive gives its argument
    "linalg.cholesky": cholesky,
    "linalg.solve": solve,
    **{f"linalg.{name}": _finite(name) for name in ("eig", "eigvals", "eigvalsh", "svdvals")},
    **{f"fft.{name}": _transform(name) for name in _TRANSFORMS},
}
WHOLE: Final[dict[Kernel, Kernel]] = {_sum: torch.sum, _mean: torch.mean}
