"""Where NumPy differs from the standard, or has a shorter way."""

from __future__ import annotations

import math
from contextvars import Context
from functools import partial
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy._core import umath

from ember_ml.backend.contract import Kernel, NativeArray
from ember_ml.errors import DomainError, IntegerDivisionError, LinAlgError

__all__ = ["NOISY", "OVERRIDES", "hush", "quiet", "unhush"]

# Kernels take arrays of any dtype, which NumPy's own annotations cannot follow.
Array = NativeArray


# --- Silence ----------------------------------------------------------------------------------

# log(0) and 0/0 are values here, as in every other engine, and no warnings. np.errstate costs a
# microsecond a call, twice the call itself; NumPy keeps its state in a context variable that can
# be set for a sixth of that. Where that private name is gone, np.errstate serves.
_state: Any = getattr(umath, "_extobj_contextvar", None)
_make_state: Any = getattr(umath, "_make_extobj", None)
_silent: Any = _make_state and _make_state(all="ignore")
# Contexts in which nothing warns. Entering one is cheaper still, and ufuncs ask for no other
# variable; it belongs to one call at a time, whatever threads and finalizers do meanwhile.
_contexts: list[Context] = []


if _state is None or _make_state is None:

    def hush() -> Any:
        """Let NumPy warn of nothing until `unhush` gets what this gives."""
        block = np.errstate(all="ignore")
        block.__enter__()
        return block

    def unhush(token: Any) -> None:
        """Let NumPy warn again as before `hush`."""
        token.__exit__(None, None, None)

else:
    hush, unhush = partial(_state.set, _silent), _state.reset


def _silent_context() -> Context:
    made = Context()
    made.run(_state.set, _silent)
    return made


def quiet(kernel: Kernel) -> Kernel:
    """A kernel that computes infinities and NaN without warnings."""
    if _state is not None and _make_state and isinstance(kernel, np.ufunc) and kernel.nin <= 2:
        return _quiet_ufunc(kernel)

    def fast(*args: Any, **named: Any) -> Any:
        token = hush()
        try:
            return kernel(*args, **named)
        finally:
            unhush(token)

    return fast


def _quiet_ufunc(ufunc: np.ufunc) -> Kernel:
    """The same for a ufunc; arguments that are gathered and spread cost more than all the rest."""
    take, give = _contexts.pop, _contexts.append

    def unary(x: Array, /) -> Any:
        try:
            context = take()
        except IndexError:
            context = _silent_context()
        try:
            return context.run(ufunc, x)
        finally:
            give(context)

    def binary(x1: Array, x2: Array, /) -> Any:
        try:
            context = take()
        except IndexError:
            context = _silent_context()
        try:
            return context.run(ufunc, x1, x2)
        finally:
            give(context)

    return unary if ufunc.nin == 1 else binary


# --- Reductions: np.sum and its like are Python around these ---------------------------------


def _reduction(ufunc: np.ufunc) -> Kernel:
    reduce: Any = ufunc.reduce  # its overloads cannot say that keepdims is a variable

    def kernel(x: Array, *, axis: Any = None, keepdims: bool = False) -> Any:
        if axis is not None:
            _require_axes(x, axis)
        return reduce(x, axis=axis, keepdims=keepdims)

    return kernel


def _require_axes(x: Array, axis: Any) -> None:
    if not x.ndim and axis != ():
        # NumPy lets axes 0 and -1 pass. The caller tells what was called, as of other axes.
        raise np.exceptions.AxisError(f"a 0-d tensor has no axis {axis}")


_sum = _reduction(np.add)


def mean(x: Array, *, axis: Any = None, keepdims: bool = False) -> Any:
    if x.dtype.itemsize == 2:  # sums of float16 overflow where their mean does not
        return mean(x.astype(np.float32), axis=axis, keepdims=keepdims).astype(x.dtype)
    total = _sum(x, axis=axis, keepdims=keepdims)
    if axis is None:
        count = x.size
    elif isinstance(axis, tuple):
        count = math.prod(x.shape[a] for a in axis)
    else:
        count = x.shape[axis]
    return total / x.dtype.type(count)


def var(x: Array, axes: tuple[int, ...], correction: float, keepdims: bool) -> Any:
    centred = x - mean(x, axis=axes, keepdims=True)
    count = math.prod(x.shape[a] for a in axes) - correction
    total = np.sum(np.square(centred), axis=axes, keepdims=keepdims)
    return total / x.dtype.type(max(count, 0))


def count_nonzero(x: Array, *, axis: Any = None, keepdims: bool = False) -> Any:
    if axis is not None:
        _require_axes(x, axis)
    # NumPy before 2.3 gives a Python int for all axes.
    return np.asarray(np.count_nonzero(x, axis=axis, keepdims=keepdims))


def argmax(x: Array, axis: int | None, keepdims: bool) -> Any:
    return np.argmax(x, axis=axis, keepdims=keepdims)


def argmin(x: Array, axis: int | None, keepdims: bool) -> Any:
    return np.argmin(x, axis=axis, keepdims=keepdims)


