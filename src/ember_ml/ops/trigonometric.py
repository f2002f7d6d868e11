"""Discrete cosine and sine transforms of types 1 to 4, with SciPy's conventions.

Short ones are products with a table of cosines, which every engine does well; long ones go
through the Fourier transform.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, ShapeError
from ember_ml.ops import dispatch, elementwise, fft, linearalg, manipulation
from ember_ml.ops.axes import axis_of, integer_of
from ember_ml.ops.registry import op
from ember_ml.tensor.core import Tensor, fill
from ember_ml.typing import TensorLike

__all__ = ["dct", "dst", "idct", "idst"]

Values = np.ndarray[Any, Any]

_REAL: Final = frozenset((dtypes.float32, dtypes.float64))
_NORMS: Final = ("backward", "ortho", "forward")
_SWAPPED: Final = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
_INVERSE: Final = {1: 1, 2: 3, 3: 2, 4: 4}
# Up to here a product with a table is quicker than a Fourier transform on most engines.
_TABLE: Final = 256


@op(accepts=_REAL, lift="float", standard=False)
def dct(x: TensorLike, /, type: int = 2, *, axis: int = -1, norm: str | None = None) -> Tensor:
    """The discrete cosine transform of type 1, 2, 3 or 4 along an axis.

    Without a norm ("backward") sums are doubled, as in SciPy; "ortho" makes the transform
    orthonormal; "forward" divides by the length that `idct` divides by otherwise.

    >>> dct([1.0, 1.0]).tolist()
    [4.0, 0.0]
    """
    return _run("dct", x, type, axis, norm or "backward", sine=False)


@op(accepts=_REAL, lift="float", standard=False)
def idct(x: TensorLike, /, type: int = 2, *, axis: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `dct` of the same type and norm.

    >>> idct([4.0, 0.0]).tolist()
    [1.0, 1.0]
    """
    return _run("idct", x, type, axis, norm or "backward", sine=False)


@op(accepts=_REAL, lift="float", standard=False)
def dst(x: TensorLike, /, type: int = 2, *, axis: int = -1, norm: str | None = None) -> Tensor:
    """The discrete sine transform of type 1, 2, 3 or 4 along an axis; norms as in `dct`.

    >>> dst([1.0], type=1).tolist()
    [2.0]
    """
    return _run("dst", x, type, axis, norm or "backward", sine=True)


