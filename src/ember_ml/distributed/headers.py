"""Headers: what a rank is about to do, in numbers of one length, which ranks compare."""

from __future__ import annotations

from typing import Any, Final
from zlib import crc32

import numpy as np

from ember_ml import dtypes, errors
from ember_ml.dtypes import DType
from ember_ml.errors import DeviceError, DomainError, DTypeError, EmberError, ShapeError
from ember_ml.tensor.core import Tensor

__all__ = [
    "MOST_AXES",
    "REDUCTIONS",
    "WORDS",
    "disagreement",
    "header_of",
    "is_refusal",
    "length_of",
    "read_header",
    "refusal",
    "text_of",
    "words_of",
]

REDUCTIONS: Final = ("sum", "mean", "max", "min", "prod")
_CALLS: Final = (
    "barrier",
    "all_reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "send",
    "broadcast_object",
    "all_gather_object",
)
_DTYPES: Final = dtypes.ALL
# Errors that a rank can tell the others of, by their place in this list plus one.
_ERRORS: Final = tuple(name for name in errors.__all__ if name != "EmberError")
MOST_AXES: Final = 16
# Places in a header, before the shape.
_CALL, _OPTION, _REFUSED, _NEEDED, _DTYPE, _DEVICE, _LENGTH, _AXES, _SHAPE = range(9)
WORDS: Final = _SHAPE + MOST_AXES
# Of an error's text, so much is told to others.
_TOLD: Final = 1024

Words = np.ndarray[Any, Any]


def header_of(
    call: str,
    x: Tensor | None = None,
    option: int = 0,
    *,
    needed: bool = False,
    length: int = 0,
    error: Exception | None = None,
) -> Words:
    """The header of a call: with a tensor, with an object of `length` bytes, or refused."""
    words = np.zeros(WORDS, np.int64)
    words[_CALL] = _CALLS.index(call)
    words[_OPTION] = option
    words[_NEEDED] = needed
    words[_LENGTH] = length
    words[_DTYPE] = -1
    if error is not None:
        names = (kind.__name__ for kind in type(error).__mro__)
        known = next((name for name in names if name in _ERRORS), "DomainError")
        words[_REFUSED] = 1 + _ERRORS.index(known)
    if x is not None:
        shape = x.shape
        words[_DTYPE] = _DTYPES.index(x.dtype)
        words[_DEVICE] = crc32(x.device.partition(":")[0].encode())
        words[_AXES] = len(shape)
        words[_SHAPE : _SHAPE + len(shape)] = shape
    return words


def read_header(words: Words) -> tuple[DType, tuple[int, ...]]:
    """The dtype and the shape of a tensor that is sent."""
    count = int(words[_AXES])
    return _DTYPES[int(words[_DTYPE])], tuple(int(n) for n in words[_SHAPE : _SHAPE + count])


def length_of(words: Words) -> int:
    """The number of bytes of an object."""
    return int(words[_LENGTH])


def disagreement(rank: int, rows: Words) -> EmberError | None:
    """The error of ranks that come with different things, the same on all; None if they agree."""
    compared = rows.copy()
    compared[:, _LENGTH] = 0  # objects may have different lengths
    different = (compared != compared[0]).any(axis=0)
    if not different.any():
        return None
    kind: type[EmberError] = ShapeError
    if different[_CALL] or different[_OPTION]:
        kind = DomainError
    elif different[_DTYPE]:
        kind = DTypeError
    elif different[_AXES:].any():
        kind = ShapeError
    elif different[_DEVICE]:
        kind = DeviceError
    else:
        kind = DomainError
    text = "; ".join(f"rank {number}: {_told(row)}" for number, row in enumerate(rows))
    return kind(
        f"Communicator.{_CALLS[int(rows[rank, _CALL])]}: ranks must make the same call with tensors"
        f" of the same dtype and shape, and came with {text}"
    )


def _told(words: Words) -> str:
    call, option = _CALLS[int(words[_CALL])], int(words[_OPTION])
    if call == "barrier":
        return "barrier()"
    if call == "all_gather_object":
        return "all_gather_object(...)"
    if call == "broadcast_object":
        return f"broadcast_object(root={option})"
    dtype, shape = read_header(words)
    about = {
        "all_reduce": lambda: f", op={REDUCTIONS[option]!r}",
        "reduce_scatter": lambda: f", op={REDUCTIONS[option // 64]!r}, axis={option % 64}",
        "broadcast": lambda: f", root={option}",
        "all_gather": lambda: f", axis={option}",
    }
    gradient = ", with a gradient" if words[_NEEDED] else ""
    return f"{call}({dtype} {shape}{about[call]()}{gradient})"


# --- Refusals: what one rank finds wrong before anything moves ----------------------------------


def is_refusal(rows: Words) -> bool:
    """True where a rank says that it cannot do what it was called for."""
    return bool(rows[:, _REFUSED].any())


def text_of(error: Exception | None) -> bytes:
    """What is told of an error, in a length of its own; of no error, nothing."""
    text = b"" if error is None else str(error).encode("utf-8", "backslashreplace")[:_TOLD]
    return text.ljust(_TOLD, b"\0")


def refusal(rank: int, rows: Words, texts: Words, own: Exception | None) -> Exception:
    """The error of all ranks, where one or more refuse: that of the first of them."""
    first = int(np.flatnonzero(rows[:, _REFUSED])[0])
    if first == rank and own is not None:
        return own
    kind = getattr(errors, _ERRORS[int(rows[first, _REFUSED]) - 1])
    text = texts[first].tobytes().rstrip(b"\0").decode("utf-8", "replace")
    made: Exception = kind(f"{text} (on rank {first})")
    return made


def words_of(data: bytes) -> Words:
    """Bytes as words, with zeros up to a power of two: JAX compiles what gathers each length."""
    count = max(1, -(-len(data) // 8))
    return np.frombuffer(data.ljust(8 << (count - 1).bit_length(), b"\0"), np.int64)
