"""Which format a path means."""

from __future__ import annotations

import os
from typing import Final

from ember_ml.errors import DTypeError, FormatError
from ember_ml.io.numpy_files import NpyFile, NpzFile
from ember_ml.io.safetensors import SafetensorsFile
from ember_ml.io.shards import INDEX, ShardedFile, is_shard
from ember_ml.io.source import Source
from ember_ml.io.torch_files import TorchFile

__all__ = ["open_source", "path_text", "suffix_of"]

TORCH: Final = (".pt", ".pth", ".bin")
READ: Final = (".safetensors", ".npy", ".npz", *TORCH, INDEX)
WRITTEN: Final = (".safetensors", ".npy", ".npz", ".safetensors" + INDEX)
MODEL: Final = "model.safetensors"  # what a directory holds, by the convention of Hugging Face
_TORCH_MODEL: Final = "pytorch_model.bin"
_ATTEMPTS: Final = 3


def path_text(path: str | os.PathLike[str], call: str) -> str:
    """A path as text; DTypeError where it is none, as in calls with the arguments exchanged."""
    try:
        return os.fsdecode(path)
    except TypeError:
        raise DTypeError(
            f"{call} takes the path first, not {type(path).__name__}: em.save(path, tree), "
            f"em.load(path)"
        ) from None


def suffix_of(path: str, known: tuple[str, ...], call: str) -> str:
    """The format of a path, by its suffix; one without a suffix is a safetensors file."""
    name = os.path.basename(path)
    if name.endswith(INDEX):
        return INDEX
    suffix = os.path.splitext(name)[1].lower()
    if not suffix:
        return ".safetensors"
    if suffix not in known:
        hint = f"; {suffix} is only read" if suffix in TORCH else ""
        raise FormatError(
            f"{call} knows no format for '{path}'{hint}; its formats are {', '.join(known)}, "
            f"and directories with a checkpoint"
        )
    return suffix


def open_source(path: str, mmap: bool, call: str = "em.load") -> Source:
    """Open a file, an index or a directory."""
    for _ in range(_ATTEMPTS):
        try:
            return _open(path, mmap, call)
        except FileNotFoundError:
            # A save may have put shards in the place of a whole file, or the other way round.
            if not os.path.isdir(path) and not os.path.lexists(path + INDEX):
                break
    return _open(path, mmap, call)


def _open(path: str, mmap: bool, call: str) -> Source:
    if os.path.isdir(path):
        path = _in_directory(path, call)
    elif not os.path.lexists(path) and os.path.lexists(path + INDEX):
        path += INDEX  # saved under this name, in shards
    suffix = suffix_of(path, READ, call)
    if suffix == ".npy":
        return NpyFile(path, mmap)
    if suffix == ".npz":
        return NpzFile(path)
    if suffix in TORCH:
        return TorchFile(path, mmap)
    if suffix == INDEX:
        return ShardedFile(path, lambda shard: _open_shard(shard, mmap, call))
    return SafetensorsFile(path, mmap)


def _open_shard(path: str, mmap: bool, call: str) -> Source:
    if suffix_of(path, READ, call) == INDEX or os.path.isdir(path):
        raise FormatError(f"'{path}' is no file of tensors, as an index says")
    return _open(path, mmap, call)


def _in_directory(path: str, call: str) -> str:
    """The checkpoint in a directory: an index before a whole file, safetensors before torch."""
    there = sorted(os.listdir(path))
    tensors = [name for name in there if name.endswith(".safetensors") and not is_shard(name)]
    indices = [name for name in there if name.endswith(".safetensors" + INDEX)]
    for name in (MODEL + INDEX, MODEL):
        if name in there:
            return os.path.join(path, name)
    found = (
        indices or tensors or [n for n in (_TORCH_MODEL + INDEX, _TORCH_MODEL) if n in there][:1]
    )
    if len(found) == 1:
        return os.path.join(path, found[0])
    if found:
        raise FormatError(f"{call}: '{path}' holds {', '.join(found)}; name the one you want")
    raise FileNotFoundError(
        f"{call}: '{path}' holds no checkpoint; it would have {MODEL} or {MODEL}{INDEX}, "
        f"and it has {', '.join(there[:8]) or 'no files'}"
    )
