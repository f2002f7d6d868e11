"""Fourier transforms, windows and mel filters."""

from __future__ import annotations

from typing import Any

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.graph import types
from ember_ml.graph.executors.operators.registry import Host, operator
from ember_ml.graph.executors.operators.shaping import hosted
from ember_ml.graph.executors.operators.slicing import padded
from ember_ml.tensor.core import Tensor

__all__: list[str] = []


@operator("DFT", 17)
def dft_of_old(
    x: Tensor, dft_length: Host | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Tensor:
    return _dft(x, dft_length, axis, inverse, onesided)


@operator("DFT", 20)
def dft(
    x: Tensor,
    dft_length: Host | None = None,
    axis: Host | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    return _dft(x, dft_length, -2 if axis is None else int(axis.reshape(-1)[0]), inverse, onesided)


def _dft(x: Tensor, length: Host | None, axis: int, inverse: int, onesided: int) -> Tensor:
    """A transform along an axis; the last axis holds real and imaginary parts."""
    if x.dtype.itemsize < 4:  # there are no complex numbers of 16-bit floats
        wide = _dft(ops.astype(x, dtypes.float32), length, axis, inverse, onesided)
        return ops.astype(wide, x.dtype)
    place = axis % x.ndim
    count = None if length is None else int(length.reshape(-1)[0])
    if onesided and inverse:
        made = ops.fft.irfft(_complex(x), n=count, axis=place)
        return ops.expand_dims(made, -1)
    if x.shape[-1] == 1:
        real = ops.squeeze(x, -1)
        if onesided:
            return _parts(ops.fft.rfft(real, n=count, axis=place))
        values = ops.astype(real, "complex128" if x.dtype.itemsize == 8 else "complex64")
    else:
        values = _complex(x)
    transform = ops.fft.ifft if inverse else ops.fft.fft
    made = _parts(transform(values, n=count, axis=place))
    if not onesided:
        return made
    keys = [slice(None)] * made.ndim
    keys[place] = slice(0, made.shape[place] // 2 + 1)
    return made[tuple(keys)]


def _complex(x: Tensor) -> Tensor:
    real, imaginary = x[..., 0], x[..., 1]
    wide = "complex128" if x.dtype.itemsize == 8 else "complex64"
    return ops.add(ops.astype(real, wide), ops.multiply(ops.astype(imaginary, wide), 1j))


def _parts(x: Tensor) -> Tensor:
    return ops.stack([ops.real(x), ops.imag(x)], axis=-1)


@operator("STFT", 17)
def stft(
    signal: Tensor,
    frame_step: Host,
    window: Tensor | None = None,
    frame_length: Host | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    """Transforms of windows that slide over a signal [batch, length, 1 or 2]."""
    if signal.ndim == 2:  # as torch writes it, and ONNX Runtime takes it
        signal = signal[..., None]
    step = int(frame_step.reshape(-1)[0])
    if frame_length is not None:
        size = int(frame_length.reshape(-1)[0])
    else:
        size = signal.shape[1] if window is None else window.shape[0]
    if window is not None and window.shape[0] < size:  # the window in the middle of the frame
        before = (size - window.shape[0]) // 2
        window = padded(window, [(before, size - window.shape[0] - before)])
    starts = range(0, signal.shape[1] - size + 1, step)
    frames = ops.stack([signal[:, i : i + size] for i in starts], axis=1)
    if window is not None:
        frames = ops.multiply(frames, ops.reshape(window, (-1, 1)))
    return _dft(frames, None, 2, 0, onesided if signal.shape[2] == 1 else 0)


# --- Windows ------------------------------------------------------------------------------------


def _phases(size: Host, periodic: int) -> Any:
    count = int(size.reshape(-1)[0])
    return 2 * np.pi * np.arange(count) / max(count if periodic else count - 1, 1)


def _window(values: Any, output_datatype: int) -> Tensor:
    return hosted(values.astype(types.numpy_dtype(types.type_name(output_datatype))))


@operator("HannWindow", 17)
def hann_window(size: Host, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    return _window(0.5 - 0.5 * np.cos(_phases(size, periodic)), output_datatype)


@operator("HammingWindow", 17)
def hamming_window(size: Host, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    first = 25 / 46
    return _window(first - (1 - first) * np.cos(_phases(size, periodic)), output_datatype)


@operator("BlackmanWindow", 17)
def blackman_window(size: Host, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    phases = _phases(size, periodic)
    return _window(0.42 - 0.5 * np.cos(phases) + 0.08 * np.cos(2 * phases), output_datatype)


@operator("MelWeightMatrix", 17)
def mel_weight_matrix(
    num_mel_bins: Host,
    dft_length: Host,
    sample_rate: Host,
    lower_edge_hertz: Host,
    upper_edge_hertz: Host,
    *,
    output_datatype: int = 1,
) -> Tensor:
    """Triangles over the bins of a spectrum, evenly spaced on the mel scale.

    Their corners are at whole bins, as ONNX's own tests have them.
    """
    bands, length = int(num_mel_bins), int(dft_length)
    low, high = (2595 * np.log10(1 + float(f) / 700) for f in (lower_edge_hertz, upper_edge_hertz))
    mels = np.arange(bands + 2) * ((high - low) / (bands + 2)) + low
    hertz = 700 * (10 ** (mels / 2595) - 1)
    corners = np.floor((length + 1) * hertz / float(sample_rate)).astype(np.int64)
    made = np.zeros((length // 2 + 1, bands))
    for band in range(bands):
        first, middle, last = corners[band : band + 3]
        if middle == first:
            made[middle, band] = 1
        else:
            rising = np.arange(first, middle + 1)
            made[rising, band] = (rising - first) / (middle - first)
        if last > middle:
            falling = np.arange(middle, last)
            made[falling, band] = (last - falling) / (last - middle)
    return _window(made, output_datatype)
