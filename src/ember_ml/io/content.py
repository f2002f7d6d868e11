"""The bytes of arrays: written in pieces, mapped or read from files."""

from __future__ import annotations

import mmap as memory_map
import os
import stat
import sys
from math import prod
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from ember_ml.errors import FormatError
from ember_ml.io.progress import ByteProgress

__all__ = ["Content", "aligned", "write_array"]

Array = np.ndarray[Any, Any]

ALIGNMENT = 64  # JAX takes host memory as it is only at this alignment
PIECE = 2 << 20  # larger writes are no quicker


def write_array(file: BinaryIO, array: Array, progress: ByteProgress) -> None:
    """Write the elements in C order and little-endian, without a copy of the whole."""
    if array.dtype.kind == "V":
        array = array.view(np.uint16)  # bfloat16, which buffers have no letter for
    if sys.byteorder == "big":
        array = array.byteswap()
    if array.flags.c_contiguous:
        content = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]  # ndarray is a buffer, untold
        for start in range(0, len(content), PIECE):
            piece = content[start : start + PIECE]
            file.write(piece)
            progress.advance(len(piece))
        return
    # Strided memory goes through one buffer: a copy of it all might not fit.
    contiguous: Any = [["readonly", "contig"]]  # a flag that NumPy's stubs misspell
    runs: Any = np.nditer(
        array,
        flags=["external_loop", "buffered", "zerosize_ok"],
        op_flags=contiguous,
        order="C",
        buffersize=max(PIECE // array.itemsize, 1),
    )
    for run in runs:
        file.write(memoryview(run))
        progress.advance(run.nbytes)


def aligned(count: int) -> Array:
    """Bytes of host memory that every engine on the CPU can share."""
    buffer = np.empty(count + ALIGNMENT, dtype=np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    return buffer[start : start + count]


class Content:
    """The content of a file, opened once: mapped into memory, or read piece by piece.

    A map is private: what is written to its arrays stays in this process.
    """

    def __init__(self, path: str, mmap: bool) -> None:
        self.path = path
        # A pipe without a writer would block here for ever.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._map: memory_map.mmap | None = None
        try:
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise FormatError(f"'{path}' is no plain file")
            self.size = status.st_size
            if mmap and self.size:
                self._map = self._mapped()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Content:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; arrays that map it stay valid."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._map = None  # unmapped with the last array that uses it

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()

    def _mapped(self) -> memory_map.mmap | None:
        try:
            return memory_map.mmap(self._descriptor, self.size, access=memory_map.ACCESS_COPY)
        except (OSError, ValueError):  # a file system without maps; a file that became shorter
            return None

    def fileno(self) -> int:
        """The descriptor, as long as the file is open."""
        return self._descriptor

    def bytes(self, start: int, count: int) -> bytes:
        """`count` bytes from `start`; FormatError where the file ends before."""
        found = os.pread(self._descriptor, count, start)
        if len(found) != count:
            raise FormatError(f"'{self.path}' ends after {self.size} of {start + count} bytes")
        return found

    def array(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], start: int, progress: ByteProgress
    ) -> Array:
        """The array at `start`, of little-endian elements in C order."""
        count = prod(shape)
        if not count or self._map is None:
            array = self._read(dtype.itemsize * count, start, progress).view(dtype)
        else:
            array = np.frombuffer(self._map, dtype, count, start)
            progress.advance(array.nbytes)
            if not array.flags.aligned:  # engines may require it
                array = _aligned_copy(array)
        if sys.byteorder == "big":
            array = array.byteswap()
        return array.reshape(shape)

    def _read(self, count: int, start: int, progress: ByteProgress) -> Array:
        buffer = aligned(count)
        view = memoryview(buffer)  # type: ignore[arg-type]  # ndarray is a buffer, untold
        done = 0
        while done < count:
            got = os.preadv(self._descriptor, [view[done : done + PIECE]], start + done)
            if not got:
                raise FormatError(f"'{self.path}' became shorter while it was read")
            done += got
            progress.advance(got)
        return buffer


def _aligned_copy(array: Array) -> Array:
    copy = aligned(array.nbytes).view(array.dtype)
    copy[...] = array
    return copy
