"""Gradients of Fourier transforms and of frames of signals: linear maps, pulled by their adjoints.

The adjoint of a transform is the inverse one with the other norm. What a length cut off has no
gradient, and what it added has nobody to give it to.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ember_ml import ops
from ember_ml.autodiff.rules.table import joint_rule, rule
from ember_ml.ops.dispatch import call
from ember_ml.ops.linearalg.matrices import constant
from ember_ml.tensor.core import Tensor, fill

__all__: list[str] = []

_OTHER: Final = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _fitted(g: Tensor, axis: int, size: int) -> Tensor:
    """An axis cut, or continued with zeros, to a length."""
    have = g.shape[axis]
    if have == size:
        return g
    if have > size:
        return g[(slice(None),) * axis + (slice(size),)]
    shape = (*g.shape[:axis], size - have, *g.shape[axis + 1 :])
    return ops.concat([g, _zeros(shape, g)], axis=axis)


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    spec = like._spec
    return fill(spec.backend.full(shape, 0, spec), spec)


def _as_operand(g: Tensor, x: Any, *axes: int) -> Tensor:
    """A gradient in the shape of an operand; real where the operand is."""
    for axis in axes:
        g = _fitted(g, axis, x.shape[axis])
    return ops.real(g) if g.dtype.is_complex and not x.dtype.is_complex else g


def _weighted(g: Tensor, axis: int, points: int, middle: float) -> Tensor:
    """Bins times a factor, but for those that stand for one of `points`: the first, the middle."""
    factors = np.full(g.shape[axis], middle)
    factors[0] = 1
    if points % 2 == 0:
        factors[points // 2] = 1
    shape = (g.shape[axis], *(1,) * (g.ndim - 1 - axis))
    return g * constant(factors.astype(g.dtype.numpy).reshape(shape), g)


# --- Complex transforms -----------------------------------------------------------------------


def _fft(g: Tensor, y: Any, x: Any, n: int | None, axis: int, norm: str) -> Tensor:
    return _as_operand(call("fft.ifft", g, None, axis, _OTHER[norm]), x, axis)


def _ifft(g: Tensor, y: Any, x: Any, n: int | None, axis: int, norm: str) -> Tensor:
    return _as_operand(call("fft.fft", g, None, axis, _OTHER[norm]), x, axis)


def _fftn(g: Tensor, y: Any, x: Any, s: Any, axes: tuple[int, ...], norm: str) -> Tensor:
    return _as_operand(call("fft.ifftn", g, None, axes, _OTHER[norm]), x, *axes)


def _ifftn(g: Tensor, y: Any, x: Any, s: Any, axes: tuple[int, ...], norm: str) -> Tensor:
    return _as_operand(call("fft.fftn", g, None, axes, _OTHER[norm]), x, *axes)


rule("fft.fft", _fft, inputs=False)
rule("fft.ifft", _ifft, inputs=False)
rule("fft.fftn", _fftn, inputs=False)
rule("fft.ifftn", _ifftn, inputs=False)


# --- Transforms from and to real numbers --------------------------------------------------------


def _from_bins(g: Tensor, points: int, axis: int, norm: str) -> Tensor:
    """The adjoint of rfft: irfft counts twice what has no bin of its own."""
    return call("fft.irfft", _weighted(g, axis, points, 0.5), points, axis, norm)


def _to_bins(g: Tensor, x: Any, axis: int, norm: str, inverse: str) -> Tensor:
    """The adjoint of irfft, whose own norm is `inverse`."""
    points = g.shape[axis]
    if x.dtype.is_complex:
        bins = call("fft.rfft", g, points, axis, norm)
    else:
        # The sums of cosines are those of the even part, which irfft gives without complex
        # numbers: not every backend has those of 64 bits.
        turned = ops.roll(ops.flip(g, axis=axis), 1, axis=axis)
        even = _fitted((g + turned) * 0.5, axis, points // 2 + 1)
        bins = _fitted(call("fft.irfft", even, points, axis, inverse), axis, points // 2 + 1)
    return _as_operand(_weighted(bins, axis, points, 2.0), x, axis)


def _rfft(g: Tensor, y: Any, x: Any, n: int | None, axis: int, norm: str) -> Tensor:
    points = x.shape[axis] if n is None else n
    return _as_operand(_from_bins(g, points, axis, _OTHER[norm]), x, axis)


def _irfft(g: Tensor, y: Any, x: Any, n: int | None, axis: int, norm: str) -> Tensor:
    return _to_bins(g, x, axis, _OTHER[norm], norm)


def _hfft(g: Tensor, y: Any, x: Any, n: int | None, axis: int, norm: str) -> Tensor:
    # hfft is irfft of the conjugate, with the other norm.
    out = _to_bins(g, x, axis, norm, _OTHER[norm])
    return ops.conj(out) if out.dtype.is_complex else out


def _ihfft(g: Tensor, y: Any, x: Any, n: int | None, axis: int, norm: str) -> Tensor:
    points = x.shape[axis] if n is None else n
    return _as_operand(_from_bins(ops.conj(g), points, axis, norm), x, axis)


def _rfftn(g: Tensor, y: Any, x: Any, s: Any, axes: tuple[int, ...], norm: str) -> Tensor:
    *others, last = axes
    points = x.shape[last] if s is None else s[-1]
    if others:
        g = call("fft.ifftn", g, None, tuple(others), _OTHER[norm])
    return _as_operand(_from_bins(g, points, last, _OTHER[norm]), x, *axes)


def _irfftn(g: Tensor, y: Any, x: Any, s: Any, axes: tuple[int, ...], norm: str) -> Tensor:
    *others, last = axes
    points = g.shape[last]
    g = _weighted(call("fft.rfft", g, points, last, _OTHER[norm]), last, points, 2.0)
    if others:
        g = call("fft.fftn", g, None, tuple(others), _OTHER[norm])
    return _as_operand(g, x, *axes)


rule("fft.rfft", _rfft, inputs=False)
rule("fft.irfft", _irfft, inputs=False)
rule("fft.hfft", _hfft, inputs=False)
rule("fft.ihfft", _ihfft, inputs=False)
rule("fft.rfftn", _rfftn, inputs=False)
rule("fft.irfftn", _irfftn, inputs=False)


# --- Frames -----------------------------------------------------------------------------------


def _frame(g: Tensor, y: Any, x: Any, length: int, hop: int) -> Tensor:
    if not g.size:
        return _zeros(x.shape, g)
    return _fitted(call("overlap_add", g, hop), len(x.shape) - 1, x.shape[-1])


def _overlap_add(g: Tensor, y: Any, x: Any, hop: int) -> Tensor:
    return call("frame", g, x.shape[-1], hop)


rule("frame", _frame, inputs=False)
rule("overlap_add", _overlap_add, inputs=False)


@joint_rule("stft")
def _stft(
    g: Tensor,
    needs: tuple[bool, ...],
    y: Any,
    x: Tensor,
    window: Tensor,
    hop: int,
    points: int,
    onesided: bool,
) -> tuple[Tensor | None, Tensor | None]:
    length, axis = window.shape[0], g.ndim - 1
    if onesided:
        pieces = _from_bins(g, points, axis, "forward")
    else:
        pieces = call("fft.ifft", g, None, axis, "forward")
        pieces = pieces if x.dtype.is_complex else ops.real(pieces)
    pieces = _fitted(pieces, axis, length)
    for_x = for_window = None
    if needs[0]:
        weights = ops.conj(window) if window.dtype.is_complex else window
        for_x = _frame(pieces * weights, None, x, length, hop)
    if needs[1]:
        frames = call("frame", x, length, hop)
        frames = ops.conj(frames) if frames.dtype.is_complex else frames
        for_window = ops.sum(pieces * frames, axis=tuple(range(axis)))
    return for_x, for_window
