"""Discrete Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ember_ml import dtypes
from ember_ml.errors import AxisError, DomainError, DTypeError, ShapeError
from ember_ml.ops import dispatch
from ember_ml.ops.axes import axes_of, axis_of, integer_of, number_of
from ember_ml.ops.creation import _host
from ember_ml.ops.registry import ANY, LINALG, op
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import Axis, DTypeLike, TensorLike

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

_NORMS = ("backward", "ortho", "forward")
# From half of a spectrum of m elements come 2 * (m - 1) real values, if nothing else is said.
_HALVED = frozenset(("fft.irfft", "fft.hfft", "fft.irfftn"))
_REAL = frozenset((dtypes.float32, dtypes.float64))


def _line(name: str, x: TensorLike, n: int | None, axis: int, norm: str) -> Tensor:
    """Run a transform along one axis."""
    tensor = _input(name, x, norm)
    place = axis_of(name, axis, tensor.ndim)
    length = None if n is None else _length(name, n)
    if length is None:
        _require_points(name, name, tensor, (place,))
    return dispatch.call(name, tensor, length, place, norm)


def _box(
    name: str,
    x: TensorLike,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str,
    kernel: str = "",
) -> Tensor:
    """Run a transform along several axes; `kernel` names the one of an op that has none."""
    tensor = _input(name, x, norm)
    if kernel:
        tensor = dispatch.lifted(name, tensor)  # so that errors of dtypes name the op
    lengths = None if s is None else tuple(_length(name, n) for n in _several(name, s, "s"))
    if axes is None:
        first = 0 if lengths is None else tensor.ndim - len(lengths)
        if first < 0:
            raise AxisError(f"ops.{name} got {len(lengths or ())} lengths for {tensor.ndim} axes")
        places: tuple[int, ...] = tuple(range(first, tensor.ndim))
    else:
        places = axes_of(name, _several(name, axes, "axes"), tensor.ndim)
    if lengths is not None and len(lengths) != len(places):
        raise AxisError(f"ops.{name} got {len(lengths)} lengths for {len(places)} axes")
    if not places:
        raise AxisError(f"ops.{name} takes at least one axis")
    if lengths is None:
        _require_points(name, kernel or name, tensor, places)
    return dispatch.call(kernel or name, tensor, lengths, places, norm)


def _several(name: str, values: Any, what: str) -> tuple[Any, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise DTypeError(
            f"ops.{name} takes a sequence of integers as {what}, not {values!r} of type "
            f"{type(values).__name__}"
        )
    return tuple(values)


def _require_points(name: str, kernel: str, x: Tensor, places: tuple[int, ...]) -> None:
    """Raise ShapeError where the lengths of the axes leave a transform without elements.

    Engines disagree about those: some give nothing, some an element that was never there.
    """
    for place in places:
        if not x.shape[place]:
            raise ShapeError(f"ops.{name} got no elements along axis {place} of {x.shape}")
    if kernel in _HALVED and x.shape[places[-1]] < 2:
        raise ShapeError(
            f"ops.{name} got one element along axis {places[-1]} of {x.shape}, which stands for "
            f"2 * (1 - 1) = 0 real values; give {'s' if kernel.endswith('n') else 'n'}"
        )


def _input(name: str, x: TensorLike, norm: str) -> Tensor:
    if norm not in _NORMS:
        raise DomainError(f"ops.{name} takes norm {', '.join(_NORMS)}, not {norm!r}")
    tensor = convert.to_tensor(x)
    if not tensor.ndim:
        raise ShapeError(f"ops.{name} takes at least one axis, not a 0-d tensor")
    return tensor


def _length(name: str, n: Any) -> int:
    length = integer_of(name, n, "n")
    if length < 1:
        raise DomainError(f"ops.{name} got n={length}; a transform has at least one element")
    return length


@op("fft.fft", accepts=LINALG, lift="float", result="complex")
def fft(
    x: TensorLike, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Tensor:
    """The transform along one axis.

    >>> fft([1.0, 0.0]).tolist()
    [(1+0j), (1+0j)]
    """
    return _line("fft.fft", x, n, axis, norm)


@op("fft.ifft", accepts=LINALG, lift="float", result="complex")
def ifft(
    x: TensorLike, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Tensor:
    """The inverse of `fft`.

    >>> ifft([1.0 + 0j, 1.0 + 0j]).tolist()
    [(1+0j), 0j]
    """
    return _line("fft.ifft", x, n, axis, norm)


@op("fft.rfft", accepts=_REAL, lift="float", result="complex")
def rfft(
    x: TensorLike, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Tensor:
    """The transform of real values: the half that is not redundant.

    >>> rfft([1.0, 1.0]).tolist()
    [(2+0j), 0j]
    """
    return _line("fft.rfft", x, n, axis, norm)


@op("fft.irfft", accepts=LINALG, lift="float", result="real")
def irfft(
    x: TensorLike, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Tensor:
    """The inverse of `rfft`: real values.

    >>> irfft([2.0 + 0j, 0j]).tolist()
    [1.0, 1.0]
    """
    return _line("fft.irfft", x, n, axis, norm)


@op("fft.hfft", accepts=LINALG, lift="float", result="real")
def hfft(
    x: TensorLike, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Tensor:
    """The transform of a signal with Hermitian symmetry: real values.

    >>> hfft([1.0 + 0j, 0j]).tolist()
    [1.0, 1.0]
    """
    return _line("fft.hfft", x, n, axis, norm)


@op("fft.ihfft", accepts=_REAL, lift="float", result="complex")
def ihfft(
    x: TensorLike, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Tensor:
    """The inverse of `hfft`.

    >>> ihfft([1.0, 1.0]).shape
    (2,)
    """
    return _line("fft.ihfft", x, n, axis, norm)


@op("fft.fftn", accepts=LINALG, lift="float", result="complex")
def fftn(
    x: TensorLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Tensor:
    """The transform along several axes, or all.

    >>> fftn([[1.0, 0.0]]).tolist()
    [[(1+0j), (1+0j)]]
    """
    return _box("fft.fftn", x, s, axes, norm)


@op("fft.ifftn", accepts=LINALG, lift="float", result="complex")
def ifftn(
    x: TensorLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Tensor:
    """The inverse of `fftn`.

    >>> ifftn([[1.0 + 0j, 1.0 + 0j]]).tolist()
    [[(1+0j), 0j]]
    """
    return _box("fft.ifftn", x, s, axes, norm)


@op("fft.rfftn", accepts=_REAL, lift="float", result="complex")
def rfftn(
    x: TensorLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Tensor:
    """The transform of real values along several axes, or all.

    >>> rfftn([[1.0, 1.0]]).tolist()
    [[(2+0j), 0j]]
    """
    return _box("fft.rfftn", x, s, axes, norm)


@op("fft.irfftn", accepts=LINALG, lift="float", result="real")
def irfftn(
    x: TensorLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Tensor:
    """The inverse of `rfftn`: real values.

    >>> irfftn([[2.0 + 0j, 0j]]).tolist()
    [[1.0, 1.0]]
    """
    return _box("fft.irfftn", x, s, axes, norm)


@op("fft.fft2", accepts=LINALG, lift="float", result="complex", standard=False)
def fft2(
    x: TensorLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str = "backward",
) -> Tensor:
    """The transform along two axes, the last ones if not said otherwise.

    >>> fft2([[1.0, 0.0], [0.0, 0.0]]).tolist()
    [[(1+0j), (1+0j)], [(1+0j), (1+0j)]]
    """
    return _box("fft.fft2", x, s, axes, norm, "fft.fftn")


@op("fft.ifft2", accepts=LINALG, lift="float", result="complex", standard=False)
def ifft2(
    x: TensorLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str = "backward",
) -> Tensor:
    """The inverse of `fft2`.

    >>> ifft2([[4.0 + 0j, 0j], [0j, 0j]]).tolist()
    [[(1+0j), (1+0j)], [(1+0j), (1+0j)]]
    """
    return _box("fft.ifft2", x, s, axes, norm, "fft.ifftn")


@op("fft.rfft2", accepts=_REAL, lift="float", result="complex", standard=False)
def rfft2(
    x: TensorLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str = "backward",
) -> Tensor:
    """The transform of real values along two axes: the half that is not redundant.

    >>> rfft2([[1.0, 1.0], [1.0, 1.0]]).tolist()
    [[(4+0j), 0j], [0j, 0j]]
    """
    return _box("fft.rfft2", x, s, axes, norm, "fft.rfftn")


@op("fft.irfft2", accepts=LINALG, lift="float", result="real", standard=False)
def irfft2(
    x: TensorLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str = "backward",
) -> Tensor:
    """The inverse of `rfft2`: real values.

    >>> irfft2([[4.0 + 0j, 0j], [0j, 0j]]).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _box("fft.irfft2", x, s, axes, norm, "fft.irfftn")


