"""NumPy's .npy and .npz, read without pickle and without trust."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any, BinaryIO, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.dtypes import DType
from ember_ml.errors import DomainError, DTypeError, FormatError
from ember_ml.io.content import PIECE, Content, aligned, write_array
from ember_ml.io.progress import ByteProgress
from ember_ml.io.safetensors import MAX_AXES
from ember_ml.io.source import Source, TensorInfo
from ember_ml.io.tree import ROOT, Leaf, Tree
from ember_ml.tensor import Tensor

__all__ = ["NpyFile", "NpzFile", "require_writable", "write_npy", "write_npz"]

MAX_HEADER: Final = 65_536
_MAGIC: Final = b"\x93NUMPY"
# A header is a Python dict of three fields. No parser of Python is let near it.
_SPACE: Final = r"[ \t\n]*"
_FIELD: Final = re.compile(
    rf"{_SPACE}'(descr|fortran_order|shape)'{_SPACE}:{_SPACE}"
    rf"('[^']{{1,16}}'|True|False|\([\d \t\n,]*\)){_SPACE}(?:,|(?=\}}))"
)
_SIDE: Final = rf"{_SPACE}(?:0|[1-9]\d{{0,18}}){_SPACE}"
_SHAPE: Final = re.compile(rf"\({_SPACE}\)|\({_SIDE},{_SPACE}\)|\({_SIDE}(?:,{_SIDE})+,?{_SPACE}\)")
_DESCR: Final = re.compile(r"[<>|=]?[biufc]\d{1,2}")
_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")  # an entry, or the end of an empty archive
# What compressed entries may expand to: freely up to the first, then as a multiple of the file.
_FREE_EXPANSION: Final = 1 << 30
_MAX_EXPANSION: Final = 100
_MAX_DEFLATE: Final = 1032  # no deflate stream expands further


class _Header:
    """The header of an .npy stream: dtype with its byte order, shape and order of elements."""

    __slots__ = ("dtype", "fortran", "shape", "size")

    def __init__(self, text: str, size: int, what: str) -> None:
        descr, order, shape = _fields(text, what)
        self.size = size
        self.dtype = _dtype(descr, what)
        self.fortran = order
        self.shape = tuple(int(side) for side in re.findall(r"\d+", shape))
        if len(self.shape) > MAX_AXES or prod(side for side in self.shape if side) >= 2**59:
            raise FormatError(f"{what}: no array can have the shape {self.shape}")

    @property
    def info(self) -> TensorInfo:
        return TensorInfo(dtypes.to_dtype(self.dtype).name, self.shape, self.nbytes)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def arranged(self, flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The array of the elements as they lie in the file."""
        if not self.dtype.isnative:
            flat = flat.astype(self.dtype.newbyteorder("="))
        return flat.reshape(self.shape[::-1]).T if self.fortran else flat.reshape(self.shape)


def _fields(text: str, what: str) -> tuple[str, bool, str]:
    """The texts of dtype and shape, and whether the order is Fortran's."""
    if "'" not in text:
        text = text.replace('"', "'")
    found: dict[str, str] = {}
    place = 1
    while (match := _FIELD.match(text, place)) and match[1] not in found:
        found[match[1]] = match[2]
        place = match.end()
    descr, order, shape = (found.get(k, "") for k in ("descr", "fortran_order", "shape"))
    if (
        (text[:1], text[place:].strip(" \t\n")) != ("{", "}")
        or not descr.startswith("'")
        or order not in ("True", "False")
        or not _SHAPE.fullmatch(shape)
    ):
        raise FormatError(f"{what}: its header is {text[:80]!r}, which is not read here")
    return descr[1:-1], order == "True", shape


def _dtype(descr: str, what: str) -> np.dtype[Any]:
    if not _DESCR.fullmatch(descr) and descr != "?":
        raise DTypeError(f"{what}: its dtype is {descr!r}; numbers and truth values are read here")
    try:
        found = np.dtype(descr)
        dtypes.to_dtype(found)
    except TypeError as error:  # DTypeError is one
        raise DTypeError(
            f"{what}: its dtype is {descr!r}, which is no dtype of ember_ml"
        ) from error
    return found


