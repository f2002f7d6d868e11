"""Signals: windows, frames, spectra, cepstra, filters.

References are the defining sums, written out; the tests of the repository compare with SciPy too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import AxisError, DomainError, DTypeError, ShapeError
from ember_ml.testing.case import Array, Case, Inputs, accepted, law, sample
from ember_ml.testing.mistake import Mistake

__all__ = ["MISTAKES", "SIGNALS"]

_ONCE: Final = (dtypes.float32,)
_REAL: Final = (dtypes.float32, dtypes.float64)
_TRANSFORMED: Final = (*_REAL, dtypes.complex64, dtypes.complex128)


def _of(*shapes: tuple[int, ...], low: float = -2, high: float = 2) -> Callable[..., list[Inputs]]:
    return lambda dtype: [(sample(f"signal{s}", s, dtype, low, high),) for s in shapes]


def _pairs(*shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Callable[..., list[Inputs]]:
    return lambda dtype: [
        (sample(f"a{a}", a, dtype, -3, 3), sample(f"b{b}", b, dtype, -3, 3)) for a, b in shapes
    ]


def _case(
    op: str,
    run: Callable[..., Any],
    expect: Callable[..., Any],
    inputs: Callable[..., list[Inputs]],
    label: str = "",
    over: tuple[DType, ...] | None = None,
    result: Callable[[DType], DType | None] | None = None,
    ulps: float = 64,
) -> Case:
    """A case over every dtype that the op takes, unless it names some."""
    return Case(op, run, expect, inputs, over or accepted(op), result or law(op), ulps, label)


# --- Windows --------------------------------------------------------------------------------------


def _cosines(length: int, periodic: bool, *weights: float) -> Array:
    """A sum of cosines with alternating signs, over the length or over one step less."""
    turns = 2 * np.pi * np.arange(length) / (length if periodic else length - 1)
    parts = [w * np.cos(k * turns) * (-1) ** k for k, w in enumerate(weights)]
    return np.asarray(sum(parts))


def _kaiser(length: int, beta: float) -> Array:
    ramp = 2 * np.arange(length) / length - 1
    return np.asarray(np.i0(beta * np.sqrt(1 - ramp**2)) / np.i0(beta))


def _made(op: str, run: Callable[..., Any], values: Array, label: str = "") -> Case:
    return _case(op, run, lambda: values, lambda dtype: [()], label, _ONCE, lambda dtype: dtype)


_HANN: Final = _cosines(8, True, 0.5, 0.5)
_WINDOWS: Final = (
    _made("hann_window", lambda xp: xp.hann_window(8), _HANN),
    _made("hann_window", lambda xp: xp.hann_window(8, periodic=False),
          _cosines(8, False, 0.5, 0.5), "symmetric"),
    _made("hann_window", lambda xp: xp.hann_window(1), np.ones(1), "one"),
    _made("hann_window", lambda xp: xp.hann_window(0), np.ones(0), "none"),
    _made("hamming_window", lambda xp: xp.hamming_window(7), _cosines(7, True, 0.54, 0.46)),
    _made("blackman_window", lambda xp: xp.blackman_window(8, False),
          _cosines(8, False, 0.42, 0.5, 0.08)),
    _made("bartlett_window", lambda xp: xp.bartlett_window(8),
          1 - np.abs(np.arange(8) - 4) / 4),
    _made("kaiser_window", lambda xp: xp.kaiser_window(8), _kaiser(8, 12.0)),
    _made("kaiser_window", lambda xp: xp.kaiser_window(8, True, 5.0), _kaiser(8, 5.0), "beta"),
    _made("rectangular_window", lambda xp: xp.rectangular_window(3), np.ones(3)),
    _made("get_window", lambda xp: xp.get_window("hann", 8), _HANN),
    _made("get_window", lambda xp: xp.get_window(("kaiser", 5.0), 8), _kaiser(8, 5.0), "pair"),
    _made("get_window", lambda xp: xp.signal.get_window("boxcar", 2), np.ones(2), "boxcar"),
)  # fmt: skip


# --- Frames ---------------------------------------------------------------------------------------


def _frames(x: Array, length: int, hop: int) -> Array:
    starts = range(0, x.shape[-1] - length + 1, hop)
    return np.stack([x[..., s : s + length] for s in starts], axis=-2)


def _added(x: Array, hop: int) -> Array:
    count, length = x.shape[-2:]
    out = np.zeros((*x.shape[:-2], (count - 1) * hop + length), x.dtype)
    for i in range(count):
        out[..., i * hop : i * hop + length] += x[..., i, :]
    return out


_FRAMES: Final = (
    _case("frame", lambda xp, x: xp.frame(x, 4, 2), lambda x: _frames(x, 4, 2),
          _of((2, 9), (4,), (0, 9))),
    _case("frame", lambda xp, x: xp.frame(x, 3, 5, axis=0),
          lambda x: np.moveaxis(_frames(x.T, 3, 5), 0, -1), _of((9, 2)), "axis"),
    _case("frame", lambda xp, x: xp.frame(x, 4, 3, pad_end=True),
          lambda x: _frames(np.pad(x, [(0, 0), (0, 1)]), 4, 3), _of((2, 9)), "padded"),
    _case("frame", lambda xp, x: xp.frame(x, 70, 1), lambda x: _frames(x, 70, 1), _of((2, 75)),
          "dense", _REAL),
    _case("overlap_add", lambda xp, x: xp.overlap_add(x, 2), lambda x: _added(x, 2),
          _of((2, 3, 5), (1, 4), (0, 3, 5))),
    _case("overlap_add", lambda xp, x: xp.overlap_add(x, 7), lambda x: _added(x, 7),
          _of((2, 3, 5)), "gaps", _REAL),
)  # fmt: skip


# --- Spectra --------------------------------------------------------------------------------------


def _dft(pieces: Array, points: int, bins: int) -> Array:
    turns = np.outer(np.arange(pieces.shape[-1]), np.arange(bins)) % points
    return np.asarray(pieces @ np.exp(-2j * np.pi * turns / points))


def _centred(x: Array, length: int, mode: Any = "reflect") -> Array:
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(length // 2, length // 2)], mode=mode)


def _stft(x: Array) -> Array:
    bins = 8 if x.dtype.kind == "c" else 5
    return _dft(_frames(_centred(x, 8), 8, 2) * _HANN, 8, bins)


def _round_trip(xp: Any, x: Any) -> Any:
    length = x.shape[-1]
    if not x.dtype.is_complex:
        return xp.istft(xp.stft(x, 8, 3), 8, 3, length=length)
    return xp.istft(xp.stft(x, 8, 3), 8, 3, length=length, onesided=False)


def _spectrum(dtype: DType) -> list[Inputs]:
    """Spectra of real signals: the bins at zero and at half the rate are real."""
    signal = sample("istft", (2, 20), dtype, -1, 1).real
    return [(_dft(_frames(_centred(signal, 8), 8, 2) * _HANN, 8, 5).astype(dtype.numpy),)]


def _istft(x: Array) -> Array:
    pieces = np.fft.irfft(x, 8) * _HANN
    cover = _added(np.broadcast_to(_HANN**2, pieces.shape), 2)
    return np.asarray((_added(pieces, 2) / np.where(cover > 0, cover, 1))[..., 4:])


_SPECTRA: Final = (
    _case("stft", lambda xp, x: xp.stft(x, 8), _stft, _of((20,), (2, 20), (0, 20)), "",
          None, None, 256),
    _case("stft", lambda xp, x: xp.stft(x, 6, 3, "hamming", fft_length=9, center=False),
          lambda x: _dft(_frames(x, 6, 3) * _cosines(6, True, 0.54, 0.46), 9, 5),
          _of((2, 20)), "padded", _REAL, None, 256),
    _case("stft", lambda xp, x: xp.stft(x, 8, 2, pad_mode="constant", onesided=False),
          lambda x: _dft(_frames(_centred(x, 8, "constant"), 8, 2) * _HANN, 8, 8),
          _of((3,)), "two-sided", _REAL, None, 256),
    _case("stft", lambda xp, x, w: xp.stft(x, 5, 2, w, pad_end=True, center=False),
          lambda x, w: _dft(_frames(np.pad(x, [(0, 0), (0, 1)]), 5, 2) * w, 5, 3),
          _pairs(((2, 20), (5,))), "window", _REAL, None, 256),
    _case("istft", lambda xp, x: xp.istft(x, 8), lambda x: _istft(x)[..., :-4],
          _spectrum, ulps=256),
    _case("istft", lambda xp, x: xp.istft(x, 8, length=25),
          lambda x: np.pad(_istft(x), [(0, 0), (0, 1)]), _spectrum, "longer", ulps=256),
    _case("stft", _round_trip, lambda x: x, _of((2, 20), (1, 7)), "and-back", _TRANSFORMED,
          lambda dtype: dtype, 256),
    _case("spectrogram", lambda xp, x: xp.spectrogram(x, 8), lambda x: np.abs(_stft(x)) ** 2,
          _of((2, 20)), ulps=512),
    _case("spectrogram", lambda xp, x: xp.spectrogram(x, 8, power=1.0),
          lambda x: np.abs(_stft(x)), _of((2, 20)), "amplitude", _TRANSFORMED, None, 512),
    _case("spectrogram", lambda xp, x: xp.spectrogram(x, 8, power=1.5),
          lambda x: np.abs(_stft(x)) ** 1.5, _of((2, 20)), "power", _REAL, None, 512),
)  # fmt: skip


# --- Mel scale and decibels -----------------------------------------------------------------------


def _filters(count: int, points: int, rate: float, low: float, high: float) -> Array:
    """HTK's filters, one bin at a time."""

    def mel(hertz: float) -> float:
        return float(2595 * np.log10(1 + hertz / 700))

    corners = [700 * (10 ** (m / 2595) - 1) for m in np.linspace(mel(low), mel(high), count + 2)]
    out = np.zeros((points // 2 + 1, count))
    for row in range(len(out)):
        hertz = row * rate / points
        for i in range(count):
            left, middle, right = corners[i : i + 3]
            if left < hertz <= middle:
                out[row, i] = (hertz - left) / (middle - left)
            elif middle < hertz < right:
                out[row, i] = (right - hertz) / (right - middle)
    return out


def _power(x: Array) -> Array:
    pieces = _frames(_centred(x, 16), 16, 4) * _cosines(16, True, 0.5, 0.5)
    return np.asarray(np.abs(_dft(pieces, 16, 9)) ** 2)


_BANK: Final = _filters(4, 16, 800.0, 20.0, 390.0)
_MEL_OPTIONS: Final[dict[str, Any]] = {"n_mels": 4, "f_min": 20.0, "f_max": 390.0}


def _decibels(x: Array, factor: float, amin: float, top: float, axis: Any = None) -> Array:
    loud = factor * np.log10(np.maximum(x, amin))
    return np.asarray(np.maximum(loud, loud.max(axis, keepdims=True) - top))


def _turned(function: Any, a: Array, b: int) -> Array:
    """The sine or cosine of pi * a / b, without the whole turns, for which floats are too short."""
    return np.asarray(2 * function((a % (2 * b)) * np.pi / b))


def _dct_matrix(size: int, kind: int) -> Array:
    """SciPy's unnormalised sums, a row for each output."""
    k, n = np.arange(size)[:, None], np.arange(size)[None, :]
    if kind == 1:
        out = _turned(np.cos, k * n, size - 1)
        out[:, [0, -1]] /= 2
    elif kind == 2:
        out = _turned(np.cos, k * (2 * n + 1), 2 * size)
    elif kind == 3:
        out = _turned(np.cos, (2 * k + 1) * n, 2 * size)
        out[:, 0] /= 2
    else:
        out = _turned(np.cos, (2 * k + 1) * (2 * n + 1), 4 * size)
    return out


def _dst_matrix(size: int, kind: int) -> Array:
    k, n = np.arange(size)[:, None], np.arange(size)[None, :]
    if kind == 1:
        out = _turned(np.sin, (k + 1) * (n + 1), size + 1)
    elif kind == 2:
        out = _turned(np.sin, (k + 1) * (2 * n + 1), 2 * size)
    elif kind == 3:
        out = _turned(np.sin, (2 * k + 1) * (n + 1), 2 * size)
        out[:, -1] /= 2
    else:
        out = _turned(np.sin, (2 * k + 1) * (2 * n + 1), 4 * size)
    return out


def _ortho(size: int) -> Array:
    """The orthonormal cosine transform, of which MFCCs are made."""
    out = _dct_matrix(size, 2) / np.sqrt(2 * size)
    out[0] /= np.sqrt(2)
    return np.asarray(out)


def _mfcc(x: Array) -> Array:
    loud = _decibels(_power(x) @ _BANK, 10, 1e-10, 80, (-2, -1))
    return np.asarray((loud @ _ortho(4).T)[..., :3])


def _slaney(xp: Any) -> Any:
    """Areas of one, seen from a grid that is fine: the sum over bins times their distance."""
    bank = xp.mel_filter_bank(6, 65536, 16000, norm="slaney", mel_scale="slaney", dtype="float64")
    return xp.sum(bank, axis=0) * (16000 / 65536)


_MEL: Final = (
    _made("mel_filter_bank", lambda xp: xp.mel_filter_bank(4, 16, 800, 20.0, 390.0), _BANK),
    Case("mel_filter_bank", _slaney, lambda: np.ones(6), lambda dtype: [()], _ONCE,
         lambda dtype: dtypes.float64, 1e11, "areas"),
    _case("mel_spectrogram", lambda xp, x: xp.mel_spectrogram(x, 800, 16, **_MEL_OPTIONS),
          lambda x: _power(x) @ _BANK, _of((2, 20)), ulps=1024),
    _case("mfcc", lambda xp, x: xp.mfcc(x, 800, 3, 16, **_MEL_OPTIONS), _mfcc, _of((2, 20)),
          "", _REAL, ulps=8192),
    _case("mfcc", lambda xp, x: xp.mfcc(x, 800, 3, 16, **_MEL_OPTIONS) * 0.0,
          lambda x: _mfcc(x) * 0.0, _of((2, 20)), "dtypes"),
    _case("power_to_db", lambda xp, x: xp.power_to_db(x), lambda x: _decibels(x, 10, 1e-10, 80),
          _of((3, 4), (), low=0.5, high=9), ulps=128),
    _case("power_to_db",
          lambda xp, x: xp.power_to_db(x, 2.0, top_db=6.0, axis=-1) ,
          lambda x: _decibels(x, 10, 1e-10, 6, -1) - 10 * np.log10(2),
          _of((3, 4), low=0.01, high=9), "axis", _REAL, ulps=128),
    _case("power_to_db", lambda xp, x: xp.power_to_db(x, top_db=None),
          lambda x: np.full(x.shape, -100.0), lambda dtype: [(np.zeros((2,), dtype.numpy),)],
          "zeros", _REAL),
    _case("amplitude_to_db", lambda xp, x: xp.amplitude_to_db(x),
          lambda x: _decibels(x, 20, 1e-5, 80), _of((3, 4), (), low=0.5, high=9), ulps=128),
    _case("db_to_power", lambda xp, x: xp.db_to_power(x, 3.0), lambda x: 3 * 10 ** (x / 10),
          _of((3, 4), (), (0,)), ulps=32),
    _case("db_to_amplitude", lambda xp, x: xp.db_to_amplitude(x), lambda x: 10 ** (x / 20),
          _of((3, 4), (), (0,)), ulps=32),
)  # fmt: skip


# --- Cosines and sines ----------------------------------------------------------------------------


def _trigonometric(kind: int) -> list[Case]:
    """Sums, the inverse as the solution of the system, and an orthonormal one on both sides."""
    cases = []
    for name, matrix in (("dct", _dct_matrix), ("dst", _dst_matrix)):
        over = None if kind == 2 else _REAL
        cases += [
            _case(name, lambda xp, x, name=name: getattr(xp, name)(x, kind),
                  lambda x, m=matrix: x @ m(6, kind).T, _of((2, 6)), f"type{kind}", over,
                  ulps=400),
            _case("i" + name, lambda xp, x, name=name: getattr(xp, "i" + name)(x, kind),
                  lambda x, m=matrix: np.linalg.solve(m(6, kind), x.T).T, _of((2, 6)),
                  f"type{kind}", over, ulps=400),
            _case(name, lambda xp, x, name=name: _there_and_back(xp, name, x, kind),
                  lambda x: (x, np.sum(np.square(x), 0)), _of((6, 2)), f"ortho{kind}", _REAL),
            # Long ones take another way.
            _case(name, lambda xp, x, name=name: getattr(xp, name)(x, kind),
                  lambda x, m=matrix: x @ m(301, kind).T,
                  _of((301,)), f"long{kind}", _REAL, ulps=1 << 14),
        ]  # fmt: skip
    return cases


def _there_and_back(xp: Any, name: str, x: Any, kind: int) -> Any:
    turned = getattr(xp, name)(x, kind, axis=0, norm="ortho")
    back = getattr(xp, "i" + name)(turned, kind, axis=0, norm="ortho")
    return back, xp.sum(xp.square(turned), axis=0)


# --- Filters --------------------------------------------------------------------------------------


def _rows(function: Callable[..., Any], mode: str) -> Callable[..., Array]:
    def expect(a: Array, b: Array) -> Array:
        shape = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
        a = np.broadcast_to(a, (*shape, a.shape[-1])).reshape(-1, a.shape[-1])
        b = np.broadcast_to(b, (*shape, b.shape[-1])).reshape(-1, b.shape[-1])
        a, b = (c.astype(int) if c.dtype == bool else c for c in (a, b))
        rows = [function(p, q, mode) for p, q in zip(a, b, strict=True)]
        return np.reshape(rows, (*shape, -1)).astype(np.result_type(a, b))

    return expect


def _analytic(x: Array) -> Array:
    """The inverse transform of the positive frequencies, written as sums."""
    size = x.shape[-1]
    weights = np.array([1.0, *[2.0] * ((size - 1) // 2), *[1.0] * (1 - size % 2)])
    spectrum = _dft(x, size, size)[..., : len(weights)] * weights
    turns = np.outer(np.arange(len(weights)), np.arange(size)) % size
    return np.asarray(spectrum @ np.exp(2j * np.pi * turns / size) / size)


_SHAPES: Final = (((7,), (4,)), ((2, 4), (7,)))
_FILTERS: Final = (
    *(
        _case(op, lambda xp, a, b, op=op, mode=mode: getattr(xp, op)(a, b, mode),
              _rows(getattr(np, op), mode), _pairs(*_SHAPES), mode,
              None if mode == "full" else _TRANSFORMED)
        for op in ("convolve", "correlate")
        for mode in ("full", "same", "valid")
    ),
    _case("convolve", lambda xp, a, b: xp.convolve(a, b), _rows(np.convolve, "full"),
          _pairs(((60,), (40,))), "long", (*_TRANSFORMED, dtypes.int64), ulps=4096),
    _case("convolve", lambda xp, a, b: xp.convolve(a, b, axis=0, method="direct"),
          lambda a, b: _rows(np.convolve, "full")(a.T, b).T, lambda dtype: [
              (sample("a", (60, 2), dtype, -3, 3), sample("b", (40,), dtype, -3, 3))],
          "direct", _REAL, ulps=4096),
    _case("fftconvolve", lambda xp, a, b: xp.fftconvolve(a, b, "same"),
          _rows(np.convolve, "same"), _pairs(*_SHAPES), ulps=512),
    _case("preemphasis", lambda xp, x: xp.preemphasis(x, 0.5),
          lambda x: np.concatenate([x[..., :1], x[..., 1:] - 0.5 * x[..., :-1]], -1).astype(
              x.dtype if x.dtype.kind in "fc" else float), _of((2, 9), (0,))),
    _case("preemphasis", lambda xp, x: xp.preemphasis(x, axis=0),
          lambda x: np.concatenate([x[:1], x[1:] - 0.97 * x[:-1]]), _of((3, 2)), "axis", _REAL),
    _case("hilbert", lambda xp, x: xp.hilbert(x), _analytic, _of((2, 8), (7,)), ulps=128),
    _case("hilbert", lambda xp, x: xp.hilbert(x, axis=0), lambda x: _analytic(x.T).T,
          _of((7, 2)), "axis", _REAL, ulps=128),
)  # fmt: skip


SIGNALS: Final[tuple[Case, ...]] = (
    *_WINDOWS,
    *_FRAMES,
    *_SPECTRA,
    *_MEL,
    *(case for kind in (2, 1, 3, 4) for case in _trigonometric(kind)),
    *_FILTERS,
)


def _mistake(label: str, error: Any, run: Callable[[Any], Any], *facts: str) -> Mistake:
    return Mistake(label, error, run, facts)


MISTAKES: Final[tuple[Mistake, ...]] = (
    _mistake("hann-length", DomainError, lambda xp: xp.hann_window(-1), "ops.hann_window", "-1"),
    _mistake("hann-no-integer", DTypeError, lambda xp: xp.hann_window(2.5), "2.5"),
    _mistake("hann-dtype", DTypeError, lambda xp: xp.hann_window(4, dtype="int32"), "int32"),
    _mistake("window-name", DomainError, lambda xp: xp.get_window("hamm", 4), "hamm", "hamming"),
    _mistake("window-pair", DomainError, lambda xp: xp.get_window(("hann", 2.0), 4), "hann"),
    _mistake("frame-short", ShapeError, lambda xp: xp.frame(xp.ones((3,)), 4, 2), "(3,)",
             "pad_end"),
    _mistake("frame-hop", DomainError, lambda xp: xp.frame(xp.ones((3,)), 2, 0), "hop_length=0"),
    _mistake("frame-axis", AxisError, lambda xp: xp.frame(xp.ones((3,)), 2, 1, axis=1)),
    _mistake("frame-value", DTypeError, lambda xp: xp.frame([1, 2, 3], 2, 2, pad_end=True,
             pad_value=0.5), "ops.frame", "0.5", "int64"),
    _mistake("frame-value-range", DomainError, lambda xp: xp.frame(xp.ones(3, dtype="uint8"), 2, 2,
             pad_end=True, pad_value=-1), "-1", "uint8"),
    _mistake("spectrogram-power", DTypeError, lambda xp: xp.spectrogram(xp.ones(9), 4, power=None),
             "ops.spectrogram", "power"),
    _mistake("fftfreq-distance", DomainError, lambda xp: xp.fft.fftfreq(4, d=0.0),
             "ops.fft.fftfreq", "d=0"),
    _mistake("frame-0d", AxisError, lambda xp: xp.frame(xp.ones(()), 2, 1)),
    _mistake("overlap-add-vector", ShapeError, lambda xp: xp.overlap_add(xp.ones((3,)), 1), "(3,)"),
    _mistake("overlap-add-none", ShapeError, lambda xp: xp.overlap_add(xp.ones((0, 3)), 1)),
    _mistake("stft-short", ShapeError, lambda xp: xp.stft(xp.ones((100,))), "512", "100",
             "pad_mode='constant'"),
    _mistake("stft-short-open", ShapeError, lambda xp: xp.stft(xp.ones((3,)), 4, center=False)),
    _mistake("stft-0d", ShapeError, lambda xp: xp.stft(xp.ones(()))),
    _mistake("stft-window-shape", ShapeError,
             lambda xp: xp.stft(xp.ones((9,)), 4, window=xp.ones((3,))), "(3,)", "frame_length=4"),
    _mistake("stft-window-name", DomainError, lambda xp: xp.stft(xp.ones((9,)), 4, window="no")),
    _mistake("stft-fft-length", DomainError, lambda xp: xp.stft(xp.ones((9,)), 4, fft_length=2),
             "fft_length=2"),
    _mistake("stft-pad-mode", DomainError, lambda xp: xp.stft(xp.ones((9,)), 4, pad_mode="wrap"),
             "wrap", "reflect"),
    _mistake("stft-onesided", DTypeError,
             lambda xp: xp.stft(xp.ones((9,), dtype="complex64"), 4, onesided=True), "complex64"),
    _mistake("istft-vector", ShapeError,
             lambda xp: xp.istft(xp.ones((3,), dtype="complex64")), "(3,)"),
    _mistake("istft-bins", ShapeError,
             lambda xp: xp.istft(xp.ones((2, 5), dtype="complex64"), 4, fft_length=6), "5 bins"),
    _mistake("istft-gaps", DomainError,
             lambda xp: xp.istft(xp.ones((2, 5), dtype="complex64"), 8, 8), "hop_length=8", "gaps"),
    _mistake("istft-length", DomainError,
             lambda xp: xp.istft(xp.ones((2, 5), dtype="complex64"), length=-1)),
    _mistake("spectrogram-0d", ShapeError, lambda xp: xp.spectrogram(xp.ones(()))),
    _mistake("mel-range", DomainError, lambda xp: xp.mel_filter_bank(4, 16, 800, 500.0, 400.0),
             "500.0"),
    _mistake("mel-scale", DomainError, lambda xp: xp.mel_filter_bank(4, 16, mel_scale="bark"),
             "bark"),
    _mistake("mel-count", DomainError, lambda xp: xp.mel_spectrogram(xp.ones((99,)), n_mels=0)),
    _mistake("mfcc-count", DomainError, lambda xp: xp.mfcc(xp.ones((99,)), n_mfcc=200), "200"),
    _mistake("db-reference", DomainError, lambda xp: xp.power_to_db(xp.ones((2,)), ref=0.0)),
    _mistake("dct-type", DomainError, lambda xp: xp.dct(xp.ones((2,)), 5), "5"),
    _mistake("dct-norm", DomainError, lambda xp: xp.dct(xp.ones((2,)), norm="l2"), "l2", "ortho"),
    _mistake("dct-one", ShapeError, lambda xp: xp.dct(xp.ones((1,)), 1), "type 1"),
    _mistake("idst-none", ShapeError, lambda xp: xp.idst(xp.ones((2, 0)))),
    _mistake("dct-0d", AxisError, lambda xp: xp.dct(xp.ones(()))),
    _mistake("convolve-mode", DomainError,
             lambda xp: xp.convolve(xp.ones((2,)), xp.ones((2,)), "half"), "half", "valid"),
    _mistake("convolve-method", DomainError,
             lambda xp: xp.convolve(xp.ones((2,)), xp.ones((2,)), method="slow"), "slow"),
    _mistake("convolve-empty", ShapeError, lambda xp: xp.convolve(xp.ones((0,)), xp.ones((2,)))),
    _mistake("convolve-shapes", ShapeError,
             lambda xp: xp.convolve(xp.ones((2, 5)), xp.ones((3, 5))), "(2,)", "(3,)"),
    _mistake("correlate-0d", AxisError, lambda xp: xp.correlate(xp.ones(()), xp.ones((2,)))),
    _mistake("hilbert-none", ShapeError, lambda xp: xp.hilbert(xp.ones((0,)))),
    _mistake("preemphasis-axis", AxisError, lambda xp: xp.preemphasis(xp.ones((2,)), axis=1)),
)  # fmt: skip
