"""What an open file is to the loader, whatever its format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ember_ml.errors import FormatError
from ember_ml.io.parts import Range, take
from ember_ml.io.progress import ByteProgress
from ember_ml.io.tree import METADATA_KEY, Leaf, Tree, decode, leaves

__all__ = ["Source", "TensorInfo"]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor as a file stores it: the name of its dtype, its shape, and its bytes."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class Source(ABC):
    """An open file of named arrays."""

    path: str
    # Texts beside the arrays; those of other programs included.
    metadata: Mapping[str, str] = {}

    @abstractmethod
    def names(self) -> Collection[str]:
        """The names of all arrays, in the order of the file."""

    @abstractmethod
    def info(self, name: str) -> TensorInfo:
        """What is known of an array without reading it."""

    @abstractmethod
    def array(self, name: str, progress: ByteProgress) -> np.ndarray[Any, Any]:
        """The values of an array, mapped or read."""

    def part(self, name: str, wanted: Range, progress: ByteProgress) -> np.ndarray[Any, Any]:
        """A range of an array; where files are mapped, the rest of it is not read."""
        return take(self.array(name, progress), wanted)

    def prepare(self, names: Collection[str]) -> None:  # noqa: B027 - one file is open already
        """Open what is needed to read these arrays."""

    @abstractmethod
    def close(self) -> None:
        """Close the file; arrays that were taken stay valid."""

    def tree(self) -> Tree:
        """The tree that was saved; a flat dict where the file was written by others."""
        text = self.metadata.get(METADATA_KEY)
        if text is None:
            return {name: Leaf(name) for name in self.names()}
        found = decode(text, f"'{self.path}': its tree")
        if {leaf.name for leaf in leaves(found)} != set(self.names()):
            raise FormatError(
                f"'{self.path}': its tree and its tensors have different names; "
                f"another program has changed it. em.io.open_file reads the tensors one by one"
            )
        return found