def _prefix(head: bytes, what: str) -> tuple[int, int]:
    """How long the magic string with its length field is, and the header behind it."""
    if head[:6] != _MAGIC or len(head) < 12 or head[6] not in (1, 2, 3) or head[7]:
        raise FormatError(f"{what}: it does not begin as one of version 1 to 3 does")
    wide = head[6] > 1
    start = 12 if wide else 10
    length = int.from_bytes(head[8:start], "little")
    if length > MAX_HEADER:
        raise FormatError(f"{what}: its header has {length} bytes; {MAX_HEADER} are read here")
    return start, length


def _header_text(raw: bytes, what: str) -> str:
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError:
        raise FormatError(f"{what}: its header has names or dtypes that are not read") from None


def _checked(array: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, Any]:
    if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise FormatError(f"{what}: it has truth values other than 0 and 1")
    return array


class NpyFile(Source):
    """An open .npy file: one array, whose name is "tensor"."""

    def __init__(self, path: str, mmap: bool) -> None:
        self.path = path
        self._what = f"'{path}' is no valid .npy file"
        self._content = Content(path, mmap)
        try:
            self._header = self._read_header()
        except BaseException:
            self.close()
            raise

    def names(self) -> Collection[str]:
        return (ROOT,)

    def info(self, name: str) -> TensorInfo:
        return self._header.info

    def tree(self) -> Tree:
        return Leaf(ROOT)

    def _read_header(self) -> _Header:
        content = self._content
        start, length = _prefix(content.bytes(0, min(12, content.size)), self._what)
        text = _header_text(content.bytes(start, length), self._what)
        header = _Header(text, start + length, self._what)
        if header.size + header.nbytes != content.size:
            raise FormatError(
                f"{self._what}: its header tells of {header.nbytes} bytes, "
                f"and {content.size - header.size} follow"
            )
        return header

    def array(self, name: str, progress: ByteProgress) -> np.ndarray[Any, Any]:
        header = self._header
        flat = self._content.array(header.dtype, (prod(header.shape),), header.size, progress)
        return header.arranged(_checked(flat, self._what))

    def close(self) -> None:
        self._content.close()


