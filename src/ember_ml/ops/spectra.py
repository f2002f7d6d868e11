"""Frames of a signal, their spectra, and the way back.

Time is the last axis. Frames come before what is in them: `(..., frames, frame_length)` and
`(..., frames, bins)`, where torch and SciPy put the bins first.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from ember_ml import dtypes
from ember_ml.autodiff.tape import recorded
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.ops import dispatch, elementwise, fft, linearalg, manipulation
from ember_ml.ops.axes import axis_of, integer_of, number_of
from ember_ml.ops.explain import explain
from ember_ml.ops.fitting import fitting
from ember_ml.ops.registry import ANY, COMPLEX, LINALG, NUMERIC, op
from ember_ml.ops.searching import where
from ember_ml.ops.windows import named, values_of
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill
from ember_ml.typing import TensorLike

__all__ = ["frame", "istft", "overlap_add", "spectrogram", "stft"]

PAD_MODES: Final = ("reflect", "constant")
# The sum of squared windows from which on a sample counts as covered at all, and that over the
# largest square from which on a window and a hop can be inverted.
_COVERED: Final = 1e-30
_INVERTIBLE: Final = 1e-10


def _count(op: str, value: Any, what: str) -> int:
    """A length as a Python int that is at least one."""
    count = integer_of(op, value, what)
    if count < 1:
        raise DomainError(f"ops.{op} got {what}={count}; it must be at least 1")
    return count


def signal_of(op: str, x: TensorLike) -> Tensor:
    """A tensor that has a time axis, in the dtype in which the op runs."""
    tensor = dispatch.lifted(op, x)
    if not tensor.ndim:
        raise ShapeError(f"ops.{op} takes a signal of at least one axis, not a 0-d tensor")
    return tensor


def pad_ends(x: Tensor, before: int, behind: int) -> Tensor:
    """Zeros on both sides of the last axis."""
    spec, shape = x._spec, x.shape[:-1]
    parts = [fill(spec.backend.full((*shape, count), 0, spec), spec) for count in (before, behind)]
    return manipulation.concat([parts[0], x, parts[1]], axis=-1)


def _reflect_ends(x: Tensor, count: int) -> Tensor:
    """The last axis continued as in a mirror that stands on its last element."""
    size = x.shape[-1]
    first = manipulation.flip(x[..., 1 : count + 1], axis=-1)
    last = manipulation.flip(x[..., size - 1 - count : size - 1], axis=-1)
    return manipulation.concat([first, x, last], axis=-1)


# --- Frames -----------------------------------------------------------------------------------


@op(accepts=ANY, standard=False)
def frame(
    x: TensorLike,
    /,
    frame_length: int,
    hop_length: int,
    axis: int = -1,
    *,
    pad_end: bool = False,
    pad_value: float = 0,
) -> Tensor:
    """Pieces of a signal, `hop_length` apart: the axis becomes `(frames, frame_length)`.

    Samples after the last whole frame are left out; `pad_end=True` adds values behind them, so
    that a frame begins at every multiple of `hop_length`.

    >>> frame([1, 2, 3, 4, 5], 3, 2).tolist()
    [[1, 2, 3], [3, 4, 5]]
    """
    tensor = convert.to_tensor(x)
    place = axis_of("frame", axis, tensor.ndim)
    length = _count("frame", frame_length, "frame_length")
    hop = _count("frame", hop_length, "hop_length")
    moved = tensor if place == tensor.ndim - 1 else manipulation.moveaxis(tensor, place, -1)
    size = moved.shape[-1]
    if pad_end:
        missing = max(-(-size // hop) - 1, 0) * hop + length - size
        behind = (*moved.shape[:-1], max(missing, 0))
        value = pad_value or False  # the zero of every dtype, also of truth values
        values = manipulation.broadcast_to(fitting("frame", tensor, value), behind)
        moved = manipulation.concat([moved, values], axis=-1)
    elif size < length:
        raise ShapeError(
            f"ops.frame got frame_length={length} for axis {place} of shape {tensor.shape}; "
            f"give a shorter frame, or pad_end=True"
        )
    out = dispatch.call("frame", moved, length, hop)
    return (
        out
        if place == tensor.ndim - 1
        else manipulation.moveaxis(out, (-2, -1), (place, place + 1))
    )


@op(accepts=NUMERIC, standard=False)
def overlap_add(x: TensorLike, /, hop_length: int) -> Tensor:
    """A signal of frames `(..., frames, frame_length)` that are added where they overlap.

    Of n frames come `(n - 1) * hop_length + frame_length` samples.

    >>> overlap_add([[1, 2, 3], [4, 5, 6]], 2).tolist()
    [1, 2, 7, 5, 6]
    """
    tensor = dispatch.lifted("overlap_add", x)
    hop = _count("overlap_add", hop_length, "hop_length")
    if tensor.ndim < 2 or not tensor.shape[-1] or not tensor.shape[-2]:
        raise ShapeError(
            f"ops.overlap_add takes at least one frame, as (..., frames, frame_length), "
            f"not shape {tensor.shape}"
        )
    return dispatch.call("overlap_add", tensor, hop)


# --- Spectra ----------------------------------------------------------------------------------


class Plan(NamedTuple):
    """The lengths of a transform over frames."""

    frame: int
    hop: int
    fft: int


def plan_of(op: str, frame_length: Any, hop_length: Any, fft_length: Any) -> Plan:
    """Lengths with their defaults: a hop of a quarter of a frame, no padding of frames."""
    length = _count(op, frame_length, "frame_length")
    hop = max(length // 4, 1) if hop_length is None else _count(op, hop_length, "hop_length")
    size = length if fft_length is None else _count(op, fft_length, "fft_length")
    if size < length:
        raise DomainError(
            f"ops.{op} got fft_length={size} for frame_length={length}; a transform holds a frame"
        )
    return Plan(length, hop, size)


def window_of(op: str, window: Any, length: int, beside: Tensor) -> Tensor:
    """A window beside a signal: by name, or a tensor that the user made."""
    if window is None:
        window = "rectangular"
    is_pair = isinstance(window, tuple) and bool(window) and isinstance(window[0], str)
    if isinstance(window, str) or is_pair:
        spec = beside._spec.with_dtype(dtypes.real_of(beside.dtype))
        values = values_of(op, named(op, window), length, True, spec.dtype)
        return fill(spec.backend.from_numpy(values, spec), spec)
    home = dispatch.home_of(op, (beside, window))
    made = convert.to_tensor(window, home)
    if made.shape != (length,):
        raise ShapeError(
            f"ops.{op} got a window of shape {made.shape} for frame_length={length}; "
            f"its shape must be ({length},)"
        )
    return made


def padded_signal(
    op: str, x: Tensor, plan: Plan, center: bool, pad_mode: str, pad_end: bool
) -> Tensor:
    """The signal whose frames are transformed: with `center`, half a frame longer at both ends."""
    if pad_mode not in PAD_MODES:
        raise DomainError(f"ops.{op} takes pad_mode {', '.join(PAD_MODES)}, not {pad_mode!r}")
    size = x.shape[-1]
    if pad_end:
        # The last sample comes before the middle of a frame, or at least into one.
        last = 0 if center else plan.frame
        missing = max(-(-(size - last) // plan.hop), 0) * plan.hop + last - size
        if missing:
            x = pad_ends(x, 0, missing)
            size = x.shape[-1]
    if not center:
        if size < plan.frame:
            raise ShapeError(
                f"ops.{op} got frame_length={plan.frame} for a signal of {size} samples; "
                f"give a shorter frame, or pad_end=True"
            )
        return x
    half = plan.frame // 2
    if pad_mode == "constant":
        # Around a signal without samples, an odd frame needs one more.
        return pad_ends(x, half, max(half, plan.frame - half - size))
    if size <= half:
        raise ShapeError(
            f"ops.{op} mirrors {half} samples at both ends, and the signal has {size}; "
            f"give a shorter frame_length, or pad_mode='constant'"
        )
    return _reflect_ends(x, half)


@op(accepts=LINALG, lift="float", result="complex", standard=False)
def stft(
    x: TensorLike,
    /,
    frame_length: int = 1024,
    hop_length: int | None = None,
    window: Any = "hann",
    *,
    fft_length: int | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    pad_end: bool = False,
    onesided: bool | None = None,
) -> Tensor:
    """The short-time Fourier transform along the last axis: `(..., frames, bins)`.

    Frames are `hop_length` apart (a quarter of a frame unless given), multiplied by the window (a
    name, a pair such as `("kaiser", 8.0)`, a tensor, or None) and transformed in `fft_length`
    points, with zeros behind each frame where that is longer. With `center`, frame t lies around
    sample `t * hop_length`, and the signal goes on beyond its ends as `pad_mode` says ("reflect"
    or "constant" zeros); without, frame t begins there. `pad_end` first adds zeros behind the
    signal, so that frames go on to its last sample whatever the hop. Real signals give the bins
    that are not redundant, `fft_length // 2 + 1`; `onesided=False` and complex signals give all.
    Nothing is scaled: `istft` with the same arguments is the inverse.

    >>> stft(ops.ones(1024), frame_length=256).shape
    (17, 129)
    """
    tensor = signal_of("stft", x)
    plan = plan_of("stft", frame_length, hop_length, fft_length)
    weights = window_of("stft", window, plan.frame, tensor)
    padded = padded_signal("stft", tensor, plan, center, pad_mode, pad_end)
    return _transformed("stft", padded, weights, plan, onesided)


def _transformed(op: str, x: Tensor, window: Tensor, plan: Plan, onesided: bool | None) -> Tensor:
    spec, natives, taped = dispatch.operands(op, x, window)
    half = not spec.dtype.is_complex if onesided is None else onesided
    if half and spec.dtype.is_complex:
        raise DTypeError(
            f"ops.{op} got {spec.dtype}, whose bins are all needed; leave onesided out"
        )
    kernel, _ = spec.backend.entry(spec, "stft")
    try:
        native = kernel(*natives, plan.hop, plan.fft, half)
    except Exception as error:
        raise explain(op, error, (x,), options=plan) from error
    native, result = dispatch.settled(native, spec)
    if taped:
        return recorded("stft", native, result, taped, (plan.hop, plan.fft, half))
    return fill(native, result)


@op(accepts=COMPLEX, result="real", standard=False)
def istft(
    x: TensorLike,
    /,
    frame_length: int | None = None,
    hop_length: int | None = None,
    window: Any = "hann",
    *,
    fft_length: int | None = None,
    center: bool = True,
    length: int | None = None,
    onesided: bool = True,
) -> Tensor:
    """The signal of which a spectrum `(..., frames, bins)` is the `stft` with the same arguments.

    Frames are weighted by the window again, added, and divided by the sum of squared windows:
    the inverse is exact wherever a window covers a sample, and gives zero where none does, as at
    the ends without `center`. A window and hop that leave gaps between frames raise DomainError.
    `length` cuts the result to the length of the signal, which frames alone do not tell, or adds
    zeros.

    >>> x = ops.sin(ops.arange(100.0))
    >>> y = istft(stft(x, 32), 32, length=100)
    >>> bool(ops.max(ops.abs(x - y)) < 1e-5)
    True
    """
    tensor = dispatch.lifted("istft", x)
    if tensor.ndim < 2 or not tensor.shape[-2] or not tensor.shape[-1]:
        raise ShapeError(f"ops.istft takes (..., frames, bins), not shape {tensor.shape}")
    plan = _inverse_plan(tensor.shape[-1], frame_length, hop_length, fft_length, onesided)
    weights = window_of("istft", window, plan.frame, tensor)
    _require_cover(weights, plan)
    back = fft.irfft if onesided else fft.ifft
    pieces = back(tensor, n=plan.fft, axis=-1)
    if plan.fft > plan.frame:
        pieces = pieces[..., : plan.frame]
    total = overlap_add(elementwise.multiply(pieces, weights), plan.hop)
    squares = elementwise.square(weights)
    count = tensor.shape[-2]
    cover = overlap_add(manipulation.broadcast_to(squares, (count, plan.frame)), plan.hop)
    covered = elementwise.greater(cover, _COVERED)
    signal = where(covered, elementwise.divide(total, where(covered, cover, 1.0)), 0.0)
    return _cut(signal, plan, center, length)


def _inverse_plan(
    bins: int, frame_length: Any, hop_length: Any, fft_length: Any, onesided: bool
) -> Plan:
    size = fft_length
    if size is None:
        size = bins
        if onesided:  # an odd length has as many bins as the even one below it
            odd = frame_length is not None and integer_of("istft", frame_length, "frame_length")
            size = odd if odd and odd // 2 + 1 == bins else max(2 * (bins - 1), 1)
    plan = plan_of("istft", size if frame_length is None else frame_length, hop_length, size)
    if (plan.fft // 2 + 1 if onesided else plan.fft) != bins:
        raise ShapeError(
            f"ops.istft got {bins} bins for fft_length={plan.fft}, which has "
            f"{plan.fft // 2 + 1 if onesided else plan.fft}"
        )
    return plan


def _require_cover(window: Tensor, plan: Plan) -> None:
    """Raise DomainError where endless frames would leave samples that no window covers."""
    if not window._spec.backend.checks_values(window.native):
        return
    values = np.abs(window.numpy().astype(np.complex128)) ** 2
    rounds = -(-plan.frame // plan.hop)
    sums = np.resize(np.append(values, np.zeros(rounds * plan.hop - plan.frame)),
                     (rounds, plan.hop)).sum(0)  # fmt: skip
    if sums.min() <= _INVERTIBLE * max(float(values.max()), 1e-300):
        raise DomainError(
            f"ops.istft got a window that leaves gaps at hop_length={plan.hop} and "
            f"frame_length={plan.frame}; give the hop_length of the stft, or a shorter one"
        )


def _cut(signal: Tensor, plan: Plan, center: bool, length: Any) -> Tensor:
    start = plan.frame // 2 if center else 0
    have = signal.shape[-1]
    if length is None:
        # Both ends lie half a frame beyond the signal.
        return signal[..., start : have - start] if center else signal
    wanted = integer_of("istft", length, "length")
    if wanted < 0:
        raise DomainError(f"ops.istft got length={wanted}; a length is not negative")
    signal = signal[..., start : start + wanted]
    missing = wanted - signal.shape[-1]
    return pad_ends(signal, 0, missing) if missing else signal.copy()


@op(accepts=LINALG, lift="float", result="real", standard=False)
def spectrogram(
    x: TensorLike,
    /,
    frame_length: int = 1024,
    hop_length: int | None = None,
    window: Any = "hann",
    *,
    fft_length: int | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    pad_end: bool = False,
    onesided: bool | None = None,
    power: float = 2.0,
) -> Tensor:
    """The size of each value of `stft`, raised to `power`: 2 for power, 1 for amplitude.

    >>> spectrogram(ops.ones(8), 4, 4, None, center=False).tolist()
    [[16.0, 0.0, 0.0], [16.0, 0.0, 0.0]]
    """
    tensor = signal_of("spectrogram", x)
    plan = plan_of("spectrogram", frame_length, hop_length, fft_length)
    weights = window_of("spectrogram", window, plan.frame, tensor)
    padded = padded_signal("spectrogram", tensor, plan, center, pad_mode, pad_end)
    return powers("spectrogram", padded, weights, plan, onesided, power)


def powers(
    op: str, x: Tensor, window: Tensor, plan: Plan, onesided: bool | None, power: float
) -> Tensor:
    """The sizes of a transform, raised to a power."""
    spec = x._spec
    power = number_of(op, power, "power")
    wide = dtypes.common([x.dtype, window.dtype], op)
    if spec.backend.supports(dtypes.complex_of(wide), spec.device):
        spectrum = _transformed(op, x, window, plan, onesided)
        if power != 2:
            # Through the size itself, whose gradient is zero in silence; that of a root is not.
            size = elementwise.abs(spectrum)
            return size if power == 1 else elementwise.pow(size, power)
        real, imaginary = elementwise.real(spectrum), elementwise.imag(spectrum)
    else:
        real, imaginary = _parts(x, window, plan, onesided)
    size = elementwise.add(elementwise.square(real), elementwise.square(imaginary))
    return size if power == 2 else elementwise.pow(size, power / 2)


def _parts(x: Tensor, window: Tensor, plan: Plan, onesided: bool | None) -> tuple[Tensor, Tensor]:
    """Both parts of a transform by products with cosines and sines.

    It is for a backend that has no complex numbers of this precision: MLX lacks complex128.
    """
    pieces = elementwise.multiply(dispatch.call("frame", x, plan.frame, plan.hop), window)
    bins = plan.fft if onesided is False else plan.fft // 2 + 1
    # Multiples of the whole turn are taken out in integers, where nothing is lost.
    turns = np.outer(np.arange(plan.frame), np.arange(bins)) % plan.fft
    angles = turns * (2 * np.pi / plan.fft)
    spec = pieces._spec
    tables = (np.cos(angles), np.sin(angles))
    cosines, sines = (
        fill(spec.backend.from_numpy(t.astype(spec.dtype.numpy), spec), spec) for t in tables
    )
    return linearalg.matmul(pieces, cosines), linearalg.matmul(pieces, sines)
