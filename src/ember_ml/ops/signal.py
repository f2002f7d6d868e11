"""Signals: windows, frames, spectra and back, cepstra, convolutions.

The ops lie in files of their own; all are in `ops` and in `ops.signal` alike.
"""

from __future__ import annotations

from ember_ml.ops.cepstra import (
    amplitude_to_db,
    db_to_amplitude,
    db_to_power,
    mel_filter_bank,
    mel_spectrogram,
    mfcc,
    power_to_db,
)
from ember_ml.ops.filtering import (
    convolve,
    correlate,
    fftconvolve,
    hilbert,
    preemphasis,
)
from ember_ml.ops.spectra import frame, istft, overlap_add, spectrogram, stft
from ember_ml.ops.trigonometric import dct, dst, idct, idst
from ember_ml.ops.windows import (
    bartlett_window,
    blackman_window,
    get_window,
    hamming_window,
    hann_window,
    kaiser_window,
    rectangular_window,
)

__all__: list[str] = [
    "amplitude_to_db",
    "bartlett_window",
    "blackman_window",
    "convolve",
    "correlate",
    "db_to_amplitude",
    "db_to_power",
    "dct",
    "dst",
    "fftconvolve",
    "frame",
    "get_window",
    "hamming_window",
    "hann_window",
    "hilbert",
    "idct",
    "idst",
    "istft",
    "kaiser_window",
    "mel_filter_bank",
    "mel_spectrogram",
    "mfcc",
    "overlap_add",
    "power_to_db",
    "preemphasis",
    "rectangular_window",
    "spectrogram",
    "stft",
]
