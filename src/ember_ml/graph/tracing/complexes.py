"""Complex numbers within a graph: pairs of real operands, since ONNX Runtime has none.

They cannot be inputs or results of a graph. What lies between, as in a spectrogram, is arithmetic
of both parts; a Fourier transform of a known length is a product with a constant matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.graph.tracing.elementwise import choose
from ember_ml.graph.tracing.linearalg import product
from ember_ml.graph.tracing.moving import expanded, padded, permuted
from ember_ml.graph.tracing.operand import Array, Operand
from ember_ml.graph.tracing.sizes import Size
from ember_ml.graph.tracing.trace import cast, constant, emit

__all__ = ["EMITTERS", "join", "lifted", "split"]

_REAL: Final = {np.dtype(np.complex64): np.float32, np.dtype(np.complex128): np.float64}
_COMPLEX: Final = {np.dtype(np.float32): np.complex64, np.dtype(np.float64): np.complex128}
_LONG: Final = 64
# What is done to both parts alike.
MOVES: Final = frozenset(
    ("reshape", "permute_dims", "matrix_transpose", "broadcast_to", "filled", "expand_dims",
     "squeeze", "flip", "concat", "stack", "tile", "roll", "take", "take_along_axis", "pad_with",
     "sum", "mean", "negative", "positive", "stop_gradient", "add", "subtract", "frame",
     "overlap_add", "tril", "triu", "cumulative_sum", "repeat")
)  # fmt: skip


def split(x: Operand) -> tuple[Operand, Operand]:
    """Real and imaginary part."""
    if x.parts is not None:
        return x.parts
    if x.dtype.kind != "c":
        return x, expanded(constant(np.zeros((), x.dtype)), x.shape)
    return constant(x.shadow.real.copy()), constant(x.shadow.imag.copy())


def join(real: Operand, imaginary: Operand) -> Operand:
    """A complex operand of its parts."""
    kind = _COMPLEX[np.dtype(real.dtype)]
    array: Array = (real.shadow + 1j * imaginary.shadow).astype(kind)
    if real.known and imaginary.known:
        return constant(array)
    made = Operand(array, real.shape)
    made.parts = (real, imaginary)
    return made


def lifted(kernel_of: Callable[[Operand], Callable[..., Any]], *args: Any, **named: Any) -> Any:
    """A kernel on both parts of all complex arguments."""

    def part(value: Any, place: int) -> Any:
        if isinstance(value, Operand) and value.dtype.kind == "c":
            return split(value)[place]
        if isinstance(value, list | tuple) and any(isinstance(v, Operand) for v in value):
            return type(value)(part(v, place) for v in value)
        return value

    both = []
    for place in (0, 1):
        given = [part(value, place) for value in args]
        first = given[0][0] if isinstance(given[0], list | tuple) else given[0]
        both.append(kernel_of(first)(*given, **named))
    return join(both[0], both[1])


def _pair(x: Any, y: Any) -> tuple[Operand, Operand, Operand, Operand]:
    if not isinstance(y, Operand):
        y = constant(np.array(y, x.dtype))
    return *split(x), *split(y)


def multiply(eager: Any, x: Operand, y: Any) -> Operand:
    a, b, c, d = _pair(x, y)
    return join(a * c - b * d, a * d + b * c)


def divide(eager: Any, x: Operand, y: Any) -> Operand:
    a, b, c, d = _pair(x, y)
    square = c * c + d * d
    return join((a * c + b * d) / square, (b * c - a * d) / square)


def size(eager: Any, x: Operand) -> Operand:
    a, b = split(x)
    square = a * a + b * b
    return emit("Sqrt", [square], np.sqrt(square.shadow))


def conj(eager: Any, x: Operand) -> Operand:
    a, b = split(x)
    return join(a, -b)


def exp(eager: Any, x: Operand) -> Operand:
    a, b = split(x)
    length = emit("Exp", [a], np.exp(a.shadow))
    cosine, sine = emit("Cos", [b], np.cos(b.shadow)), emit("Sin", [b], np.sin(b.shadow))
    return join(length * cosine, length * sine)


def where(eager: Any, mask: Operand, x: Operand, y: Operand) -> Operand:
    a, b, c, d = _pair(x, y)
    return join(choose(mask, a, c), choose(mask, b, d))


# --- Fourier transforms -------------------------------------------------------------------------


def _scale(norm: str, length: int, forward: bool) -> float:
    if norm == "ortho":
        return 1 / math.sqrt(length)
    return 1 / length if (norm == "forward") == forward else 1.0


def _waves(rows: int, columns: int, length: int, dtype: Any) -> tuple[Operand, Operand]:
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    angles = turns * (2 * np.pi / length)
    return constant(np.cos(angles).astype(dtype)), constant(np.sin(angles).astype(dtype))


def _resized(x: Operand, length: int, axis: int) -> Operand:
    side = x.shape[axis]
    if side > length:
        made: Operand = x[(*(slice(None),) * axis, slice(0, length))]
        return made
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, length - side)
    return padded(x, widths, 0)


def _along(x: Operand, axis: int) -> tuple[Operand, list[int]]:
    """With an axis last, and the way back."""
    order = [i for i in range(x.ndim) if i != axis] + [axis]
    return permuted(x, order), [order.index(i) for i in range(x.ndim)]


def _transform(x: Operand, length: Any, axis: int, scale: float, sign: int, count: int) -> Operand:
    place = axis % x.ndim
    narrow = np.dtype(_REAL.get(x.dtype, x.dtype))
    parts = [_wide(_along(_resized(part, length, place), place)[0], length) for part in split(x)]
    back = _along(split(x)[0], place)[1]
    cosine, sine = _waves(length, count, length, parts[0].dtype)
    real, imaginary = parts[0] * scale, parts[1] * scale
    out_real = product(real, cosine) - product(imaginary, sine) * float(sign)
    out_imaginary = product(real, sine) * float(sign) + product(imaginary, cosine)
    made = [cast(permuted(out, back), dtypes.to_dtype(narrow)) for out in (out_real, out_imaginary)]
    return join(made[0], made[1])


def _wide(x: Operand, length: int) -> Operand:
    """Sums of many products in float64: a fast transform would round less often."""
    return cast(x, dtypes.float64) if length >= _LONG else x


def _fft(forward: bool, half: bool = False) -> Callable[..., Any]:
    def run(eager: Any, x: Operand, n: Any, axis: int, norm: str) -> Any:
        length = x.shape[axis] if n is None else n
        if type(length) is Size or type(x.shape[axis]) is Size or not length:
            return NotImplemented
        count = length // 2 + 1 if half else length
        return _transform(
            x, length, axis, _scale(norm, length, forward), -1 if forward else 1, count
        )

    return run


def irfft(eager: Any, x: Operand, n: Any, axis: int, norm: str) -> Any:
    place = axis % x.ndim
    length = 2 * (x.shape[place] - 1) if n is None else n
    if type(length) is Size or type(x.shape[place]) is Size or not length:
        return NotImplemented
    count = length // 2 + 1
    narrow = np.dtype(_REAL.get(x.dtype, x.dtype))
    parts = [_wide(_along(_resized(part, count, place), place)[0], length) for part in split(x)]
    back = _along(split(x)[0], place)[1]
    shares = np.full(count, 2.0)
    shares[0] = 1.0
    if length % 2 == 0:
        shares[-1] = 1.0
    cosine, sine = _waves(count, length, length, parts[0].dtype)
    weights = constant((shares * _scale(norm, length, False)).astype(parts[0].dtype))
    real = product(parts[0] * weights, cosine) - product(parts[1] * weights, sine)
    return cast(permuted(real, back), dtypes.to_dtype(narrow))


EMITTERS: Final[dict[str, Callable[..., Any]]] = {
    "multiply": multiply,
    "divide": divide,
    "abs": size,
    "conj": conj,
    "real": lambda eager, x: split(x)[0],
    "imag": lambda eager, x: split(x)[1],
    "exp": exp,
    "square": lambda eager, x: multiply(eager, x, x),
    "where": where,
    "fft.fft": _fft(True),
    "fft.ifft": _fft(False),
    "fft.rfft": _fft(True, half=True),
    "fft.irfft": irfft,
}