@op(accepts=_REAL, lift="float", standard=False)
def idst(x: TensorLike, /, type: int = 2, *, axis: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `dst` of the same type and norm.

    >>> idst([2.0], type=1).tolist()
    [1.0]
    """
    return _run("idst", x, type, axis, norm or "backward", sine=True)


def _run(name: str, x: TensorLike, kind: Any, axis: int, norm: str, *, sine: bool) -> Tensor:
    tensor = dispatch.lifted(name, x)
    place = axis_of(name, axis, tensor.ndim)
    number = integer_of(name, kind, "type")
    if number not in _INVERSE:
        raise DomainError(f"ops.{name} takes type 1, 2, 3 or 4, not {number}")
    if norm not in _NORMS:
        raise DomainError(f"ops.{name} takes norm {', '.join(_NORMS)}, not {norm!r}")
    size = tensor.shape[place]
    if size < (2 if number == 1 and not sine else 1):
        raise ShapeError(
            f"ops.{name} of type {number} got {size} elements along axis {place} of {tensor.shape}"
        )
    if name.startswith("i"):
        number, norm = _INVERSE[number], _SWAPPED[norm]
    moved = manipulation.moveaxis(tensor, place, -1)
    out = transformed(moved, number, norm, sine=sine)
    return manipulation.moveaxis(out, -1, place)


def transformed(x: Tensor, kind: int, norm: str, *, sine: bool = False) -> Tensor:
    """A transform along the last axis."""
    spec, size = x._spec, x.shape[-1]
    has_complex = spec.backend.supports(dtypes.complex_of(spec.dtype), spec.device)
    if size <= _TABLE or not has_complex:
        return linearalg.matmul(x, _constant(x, table(size, kind, norm, sine, spec.dtype)))
    before, behind, factor = _scales(size, kind, norm, sine)
    if before is not None:
        x = elementwise.multiply(x, _constant(x, before))
    out = _sine_sums(x, kind) if sine else _cosine_sums(x, kind)
    if behind is not None:
        out = elementwise.multiply(out, _constant(x, behind))
    return elementwise.multiply(out, factor) if factor != 1 else out


def _constant(beside: Tensor, values: Values, *, is_complex: bool = False) -> Tensor:
    spec = beside._spec
    if is_complex:
        spec = spec.with_dtype(dtypes.complex_of(spec.dtype))
    made = values.astype(spec.dtype.numpy, copy=False)
    return fill(spec.backend.from_numpy(made, spec), spec)


# --- Sums, as SciPy defines them ----------------------------------------------------------------


@lru_cache(maxsize=32)
def table(size: int, kind: int, norm: str, sine: bool, dtype: DType) -> Values:
    """The matrix of a transform, norm included: inputs down, outputs across; only to be read."""
    n, k = np.arange(size)[:, None], np.arange(size)[None, :]
    # The angle is pi * a / b with integers a and b: whole turns are taken out exactly.
    if kind == 1:
        a, b = ((n + 1) * (k + 1), size + 1) if sine else (n * k, size - 1)
    elif kind == 2:
        a, b = (2 * n + 1) * (k + sine), 2 * size
    elif kind == 3:
        a, b = (n + sine) * (2 * k + 1), 2 * size
    else:
        a, b = (2 * n + 1) * (2 * k + 1), 4 * size
    angles = (a % (2 * b)) * (np.pi / b)
    values = 2 * (np.sin(angles) if sine else np.cos(angles))
    # The end of an even or odd continuation is counted once.
    if kind == 1 and not sine:
        values[[0, -1]] /= 2
    elif kind == 3:
        values[-1 if sine else 0] /= 2
    before, behind, factor = _scales(size, kind, norm, sine)
    if before is not None:
        values *= before[:, None]
    if behind is not None:
        values *= behind
    made: Values = (values * factor).astype(dtype.numpy)
    made.flags.writeable = False
    return made


def _scales(
    size: int, kind: int, norm: str, sine: bool
) -> tuple[Values | None, Values | None, float]:
    """What a norm multiplies the input by, the output by, and all by."""
    whole = 2.0 * (size + (1 if sine else -1) if kind == 1 else size)
    if norm == "backward":
        return None, None, 1.0
    if norm == "forward":
        return None, None, 1 / whole
    factor = 1 / math.sqrt(whole)
    edge = np.ones(size)
    if kind == 1 and not sine:
        edge[[0, -1]] = math.sqrt(2)
        return edge, 1 / edge, factor
    edge[-1 if sine else 0] = math.sqrt(2)
    if kind == 2:
        return None, 1 / edge, factor
    if kind == 3:
        return edge, None, factor
    return None, None, factor


def _cosine_sums(x: Tensor, kind: int) -> Tensor:
    size = x.shape[-1]
    n = np.arange(size)
    if kind == 1:
        mirrored = manipulation.concat([x, manipulation.flip(x[..., 1:-1], axis=-1)], axis=-1)
        return elementwise.real(fft.rfft(mirrored))
    if kind == 2:
        spectrum = fft.rfft(x, n=2 * size)[..., :size]
        turn = 2 * np.exp(-0.5j * np.pi * n / size)
    else:
        weights = np.exp(-0.5j * np.pi * n / size) * (2 if kind == 4 else np.where(n, 2, 1))
        weighted = elementwise.multiply(x, _constant(x, weights, is_complex=True))
        spectrum = fft.fft(weighted, n=2 * size)[..., :size]
        if kind == 3:
            return elementwise.real(spectrum)
        turn = np.exp(-0.25j * np.pi * (2 * n + 1) / size)
    return elementwise.real(elementwise.multiply(spectrum, _constant(x, turn, is_complex=True)))


def _sine_sums(x: Tensor, kind: int) -> Tensor:
    """Sines are cosines of a signal that is turned round or has every other sign changed."""
    if kind == 1:
        zero = x[..., :1] * 0.0
        odd = manipulation.concat(
            [zero, x, zero, elementwise.negative(manipulation.flip(x, axis=-1))], axis=-1
        )
        return elementwise.negative(elementwise.imag(fft.rfft(odd)))[..., 1:-1]
    signs = _constant(x, 1.0 - 2.0 * (np.arange(x.shape[-1]) % 2))
    if kind == 2:
        return manipulation.flip(_cosine_sums(elementwise.multiply(x, signs), 2), axis=-1)
    return elementwise.multiply(_cosine_sums(manipulation.flip(x, axis=-1), kind), signs)
