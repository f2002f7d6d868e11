"""Filters over the last axis: convolution, correlation, emphasis, the analytic signal."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import dispatch, elementwise, fft, linearalg, manipulation
from ember_ml.ops.axes import axis_of, broadcast
from ember_ml.ops.registry import FLOATING, LINALG, NUMERIC, REGISTRY, op
from ember_ml.ops.spectra import pad_ends
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill
from ember_ml.typing import TensorLike

__all__ = ["convolve", "correlate", "fftconvolve", "hilbert", "preemphasis"]

_REAL: Final = frozenset((dtypes.float32, dtypes.float64))
_MODES: Final = ("full", "same", "valid")
_METHODS: Final = ("auto", "direct", "fft")
# Up to so many taps a sum of shifted signals is quicker than transforms, and exact for integers.
_TAPS: Final = 32


@op(accepts=NUMERIC, lift="int", arity=2, standard=False)
def convolve(
    x1: TensorLike, x2: TensorLike, /, mode: str = "full", *, method: str = "auto", axis: int = -1
) -> Tensor:
    """The convolution of two signals along an axis; other axes broadcast.

    Of lengths n and m, "full" gives n + m - 1 samples, "same" the middle max(n, m) of them, and
    "valid" those max(n, m) - min(n, m) + 1 where the signals overlap fully, as NumPy does.
    `method` "fft" is quicker for long signals, with an error relative to the largest result;
    "auto" takes it where both are long and floating.

    >>> convolve([1, 2, 3], [0, 1, 2]).tolist()
    [0, 1, 4, 7, 6]
    """
    return _convolved("convolve", x1, x2, mode, method, axis, flipped=False)


@op(accepts=NUMERIC, lift="int", arity=2, standard=False)
def correlate(
    x1: TensorLike, x2: TensorLike, /, mode: str = "valid", *, method: str = "auto", axis: int = -1
) -> Tensor:
    """The correlation of two signals along an axis: x1 convolved with x2 reversed and conjugated.

    Modes and methods are those of `convolve`; the default is "valid", as in NumPy.

    >>> correlate([1, 2, 3], [0, 1, 2]).tolist()
    [8]
    """
    return _convolved("correlate", x1, x2, mode, method, axis, flipped=True)


@op(accepts=LINALG, lift="float", arity=2, standard=False)
def fftconvolve(x1: TensorLike, x2: TensorLike, /, mode: str = "full", *, axis: int = -1) -> Tensor:
    """The convolution of two signals by Fourier transforms: `convolve` with method "fft".

    >>> [round(value, 4) for value in fftconvolve([1.0, 2.0], [1.0, 1.0]).tolist()]
    [1.0, 3.0, 2.0]
    """
    return _convolved("fftconvolve", x1, x2, mode, "fft", axis, flipped=False)


def _convolved(
    name: str, x1: TensorLike, x2: TensorLike, mode: str, method: str, axis: int, *, flipped: bool
) -> Tensor:
    for value, choices, what in ((mode, _MODES, "mode"), (method, _METHODS, "method")):
        if value not in choices:
            raise DomainError(f"ops.{name} takes {what} {', '.join(choices)}, not {value!r}")
    a, b = dispatch.aligned(name, x1, x2)
    run = REGISTRY[name].run_dtype(a.dtype)
    if method == "fft" and run not in LINALG:
        run = REGISTRY["fftconvolve"].run_dtype(run)
    a, b = (convert.cast(t, run) for t in (a, b))
    a, b = (manipulation.moveaxis(t, axis_of(name, axis, t.ndim), -1) for t in (a, b))
    if not a.shape[-1] or not b.shape[-1]:
        raise ShapeError(f"ops.{name} got shapes {a.shape} and {b.shape}; a signal has samples")
    broadcast(name, [a.shape[:-1], b.shape[:-1]])
    if flipped:
        b = manipulation.flip(b, axis=-1)
        b = elementwise.conj(b) if run.is_complex else b
    full = _full(a, b, method)
    out = _middle(full, a.shape[-1], b.shape[-1], mode, flipped)
    return manipulation.moveaxis(out, -1, axis)


def _full(a: Tensor, b: Tensor, method: str) -> Tensor:
    if a.shape[-1] < b.shape[-1]:
        a, b = b, a
    spec, taps = a._spec, b.shape[-1]
    has_complex = spec.dtype in LINALG and spec.backend.supports(
        dtypes.complex_of(spec.dtype), spec.device
    )
    if has_complex and (method == "fft" or (method == "auto" and taps > _TAPS)):
        return _by_fft(a, b)
    padded = pad_ends(a, taps - 1, taps - 1)
    if taps > _TAPS:
        pieces = dispatch.call("frame", padded, taps, 1)
        turned = manipulation.expand_dims(manipulation.flip(b, axis=-1), -1)
        return manipulation.squeeze(linearalg.matmul(pieces, turned), -1)
    size = a.shape[-1] + taps - 1
    total: Tensor | None = None
    for tap in range(taps):
        start = taps - 1 - tap
        part = elementwise.multiply(padded[..., start : start + size], b[..., tap : tap + 1])
        total = part if total is None else elementwise.add(total, part)
    assert total is not None  # there is at least one tap
    return total


def _by_fft(a: Tensor, b: Tensor) -> Tensor:
    size = a.shape[-1] + b.shape[-1] - 1
    points = _quick_length(size)
    if a.dtype.is_complex:
        product = elementwise.multiply(fft.fft(a, n=points), fft.fft(b, n=points))
        return fft.ifft(product)[..., :size]
    product = elementwise.multiply(fft.rfft(a, n=points), fft.rfft(b, n=points))
    return fft.irfft(product, n=points)[..., :size]


def _quick_length(size: int) -> int:
    """The next length whose only prime factors are 2, 3 and 5, even: transforms of it are quick."""
    best = 1 << (size - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            twos = max(-(-size // three) - 1, 1).bit_length()
            best = min(best, three << twos)
            three *= 3
        five *= 5
    return best


def _middle(full: Tensor, first: int, second: int, mode: str, flipped: bool) -> Tensor:
    if mode == "full":
        return full
    long, short = max(first, second), min(first, second)
    if mode == "valid":
        return full[..., short - 1 : long].copy()
    # NumPy correlates the longer signal with the shorter one, and turns the result round.
    start = short // 2 if flipped and first < second else (short - 1) // 2
    return full[..., start : start + long].copy()


@op(accepts=FLOATING, lift="float", standard=False)
def preemphasis(x: TensorLike, /, coefficient: float = 0.97, *, axis: int = -1) -> Tensor:
    """Each sample less `coefficient` times the one before it; the first stays.

    >>> preemphasis([1.0, 1.0, 2.0], 0.5).tolist()
    [1.0, 0.5, 1.5]
    """
    tensor = dispatch.lifted("preemphasis", x)
    moved = manipulation.moveaxis(tensor, axis_of("preemphasis", axis, tensor.ndim), -1)
    before = pad_ends(moved[..., :-1], min(moved.shape[-1], 1), 0)
    out = elementwise.subtract(moved, elementwise.multiply(before, float(coefficient)))
    return manipulation.moveaxis(out, -1, axis)


@op(accepts=_REAL, lift="float", result="complex", standard=False)
def hilbert(x: TensorLike, /, *, axis: int = -1) -> Tensor:
    """The analytic signal of a real one: its Hilbert transform is the imaginary part.

    >>> hilbert([1.0, 0.0, -1.0, 0.0]).imag.tolist()
    [0.0, 1.0, 0.0, -1.0]
    """
    tensor = dispatch.lifted("hilbert", x)
    place = axis_of("hilbert", axis, tensor.ndim)
    size = tensor.shape[place]
    if not size:
        raise ShapeError(f"ops.hilbert got no elements along axis {place} of {tensor.shape}")
    # Frequencies above zero are doubled, those below are dropped.
    weights = np.zeros(size)
    weights[: size // 2 + 1] = 2
    weights[0] = 1
    if size % 2 == 0:
        weights[size // 2] = 1
    spectrum = fft.fft(manipulation.moveaxis(tensor, place, -1))
    spec: Any = spectrum._spec
    factors = fill(spec.backend.from_numpy(weights.astype(spec.dtype.numpy), spec), spec)
    return manipulation.moveaxis(fft.ifft(elementwise.multiply(spectrum, factors)), -1, place)