class NpzFile(Source):
    """An open .npz file. Entries are read, not mapped: their checksums are looked at."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._headers: dict[str, _Header] = {}
        self._what = f"'{path}' is no valid .npz file"
        with Content(path, mmap=False) as content:  # refuses what is no plain file
            self._size = content.size
            if content.bytes(0, min(4, content.size)) not in _ZIP:  # else something lies before
                raise FormatError(f"{self._what}: it does not begin as one")
        with self._explained():
            self._zip = zipfile.ZipFile(path)
        try:
            with self._explained():
                self._members = self._checked_members()
        except BaseException:
            self.close()
            raise

    def names(self) -> Collection[str]:
        return self._members.keys()

    def info(self, name: str) -> TensorInfo:
        return self._header(name).info

    def _header(self, name: str) -> _Header:
        found = self._headers.get(name)
        if found is None:
            found = self._headers[name] = self._read_header(name)
        return found

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (FormatError, DTypeError):
            raise
        except Exception as error:  # zipfile has a dozen for what is wrong with an archive
            raise FormatError(f"{self._what}: {type(error).__name__}: {error}") from error

    def _checked_members(self) -> dict[str, zipfile.ZipInfo]:
        found: dict[str, zipfile.ZipInfo] = {}
        end = expanded = 0
        for info in sorted(self._zip.infolist(), key=lambda info: info.header_offset):
            name = info.filename.removesuffix(".npy")
            if name == info.filename or name in found:
                raise FormatError(f"{self._what}: {info.filename!r} is no array, or occurs twice")
            packed, size = info.compress_size, info.file_size
            stored = info.compress_type == zipfile.ZIP_STORED
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise FormatError(f"{self._what}: {name!r} is packed in a way not read here")
            if info.header_offset < end or info.header_offset + packed > self._size:
                raise FormatError(f"{self._what}: {name!r} overlaps another entry or the end")
            if (stored and size != packed) or size > packed * _MAX_DEFLATE + 64:
                raise FormatError(f"{self._what}: {name!r} cannot hold the {size} bytes it says")
            end = info.header_offset + packed
            expanded += size
            found[name] = info
        if expanded > max(_FREE_EXPANSION, _MAX_EXPANSION * self._size):
            raise FormatError(
                f"{self._what}: it would expand to {expanded} bytes, {_MAX_EXPANSION} times its "
                f"own size; unpack it with another tool if you trust it"
            )
        # As the file lists them, which is the order in which they were saved.
        order = {info.filename: place for place, info in enumerate(self._zip.infolist())}
        return dict(sorted(found.items(), key=lambda item: order[item[1].filename]))

    def _read_header(self, name: str) -> _Header:
        what = f"{self._what}: array {name!r}"
        with self._explained(), self._zip.open(self._members[name]) as stream:
            head = stream.read(12)
            start, length = _prefix(head, what)
            raw = (head + stream.read(start + length - len(head)))[start:]
        if len(raw) < length:
            raise FormatError(f"{what} ends within its header")
        header = _Header(_header_text(raw[:length], what), start + length, what)
        if header.size + header.nbytes != self._members[name].file_size:
            raise FormatError(f"{what} has more or fewer bytes than its header tells of")
        return header

    def array(self, name: str, progress: ByteProgress) -> np.ndarray[Any, Any]:
        header, what = self._header(name), f"{self._what}: array {name!r}"
        buffer = aligned(header.nbytes)
        view = memoryview(buffer)  # type: ignore[arg-type]  # ndarray is a buffer, untold
        with self._explained(), self._zip.open(self._members[name]) as stream:
            stream.read(header.size)
            done = 0
            while piece := stream.read(PIECE):  # up to the end, where the checksum is compared
                view[done : done + len(piece)] = piece
                done += len(piece)
                progress.advance(len(piece))
        if done != header.nbytes:
            raise FormatError(f"{what} ends after {done} of {header.nbytes} bytes")
        return header.arranged(_checked(buffer.view(header.dtype), what))

    def close(self) -> None:
        self._zip.close()


# --- Writing --------------------------------------------------------------------------------


def _npy_dtype(dtype: DType, suffix: str) -> str:
    if dtype is dtypes.bfloat16:
        raise DTypeError(f"{suffix} files have no bfloat16; save as .safetensors, or cast first")
    return dtype.numpy.newbyteorder("<").str


def write_npy(file: BinaryIO, x: Tensor, progress: ByteProgress) -> None:
    """Write a tensor as an .npy stream."""
    header = {"descr": _npy_dtype(x.dtype, ".npy"), "fortran_order": False, "shape": x.shape}
    np.lib.format.write_array_header_1_0(file, header)
    write_array(file, x.numpy(), progress)


def write_npz(file: BinaryIO, tensors: Mapping[str, Tensor], progress: ByteProgress) -> None:
    """Write tensors as the uncompressed .npz that np.savez writes."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, x in tensors.items():
            # The date of np.savez: equal tensors make equal files.
            info = zipfile.ZipInfo(name + ".npy", date_time=(1980, 1, 1, 0, 0, 0))
            with archive.open(info, "w", force_zip64=True) as stream:
                write_npy(stream, x, progress)  # type: ignore[arg-type]  # all but a BinaryIO


def require_writable(tensors: Mapping[str, Tensor], suffix: str) -> None:
    """Raise DTypeError for dtypes that NumPy's formats lack, DomainError for names."""
    for name, x in tensors.items():
        _npy_dtype(x.dtype, suffix)
        if "\0" in name or "\\" in name or name.startswith("/"):
            raise DomainError(f"em.save cannot name an array {name!r} in an .npz file")
