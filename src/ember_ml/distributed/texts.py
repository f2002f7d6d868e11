"""Texts between ranks: what was done, and what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ember_ml.backend.selection import use_backend
from ember_ml.ops import asarray

if TYPE_CHECKING:
    from ember_ml.distributed.communicator import Communicator

__all__ = ["exchange"]

# A text that fits goes with the first message; a length of 8 bytes stands before it.
_FIRST: Final = 1016
_WORD: Final = 8


def exchange(communicator: Communicator, text: str) -> list[str]:
    """The texts of all ranks, in their order, on every rank.

    >>> from ember_ml import distributed
    >>> exchange(distributed.initialize("numpy"), "done")
    ['done']
    """
    if communicator.world_size == 1:
        return [text]
    own = text.encode("utf-8", "backslashreplace")
    head = np.zeros(_WORD + _FIRST, np.uint8)
    head[:_WORD] = np.frombuffer(len(own).to_bytes(_WORD, "little"), np.uint8)
    head[_WORD : _WORD + len(own[:_FIRST])] = np.frombuffer(own[:_FIRST], np.uint8)
    rows = _gathered(communicator, head)
    counts = [int.from_bytes(row[:_WORD].tobytes(), "little") for row in rows]
    rows = rows[:, _WORD:]
    if max(counts) > _FIRST:
        # Of few different lengths: JAX compiles what gathers them for each.
        whole = np.zeros(1 << (max(counts) - 1).bit_length(), np.uint8)
        whole[: len(own)] = np.frombuffer(own, np.uint8)
        rows = _gathered(communicator, whole)
    return [row[:count].tobytes().decode("utf-8") for row, count in zip(rows, counts, strict=True)]


def _gathered(communicator: Communicator, row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with use_backend(communicator.backend):
        found = communicator.all_gather(asarray(row))
    return np.asarray(found.numpy()).reshape(communicator.world_size, len(row))