def cumulative_sum(x: Array, axis: int) -> Any:
    return np.cumsum(x, axis=axis, dtype=x.dtype)


def cumulative_prod(x: Array, axis: int) -> Any:
    return np.cumprod(x, axis=axis, dtype=x.dtype)


# --- Elementwise ------------------------------------------------------------------------------


def _integers_stay(ufunc: np.ufunc) -> Kernel:
    def kernel(x: Array) -> Any:
        return x.copy() if x.dtype.kind in "iu" else ufunc(x)

    return kernel


def round(x: Array) -> Any:
    return x.copy() if x.dtype.kind in "iu" else np.round(x)


def floor_divide(x: Array, y: Array) -> Any:
    if x.dtype.kind != "f":
        _no_zero("floor_divide", y)
        return np.floor_divide(x, y)
    out = np.floor_divide(x, y)
    # For an infinite dividend NumPy gives NaN, the standard the infinity; for an infinite
    # divisor NumPy gives -1 where signs differ, the standard the zero of the quotient.
    lost = np.isinf(x) ^ np.isinf(y)
    lost &= ~(np.isnan(x) | np.isnan(y))
    return np.where(lost, np.divide(x, y), out) if lost.any() else out


def remainder(x: Array, y: Array) -> Any:
    if x.dtype.kind != "f":
        _no_zero("remainder", y)
        return np.remainder(x, y)
    return np.remainder(x, y)


# The integers with the bits of a dtype.
_BITS: Final = {np.dtype(c): np.dtype(f"i{np.dtype(c).itemsize}") for c in "efdF"}
_MANY: Final = 2048


def where(mask: Array, x: Array, y: Array) -> Any:
    """np.where guesses each element anew; to be zero or not is a product of bits with 1 or 0."""
    if mask.size > _MANY:
        bits = _BITS.get(x.dtype)
        if bits is not None:
            if not y.ndim and not y.view(bits):  # zero, and not -0.0
                return np.multiply(x.view(bits), mask).view(x.dtype)
            if not x.ndim and not x.view(bits):
                return np.multiply(y.view(bits), ~mask).view(y.dtype)
    return np.where(mask, x, y)


def clip(x: Array, low: Array | None, high: Array | None) -> Any:
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _no_zero(name: str, y: Array) -> None:
    if not np.logical_and.reduce(y, axis=None):
        raise IntegerDivisionError(f"ops.{name} got an integer divisor of zero")


def pow(x: Array, y: Array) -> Any:
    if y.dtype.kind == "i" and y.size and int(y.min()) < 0:
        raise DomainError("ops.pow takes no negative integer exponents for integers; cast to float")
    return np.power(x, y)


def popcount(x: Array) -> Any:
    # NumPy counts the bits of the absolute value.
    return np.bitwise_count(x.view(f"u{x.itemsize}")).astype(x.dtype)


def imag(x: Array) -> Any:
    return np.imag(x).copy() if x.dtype.kind == "c" else np.zeros_like(x)


def real(x: Array) -> Any:
    return np.real(x).copy()


def expm1(x: Array) -> Any:
    if x.dtype.kind != "c":
        return np.expm1(x)
    out = np.expm1(x)
    # NumPy multiplies exp(x) by the cosine and sine of angles also where that is 0 * inf or
    # has no angle at all; the standard says what stands there.
    # (Adding zero makes 0.0 of -0.0.)
    out = np.where(x.imag == 0, _complex(np.expm1(x.real) + 0.0, x.imag), out)
    lost = ~np.isfinite(x.imag) & np.isinf(x.real)
    limit = np.where(x.real > 0, _INFINITE_NO_ANGLE, _MINUS_ONE)
    return np.where(lost, limit, out).astype(x.dtype, copy=False)


def tanh(x: Array) -> Any:
    if x.dtype.kind != "c":
        return np.tanh(x)
    out = np.tanh(x)
    # At infinity the sign of the imaginary zero is that of the angle, not of sin(2 * angle).
    limit = _complex(np.copysign(1, x.real), np.copysign(0, x.imag))
    return np.where(np.isinf(x.real) & np.isfinite(x.imag), limit, out)


_INFINITE_NO_ANGLE: Final = complex(math.inf, math.nan)
_MINUS_ONE: Final = complex(-1, 0)


def _complex(real: Array, imag: Array) -> Array:
    out = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
    out.real, out.imag = real, imag
    return out


# --- Order and sets ---------------------------------------------------------------------------


def sort(x: Array, axis: int, descending: bool, stable: bool) -> Any:
    out = np.sort(x, axis=axis, stable=stable)
    return np.flip(out, axis=axis) if descending else out


def argsort(x: Array, axis: int, descending: bool, stable: bool) -> Any:
    if not descending:
        return np.argsort(x, axis=axis, stable=stable)
    # Sorted from behind and turned round, equal values keep their order.
    turned = np.argsort(np.flip(x, axis=axis), axis=axis, stable=stable)
    return x.shape[axis] - 1 - np.flip(turned, axis=axis)