@op("fft.fftfreq", creates=True)
def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeLike = None, device: str | None = None
) -> Tensor:
    """The frequencies that the elements of `fft` stand for.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    return _frequencies("fft.fftfreq", np.fft.fftfreq, n, d, dtype, device)


@op("fft.rfftfreq", creates=True)
def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeLike = None, device: str | None = None
) -> Tensor:
    """The frequencies that the elements of `rfft` stand for.

    >>> rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    return _frequencies("fft.rfftfreq", np.fft.rfftfreq, n, d, dtype, device)


def _frequencies(
    name: str, make: Any, n: int, d: float, dtype: DTypeLike, device: str | None
) -> Tensor:
    wanted = dtypes.default_float if dtype is None else dtypes.to_dtype(dtype)
    if not wanted.is_floating:
        raise DTypeError(f"ops.{name} takes a real floating dtype, not {wanted}")
    distance = number_of(name, d, "d")
    if not distance:
        raise DomainError(f"ops.{name} got d=0; samples have a distance")
    return _host(make(_length(name, n), distance), wanted, device)


@op("fft.fftshift", accepts=ANY)
def fftshift(x: TensorLike, /, *, axes: Axis = None) -> Tensor:
    """The zero frequency moved to the middle.

    >>> fftshift([0, 1, 2, 3]).tolist()
    [2, 3, 0, 1]
    """
    return _shifted("fft.fftshift", x, axes, 1)


@op("fft.ifftshift", accepts=ANY)
def ifftshift(x: TensorLike, /, *, axes: Axis = None) -> Tensor:
    """The inverse of `fftshift`.

    >>> ifftshift([0, 1, 2, 3]).tolist()
    [2, 3, 0, 1]
    """
    return _shifted("fft.ifftshift", x, axes, -1)


def _shifted(name: str, x: TensorLike, axes: Axis, sign: int) -> Tensor:
    tensor = convert.to_tensor(x)
    places = axes_of(name, axes, tensor.ndim)
    shifts = tuple(sign * (tensor.shape[place] // 2) for place in places)
    return dispatch.call("roll", tensor, shifts, places) if places else tensor.copy()
