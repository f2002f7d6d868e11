"""Checkpoints in several files with an index, as Hugging Face's libraries write and read them.

    model-00001-of-00002.safetensors
    model-00002-of-00002.safetensors
    model.safetensors.index.json      {"metadata": {"total_size": ...}, "weight_map": {name: file}}

A save writes its shards under names that no file has yet, and replaces the index last: until then
the old checkpoint is complete, and from then on the new one is.

Where the ranks of a job wrote it, tensors may be in pieces: see joint.py and pieces.py.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from ember_ml.errors import DomainError, FormatError
from ember_ml.io import safetensors
from ember_ml.io.atomic import exclusive, replacing, sync_directory
from ember_ml.io.content import Content
from ember_ml.io.parts import Range
from ember_ml.io.pieces import PIECES_KEY, read_pieces
from ember_ml.io.progress import ByteProgress
from ember_ml.io.source import Source, TensorInfo
from ember_ml.io.tree import parse
from ember_ml.tensor import Tensor

__all__ = [
    "INDEX",
    "MARK",
    "ShardedFile",
    "byte_count",
    "divide",
    "files_of",
    "is_shard",
    "remove_shards",
    "save_shards",
    "save_whole",
]

INDEX = ".index.json"
_SHARD = re.compile(r".+-\d{5,}-of-\d{5,}\.safetensors")
# Tells a shard of ours, which a later save may remove, from files of others.
MARK = "ember_ml.shard_of"
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


# --- Reading --------------------------------------------------------------------------------


class IndexChanged(Exception):
    """The index was replaced while its shards were opened; they may be gone."""


class ShardedFile(Source):
    """A checkpoint in shards, of which only those that are needed are opened."""

    def __init__(self, path: str, opened: Callable[[str], Source]) -> None:
        self.path = path
        self._open = opened
        self._shards: dict[str, Source] = {}
        self._version = _version(path)
        index = read_index(path)
        self._files: dict[str, str] = index["weight_map"]
        texts = {k: v for k, v in index["metadata"].items() if isinstance(v, str)}
        pieces = texts.pop(PIECES_KEY, "{}")
        self._wholes = read_pieces(pieces, self._files.keys(), f"'{path}'")
        stored = {one.stored for whole in self._wholes.values() for one in whole.pieces}
        self._names = dict.fromkeys((*(n for n in self._files if n not in stored), *self._wholes))
        self.metadata = texts

    def prepare(self, names: Collection[str]) -> None:
        try:
            for name in names:
                whole = self._wholes.get(name)
                for stored in (name,) if whole is None else (p.stored for p in whole.pieces):
                    self._shard(stored)
        except (FileNotFoundError, FormatError) as error:
            if self._version != _version(self.path):
                raise IndexChanged from error
            if isinstance(error, FileNotFoundError):
                raise FormatError(
                    f"'{self.path}' names the shard '{error.filename}', which does not exist"
                ) from None
            raise
        # A shard may be one of the next save, of the same name.
        if self._version != _version(self.path):
            raise IndexChanged

    def _shard(self, name: str) -> Source:
        file = self._files[name]
        found = self._shards.get(file)
        if found is None:
            found = self._open(os.path.join(os.path.dirname(self.path), file))
            self._shards[file] = found
        if name not in found.names():
            raise FormatError(f"'{self.path}': '{file}' does not hold the tensor {name!r}")
        return found

    def names(self) -> Collection[str]:
        return self._names.keys()

    def info(self, name: str) -> TensorInfo:
        whole = self._wholes.get(name)
        if whole is None:
            return self._shard(name).info(name)
        found = [self._shard(one.stored).info(one.stored) for one in whole.pieces]
        for one, info in zip(whole.pieces, found, strict=True):
            if info.shape != whole.piece_shape(one) or info.dtype != found[0].dtype:
                raise FormatError(
                    f"'{self.path}': {one.stored!r} is {info.dtype} of shape {info.shape}, no "
                    f"piece of {name!r}, {found[0].dtype} of shape {whole.shape}"
                )
        return TensorInfo(found[0].dtype, whole.shape, sum(info.nbytes for info in found))

    def array(self, name: str, progress: ByteProgress) -> np.ndarray[Any, Any]:
        whole = self._wholes.get(name)
        if whole is None:
            return self._shard(name).array(name, progress)
        self.info(name)  # which looks whether pieces are what the index says
        return whole.array(lambda stored: self._shard(stored).array(stored, progress))

    def part(self, name: str, wanted: Range, progress: ByteProgress) -> np.ndarray[Any, Any]:
        whole = self._wholes.get(name)
        if whole is None:
            return self._shard(name).part(name, wanted, progress)
        self.info(name)
        return whole.part(wanted, lambda stored: self._shard(stored).array(stored, progress))

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()
        self._shards = {}


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:  # replaced by a whole file
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def read_index(path: str) -> dict[str, Any]:
    """The index of a checkpoint: its `metadata` and its `weight_map` from tensors to files."""
    what = f"'{path}' is no valid index"
    with Content(path, mmap=False) as content:
        if content.size > safetensors.MAX_HEADER:
            raise FormatError(f"{what}: it has {content.size} bytes")
        try:
            text = content.bytes(0, content.size).decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"{what}: {error}") from None
    found = parse(text, what)
    files = found.get("weight_map") if isinstance(found, dict) else None
    metadata = found.get("metadata", {}) if isinstance(found, dict) else None
    if not isinstance(files, dict) or not isinstance(metadata, dict):
        raise FormatError(f"{what}: it has no weight_map from tensors to files")
    for name, file in files.items():
        if not isinstance(file, str) or file in ("", ".", "..") or re.search(r"[/\\\0]", file):
            raise FormatError(f"{what}: tensor {name!r} is said to be in {file!r}, no file beside")
    return {"weight_map": files, "metadata": metadata}


def is_shard(file: str) -> bool:
    """True for the name of one file of several."""
    return _SHARD.fullmatch(file) is not None


# --- Writing --------------------------------------------------------------------------------


def byte_count(size: int | str) -> int:
    """Bytes of a size such as 1000, "500MB" or "2GiB".

    >>> byte_count("5GB"), byte_count("1KiB")
    (5000000000, 1024)
    """
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", size)
        unit = _UNITS.get(match[2].upper()) if match else None
        count = int(float(match[1]) * unit) if match and unit else 0
    else:
        count = size
    if count < 1:
        raise DomainError(f"em.save got max_shard_size={size!r}; give bytes, or such as '5GB'")
    return count


def divide(tensors: Mapping[str, Tensor], limit: int) -> list[dict[str, Tensor]]:
    """The tensors in shards of at most `limit` bytes, in order; a larger tensor is one alone."""
    shards: list[dict[str, Tensor]] = [{}]
    filled = 0
    for name, x in tensors.items():
        if shards[-1] and filled + x.nbytes > limit:
            shards.append({})
            filled = 0
        shards[-1][name] = x
        filled += x.nbytes
    return shards


def save_whole(
    path: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], progress: ByteProgress
) -> None:
    """Save one file; a checkpoint in shards that had its place is removed then."""
    with replacing(path, guard=_instead_of_shards(path)) as file:
        safetensors.write(file, tensors, metadata, progress)


@contextmanager
def _instead_of_shards(path: str) -> Iterator[None]:
    """A block in which a whole file takes the place of shards, which are then removed."""
    directory, index = os.path.dirname(path) or ".", path + INDEX
    with exclusive(directory):
        yield
        if os.path.lexists(index):
            # Directories are read by their index, so this is the moment in which they change.
            old = files_of(index)
            os.unlink(index)
            sync_directory(directory)
            remove_shards(path, old, set())


def save_shards(
    path: str,
    shards: list[dict[str, Tensor]],
    metadata: Mapping[str, str],
    mark: Mapping[str, str],
    progress: ByteProgress,
) -> None:
    """Save shards and their index, which is `path` with a suffix; `metadata` are the index's.

    Every shard has the texts of `mark`.
    """
    directory, index = os.path.dirname(path) or ".", path + INDEX
    mark = {**mark, MARK: os.path.basename(index)}
    with exclusive(directory):
        old = files_of(index)
        files = _free_names(path, len(shards))
        try:
            for file, tensors in zip(files, shards, strict=True):
                with replacing(os.path.join(directory, file)) as stream:
                    safetensors.write(stream, tensors, mark, progress)
            with replacing(index) as stream:
                stream.write(_index_text(files, shards, metadata))
        except BaseException:
            if files_of(index).isdisjoint(files):  # else the save is done but for its end
                for file in files:
                    with suppress(OSError):
                        os.unlink(os.path.join(directory, file))
            raise
        with suppress(FileNotFoundError):
            os.unlink(path)  # the checkpoint in one file, which loads by its name preferred
        remove_shards(path, old, set(files))


def _index_text(
    files: list[str], shards: list[dict[str, Tensor]], metadata: Mapping[str, str]
) -> bytes:
    total = sum(x.nbytes for shard in shards for x in shard.values())
    placed = {name: file for file, shard in zip(files, shards, strict=True) for name in shard}
    index = {"metadata": {"total_size": total, **metadata}, "weight_map": placed}
    return (json.dumps(index, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def _stem(path: str) -> str:
    return os.path.basename(path).removesuffix(".safetensors")


def _free_names(path: str, count: int) -> list[str]:
    """Names for shards which no file has: the usual ones, or those of a further revision."""
    directory, stem = os.path.dirname(path) or ".", _stem(path)
    there = set(os.listdir(directory))
    revision = 1
    while True:
        head = stem if revision == 1 else f"{stem}-r{revision}"
        names = [f"{head}-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
        if there.isdisjoint(names):
            return names
        revision += 1


def files_of(index: str) -> set[str]:
    """The shards of a checkpoint that is about to be replaced, as far as its index is readable."""
    try:
        return set(read_index(index)["weight_map"].values())
    except (OSError, FormatError):
        return set()


def remove_shards(path: str, old: set[str], kept: set[str]) -> None:
    """Remove the shards of the checkpoint that was replaced, and of saves that were killed."""
    directory, head = os.path.dirname(path) or ".", _stem(path) + "-"
    index = os.path.basename(path) + INDEX
    for file in os.listdir(directory):
        if file in kept or not is_shard(file):
            continue
        full = os.path.join(directory, file)
        if file in old or (file.startswith(head) and _mark_of(full) == index):
            with suppress(OSError):
                os.unlink(full)


def _mark_of(path: str) -> str | None:
    try:
        with Content(path, mmap=False) as content:
            return safetensors.read_header(content).metadata.get(MARK)
    except (OSError, FormatError):
        return None