def searchsorted(x: Array, y: Array, side: Any) -> Any:
    return np.searchsorted(x, y, side)


def unique_all(x: Array) -> tuple[Array, ...]:
    return tuple(np.unique_all(x))


def unique_values(x: Array) -> Any:
    return np.unique(x, equal_nan=False)  # np.unique_values keeps no order


def nonzero(x: Array) -> tuple[Array, ...]:
    return np.nonzero(x)


def isin(x: Array, y: Array, invert: bool) -> Any:
    return np.isin(x, y, invert=invert)


def take(x: Array, indices: Array, axis: int) -> Any:
    return np.take(x, indices, axis=axis)


def repeat(x: Array, counts: Array, axis: int) -> Any:
    return np.repeat(x, counts, axis=axis)


# --- Linear algebra ---------------------------------------------------------------------------


def cholesky(x: Array, upper: bool) -> Any:
    _require_finite("cholesky", x)
    try:
        return np.linalg.cholesky(x, upper=upper)
    except np.linalg.LinAlgError:
        raise LinAlgError(
            "ops.linalg.cholesky got a matrix that is not positive definite"
        ) from None


def _finite(name: str) -> Kernel:
    """A factorisation that refuses infinities and NaN, as eig does and its kin do not."""
    factorise: Kernel = getattr(np.linalg, name)

    def kernel(x: Array, *options: Any) -> Any:
        _require_finite(name, x)
        return factorise(x, *options)

    return kernel


def _require_finite(name: str, x: Array) -> None:
    if not np.logical_and.reduce(np.isfinite(x), axis=None):
        raise LinAlgError(f"ops.linalg.{name} takes finite numbers, not NaN or infinity")


def eig(x: Array) -> tuple[Array, Array]:
    values, vectors = np.linalg.eig(x)
    kind = np.result_type(x.dtype, np.complex64)
    return values.astype(kind, copy=False), vectors.astype(kind, copy=False)


def eigvals(x: Array) -> Any:
    return np.linalg.eigvals(x).astype(np.result_type(x.dtype, np.complex64), copy=False)


# Ops that meet infinities and NaN in ordinary use. Sums, products and comparisons are left as
# they are: their rare warnings are not worth a sixth of a call.
NOISY: Final = frozenset(
    (
        "acos",
        "acosh",
        "asin",
        "atan2",
        "atanh",
        "cos",
        "cosh",
        "cumulative_prod",
        "cumulative_sum",
        "divide",
        "exp",
        "expm1",
        "floor_divide",
        "hypot",
        "linalg.det",
        "linalg.slogdet",
        "log",
        "log10",
        "log1p",
        "log2",
        "logaddexp",
        "mean",
        "nextafter",
        "pow",
        "prod",
        "reciprocal",
        "remainder",
        "root",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "square",
        "tan",
        "tanh",
        "var",
    )
)


def _transform(function: Kernel) -> Kernel:
    """A Fourier transform to real numbers; of no elements NumPy returns memory that nobody set."""

    def kernel(x: Array, length: Any, axis: Any, norm: str) -> Any:
        axes = axis if isinstance(axis, tuple) else (axis,)
        if not all(x.shape[a] for a in axes):
            shape = [1 if a in axes and not side else side for a, side in enumerate(x.shape)]
            x = np.zeros(shape, x.dtype)
        return function(x, length, axis, norm)

    return kernel


_REDUCTIONS: Final = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "all": np.logical_and,
    "any": np.logical_or,
}

OVERRIDES: Final[dict[str, Kernel]] = {
    # NumPy's functions of these names are Python around them.
    "reshape": np.ndarray.reshape,
    "permute_dims": np.ndarray.transpose,
    "matrix_transpose": attrgetter("mT"),
    **{name: _reduction(ufunc) for name, ufunc in _REDUCTIONS.items()},
    **{
        kernel.__name__: kernel
        for kernel in (
            mean,
            var,
            count_nonzero,
            argmax,
            argmin,
            cumulative_sum,
            cumulative_prod,
            round,
            floor_divide,
            remainder,
            where,
            clip,
            pow,
            popcount,
            imag,
            real,
            expm1,
            tanh,
            sort,
            argsort,
            searchsorted,
            unique_all,
            unique_values,
            nonzero,
            isin,
            take,
            repeat,
        )
    },
    "root": np.sqrt,
    "ceil": _integers_stay(np.ceil),
    "floor": _integers_stay(np.floor),
    "trunc": _integers_stay(np.trunc),
    "fft.irfft": _transform(np.fft.irfft),
    "fft.hfft": _transform(np.fft.hfft),
    "fft.irfftn": _transform(np.fft.irfftn),
    **{f"linalg.{name}": _finite(name) for name in ("eigh", "eigvalsh", "pinv", "svd", "svdvals")},
    "linalg.cholesky": cholesky,
    "linalg.eig": eig,
    "linalg.eigvals": eigvals,
}
