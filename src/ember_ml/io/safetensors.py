"""The safetensors format: eight bytes, a JSON header, the tensors one after another.

Headers are read strictly: what does not describe the file exactly is a FormatError. Files are
written here and not by the safetensors library, which needs all tensors in host memory at once,
takes strided memory for contiguous, and does not place tensors where JAX can share them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, DTypeError, FormatError
from ember_ml.io.content import ALIGNMENT, Content, write_array
from ember_ml.io.progress import ByteProgress
from ember_ml.io.source import Source, TensorInfo
from ember_ml.io.tree import parse
from ember_ml.tensor import Tensor

__all__ = ["Entry", "Header", "SafetensorsFile", "read_header", "write"]

MAX_HEADER: Final = 100_000_000  # of the format itself
MAX_AXES: Final = 64  # of NumPy
_CODES: Final[dict[str, DType]] = {
    "BOOL": dtypes.bool,
    "I8": dtypes.int8,
    "I16": dtypes.int16,
    "I32": dtypes.int32,
    "I64": dtypes.int64,
    "U8": dtypes.uint8,
    "U16": dtypes.uint16,
    "U32": dtypes.uint32,
    "U64": dtypes.uint64,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "F32": dtypes.float32,
    "F64": dtypes.float64,
    "C64": dtypes.complex64,
}
_BITS: Final[dict[str, int]] = {
    **{code: dtype.itemsize * 8 for code, dtype in _CODES.items()},
    # Dtypes of the format that no tensor here has: files with them are sound.
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
}
_CODE_OF: Final = {dtype: code for code, dtype in _CODES.items()}
_FIELDS: Final = {"dtype", "shape", "data_offsets"}


class Entry(NamedTuple):
    """A tensor in a file: its dtype as the file spells it, its shape, where it begins and ends."""

    code: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a file holds; `start` is where the first tensor begins."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    start: int


# --- Reading --------------------------------------------------------------------------------


def read_header(content: Content) -> Header:
    """The header of a file, checked against itself and against the size of the file."""
    what = f"'{content.path}' is no valid safetensors file"
    if content.size < 8:
        raise FormatError(f"{what}: it has {content.size} bytes, fewer than a header")
    length = int.from_bytes(content.bytes(0, 8), "little")
    if length > min(MAX_HEADER, content.size - 8):
        raise FormatError(
            f"{what}: its header is said to have {length} bytes, "
            f"of {content.size} in the file and {MAX_HEADER} at most"
        )
    try:
        text = content.bytes(8, length).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{what}: its header is not UTF-8: {error}") from None
    if not text.startswith("{"):
        raise FormatError(f"{what}: its header does not begin with a brace")
    found = parse(text, f"{what}: its header")
    metadata = _metadata(found.pop("__metadata__", {}), what)
    entries: dict[str, Entry] = {}
    for name, value in found.items():
        try:
            entries[name] = _entry(value)
        except FormatError as error:
            raise FormatError(f"{what}: tensor {name!r} {error}") from None
    if "\\u" in text:
        _require_text([*entries, *metadata, *metadata.values()], what)
    _require_dense(entries, content.size - 8 - length, what)
    return Header(entries, metadata, 8 + length)


def _metadata(found: Any, what: str) -> dict[str, str]:
    if found is None:  # as mx.save_safetensors writes it where there are none
        return {}
    if isinstance(found, dict) and all(isinstance(v, str) for v in found.values()):
        return found
    raise FormatError(f"{what}: its metadata are no map from strings to strings")


def _entry(value: Any) -> Entry:
    if not isinstance(value, dict) or value.keys() != _FIELDS:
        raise FormatError("is not described by dtype, shape and data_offsets")
    code, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    bits = _BITS.get(code) if isinstance(code, str) else None
    if bits is None:
        raise FormatError(f"has the unknown dtype {str(code)[:40]!r}")
    if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:
        raise FormatError("has a shape or offsets that are no lists of natural numbers")
    if len(shape) > MAX_AXES:
        raise FormatError(f"has {len(shape)} axes; {MAX_AXES} are read here")
    start, end = offsets
    count = prod(shape)
    if count * bits != (end - start) * 8:
        raise FormatError(f"has {end - start} bytes, which {code}{shape} has not")
    if not count and prod(side for side in shape if side) >= 2**59:
        raise FormatError(f"has the shape {shape}, which no array can have")  # nor address
    return Entry(code, tuple(shape), start, end)


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _require_text(texts: list[str], what: str) -> None:
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError:
        raise FormatError(f"{what}: a name has half of a surrogate pair") from None


def _require_dense(entries: Mapping[str, Entry], size: int, what: str) -> None:
    """Raise FormatError where tensors overlap, leave holes, or do not end with the file."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start != end:
            raise FormatError(
                f"{what}: tensor {name!r} begins at byte {entry.start} of the data, "
                f"where {end} is next: tensors overlap or leave holes"
            )
        end = entry.end
    if end != size:
        raise FormatError(f"{what}: its tensors take {end} bytes, and it holds {size}")


