"""em.save: a tree of tensors as a file, a checkpoint in shards, or an array of NumPy's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ember_ml.errors import DomainError, DTypeError, FormatError
from ember_ml.io.atomic import replacing
from ember_ml.io.formats import MODEL, WRITTEN, path_text, suffix_of
from ember_ml.io.numpy_files import require_writable, write_npy, write_npz
from ember_ml.io.progress import ByteProgress
from ember_ml.io.shards import INDEX, byte_count, divide, save_shards, save_whole
from ember_ml.io.tree import METADATA_KEY, Leaf, Tree, encode, flatten
from ember_ml.tensor import Tensor

__all__ = ["save"]

_SHARD_SIZE = "5GB"  # the custom of Hugging Face, for directories
# Without it, transformers refuses a file that has metadata; the tensors are laid out as PyTorch's.
_FORMAT = {"format": "pt"}


def save(
    path: str | os.PathLike[str],
    tree: Any,
    *,
    metadata: Mapping[str, str] | None = None,
    max_shard_size: int | str | None = None,
) -> None:
    """Save a tensor, or dicts, lists and tuples of tensors, numbers, strings and None.

    Objects of the classes that `em.io.savable` knows are saved as well, alone or in a tree.
    The suffix tells the format: `.safetensors`, also meant where there is none; `.npy` for one
    tensor, `.npz` for a flat dict. A directory or `....safetensors.index.json` gets a checkpoint
    in shards of at most `max_shard_size` ("5GB"), which splits a `.safetensors` file as well.
    The file is replaced at once, when all of the new one is on disk.

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> em.save(path, {"weights": [ops.ones(2), ops.zeros(3)], "epoch": 3})
    >>> em.load(path, backend="numpy")["epoch"], list(em.io.open_file(path))
    (3, ['weights.0', 'weights.1'])
    """
    text = path_text(path, "em.save")
    texts = _checked_metadata(metadata)
    structure, tensors = flatten(tree)
    bare = max_shard_size is not None and not os.path.splitext(text)[1]
    if os.path.isdir(text) or text.endswith(os.sep) or (bare and not os.path.lexists(text)):
        os.makedirs(text, exist_ok=True)
        text, suffix = os.path.join(text, MODEL), ""
    else:
        suffix = suffix_of(text, WRITTEN, "em.save")
    total = sum(x.nbytes for x in tensors.values())
    with ByteProgress(f"saving {os.path.basename(text)}", total) as progress:
        if suffix in (".npy", ".npz"):
            if texts or max_shard_size is not None:
                raise DomainError(f"em.save to {suffix} takes no metadata and makes no shards")
            _save_numpy(text, suffix, structure, tensors, progress)
            return
        texts = {**_FORMAT, **texts, METADATA_KEY: encode(structure)}
        if suffix == ".safetensors" and max_shard_size is None:
            save_whole(text, tensors, texts, progress)
            return
        shards = divide(tensors, byte_count(max_shard_size or _SHARD_SIZE))
        if len(shards) == 1 and suffix != INDEX:
            save_whole(text, tensors, texts, progress)
            return
        mark = {"format": texts.pop("format")}
        save_shards(_base(text), shards, texts, mark, progress)


def _base(path: str) -> str:
    """The path of the whole file, to which an index belongs."""
    base = path.removesuffix(INDEX)
    if not base.endswith(".safetensors"):
        raise FormatError(f"em.save names shards after '....safetensors', which '{base}' is not")
    return base


def _checked_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    texts: dict[Any, Any] = dict(metadata or {})  # what users give is not what types say
    for key, value in texts.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise DTypeError(
                f"em.save got metadata {key!r}: {value!r}; they are strings for strings. "
                f"Numbers can be leaves of the tree"
            )
        if key in (METADATA_KEY, "total_size"):
            raise DomainError(f"em.save writes the metadata {key!r} itself; take another name")
        try:
            (key + value).encode("utf-8")
        except UnicodeEncodeError:
            raise DomainError(f"em.save got metadata {key!r} that are no Unicode text") from None
    return texts


def _save_numpy(
    path: str, suffix: str, structure: Tree, tensors: Mapping[str, Tensor], progress: ByteProgress
) -> None:
    if suffix == ".npy":
        if not isinstance(structure, Leaf):
            raise DomainError(
                f"em.save to '{path}' takes one tensor; trees go to .safetensors, and flat dicts "
                f"of tensors to .npz as well"
            )
        x = tensors[structure.name]
        require_writable({"": x}, ".npy")
        with replacing(path) as file:
            write_npy(file, x, progress)
        return
    if not isinstance(structure, dict) or not all(
        isinstance(key, str) and isinstance(leaf, Leaf) for key, leaf in structure.items()
    ):
        raise DomainError(
            f"em.save to '{path}' takes a dict from names to tensors, and nothing nested; "
            f"trees go to .safetensors, one tensor to .npy"
        )
    named = {key: tensors[leaf.name] for key, leaf in structure.items()}
    require_writable(named, ".npz")
    with replacing(path) as file:
        write_npz(file, named, progress)
