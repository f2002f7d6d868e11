"""Small things that ranks tell each other from host to host: numbers, texts, states of metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ember_ml import dtypes
from ember_ml.distributed.communicator import Communicator
from ember_ml.tensor.core import Tensor

__all__ = ["gather", "gather_bytes"]

Array = np.ndarray[Any, Any]
# So many words go in the first message, the length among them: one message is enough for most.
_FIRST: Final = 64
_ARRAY: Final = "__array__"


def gather_bytes(communicator: Communicator, data: bytes) -> list[bytes]:
    """What each rank gives, in the order of ranks, on every rank; lengths may differ."""
    if communicator.world_size == 1:
        return [data]
    words = np.zeros(_FIRST, np.int64)
    words[0] = len(data)
    head = np.frombuffer(data[: (_FIRST - 1) * 8], np.uint8)
    words[1:].view(np.uint8)[: len(head)] = head
    rows = _rows(communicator, words)
    sizes = [int(size) for size in rows[:, 0]]
    longest = max(sizes) - (_FIRST - 1) * 8
    heads = [row[1:].tobytes()[:size] for row, size in zip(rows, sizes, strict=True)]
    if longest <= 0:
        return heads
    tail = np.frombuffer(data[(_FIRST - 1) * 8 :], np.uint8)
    more = np.zeros(-(-longest // 8), np.int64)
    more.view(np.uint8)[: len(tail)] = tail
    rest = _rows(communicator, more)
    return [
        head + row.tobytes()[: max(size - (_FIRST - 1) * 8, 0)]
        for head, row, size in zip(heads, rest, sizes, strict=True)
    ]


def _rows(communicator: Communicator, words: Array) -> Array:
    found: Array = communicator._guarded("all_gather", communicator._gather_words, words)
    return found


def gather(communicator: Communicator, value: Any) -> list[Any]:
    """A value of each rank on every rank: JSON, with tensors and arrays in it as arrays.

    What comes is the same on all ranks, a rank's own value included.
    """
    return [_unpacked(one) for one in gather_bytes(communicator, _packed(value))]


def _packed(value: Any) -> bytes:
    arrays: list[Array] = []
    text = json.dumps(_encoded(value, arrays)).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *[one.tobytes() for one in arrays]])


def _encoded(value: Any, arrays: list[Array]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _encoded(one, arrays) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(one, arrays) for one in value]
    array = np.asarray(value.detach().numpy() if isinstance(value, Tensor) else value)
    arrays.append(array)
    return {_ARRAY: array.dtype.name, "shape": list(array.shape)}


def _unpacked(data: bytes) -> Any:
    end = 8 + int.from_bytes(data[:8], "little")
    place = [end]

    def decoded(value: Any) -> Any:
        if isinstance(value, list):
            return [decoded(one) for one in value]
        if not isinstance(value, dict):
            return value
        if _ARRAY not in value:
            return {key: decoded(one) for key, one in value.items()}
        dtype = np.dtype(dtypes.to_dtype(value[_ARRAY]).numpy)
        count = int(np.prod(value["shape"], dtype=np.int64))
        found = np.frombuffer(data, dtype, count, place[0]).reshape(value["shape"])
        place[0] += found.nbytes
        return found.copy()

    return decoded(json.loads(data[8:end]))