class SafetensorsFile(Source):
    """An open safetensors file whose arrays are mapped or read when they are asked for."""

    def __init__(self, path: str, mmap: bool) -> None:
        self.path = path
        self._content = Content(path, mmap)
        try:
            self._header = read_header(self._content)
        except BaseException:
            self.close()
            raise
        self.metadata = self._header.metadata

    def names(self) -> Collection[str]:
        return self._header.entries.keys()

    def info(self, name: str) -> TensorInfo:
        entry = self._header.entries[name]
        dtype = _CODES.get(entry.code)
        return TensorInfo(
            entry.code if dtype is None else dtype.name, entry.shape, entry.end - entry.start
        )

    def array(self, name: str, progress: ByteProgress) -> np.ndarray[Any, Any]:
        entry = self._header.entries[name]
        dtype = _CODES.get(entry.code)
        if dtype is None:
            raise DTypeError(
                f"tensor {name!r} in '{self.path}' is {entry.code}, which is no dtype of "
                f"ember_ml; leave it out with keys=... or convert the file with its own library"
            )
        array = self._content.array(
            dtype.numpy, entry.shape, self._header.start + entry.start, progress
        )
        if dtype is dtypes.bool and array.size and array.view(np.uint8).max() > 1:
            # Engines disagree on what such a byte is, and compilers rely on there being none.
            raise FormatError(
                f"tensor {name!r} in '{self.path}' is BOOL with bytes other than 0 and 1"
            )
        return array

    def close(self) -> None:
        self._content.close()


# --- Writing --------------------------------------------------------------------------------


def write(
    file: BinaryIO,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    progress: ByteProgress,
) -> None:
    """Write tensors, one at a time, and the header that describes them."""
    placed = sorted(tensors.items(), key=_place)
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    start = 0
    for name, x in placed:
        code, shape = _description(x)
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [start, start + x.nbytes]}
        start += x.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    if len(text) > MAX_HEADER:
        raise DomainError(
            f"em.save would need a header of {len(text)} bytes, and safetensors has "
            f"{MAX_HEADER} at most; keep long texts in a file of their own"
        )
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    file.write(len(text).to_bytes(8, "little") + text)
    for _, x in placed:
        write_array(file, x.numpy(), progress)


def _place(item: tuple[str, Tensor]) -> tuple[bool, int]:
    """Whole cache lines first: all of these are aligned for JAX. Of the rest, wide dtypes first,
    so that every element is aligned.
    """
    x = item[1]
    return x.nbytes % ALIGNMENT != 0, -x.itemsize


def _description(x: Tensor) -> tuple[str, list[int]]:
    if x.dtype is dtypes.complex128:  # which the format lacks: pairs of float64
        return "F64", [*x.shape, 2]
    return _CODE_OF[x.dtype], list(x.shape)
