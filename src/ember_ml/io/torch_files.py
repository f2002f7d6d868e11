"""PyTorch's .pt, .pth and .bin, read by PyTorch with weights_only: no code of the file runs."""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ember_ml.backend import selection
from ember_ml.errors import BackendUnavailableError, DTypeError, FormatError
from ember_ml.io.content import Content
from ember_ml.io.progress import ByteProgress
from ember_ml.io.source import Source, TensorInfo
from ember_ml.io.tree import MAX_DEPTH, ROOT, Leaf, Tree

__all__ = ["TorchFile"]


class TorchFile(Source):
    """A file of torch.save: tensors by name, and the tree in which they lie."""

    def __init__(self, path: str, mmap: bool) -> None:
        self.path = path
        with Content(path, mmap=False):  # a missing file, or none at all, is told apart first
            pass
        try:
            self._backend = selection.load("torch")
        except BackendUnavailableError as error:
            raise BackendUnavailableError(
                f"'{path}' is a file of PyTorch, which alone reads it: pip install torch. "
                f"Saved as .safetensors, every backend could read it ({error})"
            ) from error
        self._natives: dict[str, Any] = {}
        self._tree = self._placed(_read(path, mmap), ())

    def names(self) -> Collection[str]:
        return self._natives.keys()

    def info(self, name: str) -> TensorInfo:
        native = self._native(name)
        dtype = self._backend.dtype_of(native)
        return TensorInfo(dtype.name, tuple(native.shape), native.numel() * dtype.itemsize)

    def array(self, name: str, progress: ByteProgress) -> np.ndarray[Any, Any]:
        array = self._backend.to_numpy(self._native(name))
        progress.advance(array.nbytes)
        return array

    def tree(self) -> Tree:
        return self._tree

    def close(self) -> None:
        self._natives = {}

    def _native(self, name: str) -> Any:
        native = self._natives[name]
        try:
            self._backend.dtype_of(native)
        except DTypeError as error:
            raise DTypeError(f"tensor {name!r} in '{self.path}': {error}") from None
        if native.layout != self._backend.module.torch.strided or native.device.type != "cpu":
            raise DTypeError(
                f"tensor {name!r} in '{self.path}' is {native.layout} on '{native.device}'; "
                f"dense tensors are read here"
            )
        return native

    def _placed(self, node: Any, path: tuple[str, ...]) -> Tree:
        """The tree with leaves in place of torch's tensors, which are kept by name."""
        if isinstance(node, self._backend.native_types):
            name = ".".join(path) or ROOT
            while name in self._natives:
                name += "~"
            self._natives[name] = node
            grad = bool(getattr(node, "requires_grad", False))
            return Leaf(name, backend="torch", requires_grad=grad)
        if len(path) > MAX_DEPTH:
            raise FormatError(f"'{self.path}' is nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, Mapping):
            return {k: self._placed(v, (*path, str(k))) for k, v in node.items()}
        if isinstance(node, list | tuple):
            items = [self._placed(v, (*path, str(i))) for i, v in enumerate(node)]
            return items if isinstance(node, list) else tuple(items)
        return node


def _read(path: str, mmap: bool) -> Any:
    import torch

    try:
        # Older files are no archives, and cannot be mapped.
        return torch.load(
            path, map_location="cpu", weights_only=True, mmap=mmap and zipfile.is_zipfile(path)
        )
    except OSError:
        raise
    except Exception as error:  # RuntimeError, UnpicklingError, EOFError, KeyError, ...
        first = str(error).strip().partition("\n")[0]
        raise FormatError(
            f"'{path}' is malformed, or holds more than tensors, numbers and texts in dicts and "
            f"lists, which em.load does not read, since it could run code: "
            f"{type(error).__name__}: {first}"
        ) from error
