"""Tensors of ONNX files as NumPy arrays, checked: their data has the length that their shape says.

What is done about memory: external data is mapped, read-only. Large weights inside the model file
are mapped as well (`onnx_layout`); a copy is made only where the file has them at an odd address,
which engines do not take. Smaller ones are views of the bytes that the parser hands out.
"""

from __future__ import annotations

import mmap
import os
import sys
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from ember_ml.errors import DTypeError, FormatError
from ember_ml.graph import types
from ember_ml.graph.onnx_layout import Place
from ember_ml.graph.text import plain
from ember_ml.io.content import Content, aligned
from ember_ml.io.progress import ByteProgress

__all__ = ["TensorReader", "unpack4"]

Array = np.ndarray[Any, Any]

_EXTERNAL: Final = 1  # TensorProto.DataLocation
_LONGEST: Final = 800  # letters of a message
_MOST_AXES: Final = 64  # of NumPy
_MOST_DENSE: Final = 1 << 30  # bytes that a sparse tensor may become
# Which field of a TensorProto holds the elements of a type, where raw_data does not.
_FIELDS: Final = {
    "float32": "float_data",
    "complex64": "float_data",
    "float64": "double_data",
    "complex128": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
    "string": "string_data",
}


class TensorReader:
    """Reads tensors of one model; `what` begins every message, `folder` has its other files."""

    def __init__(
        self,
        what: str,
        folder: Path | None,
        content: mmap.mmap | None = None,
        places: dict[int, Place] | None = None,
    ) -> None:
        self._what = what
        self._folder = folder
        self._content = content
        self._places = places or {}
        self._opened: dict[str, Content] = {}

    def close(self) -> None:
        """Close the files; arrays that map them stay valid."""
        for content in self._opened.values():
            content.close()

    def array(self, proto: Any, where: str, index: int | None = None) -> Array:
        """The array of a TensorProto; `index` is its number among the main graph's initialisers."""
        where = f"{where} '{proto.name}'" if proto.name else where
        dtype = self._dtype(proto.data_type, where)
        shape = self._shape(proto.dims, where)
        count = prod(shape)
        place = self._places.get(index) if index is not None else None
        if proto.HasField("segment"):
            raise self._error(f"{where} is in segments, which nobody reads")
        if proto.data_location == _EXTERNAL:
            found = self._external(proto, dtype, count, where)
        elif dtype == "string":
            found = self._strings(proto, count, where)
        elif place is not None:
            found = self._mapped(place, dtype, count, where)
        elif proto.HasField("raw_data"):
            raw = proto.raw_data
            self._check(len(raw), dtype, count, where)
            # The bytes belong to the array alone from here on: no copy.
            found = _elements(np.frombuffer(raw, np.uint8), dtype, count)
        else:
            found = self._listed(proto, dtype, count, where)
        return self._formed(found, shape, where)

    def dense(self, proto: Any, where: str) -> Array:
        """The array of a SparseTensorProto."""
        values = self.array(proto.values, where)
        where = f"{where} '{proto.values.name}'"
        shape = self._shape(proto.dims, where)
        indices = self.array(proto.indices, f"indices of {where}")
        count = prod(shape)
        if count * values.dtype.itemsize > _MOST_DENSE:
            raise self._error(f"{where} is sparse and would take more than 1 GiB as {shape}")
        if values.ndim != 1 or indices.dtype != np.int64:
            raise self._error(f"{where} is no sparse tensor: its values are {values.shape}")
        if indices.shape == (len(values), len(shape)) and indices.ndim == 2:
            sizes = np.asarray(shape, np.int64)
            if np.any(indices < 0) or np.any(indices >= sizes):
                raise self._error(f"{where} has an index outside of its shape {shape}")
            flat = np.ravel_multi_index(tuple(indices.T), shape) if len(values) else indices[:, 0]
        elif indices.shape == (len(values),):
            flat = indices
            if np.any(flat < 0) or np.any(flat >= count):
                raise self._error(f"{where} has an index outside of its shape {shape}")
        else:
            raise self._error(f"{where} has indices of shape {indices.shape}")
        made = np.zeros(count, values.dtype)
        made[flat] = values
        return self._formed(made, shape, where)

    # --- Parts ------------------------------------------------------------------------------------

    def _error(self, text: str) -> FormatError:
        return FormatError(f"{self._what}: {plain(text, _LONGEST)}")

    def _dtype(self, number: int, where: str) -> str:
        try:
            return types.type_name(number)
        except DTypeError as error:
            raise self._error(f"{where}: {error}") from None

    def _shape(self, dims: Any, where: str) -> tuple[int, ...]:
        shape = tuple(dims)
        if len(shape) > _MOST_AXES:
            raise self._error(f"{where} has {len(shape)} axes; {_MOST_AXES} are the most")
        if any(size < 0 for size in shape):
            raise self._error(f"{where} has the shape {shape}: a size is negative")
        return shape

    def _check(self, length: int, dtype: str, count: int, where: str) -> None:
        needed = (count * types.BITS[dtype] + 7) // 8
        if length != needed:
            raise self._error(
                f"{where} has {length} bytes, and {count} elements of {dtype} take {needed}"
            )

    def _formed(self, flat: Array, shape: tuple[int, ...], where: str) -> Array:
        try:
            made = flat.reshape(shape)
        except ValueError as error:  # sizes beside a zero that no array can have
            raise self._error(f"{where} has the shape {shape}: {error}") from None
        made.flags.writeable = False
        return made

    def _strings(self, proto: Any, count: int, where: str) -> Array:
        if proto.HasField("raw_data"):
            raise self._error(f"{where} is of strings and has raw_data")
        texts = list(proto.string_data)
        if len(texts) != count:
            raise self._error(f"{where} has {len(texts)} strings, and its shape says {count}")
        made = np.empty(count, object)
        try:
            made[:] = [text.decode() for text in texts]
        except UnicodeDecodeError as error:
            raise self._error(f"{where} has a string that is no UTF-8: {error}") from None
        return made

    def _listed(self, proto: Any, dtype: str, count: int, where: str) -> Array:
        """Elements in a field of their kind; the odd ones are in int32_data, as bits."""
        field = _FIELDS.get(dtype, "int32_data")
        packed = dtype in ("int4", "uint4")
        factor = 2 if dtype.startswith("complex") else 1
        expected = (count + 1) // 2 if packed else count * factor
        values = getattr(proto, field)
        if len(values) != expected:
            raise self._error(
                f"{where} has {len(values)} numbers in {field}, "
                f"and {count} elements of {dtype} take {expected}"
            )
        if field in ("float_data", "double_data"):
            plain = np.array(values, np.float32 if field == "float_data" else np.float64)
            return plain.view(types.numpy_dtype(dtype))
        wide: Array = np.array(values, np.uint64 if field == "uint64_data" else np.int64)
        holder = {"float16": np.uint16, "bfloat16": np.uint16, "bool": np.uint8}.get(
            dtype, np.uint8 if packed else types.numpy_dtype(dtype)
        )
        made = wide.astype(holder)
        # Negative numbers stand for high bits in some writers' bytes, and only there.
        if not packed and np.any(made.astype(wide.dtype) != wide):
            raise self._error(f"{where} has numbers in {field} that are no {dtype}")
        if packed or dtype == "bool":
            return _elements(made, dtype, count)
        return made.view(types.numpy_dtype(dtype))

    def _mapped(self, place: Place, dtype: str, count: int, where: str) -> Array:
        assert self._content is not None
        self._check(place.length, dtype, count, where)
        raw = np.frombuffer(self._content, np.uint8, place.length, place.start)
        size = max(types.BITS[dtype] // 8, 1)
        if raw.ctypes.data % size:
            copy = aligned(place.length)
            copy[...] = raw
            raw = copy
        return _elements(raw, dtype, count)

    def _external(self, proto: Any, dtype: str, count: int, where: str) -> Array:
        if dtype == "string":
            raise self._error(f"{where} is of strings, which have no external data")
        given = {entry.key: entry.value for entry in proto.external_data}
        content = self._file(given.get("location", ""), where)
        needed = (count * types.BITS[dtype] + 7) // 8
        start = self._count(given.get("offset", "0"), f"{where}: offset")
        length = self._count(given.get("length", str(needed)), f"{where}: length")
        self._check(length, dtype, count, where)
        if start + length > content.size:
            raise self._error(
                f"{where} is at the bytes {start} to {start + length} of "
                f"'{given.get('location')}', which has {content.size}"
            )
        with ByteProgress(f"reading {proto.name}", length) as progress:
            if types.BITS[dtype] < 8 or dtype == "bool":
                raw = content.array(np.dtype(np.uint8), (length,), start, progress)
                return _elements(raw, dtype, count)
            return content.array(types.numpy_dtype(dtype), (count,), start, progress)

    def _count(self, text: str, where: str) -> int:
        # int() takes signs, blanks, underscores and digits of other scripts.
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise self._error(f"{where} is {text!r}, no number of bytes")
        return int(text)

    def _file(self, location: str, where: str) -> Content:
        """A file beside the model; nothing outside of its folder is ever opened."""
        if self._folder is None:
            raise self._error(
                f"{where} lies in another file, and the model came as bytes; give load_onnx a path"
            )
        parts = location.replace("\\", "/").split("/")
        if not location or "\0" in location or location.startswith(("/", "\\")) or ".." in parts:
            raise self._error(
                f"{where} has its data in {location!r}; only files in the model's folder are read"
            )
        folder = os.path.realpath(self._folder)
        path = os.path.realpath(os.path.join(folder, location))
        if os.path.commonpath([folder, path]) != folder:
            raise self._error(
                f"{where} has its data in {location!r}, a link that leads out of the model's "
                "folder; only files in it are read"
            )
        found = self._opened.get(path)
        if found is None:
            try:
                found = self._opened[path] = Content(path, mmap=True)
            except OSError as error:
                raise self._error(
                    f"{where} has its data in {location!r}, which cannot be read: "
                    f"{error.strerror or error}"
                ) from error
        return found


def _elements(raw: Array, dtype: str, count: int) -> Array:
    """Bytes in the order of the file as elements."""
    if types.BITS[dtype] < 8:
        return unpack4(raw, count, dtype)
    if dtype == "bool":  # any other byte than 0 and 1 would be no bool to NumPy
        return raw.view(np.bool_) if not np.any(raw > 1) else raw != 0
    made = raw.view(types.numpy_dtype(dtype))
    return made.byteswap() if sys.byteorder == "big" else made


def unpack4(raw: Array, count: int, dtype: str) -> Array:
    """4-bit integers of bytes that hold two each, the first in the low half."""
    halves = np.empty(2 * raw.size, np.uint8)
    halves[0::2] = raw & 0xF
    halves[1::2] = raw >> 4
    halves = halves[:count]
    if dtype == "int4":
        signed = (halves ^ 8).astype(np.int8) - np.int8(8)
        return signed.astype(types.numpy_dtype(dtype))
    return halves.astype(types.numpy_dtype(dtype))
