"""Datasets: what has a length, and a sample for each number below it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ember_ml import backend as backends
from ember_ml.errors import DomainError
from ember_ml.training.data.rows import Rows

__all__ = ["Dataset", "Subset", "TensorDataset", "random_split"]


@runtime_checkable
class Dataset(Protocol):
    """Samples by number: lists, tensors, torch's datasets and many others are such.

    >>> from ember_ml import training
    >>> isinstance([1, 2], training.Dataset), isinstance(iter([1, 2]), training.Dataset)
    (True, False)
    """

    def __len__(self) -> int:
        """How many samples there are."""
        ...

    def __getitem__(self, index: Any, /) -> Any:
        """The sample of a number."""
        ...


class TensorDataset:
    """Tensors, NumPy arrays or data frames of the same length, and their rows as samples.

    >>> from ember_ml import training
    >>> data = training.TensorDataset(ops.arange(6), ops.ones((6, 2)))
    >>> len(data), data[2][0].item(), data[2][1].tolist()
    (6, 2, [1.0, 1.0])
    """

    def __init__(self, *tensors: Any) -> None:
        if not tensors:
            raise DomainError("TensorDataset takes at least one tensor")
        self.rows = Rows("TensorDataset", tensors)

    def __len__(self) -> int:
        return self.rows.count

    def __getitem__(self, index: Any, /) -> Any:
        return self.rows.at(index)


class Subset:
    """Some samples of a dataset, in a given order."""

    def __init__(self, data: Any, indices: Sequence[int] | np.ndarray[Any, Any]) -> None:
        self.data = data
        self.indices = np.asarray(indices, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any, /) -> Any:
        return self.data[int(self.indices[index])]


def random_split(
    data: Any, parts: Sequence[int] | Sequence[float], seed: int | None = None
) -> list[Any]:
    """Divide a dataset at random, by numbers of samples or by fractions that add up to 1.

    Tensors, arrays and tuples or dicts of them are divided by rows; what has samples by number
    gives datasets. The same seed divides in the same way on every backend.

    >>> from ember_ml import training
    >>> train, test = training.random_split(range(10), [0.8, 0.2], seed=0)
    >>> len(train), len(test), sorted([*train, *test]) == list(range(10))
    (8, 2, True)
    """
    from ember_ml.ops import random

    rows = data.rows if isinstance(data, TensorDataset) else Rows.of("random_split", data)
    total = len(data) if rows is None else rows.count
    sizes = _sizes(list(parts), total)
    generator = None if seed is None else random.Generator(seed)
    with backends.use_backend("numpy"):
        order = random.permutation(total, generator=generator).numpy()
    ends = np.cumsum([0, *sizes])
    chosen = [order[start:end] for start, end in pairwise(ends)]
    if rows is None:
        return [Subset(data, one) for one in chosen]
    found = [rows.taken(one) for one in chosen]
    return [TensorDataset(*one) for one in found] if isinstance(data, TensorDataset) else found


def _sizes(parts: list[Any], total: int) -> list[int]:
    if parts and all(isinstance(one, float) for one in parts):
        if min(parts) < 0 or abs(sum(parts) - 1.0) > 1e-6:
            raise DomainError(f"random_split got fractions {parts}; they add up to 1")
        ends = [round(total * part) for part in np.cumsum(parts)[:-1]]
        return [int(size) for size in np.diff([0, *ends, total])]
    if any(not isinstance(one, int) or one < 0 for one in parts) or sum(parts) != total:
        raise DomainError(
            f"random_split got {parts} for {total} samples; give their numbers, which add up to "
            f"{total}, or fractions such as [0.8, 0.2]"
        )
    return parts
