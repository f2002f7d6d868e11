"""What hearing makes of spectra: mel scales, decibels, cepstral coefficients.

Filters and their defaults are those of torchaudio; librosa's come with `norm="slaney"` and
`mel_scale="slaney"`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.errors import DomainError, DTypeError
from ember_ml.ops import dispatch, elementwise, linearalg, reduction
from ember_ml.ops.axes import integer_of
from ember_ml.ops.creation import _host
from ember_ml.ops.registry import REAL_FLOATING, op
from ember_ml.ops.spectra import Plan, padded_signal, plan_of, powers, signal_of, window_of
from ember_ml.ops.trigonometric import table
from ember_ml.tensor.core import Tensor, fill
from ember_ml.typing import Axis, TensorLike

if TYPE_CHECKING:
    from ember_ml.markers import D, Rank2
    from ember_ml.tensor.typed import DTypeOf

__all__ = [
    "amplitude_to_db",
    "db_to_amplitude",
    "db_to_power",
    "mel_filter_bank",
    "mel_spectrogram",
    "mfcc",
    "power_to_db",
]

Values = np.ndarray[Any, Any]

_REAL: Final = frozenset((dtypes.float32, dtypes.float64))
_SCALES: Final = ("htk", "slaney")
_NORMS: Final = (None, "slaney")
# Slaney's scale is linear up to 1 kHz, in steps of 200/3 Hz, then grows by a factor of 6.4 in 27.
_HZ_PER_MEL: Final = 200.0 / 3
_KNEE_HZ: Final = 1000.0
_KNEE_MEL: Final = _KNEE_HZ / _HZ_PER_MEL
_LOG_STEP: Final = math.log(6.4) / 27


# --- The mel scale --------------------------------------------------------------------------------


def _to_mel(hz: float, scale: str) -> float:
    if scale == "htk":
        return 2595.0 * math.log10(1.0 + hz / 700.0)
    if hz < _KNEE_HZ:
        return hz / _HZ_PER_MEL
    return _KNEE_MEL + math.log(hz / _KNEE_HZ) / _LOG_STEP


def _to_hz(mel: Values, scale: str) -> Values:
    if scale == "htk":
        return np.asarray(700.0 * (10.0 ** (mel / 2595.0) - 1.0))
    curved = _KNEE_HZ * np.exp(_LOG_STEP * (mel - _KNEE_MEL))
    return np.where(mel < _KNEE_MEL, mel * _HZ_PER_MEL, curved)


def _bank(
    name: str,
    n_mels: Any,
    points: Any,
    sample_rate: float,
    f_min: float,
    f_max: float | None,
    norm: str | None,
    mel_scale: str,
) -> Values:
    """The filters in float64: (bins, mels)."""
    count, size = integer_of(name, n_mels, "n_mels"), integer_of(name, points, "fft_length")
    top = sample_rate / 2 if f_max is None else float(f_max)
    if count < 1 or size < 1 or not sample_rate > 0:
        raise DomainError(
            f"ops.{name} got n_mels={count}, fft_length={size}, sample_rate={sample_rate}; "
            f"all must be positive"
        )
    if not 0 <= f_min < top:
        raise DomainError(f"ops.{name} takes 0 <= f_min < f_max, not {f_min} and {top}")
    if mel_scale not in _SCALES or norm not in _NORMS:
        raise DomainError(
            f"ops.{name} takes mel_scale 'htk' or 'slaney' and norm None or 'slaney', "
            f"not {mel_scale!r} and {norm!r}"
        )
    hertz = np.fft.rfftfreq(size, 1.0 / sample_rate)
    mels = np.linspace(_to_mel(f_min, mel_scale), _to_mel(top, mel_scale), count + 2)
    corners = _to_hz(mels, mel_scale)
    low, middle, high = corners[:-2], corners[1:-1], corners[2:]
    rising = (hertz[:, None] - low) / (middle - low)
    falling = (high - hertz[:, None]) / (high - middle)
    filters = np.maximum(np.minimum(rising, falling), 0.0)
    return np.asarray(filters * (2.0 / (high - low)) if norm == "slaney" else filters)


@op(standard=False, creates=True)
def mel_filter_bank(
    n_mels: int = 128,
    fft_length: int = 1024,
    sample_rate: float = 16000,
    f_min: float = 0.0,
    f_max: float | None = None,
    *,
    norm: str | None = None,
    mel_scale: str = "htk",
    dtype: DTypeOf[D] = None,
    device: str | None = None,
) -> Tensor[D, Any, Rank2]:
    """Triangular filters at equal distances on the mel scale: `(fft_length // 2 + 1, n_mels)`.

    `spectrogram @ filters` gives the mel spectrogram. `norm="slaney"` makes the area of each
    filter equal; `mel_scale` is "htk" or "slaney". `f_max` is half the sample rate unless given.

    >>> mel_filter_bank(40, 512, 16000).shape
    (257, 40)
    """
    wanted = dtypes.default_float if dtype is None else dtypes.to_dtype(dtype)
    if not wanted.is_floating:
        raise DTypeError(f"ops.mel_filter_bank takes a real floating dtype, not {wanted}")
    values = _bank(
        "mel_filter_bank", n_mels, fft_length, sample_rate, f_min, f_max, norm, mel_scale
    )
    return _host(values, wanted, device)


@op(accepts=_REAL, lift="float", standard=False)
def mel_spectrogram(
    x: TensorLike,
    /,
    sample_rate: float = 16000,
    frame_length: int = 1024,
    hop_length: int | None = None,
    window: Any = "hann",
    *,
    fft_length: int | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    pad_end: bool = False,
    power: float = 2.0,
    n_mels: int = 128,
    f_min: float = 0.0,
    f_max: float | None = None,
    norm: str | None = None,
    mel_scale: str = "htk",
) -> Tensor:
    """The `spectrogram` of a real signal through `mel_filter_bank`: `(..., frames, n_mels)`.

    >>> mel_spectrogram(ops.ones(1024), frame_length=256, n_mels=10).shape
    (17, 10)
    """
    plan = plan_of("mel_spectrogram", frame_length, hop_length, fft_length)
    bank = _bank("mel_spectrogram", n_mels, plan.fft, sample_rate, f_min, f_max, norm, mel_scale)
    ends = (center, pad_mode, pad_end)
    return _mel("mel_spectrogram", signal_of("mel_spectrogram", x), plan, window, ends, power, bank)


def _mel(
    name: str,
    x: Tensor,
    plan: Plan,
    window: Any,
    ends: tuple[bool, str, bool],
    power: float,
    bank: Values,
) -> Tensor:
    weights = window_of(name, window, plan.frame, x)
    sizes = powers(name, padded_signal(name, x, plan, *ends), weights, plan, None, power)
    return linearalg.matmul(sizes, _beside(sizes, bank))


def _beside(x: Tensor, values: Values) -> Tensor:
    spec = x._spec
    return fill(spec.backend.from_numpy(values.astype(spec.dtype.numpy), spec), spec)


@op(accepts=_REAL, lift="float", standard=False)
def mfcc(
    x: TensorLike,
    /,
    sample_rate: float = 16000,
    n_mfcc: int = 20,
    frame_length: int = 1024,
    hop_length: int | None = None,
    window: Any = "hann",
    *,
    fft_length: int | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    pad_end: bool = False,
    n_mels: int = 128,
    f_min: float = 0.0,
    f_max: float | None = None,
    norm: str | None = None,
    mel_scale: str = "htk",
    top_db: float | None = 80.0,
) -> Tensor:
    """Mel-frequency cepstral coefficients: `(..., frames, n_mfcc)`.

    They are the orthonormal `dct` of the mel spectrogram in decibels. Those that are below
    the loudest of their signal by more than `top_db` are raised to that.

    >>> mfcc(ops.ones(1024), n_mfcc=13, frame_length=256, n_mels=20).shape
    (17, 13)
    """
    plan = plan_of("mfcc", frame_length, hop_length, fft_length)
    bank = _bank("mfcc", n_mels, plan.fft, sample_rate, f_min, f_max, norm, mel_scale)
    count = integer_of("mfcc", n_mfcc, "n_mfcc")
    if not 1 <= count <= bank.shape[1]:
        raise DomainError(
            f"ops.mfcc got n_mfcc={count}; it is at least 1 and at most {n_mels} mels"
        )
    ends = (center, pad_mode, pad_end)
    mels = _mel("mfcc", signal_of("mfcc", x), plan, window, ends, 2.0, bank)
    loud = _decibels("mfcc", mels, 10.0, 1.0, 1e-10, top_db, (-2, -1))
    cosines = table(bank.shape[1], 2, "ortho", False, loud.dtype)[:, :count]
    return linearalg.matmul(loud, _beside(loud, cosines))


# --- Decibels -----------------------------------------------------------------------------------


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def power_to_db(
    x: TensorLike,
    /,
    ref: float = 1.0,
    *,
    amin: float = 1e-10,
    top_db: float | None = 80.0,
    axis: Axis = None,
) -> Tensor:
    """Powers in decibels: `10 * log10(x / ref)`, with x at least `amin`.

    What is below the largest value over `axis` (the whole tensor unless given) by more than
    `top_db` is raised to that; None leaves all as they are.

    >>> [round(value, 3) for value in power_to_db([1.0, 100.0]).tolist()]
    [0.0, 20.0]
    """
    tensor = dispatch.lifted("power_to_db", x)
    return _decibels("power_to_db", tensor, 10.0, ref, amin, top_db, axis)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def amplitude_to_db(
    x: TensorLike,
    /,
    ref: float = 1.0,
    *,
    amin: float = 1e-5,
    top_db: float | None = 80.0,
    axis: Axis = None,
) -> Tensor:
    """Amplitudes in decibels: `20 * log10(x / ref)`; the options are those of `power_to_db`.

    >>> [round(value, 3) for value in amplitude_to_db([1.0, 10.0]).tolist()]
    [0.0, 20.0]
    """
    tensor = dispatch.lifted("amplitude_to_db", x)
    return _decibels("amplitude_to_db", tensor, 20.0, ref, amin, top_db, axis)


def _decibels(
    name: str,
    x: Tensor,
    factor: float,
    ref: float,
    amin: float,
    top_db: float | None,
    axis: Axis,
) -> Tensor:
    if not (amin > 0 and ref > 0) or (top_db is not None and top_db < 0):
        raise DomainError(
            f"ops.{name} takes positive amin and ref and no negative top_db, "
            f"not {amin}, {ref} and {top_db}"
        )
    # The smallest number of float16 is larger than the usual amin, which would become zero.
    least = max(amin, dtypes.float_limits(x.dtype).smallest_normal)
    logs = elementwise.log10(elementwise.maximum(x, least))
    loud = elementwise.multiply(elementwise.subtract(logs, math.log10(ref)), factor)
    if top_db is None or not x.size:
        return loud
    largest = reduction.max(loud, axis=axis, keepdims=True)
    return elementwise.maximum(loud, elementwise.subtract(largest, top_db))


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def db_to_power(x: TensorLike, /, ref: float = 1.0) -> Tensor:
    """The powers that decibels stand for: `ref * 10 ** (x / 10)`.

    >>> [round(value, 3) for value in db_to_power([0.0, 20.0]).tolist()]
    [1.0, 100.0]
    """
    return _linear("db_to_power", x, 10.0, ref)


@op(accepts=REAL_FLOATING, lift="float", standard=False)
def db_to_amplitude(x: TensorLike, /, ref: float = 1.0) -> Tensor:
    """The amplitudes that decibels stand for: `ref * 10 ** (x / 20)`.

    >>> [round(value, 3) for value in db_to_amplitude([0.0, 20.0]).tolist()]
    [1.0, 10.0]
    """
    return _linear("db_to_amplitude", x, 20.0, ref)


def _linear(name: str, x: TensorLike, factor: float, ref: float) -> Tensor:
    tensor = dispatch.lifted(name, x)
    exponents = elementwise.multiply(tensor, math.log(10.0) / factor)
    return elementwise.multiply(elementwise.exp(exponents), float(ref))
